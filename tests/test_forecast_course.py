"""The course that an estimate follows, against searches of simulated landscapes in simulated time: what parents are paid for, and how long it takes."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from gepa_lite import Budget, Search
from gepa_lite.forecast.course import Case, Cost, Shape, Tally, follow
from gepa_lite.forecast.reuse import Parents
from gepa_lite.search.fans import fan_at
from gepa_lite.search.state import RunState
from gepa_lite.testing import Landscape, landscape
from gepa_lite.testing.landscape_search import LANDSCAPE_TEMPLATE
from tests.virtual_time import timed_search

WORKERS, ROLLOUT, REFLECTION = 16, 1.0, 5.0

SETTINGS = {
    "default": Search(merge=False),
    "one after the other": Search(merge=False, overlap=False),
    "paper": Search.paper(),
    "large minibatches": Search.paper(minibatch=10),
    "single proposals beside a full validation": Search(fan=1, merge=False, validation="full"),
    "without epochs": Search.paper(sampling="hard"),
    "repeated": Search(merge=False, repeats=2),
    "anew each time": Search.paper(reuse=False),
}


def shape_of(land: Landscape, rules: Search, proposals: int) -> Shape:
    block = rules.validation_block if rules.validation == "staged" else None
    return Shape(
        train=len(land.train),
        validation=len(land.validation),
        after=0,
        asks=1,
        fan=rules.fan,
        minibatch=rules.least_minibatch,
        repeats=rules.repeats,
        block=block,
        budget=Budget(proposals=proposals),
        prompts=len(land.modules),
        reuse=rules.reuse,
        epochs=rules.sampling == "epoch",
        overlap=rules.overlaps,
    )


def case_of(state: RunState) -> Case:
    """What could not be known beforehand, as it was in a run: the rest of the forecast is held to it."""
    proposals, children = list(state.proposals), list(state.pool)[1:]
    asked = [proposal for proposal in proposals if proposal.status != "skipped"]
    usable = sum(bool(proposal.after) for proposal in asked) / len(asked)
    a_step = len(asked) / state.next_step
    some = min(0.999, len(children) / state.next_step)
    return Case(
        accept=(1 - (1 - some) ** (1 / a_step)) / usable,
        share=float(np.mean(~np.isnan(state.table.array[1:]))),
        skip=1 - len(asked) / len(proposals),
        usable=usable,
        task=Cost(),
        grown=Cost(),
        judge=Cost(),
        reflection=Cost(1),
        fresh=1.0,
        rollout_seconds=ROLLOUT,
        rate=WORKERS / ROLLOUT,
        reflection_seconds=REFLECTION,
    )


def run_and_forecast(rules: Search, name: str, seed: int) -> tuple[tuple[float, float, float], Tally]:
    """Rollouts of parents, all rollouts and seconds of a run; and a forecast of as many steps."""
    land = landscape(name, seed)
    rules = dataclasses.replace(rules, seed=seed, reflection_template=LANDSCAPE_TEMPLATE)
    state, seconds = timed_search(land, rules, Budget(rollouts=800), workers=WORKERS, rollout=ROLLOUT, reflection=REFLECTION)
    assert state.stopped is not None
    assert state.stopped.code == "budget"
    parents = sum(proposal.spend.rollouts - len(proposal.after) * rules.repeats for proposal in state.proposals)
    case = case_of(state)
    # a step is let begin where all its slots may ask
    asked = sum(proposal.status != "skipped" for proposal in state.proposals)
    slots = fan_at(rules.fan, state.next_step, len(land.modules))
    return (parents, state.spend.rollouts, seconds), follow(shape_of(land, rules, math.ceil(asked + slots * case.skip)), case)


@pytest.mark.parametrize("setting", SETTINGS)
def test_rollouts_of_parents_and_seconds_are_those_of_simulated_runs(setting: str) -> None:
    rules = SETTINGS[setting]
    rows = [run_and_forecast(rules, name, seed) for name in ("three-modules", "noisy") for seed in (0, 1)]
    parents, rollouts, seconds = (sum(found[place] for found, _ in rows) for place in range(3))
    assert sum(tally.parents for _, tally in rows) == pytest.approx(parents, rel=0.25)
    assert sum(tally.rollouts for _, tally in rows) == pytest.approx(rollouts, rel=0.1)
    assert sum(tally.seconds for _, tally in rows) == pytest.approx(seconds, rel=0.15)


@pytest.mark.parametrize("slots", [1, 4, 8])
def test_nothing_is_used_again_before_a_parent_meets_an_example_again(slots: int) -> None:
    parents, taken, new = Parents.of(60, 3, epochs=True), 0, []
    while taken < 40:
        found, parents = parents.take(slots, 0.0)
        taken += slots
        new.append(found)
    assert new[: 20 // slots] == [slots] * (20 // slots), "an epoch has no example twice"
    assert sum(new) == pytest.approx(20), "the same parent pays for none of them again"


def test_a_child_is_new_to_all_but_its_own_minibatch_and_a_newest_parent_is_always_new() -> None:
    _, parents = Parents.of(30, 3, epochs=True).take(1, 0.0)
    _, seen = parents.join(1.0).take(9, 0.0)
    # seed and child had half each of nine minibatches, the seed the first, and the child was run on that too
    assert seen.take(1, 0.0)[0] == pytest.approx((1 - 0.1 - 0.45 + 1 - 0.1 - 0.45) / 2)
    assert seen.take(1, 1.0)[0] == 1.0


def test_a_validation_beside_proposals_takes_the_longer_of_the_two_but_not_on_one_machine() -> None:
    nothing = Cost()
    case = Case(1.0, 1.0, 0.0, 1.0, nothing, nothing, nothing, Cost(1), 1.0, 1.0, 10.0, 5.0)
    shape = Shape(1_000, 100, 0, 1, 1, 10, 1, None, Budget(proposals=4))
    # the seed's validation, then four steps of 1 + 5 + 1 seconds, each with a child whose validation takes 10
    assert follow(shape, case).seconds == pytest.approx(10 + 4 * (7 + 10))
    beside = dataclasses.replace(shape, overlap=True)
    # but for the first proposals and the last validation, 2 seconds of rollouts are added to those of a validation
    assert follow(beside, case).seconds == pytest.approx(10 + 7 + 3 * 12 + 10)
    assert follow(beside, dataclasses.replace(case, shared=True)).seconds == pytest.approx(10 + 4 * (7 + 10))
