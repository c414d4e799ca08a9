"""The result of a run: the prompts, and what the numbers allow us to say of them (design decision 11)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from gepa_lite.core.budget import ROLES, Role, Spend
from gepa_lite.core.call import Usage
from gepa_lite.core.feedback import Objective
from gepa_lite.errors import UsageError
from gepa_lite.program.optimizable import Optimizable
from gepa_lite.search.front import prune
from gepa_lite.search.frontier import front_of
from gepa_lite.search.search import Search
from gepa_lite.search.state import Member, RunState
from gepa_lite.search.verdict import Comparison, Verdict, compare, mean_interval, verdict_of
from gepa_lite.search.winner import prompt_tokens, winner_of
from gepa_lite.ship.blame import Blame, blame_of
from gepa_lite.ship.break_even import BreakEven, break_even_of
from gepa_lite.ship.bundle import write_bundle
from gepa_lite.ship.evidence import Flip, Milestone, flips_of, milestones_of_run, objectives_of, plot_curve
from gepa_lite.ship.findings import Found, findings_of
from gepa_lite.ship.report_text import report_text
from gepa_lite.ship.starts import StartScore, starts_of

P = TypeVar("P")


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
        """Logical usage of the roles that were used; a role with no calls and unknown dollars made calls that no one saw."""
        return {role: usage for role in ROLES if (usage := getattr(self.logical, role)).calls or usage.usd is None}


@dataclass(frozen=True)
class Result(Generic[P]):
    """What ``optimize`` returns. ``print(result)`` shows the evidence.

    Attributes:
        program: the one to use: the winner, unless its test estimate is not above the seed's, or ``Search(require="improved")`` and the test set shows no gain; then the seed.
        winner: the candidate with the highest validation mean, or as ``Search(prefer=)`` says.
        seed: the program that came in.
        verdict: ``improved``, ``not shown``, ``worse`` or ``indecisive`` by the sealed test set; ``validated only`` without one.
        validation: seed and winner on the validation set. The winner was chosen there, so its mean is optimistic.
        test: seed and winner on the sealed test set; None without one, or where it was not finished.
        objectives: seed and winner by each further objective of the feedback, on the test set, or on the validation set where it was not scored; higher is better.
        curve: candidates that led in the course of the search, on examples that it never saw; empty without ``curveset``.
        candidates: the pool in order; the seed is 0.
        winner_index: the winner's place in it.
        front: indices of the candidates that survive the per-example Pareto pruning.
        costs: what the run took.
        stopped: why the search ended, in words.
        finished: False after Ctrl-C: the run can be resumed.
        run: the run's folder; None for a run kept in memory.
        notices: what a person should know.
        objective: direction and range of the scores.
        state: everything, folded from the events.
        shipped: the place in ``candidates`` of what ``program`` holds: ``winner_index``, or 0 for the seed.
        source: the seed as the run knows it: its parts, signatures and models.
    """

    program: P
    winner: P
    seed: P
    verdict: Verdict
    validation: Comparison
    test: Comparison | None
    objectives: Mapping[str, Comparison]
    curve: Sequence[Milestone]
    candidates: Sequence[Member]
    winner_index: int
    front: Sequence[int]
    costs: Costs
    stopped: str
    finished: bool
    run: Path | None
    notices: Sequence[str]
    objective: Objective
    state: RunState
    shipped: int
    source: Optimizable

    @property
    def prompts(self) -> dict[str, str]:
        """The texts of ``program``, by module path."""
        return dict(self.candidates[self.shipped].candidate.texts)

    @property
    def winner_prompts(self) -> dict[str, str]:
        """The texts of ``winner``, by module path."""
        return dict(self.candidates[self.winner_index].candidate.texts)

    @property
    def seed_prompts(self) -> dict[str, str]:
        """The texts of ``seed``, by module path."""
        return dict(self.candidates[0].candidate.texts)

    @property
    def starts(self) -> list[StartScore]:
        """The starts of the run with their validation scores, the first program before all others, and which of them the winner comes from."""
        return starts_of(self)

    @property
    def improved(self) -> bool:
        """Whether the sealed test set shows a gain."""
        return self.verdict == "improved"

    @property
    def optimism(self) -> float | None:
        """By how much the validation gain is above the test gain: what choosing the winner on the validation set has flattered it by. None without a test set."""
        return None if self.test is None else self.validation.gain - self.test.gain

    @property
    def flips(self) -> list[Flip]:
        """The examples of the test set (of the validation set where there is none) whose score changed, those that got worse first, with inputs and both outputs."""
        return flips_of(self.state, self.candidates[self.winner_index], self.objective, self.run)

    @property
    def findings(self) -> list[Found]:
        """What the contract and the leak guard found in proposed prompts: module, rule, place and, for a copy, the example; never a secret itself."""
        return findings_of(self.state, self.winner_index)

    @property
    def blame(self) -> list[Blame]:
        """For each sentence of the winner's prompts: the proposal, the examples and the gain it came with."""
        return blame_of(self.state, self.winner_index)

    @property
    def prompt_tokens(self) -> tuple[float, float]:
        """Estimated tokens of prompts that one run of the program sends, each module's text times its calls: the seed's, and the winner's."""
        seed, winner = self.candidates[0].candidate.texts, self.candidates[self.winner_index].candidate.texts
        return prompt_tokens(seed, self.state.calls), prompt_tokens(winner, self.state.calls)

    def break_even(
        self, *, before_usd: float | None = None, usd_per_input_token: float | None = None, usd_per_output_token: float | None = None
    ) -> BreakEven:
        """After how many runs in production the search is paid back, by a shorter prompt or a cheaper model.

        What one run takes is known from the validation rollouts of seed and winner, answers included.

        Args:
            before_usd: dollars of one run today, where today's is a dearer model; None for this program with the seed's prompts.
            usd_per_input_token: for models whose price is not known, or another than that of the search.
            usd_per_output_token: likewise.

        Raises:
            UsageError: a price is needed.
        """
        winner = self.candidates[self.winner_index]
        return break_even_of(self.costs.paid, self.candidates[0], winner, before_usd, usd_per_input_token, usd_per_output_token)

    def plot_curve(self, path: str | Path) -> Path:
        """Draw ``curve`` to an image; needs ``pip install 'gepa-lite[plot]'``.

        Args:
            path: e.g. ``"curve.png"``, ``"curve.svg"``.

        Raises:
            UsageError: there is no curve, matplotlib is not installed, or the file can't be written.
        """
        return plot_curve(self.curve, Path(path))

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
    program: Optimizable, state: RunState, search: Search, costs: Costs, *, interrupted: bool, run: Path | None, notices: Sequence[str]
) -> Result[Any]:
    """The result of a state.

    Args:
        program: the seed.
        state: of the run.
        search: of its rules, ``objective``, ``prefer`` and ``require`` count.
        costs: what it took.
        interrupted: whether it was stopped by hand.
        run: its folder.
        notices: what a person should know.

    Raises:
        UsageError: the seed was not validated yet: there is nothing to report.
    """
    if not state.seed_validated:
        raise UsageError(
            "the run was stopped before the seed's validation was complete: there is no result yet. What was paid is kept; resume it."
        )
    rows = state.table.array
    objective, member = search.objective, winner_of(state, search)
    validation = compare(_cells(rows[0]), _cells(rows[member.index]))
    test, verdict = _test(state, member)
    seed, winner = program.deliverable, program.with_prompts(member.candidate.texts).deliverable
    keep_seed = (test is not None and test.gain <= 0) or (search.require == "improved" and verdict != "improved")
    front = front_of(state, Search(objective=objective))
    wins = prune(front)
    return Result(
        program=seed if keep_seed else winner,
        winner=winner,
        seed=seed,
        verdict=verdict,
        validation=validation,
        test=test,
        objectives=objectives_of(state, member),
        curve=milestones_of_run(state, objective),
        candidates=list(state.pool),
        winner_index=member.index,
        front=front.members[wins > 0].tolist(),
        costs=costs,
        stopped="interrupted" if interrupted else (state.stopped.reason if state.stopped else "not finished"),
        finished=state.stopped is not None and not interrupted,
        run=run,
        notices=tuple(notices),
        objective=objective,
        state=state,
        shipped=0 if keep_seed else member.index,
        source=program,
    )


def _cells(row: Sequence[float]) -> list[float | None]:
    return [None if math.isnan(value) else float(value) for value in row]


def _test(state: RunState, winner: Member) -> tuple[Comparison | None, Verdict]:
    tested = state.tested
    if tested is None or tested.winner != winner.index:
        waiting = state.started is not None and state.started.test_ids
        return None, "indecisive" if waiting else "validated only"
    if mean_interval(tested.seed_values)[3] == 0 or mean_interval(tested.winner_values)[3] == 0:
        return None, "indecisive"
    comparison = compare(tested.seed_values, tested.winner_values, looks=state.looks)
    return comparison, verdict_of(comparison)
