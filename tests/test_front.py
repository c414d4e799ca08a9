"""The front kept row by row equals the front of the whole table, and pruning equals the published procedure, on random pools with ties and missing cells."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gepa_lite as gl
from gepa_lite.core.budget import Budget
from gepa_lite.core.events import RunStarted, SeedValidated, Validated
from gepa_lite.search.front import Front, prune
from gepa_lite.search.frontier import front_of
from gepa_lite.search.select import SELECTORS, TopKPareto
from gepa_lite.search.state import RunState, mean_of
from gepa_lite.search.tops import Tops

Row = tuple[float | None, ...]
FRONTIERS = ("example", "objective", "hybrid", "product")


def reference_wins(columns: list[list[float | None]], means: list[float]) -> list[int]:
    """The published procedure, by sets: scan by ascending mean, remove the first dominated one, start again; then count."""
    fronts = []
    for column in zip(*columns, strict=True):
        known = [value for value in column if value is not None]
        fronts.append({row for row, value in enumerate(column) if known and value == max(known)})
    alive = sorted({row for front in fronts for row in front}, key=lambda row: (means[row], row))
    while True:
        for one in alive:
            rest = set(alive) - {one}
            if all(front & rest for front in fronts if one in front):
                alive.remove(one)
                break
        else:
            return [sum(row in front for front in fronts) if row in alive else 0 for row in range(len(columns))]


def random_pool(seed: int, candidates: int, width: int) -> tuple[list[Row], list[dict[str, Row]]]:
    """Scores and two objectives; the pool has ties, and missing cells but in the seed's scores."""
    draw = random.Random(seed)
    levels, gaps = draw.choice((2, 3, 50)), draw.choice((0.0, 0.1))

    def row(gaps: float) -> Row:
        return tuple(None if draw.random() < gaps else draw.randrange(levels) / levels for _ in range(width))

    scores = [row(gaps / width if index else 0.0) for index in range(candidates)]
    return scores, [{"brevity": row(gaps), "tone": row(gaps / 4)} for _ in range(candidates)]


def states_of(scores: list[Row], objectives: list[dict[str, Row]]) -> list[RunState]:
    """The state after the seed and after each further candidate."""
    ids = tuple(f"v{index}" for index in range(len(scores[0])))
    state = RunState().apply(RunStarted({}, {"a": "seed"}, ("t",), ids, (), Budget(proposals=9)))
    states = [state.apply(SeedValidated(scores[0], objectives=objectives[0]))]
    for step, (row, named) in enumerate(zip(scores[1:], objectives[1:], strict=True)):
        states.append(states[-1].apply(Validated(step, (0,), {"a": f"text {step}"}, row, objectives=named)))
    return states


def columns_of(frontier: str, scores: list[Row], objectives: list[dict[str, Row]]) -> list[list[float | None]]:
    """The columns by hand, for candidates without a missing score."""
    rows = []
    for row, named in zip(scores, objectives, strict=True):
        tables: list[Row] = [row, named["brevity"], named["tone"]]
        averages = [mean_of(table) for table in tables]
        rows.append(
            {
                "example": list(row),
                "objective": averages,
                "hybrid": [*row, *averages],
                "product": [value for table in tables for value in table],
            }[frontier]
        )
    return rows


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 9), st.sampled_from(FRONTIERS))
def test_pruning_equals_the_published_procedure_on_every_frontier(seed: int, candidates: int, width: int, frontier: Any) -> None:
    scores, objectives = random_pool(seed, candidates, width)
    for count, state in enumerate(states_of(scores, objectives), start=1):
        # asked of the older states after the newest exists: they are as they were
        front = front_of(state, gl.Search.paper(frontier=frontier))
        members = [index for index in range(count) if None not in scores[index]]
        assert front.members.tolist() == members
        columns = columns_of(frontier, [scores[i] for i in members], [objectives[i] for i in members])
        assert [[None if np.isnan(v) else v for v in row] for row in front.values.tolist()] == columns
        assert [[None if np.isnan(v) else v for v in front.column(j).tolist()] for j in range(front.width)] == [
            list(column) for column in zip(*columns, strict=True)
        ]
        assert prune(front).tolist() == reference_wins(columns, front.means.tolist())


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 20))
def test_tops_kept_row_by_row_equal_those_of_the_whole_table(seed: int, count: int, width: int) -> None:
    draw = random.Random(seed)
    levels = draw.choice((2, 4, 1_000))
    values = np.array([[draw.choice((np.nan, *range(levels))) / levels for _ in range(width)] for _ in range(count)])
    means = np.array([draw.randrange(3) / 3 for _ in range(count)])
    kept = Tops.none(width)
    for row in range(count):
        before = [array.copy() for array in (kept.best, kept.count, kept.leader, kept.mean)]
        more = kept.add(row, values[row], means[row])
        assert all(np.array_equal(a, b) for a, b in zip(before, (kept.best, kept.count, kept.leader, kept.mean), strict=True))
        kept = more
    whole = Tops.of(values, means)
    for name in ("best", "count", "leader", "mean"):
        assert np.array_equal(getattr(kept, name), getattr(whole, name)), name


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 70))
def test_pruning_a_large_table_equals_one_pass_over_its_rows(seed: int, count: int, width: int) -> None:
    draw = np.random.default_rng(seed)
    values = draw.integers(0, draw.integers(2, 6), (count, width)) / 5
    means = values.mean(axis=1).round(1)
    front = Front.of(values, means)
    wins, cover = front.owners.sum(axis=1), front.owners.sum(axis=0)
    for row in np.argsort(means, kind="stable"):
        won = front.owners[row]
        if wins[row] and (cover[won] > 1).all():
            cover = cover - won
            wins[row] = 0
    assert prune(front).tolist() == wins.tolist()


def test_a_missing_objective_takes_nobody_elses_column_away() -> None:
    state = states_of([(1.0, 0.0), (0.5, 1.0)], [{"tone": (0.9, 0.1)}, {}])[-1]
    front = front_of(state, gl.Search.paper(frontier="product"))
    assert front.owners.tolist() == [[True, False, True, True], [False, True, False, False]]
    assert prune(front).tolist() == [3, 1]


def test_an_unvalidated_candidate_leads_nothing() -> None:
    state = states_of([(0.5, 0.5), (1.0, None), (0.0, 1.0)], [{}, {}, {}])[-1]
    front = front_of(state, gl.Search.paper())
    assert front.members.tolist() == [0, 2]
    assert front.tops.best.tolist() == [0.5, 1.0]
    assert prune(front).tolist() == [1, 1]


@pytest.mark.parametrize("frontier", FRONTIERS)
@pytest.mark.parametrize("name", sorted(SELECTORS))
def test_every_selector_works_on_every_frontier(name: str, frontier: Any) -> None:
    scores, objectives = random_pool(5, 12, 6)
    front = front_of(states_of(scores, objectives)[-1], gl.Search.paper(frontier=frontier))
    assert {SELECTORS[name](front, random.Random(draw)) for draw in range(50)} <= set(range(len(front.members)))


def test_top_k_draws_among_the_best_means_alone() -> None:
    front = Front.of(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.9, 0.9], [1.0, 0.9, 0.0]]), np.array([1 / 3, 2 / 3, 0.6, 1.9 / 3]))
    assert {TopKPareto(2)(front, random.Random(draw)) for draw in range(50)} == {1, 3}
