"""The baselines: on one ledger, within one budget, with the same record, verdict and resume as our own search."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite.baselines import OPTIMIZERS, Optimizer, optimizer
from gepa_lite.baselines.compare import Point, curve, read_seeds
from gepa_lite.baselines.demonstrations import FewShot
from gepa_lite.baselines.desk import Desk
from gepa_lite.baselines.guest import KINDS
from gepa_lite.baselines.rewriting import BestOfN
from gepa_lite.core.call import Usage
from gepa_lite.core.events import Event, Proposed, Stopped, Validated
from gepa_lite.search.state import RunState
from gepa_lite.search.step import Course
from gepa_lite.search.trail import Trail
from gepa_lite.store.run_store import RunStore
from gepa_lite.testing import ScriptedLM
from tests.triage import answer, program, reflect, rows

TRAIN, VALIDATION, TEST = rows(24, 1), rows(16, 2), rows(20, 3)
BUDGET = gl.Budget(rollouts=160)


def rewriting() -> ScriptedLM:
    """Rewrites at random: every third rewrite knows all rules, and upstream's template is answered in its own form."""

    def reply(request: gl.Request) -> str:
        text = str(request.messages[-1]["content"])
        if "```" in text:
            return "```\n" + text.split("```")[1].strip() + " rule refund. rule outage.\n```"
        return (
            reflect(request)
            if "reviewer" in text
            else "<prompt>" + text.split("<current>")[1].split("</current>", maxsplit=1)[0].strip() + " rule refund.</prompt>"
        )

    return ScriptedLM(reply, name="reflection")


def optimized(
    name: str, folder: Path, *, task: ScriptedLM | None = None, seed: int = 0, budget: gl.Budget = BUDGET, **settings: Any
) -> Any:
    each = optimizer(name, **settings)
    triage = program() if task is None else type(program())(lm=task)
    return each(triage, TRAIN, VALIDATION, testset=TEST, reflection_lm=rewriting(), budget=budget, seed=seed, run=folder, workers=4)


def events_of(folder: Path) -> list[Event]:
    with RunStore.read(folder) as store:
        return store.events()


PROMPT_OPTIMIZERS = [name for name in OPTIMIZERS if "grpo" not in name and name not in KINDS]
"""Those that train weights need an open model: see test_grpo.py."""


@pytest.mark.parametrize("name", PROMPT_OPTIMIZERS)
def test_each_optimizer_ends_in_a_result_with_a_verdict_within_the_budget(name: str, tmp_path: Path) -> None:
    result = optimized(name, tmp_path / "run")
    assert result.finished
    assert result.test is not None
    assert result.test.n == len(TEST)
    assert result.costs.logical.rollouts <= BUDGET.rollouts
    assert len(result.candidates) > 1
    events = events_of(tmp_path / "run")
    assert sum(event.spend.rollouts for event in events if hasattr(event, "spend")) == result.costs.logical.rollouts
    with RunStore.read(tmp_path / "run") as store:
        # no rollout was paid for that is not charged
        assert store.paid().total.calls <= 2 * result.costs.logical.rollouts + result.costs.logical.proposals * 2
    assert result.verdict in ("improved", "not shown", "worse")


@pytest.mark.parametrize("name", PROMPT_OPTIMIZERS)
def test_a_resume_takes_the_same_course_and_pays_for_nothing_twice(name: str, tmp_path: Path) -> None:
    whole_task = ScriptedLM(answer, name="task")
    optimized(name, tmp_path / "whole", task=whole_task)
    calls = 0

    def failing(request: gl.Request) -> str:
        nonlocal calls
        calls += 1
        if calls == 90:
            raise KeyboardInterrupt
        return answer(request)

    first = ScriptedLM(failing, name="task")
    with pytest.raises(BaseException, match=r".*"):
        optimized(name, tmp_path / "run", task=first)
    second = ScriptedLM(answer, name="task")
    optimized(name, tmp_path / "run", task=second)
    assert events_of(tmp_path / "run") == events_of(tmp_path / "whole")
    # the interrupted call was sent, and once more after it; calls in flight beside it may have been lost
    assert second.calls <= whole_task.calls - 89 + 4


def test_two_runs_of_one_seed_are_equal_and_another_seed_draws_anew(tmp_path: Path) -> None:
    for name in ("few_shot", "gepa_lite"):
        logs = [
            events_of(tmp_path / f"{name}{place}")
            for place, seed in enumerate((0, 0, 1))
            if optimized(name, tmp_path / f"{name}{place}", seed=seed)
        ]
        assert logs[0] == logs[1]
        assert logs[0] != logs[2]


def test_best_of_n_rewrites_the_seed_alone_and_reads_no_feedback(tmp_path: Path) -> None:
    result = optimized("best_of_n", tmp_path / "run", n=3)
    proposals = [event for event in events_of(tmp_path / "run") if isinstance(event, Proposed)]
    assert len(proposals) <= 3
    assert {proposal.parent for proposal in proposals} == {0}
    assert all(not proposal.example_ids for proposal in proposals)
    assert result.stopped


def test_random_rewrite_climbs_from_the_best_so_far(tmp_path: Path) -> None:
    optimized("random_rewrite", tmp_path / "run", n=4)
    parents = [event.parent for event in events_of(tmp_path / "run") if isinstance(event, Proposed)]
    assert parents[0] == 0
    assert any(parent > 0 for parent in parents[1:])


def test_demonstrations_are_calls_that_the_seed_solved(tmp_path: Path) -> None:
    result = optimized("few_shot", tmp_path / "run", demonstrations=2, candidates=3)
    texts = result.candidates[1].candidate.texts
    assert all("Examples of good answers:" in text for text in texts.values())
    assert any(f"message: {row['message']}" in texts["gist"] for row in TRAIN)
    assert not any(row["message"] in text for row in (*VALIDATION, *TEST) for text in texts.values())
    with RunStore.read(tmp_path / "run") as store:
        proposal = next(event for event in store.events() if isinstance(event, Proposed))
    assert proposal.proposer == "demonstrations"
    assert len(proposal.example_ids) == len(TRAIN)


def test_few_shot_without_a_success_says_so(tmp_path: Path) -> None:
    result = optimizer("few_shot", candidates=3)(
        program(), TRAIN, VALIDATION, feedback=lambda example, output: 0.0, reflection_lm=rewriting(), budget=BUDGET, run=tmp_path / "run"
    )
    proposals = [event for event in events_of(tmp_path / "run") if isinstance(event, Proposed)]
    assert {(proposal.status, proposal.code) for proposal in proposals} == {("skipped", "no_demonstrations")}
    assert result.winner_index == 0


def test_upstream_gepa_is_charged_for_a_rollout_once_and_stops_at_our_budget(tmp_path: Path) -> None:
    pytest.importorskip("gepa")
    budget = gl.Budget(rollouts=len(VALIDATION) + 2 * len(TEST) + 30)
    result = optimized("gepa", tmp_path / "run", budget=budget)
    assert result.costs.logical.rollouts <= budget.rollouts
    events = events_of(tmp_path / "run")
    stopped = next(event for event in events if isinstance(event, Stopped))
    assert stopped.code == "budget"
    assert all(event.proposer == "gepa" for event in events if isinstance(event, Proposed))


def test_a_candidate_of_another_optimizer_that_breaks_the_contract_is_not_validated(tmp_path: Path) -> None:
    pytest.importorskip("gepa")
    result = optimizer("gepa")(
        program(),
        TRAIN,
        VALIDATION,
        reflection_lm=rewriting(),
        budget=BUDGET,
        run=tmp_path / "run",
        contract={"gist": gl.Contract(banned=("rule refund",)), "route": gl.Contract(banned=("rule refund",))},
    )
    events = events_of(tmp_path / "run")
    assert any(isinstance(event, Proposed) and event.code == "contract" for event in events)
    assert not any(isinstance(event, Validated) for event in events)
    assert result.winner_index == 0


def test_compare_gives_one_table_and_one_plot(tmp_path: Path) -> None:
    told: list[str] = []

    def compared() -> gl.baselines.Comparison:
        return gl.compare(
            program(),
            TRAIN,
            VALIDATION,
            testset=TEST,
            reflection_lm=rewriting(),
            optimizers=["gepa_lite", optimizer("best_of_n", n=4), "few_shot"],
            seeds=(0, 1),
            budget=BUDGET,
            folder=tmp_path / "runs",
            on_outcome=lambda outcome: told.append(f"{outcome.optimizer} {outcome.seed}"),
        )

    found = compared()
    assert told == ["gepa_lite 0", "gepa_lite 1", "best_of_n 0", "best_of_n 1", "few_shot 0", "few_shot 1"]
    assert found.tested
    lines = str(found).splitlines()
    assert len(lines) == 4
    assert lines[0].split()[:3] == ["optimizer", "test:", "seed"]
    for name, line in zip(("gepa_lite", "best_of_n", "few_shot"), lines[1:], strict=True):
        rows = found.of(name)
        assert line.split()[0] == name
        assert f"{sum(row.after for row in rows) / 2:.3f}" in line
    for outcome in found.outcomes:
        assert outcome.points[0].rollouts == len(VALIDATION)
        scores = [point.score for point in outcome.points]
        assert scores == sorted(scores)
        assert scores[-1] == outcome.validation
    drawn = found.plot(tmp_path / "compare.svg")
    assert drawn.read_text(encoding="utf-8").startswith("<?xml")
    with pytest.raises(gl.UsageError, match="one of rollouts, tokens, usd, seconds"):
        found.plot(tmp_path / "euro.svg", over="euro")  # type: ignore[arg-type]
    again = compared()
    assert again.to_data()["outcomes"] == [{**row, "seconds": pytest.approx(row["seconds"], abs=60)} for row in found.to_data()["outcomes"]]


def test_a_curve_is_the_mean_of_its_seeds_from_where_all_have_begun() -> None:
    one = [Point(0.2, 10, 0, None, 0.0), Point(0.6, 30, 0, None, 0.0)]
    two = [Point(0.4, 20, 0, None, 0.0), Point(0.8, 40, 0, None, 0.0)]
    places, scores = curve([one, two], "rollouts")
    assert places == [20, 30, 40]
    assert scores == pytest.approx([0.3, 0.5, 0.7])
    assert curve([one], "usd") == ([], [])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: optimizer("best_of_m"), "Did you mean 'best_of_n'"),
        (lambda: optimizer("few_shot", shots=3), "takes no such setting"),
        (lambda: BestOfN(n=0), "at least 1"),
        (lambda: FewShot(demonstrations=0), "demonstrations=0"),
        (lambda: gl.compare(program(), TRAIN, optimizers=["gepa_lite"]), "needs a budget"),
        (lambda: gl.compare(program(), TRAIN, optimizers=["few_shot", "few_shot"], budget=BUDGET), "label="),
        (lambda: gl.compare(program(), TRAIN, optimizers=[], budget=BUDGET), "at least one optimizer"),
        (lambda: read_seeds("a"), "whole numbers"),
    ],
)
def test_bad_input_is_refused_in_words(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(gl.UsageError, match=words):
        call()


def test_seeds_are_read_as_lists_and_ranges() -> None:
    assert read_seeds("0,2,5-7") == [0, 2, 5, 6, 7]


def test_an_optimizer_of_ones_own_is_a_procedure(tmp_path: Path) -> None:
    mine = Optimizer("mine", gl.Search.paper(), BestOfN(n=2))
    result = mine(program(), TRAIN, VALIDATION, reflection_lm=rewriting(), budget=BUDGET, run=tmp_path / "run")
    assert result.state.started.settings["optimizer"] == {"name": "best_of_n", "n": 2}


class Breaking:
    """Books an update of weights, then ends as a package that raised."""

    def settings(self) -> dict[str, Any]:
        return {"name": "breaking"}

    def __call__(self, trail: Trail, course: Course) -> RunState:
        course.ports.book("training/0", Usage(1, 10, 5, 0.0), 7.0, ("training", 0))
        return Desk(trail, course, "breaking").close("failed", "it raised")


def test_a_comparison_says_which_search_failed_and_what_training_took(tmp_path: Path) -> None:
    each = [optimizer("best_of_n", n=1), Optimizer("breaking", gl.Search.paper(), Breaking())]
    found = gl.compare(program(), TRAIN, VALIDATION, reflection_lm=rewriting(), optimizers=each, budget=BUDGET, folder=tmp_path)
    assert [(outcome.failed, outcome.training_seconds) for outcome in found.outcomes] == [(False, 0.0), (True, 7.0)]
    lines = [line.rstrip() for line in str(found).splitlines()]
    assert lines[0].endswith("training s")
    assert [line.split()[-1] for line in lines[1:3]] == ["0", "7"]
    assert lines[3] == "breaking, seed 0: it raised"
    assert "training s" not in str(
        gl.compare(program(), TRAIN, VALIDATION, reflection_lm=rewriting(), optimizers=each[:1], budget=BUDGET, folder=tmp_path)
    )


def test_upstream_gepa_may_use_the_whole_budget_and_is_ended_when_it_asks_for_nothing_new(tmp_path: Path) -> None:
    pytest.importorskip("gepa")
    # a reflection model that always says the same: after its one child every request is for what is there
    stuck = ScriptedLM("```\nSay it.\n```")
    budget = gl.Budget(rollouts=100_000)
    result = optimizer("gepa")(program(), TRAIN, VALIDATION, reflection_lm=stuck, budget=budget, run=tmp_path / "run")
    assert "brought no new rollout" in result.stopped
    assert result.costs.logical.rollouts < 300
