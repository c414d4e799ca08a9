"""The how-to pages on the openai SDK and on LangGraph run as they stand."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite.store.run_store import RunStore
from gepa_lite.testing import OpenAIServer
from tests.chat_script import agent, task
from tests.triage import rows

pytest.importorskip("openai")
pytest.importorskip("langgraph")

HOWTO = Path(__file__).parents[1] / "docs" / "howto"
DATA = [{**row, "why": f"RULE:{row['kind']}"} for seed, count in ((1, 20), (2, 20), (3, 10)) for row in rows(count, seed)]


@pytest.mark.parametrize(
    ("page", "blocks", "script", "prompts"),
    [("openai-sdk.md", 4, task, ("gist", "route")), ("langgraph.md", 2, agent, ("agent",))],
)
def test_the_page_optimizes_what_it_shows(
    page: str, blocks: int, script: Any, prompts: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = re.findall(r"```python\n(.*?)```", (HOWTO / page).read_text("utf-8"), re.DOTALL)
    assert len(found) == blocks
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    script_module = types.ModuleType("script")
    # typed dicts look their annotations up in the module that they are of
    monkeypatch.setitem(sys.modules, "script", script_module)
    names = script_module.__dict__
    names["data"] = DATA
    with OpenAIServer(script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        try:
            for number, block in enumerate(found):
                # the pages' budget would pay for minutes of search
                exec(
                    compile(block.replace("rollouts=400", "rollouts=200"), f"{page}, block {number + 1}", "exec", dont_inherit=True), names
                )
        finally:
            names["proxy"].close()
            gl.use_prompts(None)
    result = names["result"]
    assert result.validation.after > result.validation.before
    assert set(result.program.prompts) == set(prompts)
    [folder] = [path.parent for path in tmp_path.rglob("run.db")]
    with RunStore.read(folder) as store:
        for rollout in store.rollouts():
            assert rollout.trace.modules == prompts
            assert rollout.usage.usd > 0
