"""Whether a child is better than its parent on the minibatch it was made from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol


class Acceptance(Protocol):
    """Compares the two on the same examples, in the same order; no cell is missing. A frozen dataclass, so that its settings are part of the fingerprint."""

    def __call__(self, before: Sequence[float], after: Sequence[float]) -> bool:
        """Whether the child may be validated."""
        ...


@dataclass(frozen=True, slots=True)
class Strict:
    """The paper's: the sum must rise."""

    def __call__(self, before: Sequence[float], after: Sequence[float]) -> bool:
        """Compare the sums."""
        return math.fsum(after) > math.fsum(before)


@dataclass(frozen=True, slots=True)
class NonStrict:
    """The sum must not fall."""

    def __call__(self, before: Sequence[float], after: Sequence[float]) -> bool:
        """Compare the sums."""
        return math.fsum(after) >= math.fsum(before)


@dataclass(frozen=True, slots=True)
class Paired:
    """The sum must rise, and a one-sided sign-flip test must find that unlikely under chance.

    With three examples the smallest p-value is 1/8, so a minibatch of three can pass only with ``alpha`` at 0.125 or more; larger minibatches can be held to less.

    Attributes:
        alpha: the largest p-value accepted, in (0, 1].
    """

    alpha: float = 0.25

    def __call__(self, before: Sequence[float], after: Sequence[float]) -> bool:
        """Test the differences; exactly up to 12 that are not zero, beyond that by the normal approximation."""
        moved = [a - b for a, b in zip(after, before, strict=True) if a != b]
        total = math.fsum(moved)
        if total <= 0:
            return False
        if len(moved) > 12:
            p = 0.5 * math.erfc(total / math.sqrt(2 * math.fsum(d * d for d in moved)))
        else:
            sums = [math.fsum(sign * d for sign, d in zip(signs, moved, strict=True)) for signs in product((1, -1), repeat=len(moved))]
            p = sum(value >= total - 1e-12 for value in sums) / len(sums)
        return p <= self.alpha


ACCEPTANCE: dict[str, Acceptance] = {"non_strict": NonStrict(), "paired": Paired(), "strict": Strict()}
