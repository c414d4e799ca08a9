"""How several starts of a run do side by side, read from its course, also while it goes on."""

from __future__ import annotations

from gepa_lite.core.budget import Spend
from gepa_lite.core.descent import roots_of
from gepa_lite.insight.trail import Trail
from gepa_lite.ship.starts import FIRST, StartScore, start_score


def race_of(trail: Trail) -> list[StartScore]:
    """The starts in order, the first program before all others; none where the run has one start, or its seed is not validated yet."""
    if trail.started is None or not trail.started.starts or not trail.nodes:
        return []
    names = [FIRST, *(start.name for start in trail.started.starts)]
    roots = set() if trail.winner is None else roots_of(trail.nodes, trail.winner.index)
    found = []
    for place, name in enumerate(names):
        # starts are committed in their order
        index, spend = trail.raced[place] if place < len(trail.raced) else (None, Spend())
        cells = [] if index is None else trail.rows[index].tolist()
        vetoed = index is None and place < len(trail.raced)
        found.append(start_score(name, index, cells, trail.objective, vetoed=vetoed, won=index in roots, spend=spend))
    return found
