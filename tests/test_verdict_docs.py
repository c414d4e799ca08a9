"""The example of docs/verdict.md runs as it stands and prints what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "verdict.md"


def test_the_example_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PAGE.read_text("utf-8")
    (code,) = re.findall(r"<!-- tested by .*? -->\n```python\n(.*?)```", text, re.DOTALL)
    (shown,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(PAGE), "exec"), {"__name__": "page"})
    printed = capsys.readouterr().out.splitlines()
    lines = [line for line in shown.splitlines() if line]
    assert len(lines) > 15
    assert [line for line in lines if line not in printed] == []
