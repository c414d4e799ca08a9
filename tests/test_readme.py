"""The README's code runs as it stands, on scripted models in place of the paid one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import gepa_lite as gl
from gepa_lite.testing import ScriptedLM
from tests.triage import RULES, answer, reflect, rows

README = Path(__file__).parents[1] / "README.md"


def test_the_code_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"<!-- tested by .*? -->\n```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)

    def reply(request: gl.Request) -> str:
        text = request.messages[0]["content"]
        return reflect(request) if "<current>" in text else answer(request)

    monkeypatch.setattr("gepa_lite.program.program.open_lm", lambda spec: ScriptedLM(reply, usd_per_token=1e-7))
    monkeypatch.chdir(tmp_path)
    for name, count, seed in (("train", 24, 1), ("val", 16, 2), ("test", 40, 3)):
        lines = [json.dumps({**row, "why": f"RULE:{row['kind']}"}) for row in rows(count, seed)]
        Path(f"{name}.jsonl").write_text("\n".join(lines))
    names: dict[str, object] = {}
    exec(compile(code, str(README), "exec"), names)
    assert "Verdict: improved" in capsys.readouterr().out
    prompts = names["prompts"]
    assert isinstance(prompts, gl.Prompts)
    assert any(f"rule {kind}" in prompts["route"] for kind in RULES)
