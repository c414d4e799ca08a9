"""How several starts of one run did side by side, and which of them the winner comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gepa_lite.core.budget import Spend
from gepa_lite.core.candidate import Candidate
from gepa_lite.core.descent import roots_of
from gepa_lite.core.feedback import Objective
from gepa_lite.search.verdict import mean_interval

if TYPE_CHECKING:
    from gepa_lite.ship.result import Result

FIRST = "first program"
_WIDEST = 60


@dataclass(frozen=True, slots=True)
class StartScore:
    """A start of a run.

    Attributes:
        name: ``"first program"``, ``"start 1"``, or the file or folder that its prompts were read from.
        index: its place among the candidates; None where it was vetoed for a pin, or was not run before the budget ran out.
        mean: its validation score; None where it has none.
        low: lower end of the score's 95 % interval.
        high: upper end.
        vetoed: whether it scored less than the first program on a pin, and so took no part.
        won: whether the winner descends from it, by its own changes; after a merge this may be true of several.
        rollouts: of its validation.
        tokens: input and output tokens that they took, judges included; the same whether answers came from the cache or not.
        usd: dollars likewise; None where a price is not known.
    """

    name: str
    index: int | None
    mean: float | None
    low: float | None
    high: float | None
    vetoed: bool
    won: bool
    rollouts: int = 0
    tokens: int = 0
    usd: float | None = 0.0

    def words(self, ended: bool) -> str:
        """What became of it beside its score: which one the winner comes from, or why it has none; ``ended`` is whether the search has."""
        if self.vetoed:
            return "vetoed: worse than the first program on a pin"
        if self.mean is None:
            return "not run: the budget ran out" if ended else "not run yet"
        return f"the {'winner' if ended else 'best so far'} comes from here" if self.won else ""


def start_score(
    name: str, index: int | None, cells: Sequence[float], objective: Objective, *, vetoed: bool, won: bool, spend: Spend
) -> StartScore:
    """A start by its values on the validation set; without a place among the candidates it has no score."""
    cost = spend.rollouts, spend.tokens, spend.usd
    if index is None:
        return StartScore(name, None, None, None, None, vetoed, False, *cost)
    mean, low, high, _ = mean_interval(cells)
    low, high = sorted((objective.score(low), objective.score(high)))
    return StartScore(name, index, objective.score(mean), low, high, False, won, *cost)


def starts_of(result: Result[Any]) -> list[StartScore]:
    """The starts in order, the first program before all others."""
    state = result.state
    assert state.started is not None
    seed = Candidate(state.started.texts)
    entries = [(FIRST, seed), *((start.name, seed.replace(start.texts)) for start in state.started.starts)]
    members = {member.candidate.id: member for member in state.pool}
    vetoes = {seed.replace(veto.texts).id: veto.spend for veto in state.vetoes if veto.step < 0}
    roots = roots_of(state.pool, result.winner_index)
    found = []
    for name, start in entries:
        member = members.get(start.id)
        index, cells = (None, []) if member is None else (member.index, state.table.array[member.index].tolist())
        spend = member.took if member is not None else vetoes.get(start.id, Spend())
        vetoed, won = start.id in vetoes, index in roots
        found.append(start_score(name, index, cells, result.objective, vetoed=vetoed, won=won, spend=spend))
    return found


def starts_text(result: Result[Any]) -> str:
    """One line a start, where there are several."""
    starts = result.starts
    if len(starts) < 2:
        return ""
    width = min(_WIDEST, max(28, *(len(start.name) + 2 for start in starts)))
    rows = [f"{'start':<{width}}{'validation':>11}   {'95 % interval':<18}{'rollouts':>9}{'tokens':>11}{'USD':>10}"]
    for start in starts:
        score, interval = f"{'-':>11}", ""
        if start.mean is not None and start.low is not None and start.high is not None:
            score, interval = f"{start.mean:>11.3f}", f"[{start.low:.3f}, {start.high:.3f}]"
        usd = "unknown" if start.usd is None else f"{start.usd:.4f}"
        cost = f"{start.rollouts:>9,}{start.tokens:>11,}{usd:>10}"
        rows.append(f"{start.name[: width - 2]:<{width}}{score}   {interval:<18}{cost}  {start.words(result.finished)}".rstrip())
    what = "validation and test compare" if result.test is not None else "validation compares"
    return "\n".join([*rows, f"Before and after: {what} the winner with the first program."])
