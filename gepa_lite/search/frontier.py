"""What candidates compete for: validation examples, objectives, both, or every pair of the two."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gepa_lite.search.front import Front
from gepa_lite.search.search import Search
from gepa_lite.search.state import RunState


def front_of(state: RunState, search: Search) -> Front:
    """The candidates that may be parents (those without a missing cell), with the columns that ``Search.frontier`` names.

    ``example``: one column a validation example (the paper's); ``objective``: one an objective, the score itself being one; ``hybrid``: both; ``product``: one for each example and
    objective. Where the feedback gives no objectives, the score is the only one.
    """
    members = [member for member in state.pool if member.mean is not None]
    rows = np.array([member.index for member in members], dtype=np.intp)
    means = tuple(member.mean for member in members if member.mean is not None)
    examples = state.table.array[rows]
    columns = examples if search.frontier == "example" else _columns(state, search.frontier, rows, examples)
    return Front(tuple(member.index for member in members), columns, means, search.objective.worst, search.objective.best)


def _columns(state: RunState, frontier: str, rows: NDArray[np.intp], examples: NDArray[np.float64]) -> NDArray[np.float64]:
    tables = [examples, *(table.array[rows] for _, table in sorted(state.objectives.items()))]
    if frontier == "product":
        return np.concatenate(tables, axis=1)
    means = np.stack([table.mean(axis=1) for table in tables], axis=1)
    return means if frontier == "objective" else np.concatenate([examples, means], axis=1)
