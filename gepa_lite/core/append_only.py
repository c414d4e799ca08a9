"""Sequences that only grow, with cheap old versions: what makes ``RunState.apply`` pure without copying the run each time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


class Log(Sequence[T], Generic[T]):
    """An immutable sequence; ``append`` returns a longer one in amortized O(1) and leaves this one as it was.

    Versions share one list: appending to the newest extends it, appending to an older one copies it.
    """

    __slots__ = ("_items", "_length")

    def __init__(self, items: Sequence[T] = ()) -> None:
        self._items: list[T] = list(items)
        self._length = len(self._items)

    def append(self, item: T) -> Log[T]:
        """A log with one more item."""
        longer: Log[T] = Log.__new__(Log)
        longer._items = self._items if len(self._items) == self._length else self._items[: self._length]
        longer._items.append(item)
        longer._length = self._length + 1
        return longer

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return self._items[: self._length][index]
        if not -self._length <= index < self._length:
            raise IndexError(f"index {index} is out of range for a log of {self._length}")
        return self._items[index if index >= 0 else self._length + index]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        for index in range(self._length):
            yield self._items[index]


class Rows:
    """An immutable table of float rows of one width that grows like ``Log``. A missing cell is NaN."""

    __slots__ = ("_block", "_filled", "_length")

    def __init__(self, width: int) -> None:
        self._block: NDArray[np.float64] = np.empty((8, width))
        self._filled = [0]
        self._length = 0

    def append(self, row: Sequence[float | None]) -> Rows:
        """A table with one more row; None becomes NaN."""
        longer = Rows.__new__(Rows)
        block, filled = self._block, self._filled
        if filled[0] != self._length or self._length == len(block):
            block = np.empty((max(8, 2 * self._length), self._block.shape[1]))
            block[: self._length] = self._block[: self._length]
            filled = [self._length]
        block[self._length] = np.array(row, dtype=np.float64)
        filled[0] += 1
        longer._block, longer._filled, longer._length = block, filled, self._length + 1
        return longer

    @property
    def array(self) -> NDArray[np.float64]:
        """The rows, shape (length, width), read-only."""
        view = self._block[: self._length]
        view.flags.writeable = False
        return view

    @property
    def last(self) -> NDArray[np.float64]:
        """The newest row, shape (width,), read-only."""
        row: NDArray[np.float64] = self.array[-1]
        return row

    def __len__(self) -> int:
        return self._length


class Seen(Generic[T]):
    """An immutable set of hashable items that grows like ``Log``."""

    __slots__ = ("_count", "_ranks")

    def __init__(self) -> None:
        self._ranks: dict[T, int] = {}
        self._count = 0

    def add(self, items: Sequence[T]) -> Seen[T]:
        """A set with these items too."""
        more: Seen[T] = Seen.__new__(Seen)
        more._ranks = self._ranks
        if len(self._ranks) != self._count:
            more._ranks = {item: rank for item, rank in self._ranks.items() if rank < self._count}
        for item in items:
            more._ranks.setdefault(item, len(more._ranks))
        more._count = len(more._ranks)
        return more

    def __contains__(self, item: object) -> bool:
        rank = self._ranks.get(item)  # type: ignore[arg-type]  # dict.get takes any object at run time
        return rank is not None and rank < self._count

    def __len__(self) -> int:
        return self._count
