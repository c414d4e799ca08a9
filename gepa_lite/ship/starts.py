"""Which of several starts the winner comes from, and how each of them scored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gepa_lite.core.candidate import Candidate
from gepa_lite.search.state import RunState
from gepa_lite.search.verdict import mean_interval

if TYPE_CHECKING:
    from gepa_lite.ship.result import Result


@dataclass(frozen=True, slots=True)
class StartScore:
    """A start of a run.

    Attributes:
        name: ``"first program"``, ``"start 1"``, or a bundle's file.
        index: its place among the candidates; None where it was vetoed for a pin, or was not run before the budget ran out.
        mean: its validation score; None where it has none.
        low: lower end of the score's 95 % interval.
        high: upper end.
        vetoed: whether it scored less than the first program on a pin, and so took no part.
        won: whether the winner descends from it, by its own changes; after a merge this may be true of several.
    """

    name: str
    index: int | None
    mean: float | None
    low: float | None
    high: float | None
    vetoed: bool
    won: bool


def starts_of(result: Result[Any]) -> list[StartScore]:
    """The starts in order, the first program before all others."""
    state = result.state
    assert state.started is not None
    seed = Candidate(state.started.texts)
    entries = [("first program", seed), *((start.name, seed.replace(start.texts)) for start in state.started.starts)]
    known = {member.candidate.id: member.index for member in state.pool}
    roots = _roots(state, result.winner_index)
    return [_score(result, name, known.get(start.id), start.id, roots) for name, start in entries]


def _score(result: Result[Any], name: str, index: int | None, candidate_id: str, roots: set[int]) -> StartScore:
    if index is None:
        return StartScore(name, None, None, None, None, candidate_id in result.state.seen, False)
    mean, low, high, _ = mean_interval(result.state.table.array[index].tolist())
    score = result.objective.score
    low, high = sorted((score(low), score(high)))
    return StartScore(name, index, score(mean), low, high, False, index in roots)


def _roots(state: RunState, index: int) -> set[int]:
    """The starts that a candidate descends from, itself if it is one."""
    found: set[int] = set()
    waiting = [index]
    while waiting:
        member = state.pool[waiting.pop()]
        if member.step < 0:
            found.add(member.index)
        else:
            waiting.extend(member.parents)
    return found


def starts_text(result: Result[Any]) -> str:
    """One line a start, where there are several."""
    starts = result.starts
    if len(starts) < 2:
        return ""
    rows = [f"{'start':<28}{'validation':>11}   {'95 % interval':<18}"]
    for start in starts:
        if start.mean is None or start.low is None or start.high is None:
            score = f"{'-':>11}   {'vetoed: worse than the first program on a pin' if start.vetoed else 'not run: the budget ran out'}"
        else:
            score = f"{start.mean:>11.3f}   {f'[{start.low:.3f}, {start.high:.3f}]':<18}"
        rows.append(f"{start.name[:27]:<28}{score}{'  the winner comes from here' if start.won else ''}".rstrip())
    what = "validation and test compare" if result.test is not None else "validation compares"
    return "\n".join([*rows, f"Before and after: {what} the winner with the first program."])
