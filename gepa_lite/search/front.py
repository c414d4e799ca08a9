"""The Pareto front, and the paper's pruning of it (papers: GEPA §2.3, algorithm 2; its code's cover rule)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gepa_lite.search.tops import Tops


@dataclass(frozen=True)
class Front:
    """The validated candidates and their values.

    Attributes:
        members: indices in the pool, ascending, shape (members,).
        tables: values of the whole pool by index, side by side; each of shape (pool, some columns); higher is better, a missing cell is NaN.
        means: mean value of each member on the validation examples, shape (members,).
        tops: the leaders of each column, by index in the pool.
        worst: the worst possible value.
        top: the best possible value.
    """

    members: NDArray[np.int64]
    tables: tuple[NDArray[np.float64], ...]
    means: NDArray[np.float64]
    tops: Tops
    worst: float = 0.0
    top: float = 1.0

    @classmethod
    def of(cls, values: NDArray[np.float64], means: NDArray[np.float64]) -> Front:
        """The front of a table alone.

        Args:
            values: shape (members, columns).
            means: shape (members,).
        """
        return cls(np.arange(len(values)), (values,), means, Tops.of(values, means))

    @cached_property
    def values(self) -> NDArray[np.float64]:
        """Shape (members, columns)."""
        return self.rows(np.arange(len(self.members)))

    @property
    def owners(self) -> NDArray[np.bool_]:
        """Shape (members, columns): whether a member reaches the best value of a column; ties are kept, compared exactly."""
        owned: NDArray[np.bool_] = self.values == self.tops.best
        return owned

    @property
    def best(self) -> int:
        """Row of the highest mean, the first of equal ones."""
        return int(np.argmax(self.means))

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.tops.best)

    def rows(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """The values of some members, shape (rows, columns), without a look at the others."""
        places = self.members[rows]
        if len(self.tables) == 1:
            return self.tables[0][places]
        return np.concatenate([table[places] for table in self.tables], axis=1)

    def column(self, index: int) -> NDArray[np.float64]:
        """One column, shape (members,)."""
        for table in self.tables:
            if index < table.shape[1]:
                break
            index -= table.shape[1]
        column: NDArray[np.float64] = table[self.members, index]
        return column


def prune(front: Front) -> NDArray[np.int64]:
    """How many columns each member still wins once dominated members are gone.

    A member is dominated if on every column that it wins another remaining member wins too. The paper's procedure removes the dominated member of the lowest mean and starts again until none
    is left. Removals only shrink the covers of those that stay, so one pass by ascending mean (stable) is the same; and in that pass a member stays exactly if it is the last winner of some
    column that no member which stayed won before. So only the columns' leaders need a look: O(leaders * columns), however many members there are.

    Returns:
        Shape (members,): columns won by a surviving member, 0 for the others. Every column that anyone has a value in keeps at least one survivor.
    """
    tops = front.tops
    # members are ascending: where all of the pool are members, each stands at its own index
    leader = tops.leader if len(front.members) == len(front.tables[0]) else np.searchsorted(front.members, tops.leader)
    wins = np.bincount(leader[tops.count == 1], minlength=len(front.members))
    shared = np.flatnonzero(tops.count > 1)
    if not len(shared):
        return wins
    led_by = leader[shared]
    # only rows that lead alone or lead a shared column can survive; by ascending mean, stable
    alone = wins > 0
    leads = alone.copy()
    leads[led_by] = True
    looked_at = np.flatnonzero(leads)
    looked_at = looked_at[front.means[looked_at].argsort(kind="stable")]
    won = front.rows(looked_at)[:, shared] == tops.best[shared]
    survives = _survivors(alone[looked_at].tolist(), _bits(looked_at[:, None] == led_by), _bits(won))
    wins[looked_at[survives]] += won[survives].sum(axis=1)
    return wins


def _bits(cells: NDArray[np.bool_]) -> list[int]:
    """Each row as one whole number: set algebra on thousands of columns in a fraction of a microsecond."""
    packed = np.packbits(cells, axis=1)
    width, data = packed.shape[1], packed.tobytes()
    return [int.from_bytes(data[start : start + width], "big") for start in range(0, len(data), width)]


def _survivors(alone: list[bool], leads: list[int], won: list[int]) -> list[int]:
    """Places of the members that stay; see ``prune``."""
    covered = 0
    places = []
    for place, (stays, led, wins) in enumerate(zip(alone, leads, won, strict=True)):
        if stays or led & ~covered:
            covered |= wins
            places.append(place)
    return places
