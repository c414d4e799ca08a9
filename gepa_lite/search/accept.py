"""Whether a child is better than its parent on the minibatch it was made from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol


class Acceptance(Protocol):
    """Compares the two on the same examples, in the same order; no cell is missing."""

    def __call__(self, before: Sequence[float], after: Sequence[float]) -> bool:
        """Whether the child may be validated."""
        ...


def strict(before: Sequence[float], after: Sequence[float]) -> bool:
    """The paper's: the sum must rise."""
    return math.fsum(after) > math.fsum(before)


def non_strict(before: Sequence[float], after: Sequence[float]) -> bool:
    """The sum must not fall."""
    return math.fsum(after) >= math.fsum(before)


ACCEPTANCE: dict[str, Acceptance] = {"non_strict": non_strict, "strict": strict}
