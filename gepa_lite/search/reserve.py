"""What is kept free for the time after the search: the shortening pass, the sealed test set and the curve's milestones."""

from __future__ import annotations

from collections.abc import Sequence

from gepa_lite.search.search import Search
from gepa_lite.search.state import RunState
from gepa_lite.search.winner import winner_of


def milestones_of(state: RunState, search: Search) -> list[int]:
    """The members to score on the curve: the seed, the winner so far and, evenly between them, others that led when they joined; ``Search.milestones`` at most.

    Those that were scored already stay; a run that goes on after its end adds at least its new winner.
    """
    done = [event.member for event in state.milestones]
    return milestones_among(done, state.leads, winner_of(state, search).index, search.milestones)


def milestones_among(done: Sequence[int], leads: Sequence[int], winner: int, count: int) -> list[int]:
    """The same from what is known of a run.

    Args:
        done: members that were scored already.
        leads: each member that was the best when it joined.
        winner: so far.
        count: ``Search.milestones``.
    """
    if winner in done:
        return list(done)
    chain = list(dict.fromkeys([*leads, winner]))
    new = [index for index in chain if index not in done]
    room = max(1, count - len(done))
    return [*done, *_spread(new, room, with_first=not done)]


def reserved_rollouts(state: RunState, search: Search) -> int:
    """Rollouts that the search must leave: for the test set, the milestones and the shortening pass."""
    assert state.started is not None
    # the seed is scored on the test set once; each look scores one winner
    test = len(state.started.test_ids) * (2 if state.tested is None else 1)
    milestones = max(1, search.milestones - len(state.milestones)) * len(state.started.curve_ids)
    return test + milestones + shortening_left(state, search)


def shortening_left(state: RunState, search: Search) -> int:
    """Rollouts that the shortening pass may still take."""
    return max(0, search.shorten - sum(event.spend.rollouts for event in state.shortenings))


def fits(state: RunState, rollouts: int, reserved: int) -> bool:
    """Whether so many rollouts, at the dearest so far, and those that are reserved fit in what is left of the budget."""
    budget, spend, costs = state.budget, state.spend, state.costs
    total = rollouts + reserved
    if budget.rollouts is not None and spend.rollouts + total > budget.rollouts:
        return False
    if budget.tokens is not None and spend.tokens + total * costs.rollout_tokens > budget.tokens:
        return False
    return budget.usd is None or (spend.usd or 0.0) + total * costs.rollout_usd <= budget.usd


def _spread(items: Sequence[int], count: int, *, with_first: bool) -> list[int]:
    """``count`` of the items at even distances, the last always, the first where it is asked for."""
    if len(items) <= count:
        return list(items)
    if count == 1:
        return [items[-1]]
    if with_first:
        places = [round(place * (len(items) - 1) / (count - 1)) for place in range(count)]
    else:
        places = [round((place + 1) * len(items) / count) - 1 for place in range(count)]
    return [items[place] for place in places]
