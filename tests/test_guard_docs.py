"""The rigged run of docs/leak-guard.md runs as it stands and prints what the page shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gepa_lite.core.events import ProposalStatus

PAGE = Path(__file__).parents[1] / "docs" / "leak-guard.md"


def _page() -> tuple[str, list[str]]:
    text = PAGE.read_text("utf-8")
    (code,) = re.findall(r"<!-- tested by .*? -->\n```python\n(.*?)```", text, re.DOTALL)
    return code, [line for shown in re.findall(r"```text\n(.*?)```", text, re.DOTALL) for line in shown.splitlines() if line]


@pytest.fixture(scope="module")
def rigged(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the page's code defines and prints."""
    import contextlib
    import io

    patch = pytest.MonkeyPatch()
    patch.setenv("GEPA_LITE_RUNS", str(tmp_path_factory.mktemp("runs")))
    names: dict[str, Any] = {"__name__": "page"}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(_page()[0], str(PAGE), "exec"), names)
    yield names, printed.getvalue().splitlines()
    patch.undo()


def test_the_page_shows_what_is_printed(rigged: Any) -> None:
    shown = _page()[1]
    assert len(shown) > 20
    assert [line for line in shown if line not in rigged[1]] == []


def test_a_run_that_copies_answers_looks_perfect_and_the_sealed_test_set_shows_nothing(rigged: Any) -> None:
    names, _ = rigged
    result = names["rigged"]("off")
    assert (result.validation.after, result.validation.before) == (1.0, 0.45)
    assert result.verdict == "not shown"
    assert result.test.gain == 0.0
    assert result.optimism == pytest.approx(0.55)
    assert result.findings == []
    assert result.prompts == result.seed_prompts, "what is handed back is the seed"
    assert names["val"][0]["message"] in result.winner_prompts["route"]


def test_the_guard_refuses_the_same_run_before_a_rollout_is_paid_for(rigged: Any) -> None:
    result = rigged[0]["result"]
    proposals = [proposal for proposal in result.state.proposals if proposal.status != "skipped"]
    assert proposals
    status: ProposalStatus = "rejected"
    assert {(p.status, p.code, p.after) for p in proposals} == {(status, "leak", ())}
    assert all(p.spend.reflection.calls == 2 and p.spend.proposals == 1 for p in proposals), "asked once more"
    assert len(result.candidates) == 1
    assert result.validation.gain == 0.0
    examples = {row["message"] for row in [*rigged[0]["train"], *rigged[0]["val"]]}
    assert not any(message in text for text in result.prompts.values() for message in examples)
    assert {found.finding.rule for found in result.findings} == {"copied_input"}


def test_a_warning_lets_it_through_and_is_told(rigged: Any) -> None:
    result = rigged[0]["rigged"]("warn")
    assert result.validation.after == 1.0
    assert result.findings
    assert all(found.in_winner and not found.finding.blocks and not found.mended for found in result.findings if found.step == 0)
    assert "warned of: 3 (copied_input 60)" in str(result)
    assert "in the winner's line, route: copied_input: it copies 'In room 100 the" in str(result)
