"""The how-to pages on production code and on a CI gate run as they stand."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient
from typer.testing import CliRunner

import gepa_lite as gl
from gepa_lite.cli.app import app
from gepa_lite.testing import OpenAIServer, ScriptedLM
from tests import triage
from tests.triage import answer, program, reflector, rows

HOWTO = Path(__file__).parents[1] / "docs" / "howto"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with ``triage.py`` on the path, and a registry whose second version is current."""
    result = gl.optimize(
        program(),
        rows(24, 1),
        rows(16, 2),
        testset=rows(40, 3),
        reflection_lm=reflector(),
        budget=gl.Budget(rollouts=300),
        run=tmp_path / "run",
    )
    bundle = result.save(tmp_path / "triage.prompts.json")
    registry = gl.Registry(tmp_path / "prompts")
    for why in ("first", "second"):
        registry.promote(registry.add(bundle, why=why), why=why)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "triage", triage)
    return tmp_path


def test_the_service_answers_from_the_current_version(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def reply(messages: list[dict[str, Any]]) -> str:
        seen.append(messages)
        return "high"

    blocks = re.findall(r"```python\n(.*?)```", (HOWTO / "fastapi.md").read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 2
    with OpenAIServer(reply) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        names: dict[str, Any] = {"__name__": "service"}
        for block in blocks:
            exec(compile(block, "fastapi.md", "exec"), names)
        client = TestClient(names["app"])
        prompts = gl.load_prompts(shop / "prompts")
        assert client.post("/triage", params={"message": "a refund"}).json() == {"urgency": "high"}
        assert seen[-1] == [{"role": "system", "content": prompts["route"]}, {"role": "user", "content": "a refund"}]
        names["program"] = triage.Triage(lm=ScriptedLM(answer, name="task"))
        assert client.post("/triage/program", params={"message": "a refund number 1"}).json() == {"urgency": "high"}
        assert client.get("/health").json() == {"problem": None}
        (shop / "prompts" / "registry.json").write_text("{")
        assert client.post("/triage", params={"message": "another"}).json() == {"urgency": "high"}
        assert client.get("/health").json()["problem"]


def made() -> Any:
    """What the gate's command makes."""
    return program()


def test_the_workflow_runs_the_gate(shop: Path) -> None:
    text = (HOWTO / "ci-gate.md").read_text("utf-8")
    workflow = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0])
    command = next(step["run"] for step in workflow["jobs"]["recheck"]["steps"] if "recheck" in step.get("run", ""))
    words, target = command.split(" > ")
    assert target == "recheck.json"
    arguments = ["tests.test_howto_production:made" if word == "triage:Triage" else word for word in shlex.split(words)[1:]]
    (shop / "data").mkdir()
    (shop / "data" / "recheck.jsonl").write_text("\n".join(map(json.dumps, rows(40, 5))))
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["decision"] == "keep"


def test_the_page_names_the_codes_that_the_command_has() -> None:
    text = (HOWTO / "ci-gate.md").read_text("utf-8")
    reference = (HOWTO.parent / "cli.md").read_text("utf-8")
    for code, word in (("7", "below their seed"), ("8", "shipped with"), ("9", "no score")):
        assert re.search(rf"\| {code} \| recheck:.*{word}", reference)
        assert f"| {code} |" in text
