"""Whom a candidate descends from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Descendant(Protocol):
    """A candidate among others, as a run's state and its trail hold it."""

    @property
    def index(self) -> int:
        """Its place among all."""
        ...

    @property
    def step(self) -> int:
        """That made it; below 0 for a start."""
        ...

    @property
    def parents(self) -> Sequence[int]:
        """Their places."""
        ...


def roots_of(candidates: Sequence[Descendant], index: int) -> set[int]:
    """The starts that a candidate descends from, itself if it is one."""
    found: set[int] = set()
    waiting = [index]
    while waiting:
        one = candidates[waiting.pop()]
        if one.step < 0:
            found.add(one.index)
        else:
            waiting.extend(one.parents)
    return found
