"""The Pareto front, and the paper's pruning of it (papers: GEPA §2.3, algorithm 2; its code's cover rule).

A column is what candidates compete for: a validation example, an objective, or both; see ``frontier.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Front:
    """The validated candidates and their values.

    Attributes:
        members: indices in the pool, ascending.
        values: shape (members, columns); higher is better; no cell is missing.
        means: mean value of each member on the validation examples.
        worst: the worst possible value.
        top: the best possible value.
    """

    members: tuple[int, ...]
    values: NDArray[np.float64]
    means: tuple[float, ...]
    worst: float = 0.0
    top: float = 1.0

    @property
    def owners(self) -> NDArray[np.bool_]:
        """Shape (members, columns): whether a member reaches the best value of a column; ties are kept, compared exactly."""
        best: NDArray[np.float64] = self.values.max(axis=0)
        owned: NDArray[np.bool_] = self.values == best
        return owned

    @property
    def best(self) -> int:
        """Row of the highest mean, the first of equal ones."""
        return int(np.argmax(np.asarray(self.means)))


def prune(owners: NDArray[np.bool_], means: Sequence[float]) -> NDArray[np.int64]:
    """How many examples each member still wins once dominated members are gone.

    A member is dominated if on every example that it wins another remaining member wins too. Members are looked at once, by ascending mean (stable):
    removals only shrink the covers of those that stay, so one pass equals the paper's restart-until-none procedure.

    Args:
        owners: shape (members, examples), from ``Front.owners``.
        means: mean value of each member.

    Returns:
        Shape (members,): examples won by a surviving member, 0 for the others. Every example keeps at least one survivor.
    """
    wins: NDArray[np.int64] = owners.sum(axis=1)
    cover = owners.sum(axis=0)
    for row in np.argsort(np.asarray(means), kind="stable"):
        if wins[row] == 0:
            continue
        won = owners[row]
        if (cover[won] > 1).all():
            cover -= won
            wins[row] = 0
    return wins
