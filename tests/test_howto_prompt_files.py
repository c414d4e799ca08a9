"""The how-to page on prompt files runs as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import gepa_lite as gl
from gepa_lite.cli.app import app
from gepa_lite.testing import OpenAIServer
from tests.triage import rows
from tests.wrapped_task import feedback

PAGE = (Path(__file__).parents[1] / "docs" / "howto" / "prompt-files.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task model answers right once the prompts hold the rule, which the reflection model writes."""

    def reply(messages: list[dict[str, Any]]) -> str:
        system = messages[0]["content"]
        if len(messages) == 1:
            text = re.findall(r"(Say in one sentence.*|Decide how urgent.*)", system)[0]
            return f"<prompt>{text}\nRULE: refunds are high.</prompt>"
        return ("high" if "refund" in messages[1]["content"] else "low") if "RULE" in system else "?"

    monkeypatch.chdir(tmp_path)
    listing = re.findall(r"```\nprompts/\n(.*?)```", PAGE, re.DOTALL)[0]
    (tmp_path / "prompts").mkdir()
    for line in listing.strip().splitlines():
        name, text = line.split(maxsplit=1)
        (tmp_path / "prompts" / name).write_text(text + "\n")
    before = dict(gl.prompts_from("prompts/"))
    data = [{**row, "message": f"{row['message']} refund" if row["urgency"] == "high" else row["message"]} for row in rows(24, 1)]
    names: dict[str, Any] = {"__name__": "page", "trainset": data[:8], "valset": data[8:16], "testset": data[16:]}
    names |= {"feedback": feedback, "budget": gl.Budget(rollouts=150)}
    with OpenAIServer(reply) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        first, second, yaml_keys = blocks("python")
        exec(compile(first, "prompt-files.md", "exec"), names)
        assert names["pipeline"].parts["route"].contract.form == "jinja"
        exec(compile(second, "prompt-files.md", "exec"), names)
        after = dict(gl.prompts_from("prompts/"))
        assert after == names["result"].prompts != before
        assert "{{ gist }}" in after["route"]

        (tmp_path / "service.yaml").write_text(blocks("yaml")[0])
        exec(compile(yaml_keys, "prompt-files.md", "exec"), names)
        assert names["files"]["route"] == "Decide how urgent the message is,\ngiven {{ gist }}."
    for name, text in before.items():
        next((tmp_path / "prompts").glob(f"{name}.*")).write_text(text + "\n")
    dry, written = blocks("console")[0].strip().splitlines()
    for command in (dry, written):
        assert dict(gl.prompts_from("prompts/")) == before
        done = CliRunner().invoke(app, shlex.split(command)[1:])
        assert done.exit_code == 0, done.output
    assert dict(gl.prompts_from("prompts/")) == after
