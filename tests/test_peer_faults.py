"""The faults of other optimizers: docs/peer-faults.md names a test for each, and those that no other file holds are here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite.search.reply import UnusableReply, extract_prompt
from gepa_lite.testing import ScriptedLM
from tests.triage import Triage, program, reflector, rows

DOCS = Path(__file__).parent.parent / "docs" / "peer-faults.md"


def test_each_fault_has_a_test_that_is_there() -> None:
    lines = [line for line in DOCS.read_text(encoding="utf-8").splitlines() if re.match(r"\| (gepa|dspy|the field)", line)]
    tests = "\n".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    for line in lines:
        names = re.findall(r"`(test_\w+)`", line)
        assert names, line
        for name in names:
            assert f"def {name}(" in tests, name
    for peer, count in (("gepa", 16), ("dspy", 7)):
        assert {int(n) for n in re.findall(rf"\| {peer} (\d+):", "\n".join(lines))} == set(range(1, count + 1))


@pytest.mark.parametrize(
    "reply",
    [
        "```\nfirst\n```\nand some prose between\n```\nsecond\n```",
        "Here is my advice: be brief.",
        "",
        "<think>they want a prompt, so I would",
        "<prompt>cut in the middle",
    ],
)
def test_gepa_6_no_part_of_a_broken_reply_becomes_a_prompt(reply: str) -> None:
    with pytest.raises(UnusableReply):
        extract_prompt(reply, "stop")


def test_gepa_12_rows_at_one_position_of_two_splits_share_no_rollout(tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []

    def feedback(example: gl.Example, output: gl.Outputs, trace: gl.Trace) -> gl.Feedback:
        (sent,) = {call.inputs["message"] for call in trace.calls}
        seen.append((example["message"], sent))
        return gl.Feedback(float(output.urgency == example["urgency"]), f"RULE:{example['kind']}")

    gl.optimize(
        program(), rows(8, 1), rows(8, 2), feedback=feedback, reflection_lm=reflector(), budget=gl.Budget(rollouts=60), run=tmp_path / "run"
    )
    assert len(seen) > 16
    assert all(own == sent for own, sent in seen)


def test_gepa_15_the_same_settings_can_be_used_twice(tmp_path: Path) -> None:
    common: dict[str, Any] = {"search": gl.Search(fan=2), "budget": gl.Budget(rollouts=80)}
    task = program()
    first, second = (
        gl.optimize(task, rows(8, 1), rows(8, 2), reflection_lm=reflector(), run=tmp_path / name, **common) for name in ("a", "b")
    )
    assert first.prompts == second.prompts
    assert list(first.state.proposals) == list(second.state.proposals)


class Failing(Triage):
    """It never gets as far as an answer."""

    def forward(self, message: str) -> gl.Outputs:
        raise OSError("the index is gone")


def test_gepa_13_a_program_that_always_fails_ends_within_its_budget(tmp_path: Path) -> None:
    failing = Failing(lm=ScriptedLM("never asked", name="task"))
    result = gl.optimize(
        failing, rows(8, 1), rows(8, 2), reflection_lm=reflector(), budget=gl.Budget(rollouts=60), run=tmp_path / "run", workers=4
    )
    assert result.validation.after == 0.0
    assert result.prompts == result.seed_prompts
    assert result.state.spend.rollouts <= 60


def test_the_field_an_unchanged_prompt_is_no_success(tmp_path: Path) -> None:
    def same(request: gl.Request) -> str:
        return f"<prompt>{request.messages[0]['content'].split('<current>')[1].split('</current>')[0].strip()}</prompt>"

    result = gl.optimize(
        program(),
        rows(8, 1),
        rows(8, 2),
        testset=rows(12, 3),
        reflection_lm=ScriptedLM(same, name="reflector"),
        budget=gl.Budget(rollouts=120),
        run=tmp_path / "run",
    )
    assert result.prompts == result.seed_prompts
    assert result.verdict == "not shown"
    assert "improved" not in str(result).splitlines()[0]
    assert len(result.candidates) == 1
