"""Which candidate the run hands back, and how long its prompts are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from gepa_lite.search.search import Search
from gepa_lite.search.state import Member, RunState

_CHARACTERS_PER_TOKEN = 4


def prompt_tokens(texts: Mapping[str, str], calls: Mapping[str, float]) -> float:
    """Tokens of prompts that one run of the program sends: each module's text, estimated at four characters a token, times its calls.

    Args:
        texts: by module.
        calls: calls of each module in a rollout, on average; a module without an entry never ran and costs nothing. Empty: one call each.

    Example:
        >>> prompt_tokens({"gist": "Say what the sender wants.", "route": "Route it."}, {"gist": 1.0, "route": 2.0})
        13.0
    """
    weights = calls or dict.fromkeys(texts, 1.0)
    return sum(math.ceil(len(text) / _CHARACTERS_PER_TOKEN) * weights.get(module, 0.0) for module, text in texts.items())


def own_objectives(
    search: Search, texts: Mapping[str, str], calls: Mapping[str, float], values: Sequence[float | None]
) -> dict[str, tuple[float | None, ...]]:
    """The objectives of ``Search.objectives``: the same on every example that was run, and negative where less is better."""
    if "prompt_tokens" not in search.objectives:
        return {}
    tokens = prompt_tokens(texts, calls)
    return {"prompt_tokens": tuple(None if value is None else -tokens for value in values)}


def winner_of(state: RunState, search: Search) -> Member:
    """The candidate that the run hands back.

    ``Search(prefer="score")``: the highest validation mean, the first of equal ones. ``"short"``: of the candidates whose mean is within one standard error of the highest
    (the one-standard-error rule: Breiman et al. 1984), the one with the fewest prompt tokens. From there on, each sentence that was dropped at no cost is gone.
    """
    winner = _short(state) if search.prefer == "short" else state.best
    by_id = {member.candidate.id: member for member in state.pool}
    for event in state.shortenings:
        if event.status == "dropped" and event.parent == winner.index:
            winner = by_id[winner.candidate.replace(event.texts).id]
    return winner


def _short(state: RunState) -> Member:
    best = state.best
    table = state.table.array
    within = []
    for member in state.pool:
        if member.mean is None:
            continue
        lacking = table[best.index] - table[member.index]
        if lacking.mean() <= np.std(lacking) / math.sqrt(len(lacking)) + 1e-12:
            within.append(member)
    if not within:
        return best
    return min(within, key=lambda member: (prompt_tokens(member.candidate.texts, state.calls), -(member.mean or 0.0), member.index))
