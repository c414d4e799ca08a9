"""Merge: the paper's vectors (GEPA §1.4), and what breaks the peer: negative means, deep lineages, unbounded attempts."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import gepa_lite as gl
from gepa_lite.core.budget import Budget
from gepa_lite.core.events import Merged, RunStarted, SeedValidated, StepEnded, Validated
from gepa_lite.search.front import prune
from gepa_lite.search.frontier import front_of
from gepa_lite.search.merge import MergePlan, ancestors, plan_merge
from gepa_lite.search.search import Search
from gepa_lite.search.state import RunState

SEED = {"a": "A", "b": "B"}


def pool(
    rows: Sequence[tuple[tuple[int, ...], Mapping[str, str], Sequence[float]]],
    seed_values: Sequence[float],
    texts: Mapping[str, str] = SEED,
) -> RunState:
    """A state whose candidates have these parents, changed texts and validation values."""
    ids = tuple(f"v{i}" for i in range(len(seed_values)))
    state = RunState().apply(RunStarted({}, texts, ("t",), ids, (), Budget(rollouts=1_000)))
    state = state.apply(SeedValidated(tuple(seed_values)))
    for step, (parents, changed, values) in enumerate(rows):
        state = state.apply(Validated(step, parents, changed, tuple(values))).apply(StepEnded(step))
    return state


TWO_LINES = [((0,), {"a": "A2"}, (1, 1, 0, 0, 0, 0)), ((0,), {"b": "B2"}, (0, 0, 1, 1, 0, 0))]


@pytest.mark.parametrize("kind", ["paper", "complementary"])
def test_two_lineages_that_changed_different_modules_are_joined(kind: str) -> None:
    state = pool(TWO_LINES, (0,) * 6)
    plan = plan_merge(state, Search(merge=kind), 2)
    assert plan is not None
    assert plan.child.texts == {"a": "A2", "b": "B2"}
    assert (plan.parents, plan.ancestor, plan.sources) == ((1, 2), 0, {"a": 1, "b": 2})
    assert len(plan.example_ids) == 5
    assert set(plan.example_ids) >= {"v0", "v1", "v2", "v3"}, "two that each parent wins, then ties"
    assert plan.rollouts == 6, "the tried examples are part of the validation set"


def test_of_two_changed_texts_the_higher_mean_gives_its_own() -> None:
    texts = {"a": "A", "b": "B", "c": "C"}
    lines = [((0,), {"a": "A1", "c": "C1"}, (1, 1, 1, 0, 0, 0)), ((0,), {"a": "A2", "b": "B2"}, (0, 0, 0, 1, 1, 0))]
    plan = plan_merge(pool(lines, (0,) * 6, texts), Search(merge="paper"), 2)
    assert plan is not None
    assert plan.child.texts == {"a": "A1", "b": "B2", "c": "C1"}


def test_a_candidate_and_its_ancestor_are_not_joined() -> None:
    lines = [((0,), {"a": "A2"}, (1, 1, 0, 0, 0, 0)), ((1,), {"b": "B2"}, (0, 0, 1, 1, 0, 0))]
    assert plan_merge(pool(lines, (0,) * 6), Search(merge="complementary"), 2) is None


def test_an_ancestor_better_than_a_parent_gives_no_merge() -> None:
    assert plan_merge(pool(TWO_LINES, (1, 1, 1, 1, 0, 0)), Search(merge="complementary"), 2) is None


@pytest.mark.parametrize("shift", [-1.0, -5.0])
def test_zero_and_negative_means_can_be_weighed(shift: float) -> None:
    lines = [(parents, texts, [value + shift for value in values]) for parents, texts, values in TWO_LINES]
    rules = Search(merge="paper", objective=gl.Objective(range=(-10, 0)))
    assert plan_merge(pool(lines, (shift,) * 6), rules, 2) is not None


def test_five_thousand_generations_are_no_problem() -> None:
    rows = [((step,), {"a": f"A{step}"}, (1.0, 0.0)) for step in range(5_000)]
    state = pool(rows, (0.0, 0.0))
    assert len(ancestors(state.pool, 5_000)) == 5_000
    assert plan_merge(state, Search(merge="complementary"), 5_000) is None


def test_a_merge_is_tried_once_and_failures_switch_merging_off() -> None:
    state = pool(TWO_LINES, (0,) * 6)
    failed = Merged(2, (1, 2), 0, {"a": 1, "b": 2}, {"b": "B2"}, ("v0",), ((1.0,), (0.0,)), "rejected", "not_better", "")
    again = state.apply(failed).apply(StepEnded(2))
    assert plan_merge(again, Search(merge="complementary"), 3) is None
    others = state
    for _ in range(2):
        others = others.apply(failed)
    newer = others.apply(Validated(3, (0,), {"b": "B3"}, (0, 0, 1, 1, 1, 0))).apply(StepEnded(3))
    assert plan_merge(newer, Search(merge="complementary"), 4) is not None
    assert plan_merge(newer, Search(merge="complementary", merge_give_up=2), 4) is None
    assert plan_merge(newer, Search(merge="complementary", merge_attempts=2), 4) is None


NO_GAIN = [((0,), {"a": "A2"}, (1, 1, 1, 0, 0, 0)), ((0,), {"b": "B2"}, (1, 1, 0, 1, 0, 0))]
ENDED_EARLY = ((0,), {"a": "A3"}, (0, 0, None, None, None, None))


@pytest.mark.parametrize(("lines", "joined"), [(TWO_LINES, True), (NO_GAIN, False)])
def test_a_validation_that_ended_early_leaves_the_bound_on_a_pairs_gain_in_force(lines: list[Any], joined: bool) -> None:
    for state in (pool(lines, (0,) * 6), pool([*lines, ENDED_EARLY], (0,) * 6)):
        assert (plan_merge(state, Search(merge="complementary"), state.next_step) is not None) == joined


def test_candidates_that_win_nothing_apart_are_not_joined() -> None:
    assert plan_merge(pool([((0,), {"a": "A2"}, (0, 0)), ((0,), {"b": "B2"}, (0, 0))], (0, 0)), Search(), 2) is None


def test_of_a_large_front_the_best_means_are_weighed() -> None:
    """With continuous scores every candidate wins something; the pair must not be looked for among the newest alone, nor among all."""
    width, draw = 42, random.Random(3)
    first, last = (1.0,) + (0.9,) * 20 + (0.5,) * 21, (0.5,) * 21 + (0.9,) * 20 + (1.0,)
    best = [((0,), {"a": "A+"}, first), ((0,), {"b": "B+"}, last)]
    others = [((0,), {"a": f"A{i}"}, tuple(1.0 if i == place else draw.uniform(0, 0.8) for place in range(width))) for i in range(1, 41)]
    state = pool([*best, *others], (0.0,) * width)
    plan = plan_merge(state, Search(), state.next_step)
    assert plan is not None
    assert plan.parents == (1, 2)


@pytest.mark.parametrize("seed", range(20))
def test_the_pair_with_the_largest_gain_is_planned(seed: int) -> None:
    draw = random.Random(seed)
    lines = [((0,), {("a", "b")[i % 2]: f"T{i}"}, tuple(draw.choice((0, 0.5, 1)) for _ in range(12))) for i in range(6)]
    state = pool(lines, (0,) * 12)
    plan = plan_merge(state, Search(), state.next_step)
    rows = state.table.array
    front = prune(front_of(state, Search())).nonzero()[0].tolist()
    gains = {
        (i, j): np.maximum(rows[i], rows[j]).mean() - max(rows[i].mean(), rows[j].mean())
        for i, j in itertools.combinations(front, 2)
        if i and i % 2 != j % 2
    }
    best = max(gains.values(), default=0)
    if plan is None:
        assert best < 2 / 12
    else:
        assert gains[plan.parents] == pytest.approx(best)
        assert best >= 2 / 12 - 1e-9


def lineages(draw: random.Random) -> RunState:
    """A random pool: lineages that part and join, texts that come back, values below zero, validations that ended early."""
    width, scores = draw.randint(2, 10), draw.choice(((-2.0, 0.0, 0.5, 1.0), (-2.0, 1.0)))

    def values() -> list[float | None]:
        return list(draw.choices(scores, k=width))

    lines: list[Any] = []
    count = draw.randint(3, 12)
    for index in range(1, count):
        several = index < count - 1 and index > 1 and draw.random() < 0.2
        parents = tuple(sorted(draw.sample(range(index), 2 if several else 1)))
        changed = {module: f"{module.upper()}{draw.randint(0, 3)}" for module in draw.sample("abc", draw.randint(1, 2))}
        row = values()
        if draw.random() < 0.15:
            row[width // 2 :] = [None] * (width - width // 2)
        lines.append((parents, changed, row))
    return pool(lines, [-2.0] * width if draw.random() < 0.7 else values(), {"a": "A0", "b": "B0", "c": "C0"})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["paper", "complementary"])
def test_plans_keep_every_rule_of_the_paper(kind: str) -> None:
    planned = 0
    for seed in range(400):
        state, search = lineages(random.Random(seed)), Search(merge=kind, seed=seed)
        plan = plan_merge(state, search, state.next_step)
        assert plan == plan_merge(state, search, state.next_step), "a pure function"
        if plan is not None:
            planned += 1
            check_plan(plan, state, search)
    assert planned >= 30


def check_plan(plan: MergePlan, state: RunState, search: Search) -> None:
    """The rules of papers GEPA §1.4, read anew."""
    older, newer = plan.parents
    front = front_of(state, search)
    assert {older, newer} <= set(front.members[prune(front) > 0].tolist()), "both survive the pruning"
    lines = ancestors(state.pool, older), ancestors(state.pool, newer)
    assert older < newer
    assert older not in lines[1]
    assert newer not in lines[0]
    assert plan.ancestor in lines[0] & lines[1]
    means = {index: state.pool[index].mean for index in (plan.ancestor, older, newer)}
    assert means[plan.ancestor] <= min(means[older], means[newer])  # type: ignore[operator, type-var]
    base, one, two = (state.pool[index].candidate.texts for index in (plan.ancestor, older, newer))
    assert any(one[module] != two[module] and base[module] in (one[module], two[module]) for module in base), "desirable"
    for module, text in plan.child.texts.items():
        if one[module] == two[module]:
            expected = {one[module]}
        elif base[module] in (one[module], two[module]):
            expected = {one[module], two[module]} - {base[module]}
        elif means[older] == means[newer]:
            expected = {one[module], two[module]}
        else:
            expected = {(one if means[older] > means[newer] else two)[module]}  # type: ignore[operator]
        assert text in expected, module
        assert text == state.pool[plan.sources[module]].candidate.texts[module]
    assert plan.child.id not in {member.candidate.id for member in state.pool}
    width = state.table.array.shape[1]
    places = [int(example[1:]) for example in plan.example_ids]
    assert len(set(places)) == len(places) == min(5, width)
    rows = state.table.array[[older, newer]]
    assert plan.before == tuple(tuple(row[places].tolist()) for row in rows)
    ties = int((rows[0] == rows[1]).sum())
    for better, worse in (rows, rows[::-1]):
        won, chosen = better > worse, int((better > worse)[places].sum())
        assert chosen >= min(2, int(won.sum())), "two that each parent wins"
        assert chosen <= 2 or ties < min(5, width), "and more only where ties are too few"


def test_nothing_is_planned_before_the_paper_would() -> None:
    state = pool(TWO_LINES, (0,) * 6)
    assert plan_merge(state, Search.paper(), 2) is None, "the paper merges only where asked"
    waited = state.apply(StepEnded(2))
    assert plan_merge(waited, Search(merge="paper"), 3) is None, "the paper tries right after an accepted proposal"
    assert plan_merge(waited, Search(merge="complementary"), 3) is not None
