"""How many proposals a step makes at once (``Search.fan``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import pytest

import gepa_lite as gl
from gepa_lite.forecast.course import Case, Cost, Shape, follow
from gepa_lite.search.fans import fan_at, proposals_before
from gepa_lite.search.state import RunState
from gepa_lite.testing import landscape, run_landscape


@dataclass(frozen=True)
class Never:
    """Accepts nothing."""

    def __call__(self, before: Sequence[float], after: Sequence[float]) -> bool:
        """See ``Acceptance``."""
        return False


def searched(name: str, **rules: object) -> RunState:
    """The end of a search without merges."""
    return run_landscape(landscape(name), gl.Search(merge="none", **rules), gl.Budget(rollouts=700)).state


@pytest.mark.parametrize(("name", "later"), [("six-modules", 8), ("niches", 8), ("one-many", 4), ("deceptive", 4)])
def test_auto_makes_more_proposals_where_they_can_join(name: str, later: int) -> None:
    counts = Counter(proposal.step for proposal in searched(name).proposals)
    assert len(counts) > 3
    assert [counts[step] for step in sorted(counts)] == [4, 4, *[later] * (len(counts) - 2)]


@pytest.mark.parametrize("fan", ["auto", 1, 3])
def test_every_epoch_shows_each_example_once_or_twice_whatever_the_fan(fan: int | str) -> None:
    state = searched("three-modules", fan=fan)
    assert state.started is not None
    train = set(state.started.train_ids)
    per_epoch = -(-len(train) // 3)
    shown = [proposal.example_ids for proposal in state.proposals]
    assert len(shown) >= per_epoch
    for start in range(0, len(shown) - per_epoch + 1, per_epoch):
        times = Counter(chain.from_iterable(shown[start : start + per_epoch]))
        assert set(times) == train
        assert set(times.values()) <= {1, 2}


def test_proposals_are_counted_without_a_gap() -> None:
    for fan in ("auto", 1, 5):
        for prompts in (1, 3):
            assert [proposals_before(fan, step, prompts) for step in range(6)] == [
                sum(fan_at(fan, earlier, prompts) for earlier in range(step)) for step in range(6)
            ]


def test_a_small_budget_is_held_against_the_first_steps_fan() -> None:
    from gepa_lite import api
    from tests.triage import program, reflector, rows

    def prepared(rollouts: int) -> None:
        api.prepare(program(), rows(24, 1), rows(16, 2), reflection_lm=reflector(), search=gl.Search(), budget=gl.Budget(rollouts=rollouts))

    # the seed's validation, four minibatches of three for parent and child, the child's validation
    prepared(16 + 24 + 16)
    with pytest.raises(gl.errors.UsageError, match="56 rollouts are needed"):
        prepared(55)


@pytest.mark.parametrize(("name", "proposals"), [("six-modules", 4 + 4 + 8), ("one-many", 5 * 4)])
@pytest.mark.parametrize("budget", [gl.Budget(proposals=20), gl.Budget(rollouts=200)], ids=["proposals", "rollouts"])
def test_the_forecast_takes_the_steps_that_the_search_takes(name: str, proposals: int, budget: gl.Budget) -> None:
    land = landscape(name)
    # nothing is accepted, and no step is decided by rollouts that come again, so that what each takes is known
    state = run_landscape(land, gl.Search(merge="none", accept=Never()), budget).state
    shape = Shape(10**6, len(land.validation), 0, 1, "auto", 3, 1, None, budget, prompts=len(land.seed_texts))
    nothing = Cost()
    forecast = follow(shape, Case(0.0, 1.0, 0.0, 1.0, nothing, nothing, nothing, nothing, 1.0, 1.0, 1.0, 1.0))
    # after the third step of several prompts, which has eight, there is room for one of four more, not for one of eight
    assert len(state.proposals) == proposals
    assert (forecast.steps, forecast.proposals) == (len({proposal.step for proposal in state.proposals}), proposals)
    assert forecast.ended_by == ("proposals" if budget.proposals else "rollouts")
