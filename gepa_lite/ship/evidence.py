"""What a run knows beside its two means: flips, objectives one by one, and the curve over its course."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gepa_lite.core.feedback import Objective
from gepa_lite.errors import UsageError
from gepa_lite.search.checks import OBJECTIVES
from gepa_lite.search.state import Member, RunState
from gepa_lite.search.verdict import Comparison, compare, mean_interval

if TYPE_CHECKING:
    from gepa_lite.core.rollout import Rollout


@dataclass(frozen=True, slots=True)
class Flip:
    """An example of the test set, or of the validation set where there is none, whose score differs between seed and winner.

    Attributes:
        example_id: the example's.
        before: the seed's score, in the user's own direction.
        after: the winner's.
        won: whether the winner's is the better one.
        inputs: the example's inputs; empty where the run was kept in memory.
        labels: the example's labels; likewise.
        output_before: what the program returned with the seed's prompts, as JSON types; None where it failed or is not kept.
        output_after: with the winner's.
    """

    example_id: str
    before: float
    after: float
    won: bool
    inputs: Mapping[str, Any]
    labels: Mapping[str, Any]
    output_before: Any = None
    output_after: Any = None


@dataclass(frozen=True, slots=True)
class Milestone:
    """A candidate that led in the course of the search, on examples that the search never saw. Scores are in the user's own direction.

    Attributes:
        member: index in the pool.
        rollouts: what the run had spent when the candidate joined.
        validation: its mean on the validation set.
        score: its mean on the curve's examples.
        low: lower end of the 95 % bootstrap interval of ``score``.
        high: upper end.
        n: examples of the curve that have a score.
    """

    member: int
    rollouts: int
    validation: float
    score: float
    low: float
    high: float
    n: int

    @property
    def gap(self) -> float:
        """By how much the validation mean is above the score: what choosing on the validation set has cost in honesty."""
        return self.validation - self.score


def flips_of(state: RunState, winner: Member, objective: Objective, run: Path | None) -> list[Flip]:
    """The examples that changed, those that got worse first, the largest change first; inputs and outputs come from the run's file where there is one."""
    assert state.started is not None
    if state.tested is not None and state.tested.winner == winner.index:
        split, ids, before, after = "test", state.started.test_ids, state.tested.seed_values, state.tested.winner_values
    else:
        table = state.table.array
        split, ids = "validation", state.started.validation_ids
        before, after = (_cells(table[index]) for index in (0, winner.index))
    cells = [(i, b, a) for i, b, a in zip(ids, before, after, strict=True) if b is not None and a is not None and a != b]
    cells.sort(key=lambda cell: cell[2] - cell[1])
    examples, outputs = _from_file(run, split, {i for i, _, _ in cells}, (state.pool[0], winner))
    score = objective.score
    return [
        Flip(i, score(b), score(a), a > b, *examples.get(i, ({}, {})), outputs.get((0, i)), outputs.get((winner.index, i)))
        for i, b, a in cells
    ]


def _from_file(
    run: Path | None, split: str, ids: set[str], members: Sequence[Member]
) -> tuple[dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]], dict[tuple[int, str], Any]]:
    from gepa_lite.store.run_store import RunStore

    if run is None:
        return {}, {}
    with RunStore.read(run) as store:
        examples = {example.id: (example.inputs, example.labels) for example in store.examples(split) if example.id in ids}
        outputs: dict[tuple[int, str], Any] = {}
        for member in members:
            rollouts: list[Rollout] = [r for r in store.rollouts_of(member.candidate.id) if r.key.example_id in ids]
            outputs.update({(member.index, r.key.example_id): r.output for r in reversed(rollouts)})
    return examples, outputs


def objectives_of(state: RunState, winner: Member) -> dict[str, Comparison]:
    """Seed and winner by each further objective of the feedback, on the test set, or on the validation set where it was not scored; higher is better."""
    tested = state.tested
    if tested is not None and tested.winner == winner.index:
        rows = {name: (row, tested.winner_objectives.get(name, row)) for name, row in tested.seed_objectives.items()}
    else:
        rows = {name: (_cells(table.array[0]), _cells(table.array[winner.index])) for name, table in sorted(state.objectives.items())}
    # prompt lengths are told apart from scores
    rows = {name: row for name, row in rows.items() if name not in OBJECTIVES}
    looks = state.looks if tested is not None else 1
    return {
        name: compare(before, after, looks=looks)
        for name, (before, after) in rows.items()
        if any(b is not None and a is not None for b, a in zip(before, after, strict=True))
    }


def milestones_of_run(state: RunState, objective: Objective) -> list[Milestone]:
    """The milestones that were scored, in the order in which they joined the pool."""
    found = []
    for event in sorted(state.milestones, key=lambda event: event.member):
        member = state.pool[event.member]
        mean, low, high, n = mean_interval([None if value is None else objective.score(value) for value in event.values])
        if n and member.mean is not None:
            spent = 0 if event.member == 0 else member.spent
            found.append(Milestone(event.member, spent, objective.score(member.mean), mean, low, high, n))
    return found


def plot_curve(milestones: Sequence[Milestone], path: Path) -> Path:
    """Validation mean and score on unseen examples over the rollouts spent, as an image; needs matplotlib.

    Raises:
        UsageError: there are no milestones, matplotlib is not there, or the file can't be written.
    """
    if not milestones:
        raise UsageError("there is no curve to plot: give optimize(..., curveset=...) examples that the search never sees.")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("plotting needs matplotlib: pip install 'gepa-lite[plot]'") from error
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    spent = [milestone.rollouts for milestone in milestones]
    scores = [milestone.score for milestone in milestones]
    below = [milestone.score - milestone.low for milestone in milestones]
    above = [milestone.high - milestone.score for milestone in milestones]
    axes.plot(spent, [milestone.validation for milestone in milestones], "o--", label="validation (chosen on)")
    axes.errorbar(spent, scores, yerr=[below, above], fmt="s-", capsize=3, label=f"unseen (n={milestones[0].n}, 95 %)")
    axes.set(xlabel="rollouts spent", ylabel="mean score")
    axes.legend()
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} can't be written: {error}.") from error
    return path


def _cells(row: Sequence[float]) -> tuple[float | None, ...]:
    return tuple(None if math.isnan(value) else float(value) for value in row)
