"""The result of a run: the prompts, and what the numbers allow us to say of them (design decision 11)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from gepa_lite.core.budget import ROLES, Role, Spend
from gepa_lite.core.call import Usage
from gepa_lite.core.feedback import Objective
from gepa_lite.errors import UsageError
from gepa_lite.program.program import Program
from gepa_lite.search.front import prune
from gepa_lite.search.frontier import front_of
from gepa_lite.search.search import Search
from gepa_lite.search.state import Member, RunState
from gepa_lite.search.verdict import Comparison, Verdict, compare, mean_interval, verdict_of
from gepa_lite.ship.bundle import write_bundle
from gepa_lite.ship.report_text import report_text

P = TypeVar("P", bound=Program)


@dataclass(frozen=True)
class Costs:
    """What the run took.

    Attributes:
        logical: rollouts, proposals, and calls, tokens and dollars by role, the same whether answers came from the cache or not.
        paid: calls, tokens and dollars that were really consumed, retries and crash losses included.
        seconds: wall time over all sessions.
        seconds_by_role: time within model calls, summed over calls at once.
    """

    logical: Spend
    paid: Usage
    seconds: float
    seconds_by_role: Mapping[Role, float]

    @property
    def roles(self) -> dict[Role, Usage]:
        """Logical usage of the roles that were used."""
        return {role: usage for role in ROLES if (usage := getattr(self.logical, role)).calls}


@dataclass(frozen=True)
class Result(Generic[P]):
    """What ``optimize`` returns. ``print(result)`` shows the evidence.

    Attributes:
        program: the one to use: the winner, unless its test estimate is not above the seed's; then the seed.
        winner: the candidate with the highest validation mean.
        seed: the program that came in.
        verdict: ``improved``, ``not shown``, ``worse`` or ``indecisive`` by the sealed test set; ``validated only`` without one.
        validation: seed and winner on the validation set. The winner was chosen there, so its mean is optimistic.
        test: seed and winner on the sealed test set; None without one, or where it was not finished.
        candidates: the pool in order; the seed is 0.
        front: indices of the candidates that survive the per-example Pareto pruning.
        costs: what the run took.
        stopped: why the search ended, in words.
        finished: False after Ctrl-C: the run can be resumed.
        run: the run's folder; None for a run kept in memory.
        notices: what a person should know.
        objective: direction and range of the scores.
        state: everything, folded from the events.
    """

    program: P
    winner: P
    seed: P
    verdict: Verdict
    validation: Comparison
    test: Comparison | None
    candidates: Sequence[Member]
    front: Sequence[int]
    costs: Costs
    stopped: str
    finished: bool
    run: Path | None
    notices: Sequence[str]
    objective: Objective
    state: RunState

    @property
    def prompts(self) -> dict[str, str]:
        """The texts of ``program``, by module path."""
        return self.program.prompts

    @property
    def improved(self) -> bool:
        """Whether the sealed test set shows a gain."""
        return self.verdict == "improved"

    def save(self, path: str | Path) -> Path:
        """Write the prompts of ``program`` with their evidence to one JSON file; ``gl.load_prompts`` reads it in production.

        Args:
            path: e.g. ``"triage.prompts.json"``; an existing file is replaced in one move.

        Returns:
            The path.

        Raises:
            UsageError: the folder does not exist or can't be written.
        """
        return write_bundle(self, Path(path))

    def __str__(self) -> str:
        return report_text(self)


def make_result(
    program: P, state: RunState, objective: Objective, costs: Costs, *, interrupted: bool, run: Path | None, notices: Sequence[str]
) -> Result[P]:
    """The result of a state.

    Raises:
        UsageError: the seed was not validated yet: there is nothing to report.
    """
    if not state.seed_validated:
        raise UsageError(
            "the run was stopped before the seed's validation was complete: there is no result yet. What was paid is kept; resume it."
        )
    rows = state.table.array
    best = state.best
    seed_row, best_row = _cells(rows[0]), _cells(rows[best.index])
    validation = compare(seed_row, best_row)
    test, verdict = _test(state)
    winner = program.with_prompts(best.candidate.texts)
    keep_seed = test is not None and test.gain <= 0
    front = front_of(state, Search(objective=objective))
    wins = prune(front)
    return Result(
        program=program if keep_seed else winner,
        winner=winner,
        seed=program,
        verdict=verdict,
        validation=validation,
        test=test,
        candidates=list(state.pool),
        front=front.members[wins > 0].tolist(),
        costs=costs,
        stopped="interrupted" if interrupted else (state.stopped.reason if state.stopped else "not finished"),
        finished=state.stopped is not None and not interrupted,
        run=run,
        notices=tuple(notices),
        objective=objective,
        state=state,
    )


def _cells(row: Sequence[float]) -> list[float | None]:
    return [None if math.isnan(value) else float(value) for value in row]


def _test(state: RunState) -> tuple[Comparison | None, Verdict]:
    tested = state.tested
    if tested is None or tested.winner != state.best.index:
        waiting = state.started is not None and state.started.test_ids
        return None, "indecisive" if waiting else "validated only"
    if mean_interval(tested.seed_values)[3] == 0 or mean_interval(tested.winner_values)[3] == 0:
        return None, "indecisive"
    comparison = compare(tested.seed_values, tested.winner_values, looks=state.looks)
    return comparison, verdict_of(comparison)
