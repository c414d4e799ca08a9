"""Who leads each column of a table of values, kept up to date row by row.

A column is what candidates compete for: a validation example, an objective, or both; see ``frontier.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Tops:
    """The best of each column: all that selection needs of most rows, in O(columns) memory.

    Attributes:
        best: shape (columns,); the best value, compared exactly; -inf where no row has one.
        count: shape (columns,); how many rows reach it.
        leader: shape (columns,); of these rows the one with the highest mean, the last of equal ones; -1 where there is none.
        mean: shape (columns,); the leader's mean; -inf where there is none.
    """

    best: NDArray[np.float64]
    count: NDArray[np.int64]
    leader: NDArray[np.int64]
    mean: NDArray[np.float64]

    @classmethod
    def none(cls, width: int) -> Self:
        """Of no rows."""
        low = np.full(width, -np.inf)
        return cls(low, np.zeros(width, dtype=np.int64), np.full(width, -1, dtype=np.int64), low)

    @classmethod
    def of(cls, values: NDArray[np.float64], means: NDArray[np.float64]) -> Self:
        """Of all rows at once.

        Args:
            values: shape (rows, columns), at least one row; a missing cell is NaN and never among the best.
            means: shape (rows,).
        """
        best = np.fmax.reduce(values, axis=0, initial=-np.inf)
        # with the highest mean first, the last of equal ones before the others, the leader is the first row that reaches the best
        order = np.argsort(means, kind="stable")[::-1]
        owned = values[order] == best
        count = owned.sum(axis=0, dtype=np.int64)
        leader = order[owned.argmax(axis=0)]
        led = count > 0
        return cls(best, count, np.where(led, leader, -1), np.where(led, means[leader], -np.inf))

    @classmethod
    def joined(cls, parts: Sequence[Tops]) -> Self:
        """The columns of several, side by side."""
        return cls(
            np.concatenate([part.best for part in parts]),
            np.concatenate([part.count for part in parts]),
            np.concatenate([part.leader for part in parts]),
            np.concatenate([part.mean for part in parts]),
        )

    def add(self, row: int, values: NDArray[np.float64], mean: float) -> Self:
        """With one more row; this one is unchanged.

        Args:
            row: its number, above all before it.
            values: shape (columns,); a missing cell is NaN.
            mean: the row's mean.
        """
        better = values > self.best
        equal = values == self.best
        leads = better | (equal & (mean >= self.mean))
        return type(self)(
            np.where(better, values, self.best),
            np.where(better, 1, self.count + equal),
            np.where(leads, row, self.leader),
            np.where(leads, mean, self.mean),
        )
