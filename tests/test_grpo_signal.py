"""A training that can't move says so: groups without a gradient in the record, a notice after several such updates, and one before the first where the seed is never readable. No torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gepa_lite as gl
from gepa_lite.baselines.grpo.procedure import GRPO
from gepa_lite.baselines.grpo.rows import Episode, GroupBuilder, SampledCall
from gepa_lite.baselines.grpo.settings import Training
from gepa_lite.baselines.grpo.signal import FLAT_IN_A_ROW, Signal, signal_of, stall_words, unreadable_words
from gepa_lite.baselines.optimizer import Optimizer
from gepa_lite.core.events import Proposed
from gepa_lite.core.feedback import Objective
from gepa_lite.lm.policy import Draw, PolicyLM
from tests.letters_engine import LettersBackend, LettersEngine

EXAMPLES = [{"text": f"text {place}", "label": "low"} for place in range(24)]


class Name(gl.Program):
    """Name the label."""

    label = gl.Module("text -> label: Literal['low', 'high']", "Name the label.", max_tokens=8, temperature=1.0, retries=0)

    def forward(self, text: str) -> gl.Outputs:
        return self.label(text=text)


def trained(
    reply: Callable[[Draw], str], folder: Path, monkeypatch: pytest.MonkeyPatch, feedback: Any = None, **settings: Any
) -> gl.Result[Any]:
    monkeypatch.setattr("gepa_lite.lm.policy.lm.need", lambda *modules: None)
    training = Training(**{"steps": 6, "examples": 2, "group": 4, "validate_every": 3, **settings})
    each = Optimizer("grpo", procedure=GRPO(training, backend=lambda calls: LettersBackend()))
    judge = feedback or (lambda example, output: float(output.label == example["label"]))
    program = Name(lm=PolicyLM(LettersEngine(reply), "fake"))
    return each(program, EXAMPLES[:16], EXAMPLES[16:], feedback=judge, budget=gl.Budget(rollouts=10_000), run=folder)


def sampled(words: list[str]) -> Callable[[Draw], str]:
    return lambda draw: words[draw.seed % len(words)]


def told(result: gl.Result[Any], words: str) -> list[str]:
    return [notice for notice in result.notices if words in notice]


def test_a_training_that_moves_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = trained(sampled(["low", "high", "none"]), tmp_path, monkeypatch)
    first = result.state.proposals[0]
    assert first.code == "candidate"
    assert first.reason == "3 updates, loss first and last 0.25, 0.25"
    assert (first.shown["groups"], first.shown["flat_updates"]) == (6, 0)
    assert not told(result, "gradient")
    assert not told(result, "validation gave")


@pytest.mark.parametrize(("reply", "score", "words"), [("low", 1.0, "Every score is the best"), ("high", 0.0, "Every score is the worst")])
def test_equal_scores_are_on_record_and_told_once(
    reply: str, score: float, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # validation is not perfect, or the run would end before it began
    def judge(example: Any, output: Any) -> float:
        return 0.5 if example["text"] in {each["text"] for each in EXAMPLES[16:]} else float(output.label == example["label"])

    result = trained(sampled([reply]), tmp_path, monkeypatch, judge, steps=3 * FLAT_IN_A_ROW)
    proposals: list[Proposed] = list(result.state.proposals)
    assert {(p.status, p.code, p.shown["groups"], p.shown["flat_groups"], p.shown["flat_updates"]) for p in proposals} == {
        ("skipped", "unmoved", 6, 6, 3)
    }
    assert all("3 of 3 times no gradient" in proposal.reason for proposal in proposals)
    (notice,) = told(result, "had no gradient")
    assert f"{FLAT_IN_A_ROW} updates in a row" in notice
    assert words in notice
    assert ("Training(group=), now 4" in notice) == (score == 0.0)
    assert result.state.stopped is not None
    assert result.state.stopped.reason == "the training is done"
    assert not told(result, "validation gave")


@pytest.mark.parametrize(("steps", "flat"), [(8, [3, 2, 2]), (10, [3, 2, 3, 1])])
def test_an_update_with_a_gradient_begins_the_count_anew(
    steps: int, flat: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # updates 0 to 3 are flat, 4 is not, and those after it are: two examples an update, in their order
    live = {each["text"] for each in EXAMPLES[8:10]}

    def judge(example: Any, output: Any) -> float:
        return float(output.label == "low") if example["text"] in live else 0.25

    result = trained(sampled(["low", "high", "low"]), tmp_path, monkeypatch, judge, steps=steps)
    assert [proposal.shown["flat_updates"] for proposal in result.state.proposals] == flat
    assert len(told(result, "had no gradient")) == (steps - 5 >= FLAT_IN_A_ROW)


def test_a_seed_that_is_never_readable_is_told_before_the_first_update_and_not_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    reply = sampled(["none"])
    plain = LettersBackend.train
    monkeypatch.setattr(LettersBackend, "train", lambda self, course: (order.append("train"), plain(self, course))[1])
    monkeypatch.setattr("gepa_lite.session.Session.notice", lambda self, text: (order.append(text), self.notices.append(text))[1])
    result = trained(reply, tmp_path, monkeypatch)
    (notice,) = told(result, "the seed's validation gave")
    assert notice.startswith(
        "None of the 8 rollouts of the seed's validation gave an answer that can be scored, 8 of them since the reply could not be read"
    )
    assert order.index(notice) < order.index("train")
    assert result.costs.logical.rollouts == 8 + 6 * 8
    again = trained(reply, tmp_path, monkeypatch)
    assert not told(again, "validation gave")
    assert list(again.state.proposals) == list(result.state.proposals)


def test_one_readable_reply_is_enough_for_no_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last = tuple(map(ord, EXAMPLES[-1]["text"]))
    result = trained(
        lambda draw: "high" if any(draw.prompt_ids[i : i + len(last)] == last for i in range(len(draw.prompt_ids))) else "none",
        tmp_path,
        monkeypatch,
    )
    assert not told(result, "validation gave")


scores = st.one_of(st.none(), st.sampled_from([0.0, 0.1, 0.3, 1.0]))
groups = st.lists(st.tuples(st.sampled_from("abc"), scores, st.integers(0, 2)), max_size=12)


@given(groups, st.sampled_from(["rollout", "module"]), st.booleans(), st.data())
def test_a_group_is_flat_where_no_row_of_it_has_an_advantage(
    given_: list[tuple[str, float | None, int]], baseline: Any, scaled: bool, data: st.DataObject
) -> None:
    call = SampledCall("m", (1,), (2,), (-0.5,))
    episodes = [Episode(example, (call,) * count, score) for example, score, count in given_]
    rows = GroupBuilder(baseline, scaled).rows(episodes)
    kept = [row for row in rows if data.draw(st.booleans())]
    found = signal_of(episodes, kept)
    names = {episode.example_id for episode in episodes}
    moving = {episodes[row.episode].example_id for row in kept if row.advantage}
    assert (found.groups, found.flat) == (len(names), len(names - moving))
    assert found.still == (not moving)
    without = {name for name in names if all(e.reward is None for e in episodes if e.example_id == name)}
    assert found.missing == len(without)
    silent = {name for name in names - without if all(not row.trained for row in kept if episodes[row.episode].example_id == name)}
    assert found.idle == len(silent)
    # a whole batch in which no two scores of one example differ has no gradient at all
    if kept == rows and all(len({e.reward for e in episodes if e.example_id == name} - {None}) <= 1 for name in names):
        assert found.still


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (Signal(10, 10, 0, 0, frozenset({0.5})), "of their 10 groups 10 with all scores equal. Scores of one example must differ"),
        (Signal(10, 10, 4, 0, frozenset({0.0})), "6 with all scores equal, 4 with no score, for outages. Every score is the worst"),
        (Signal(10, 10, 10, 0), "10 with no score, for outages. Look at what failed."),
        (Signal(10, 10, 0, 10, frozenset({0.0})), "10 with no reply of a trained module. Is the module asked at all?"),
    ],
)
def test_the_notice_names_cause_and_remedy(seen: Signal, words: str) -> None:
    assert words in stall_words([Signal()] * 4 + [seen], Objective(), 8, 1.0)


def test_nothing_is_said_of_no_rollouts() -> None:
    assert unreadable_words("the seed", [], 8, 1.0) is None
