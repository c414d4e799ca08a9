"""What candidates compete for: validation examples, objectives, both, or every pair of the two."""

from __future__ import annotations

import numpy as np

from gepa_lite.search.front import Front
from gepa_lite.search.search import Search
from gepa_lite.search.state import RunState
from gepa_lite.search.tops import Tops


def front_of(state: RunState, search: Search) -> Front:
    """The candidates that may be parents (those without a missing cell), with the columns that ``Search.frontier`` names.

    ``example``: one column a validation example (the paper's); ``objective``: the mean of one objective, the score itself being one; ``hybrid``: both; ``product``: one for each example and
    objective. Where neither the feedback nor ``Search.objectives`` gives any, the score is the only one. A candidate without a value in an objective's column does not compete there.
    """
    averages = state.means.array
    members = np.flatnonzero(~np.isnan(averages[:, 0]))
    means = averages[members, 0]
    tables: tuple[np.ndarray, ...]
    if search.frontier == "example":
        tables, tops = (state.table.array,), state.tops[0]
    elif search.frontier == "product":
        tables = (state.table.array, *(table.array for _, table in sorted(state.objectives.items())))
        tops = Tops.joined(state.tops)
    else:
        totals = Tops.of(averages[members], means)
        # by index in the pool, as in every front
        totals = Tops(totals.best, totals.count, np.where(totals.leader < 0, -1, members[totals.leader]), totals.mean)
        hybrid = search.frontier == "hybrid"
        tables = (state.table.array, averages) if hybrid else (averages,)
        tops = Tops.joined((state.tops[0], totals)) if hybrid else totals
    return Front(members, tables, means, tops, search.objective.worst, search.objective.best)
