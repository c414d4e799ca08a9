"""The code of docs/howto/dspy.md runs as it stands, and the command line takes dspy programs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gepa_lite.cli.app import app
from tests.dspy_task import BETTER, dspy, serving

PAGE = Path(__file__).parents[1] / "docs" / "howto" / "dspy.md"
KINDS = ("fire", "flood", "dust", "noise")
DATA = [
    {"message": f"{kind} in room {number}.", "urgency": "high" if kind in ("fire", "flood") else "low", "why": f"RULE:{kind}"}
    for number in range(20)
    for kind in KINDS
]


@pytest.fixture(autouse=True)
def _settings_are_put_back() -> Iterator[None]:
    before = dspy.settings.lm
    yield
    dspy.configure(lm=before)


def answer(system: str, fields: dict[str, str]) -> Any:
    """Knows the rules that its prompt names; reflection adds those that the reviewers name."""
    text = fields[""]
    if "reviewer" in text:
        present = text.partition("<current>")[2].partition("</current>")[0]
        return f"<prompt>Sort it. {' '.join(sorted(set(re.findall(r'RULE:[a-z]+', text + present))))}</prompt>"
    if "gist" not in fields:
        return {"reasoning": "short", "gist": "x"}
    kind = fields["message"].split()[0]
    return {"urgency": ("high" if kind in ("fire", "flood") else "low") if f"RULE:{kind}" in system else "unknown"}


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 3
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"data": DATA}
    with serving(answer) as (server, lm):
        real = type(lm)
        monkeypatch.setattr(dspy, "LM", lambda model, **kw: real(model, api_base=server.base_url, api_key="k", num_retries=0, **kw))
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), names)
    assert "Verdict: improved" in capsys.readouterr().out
    assert "RULE:fire" in names["better"].route.signature.instructions
    assert list(names["program"].prompts) == [
        "gist.predict",
        *(f"gist.predict:{name}" for name in ("message", "reasoning", "gist")),
        "route",
        *(f"route:{name}" for name in ("message", "gist", "urgency")),
    ]


def test_the_command_line_runs_and_resumes_a_dspy_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shouting.py").write_text(
        "from tests.dspy_task import Shout, right\nimport dspy\nprogram = Shout()\nreflect = lambda messages: " + repr(BETTER) + "\n"
    )
    for name, words in (("train", "red green blue"), ("val", "black brown pink")):
        lines = [json.dumps({"word": word, "want": word.upper()}) for word in words.split()]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)

    def task(system: str, fields: dict[str, str]) -> Any:
        return BETTER if "reviewer" in fields[""] else {"reply": fields["word"].upper() if "capital" in system else fields["word"]}

    command = [
        "run",
        "--program",
        "shouting:program",
        "--feedback",
        "shouting:right",
        "--train",
        "train.jsonl",
        "--val",
        "val.jsonl",
        "--run",
        "first",
        "--json",
    ]
    with serving(task) as (server, lm):
        dspy.configure(lm=lm)
        first = CliRunner().invoke(app, command)
        assert first.exit_code == 0, first.output
        sent = server.calls
        again = CliRunner().invoke(app, ["resume", "first", "--json"])
        assert again.exit_code == 0, again.output
        assert server.calls == sent
    assert "in capital letters" in first.stdout
    refused = CliRunner().invoke(app, [*command, "--lm", "openai/gpt-4.1"])
    assert refused.exit_code != 0
    assert "dspy.configure" in refused.output
