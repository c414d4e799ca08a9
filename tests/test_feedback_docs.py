"""The page on feedback shows three failures of each function that judges, and says what each can't tell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "feedback.md").read_text("utf-8")
FUNCTIONS = [
    name
    for row in re.findall(r"^\| `\w+` \|(.*?)\|", PAGE, re.MULTILINE)
    for name in re.findall(r"`(\w+)`", row)
    if name not in ("judge_noise", "Equivalence")
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_function_has_three_failures_with_scores_below_one(name: str) -> None:
    section = re.search(rf"^### `\w+: {name}`.*?\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None
    scores = [float(score) for score in re.findall(r"^- (\d\.\d\d): \S", section[1], re.MULTILINE)]
    assert len(scores) >= 3
    assert max(scores) < 1


def test_the_table_names_every_module_of_feedback_and_the_limits_every_function() -> None:
    folder = Path(__file__).parents[1] / "feedback"
    named = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    helpers = {"__init__", "combine", "degrees", "english", "equivalence_child", "ifbench", "ifbench_custom"}
    assert {path.stem for path in folder.glob("*.py")} - helpers <= named
    limits = PAGE.split("## Limits")[1]
    assert [name for name in FUNCTIONS if f"`{name}`" not in limits] == []
