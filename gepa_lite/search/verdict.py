"""What the numbers allow us to say (design decision 11): paired differences, a bootstrap interval, a sign-flip test, an exact sign test, flips."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gepa_lite.core.seeds import stream

Verdict = Literal["improved", "not shown", "worse", "indecisive", "validated only"]

RESAMPLES = 10_000
LEVEL = 0.05
"""Two-sided error of a verdict: where no prompt can help, at most half of it, 2.5 %, of the runs claim ``improved``."""
MISSING_SHARE = 0.1
"""Share of test examples that may be missing in a pair before the verdict is ``indecisive``."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two candidates on the same examples.

    Attributes:
        n: examples scored for both.
        missing: examples left out since one of the two has no score.
        before: mean of the first on the n examples.
        after: mean of the second.
        low: lower end of the percentile-bootstrap interval of ``after - before``: 95 %, or wider after several looks.
        high: upper end.
        p: two-sided p-value of the sign-flip (permutation) test on the paired differences; exact where all differences have one size, as with right and wrong, and up to 14 of them.
        sign_p: two-sided p-value of the exact sign test on ``won`` and ``lost``: how large the differences are does not count.
        detectable: the true gain that so many examples with such differences show in about four of five runs (normal approximation with a correction for continuity); None where no two
            scores differ.
        won: examples on which the second is better.
        lost: examples on which it is worse.
        looks: how often these examples were looked at; the interval's error and the p-value's bound are divided by it (Bonferroni).
    """

    n: int
    missing: int
    before: float
    after: float
    low: float
    high: float
    p: float
    won: int
    lost: int
    looks: int = 1
    sign_p: float = 1.0
    detectable: float | None = None

    @property
    def gain(self) -> float:
        """``after - before``."""
        return self.after - self.before

    @property
    def level(self) -> float:
        """The p-value that a verdict needs: 0.05 shared among the looks (Bonferroni)."""
        return LEVEL / self.looks


def compare(before: Sequence[float | None], after: Sequence[float | None], *, looks: int = 1, seed: int = 0) -> Comparison:
    """Compare two rows of values, paired by position.

    Args:
        before: values of the first candidate; None is missing and leaves the pair out.
        after: values of the second, of equal length.
        looks: how often these examples were looked at.
        seed: of the resampling.

    Raises:
        ValueError: no pair is complete.
    """
    pairs = [(b, a) for b, a in zip(before, after, strict=True) if b is not None and a is not None]
    if not pairs:
        raise ValueError("no example is scored for both candidates")
    table = np.array(pairs)
    differences = table[:, 1] - table[:, 0]
    generator = np.random.default_rng(stream(seed, "verdict").getrandbits(64))
    tail = LEVEL / 2 / looks
    low, high = np.quantile(_bootstrap_means(differences, generator), [tail, 1 - tail])
    return Comparison(
        n=len(pairs),
        missing=len(before) - len(pairs),
        before=float(table[:, 0].mean()),
        after=float(table[:, 1].mean()),
        low=float(low),
        high=float(high),
        p=_sign_flip_p(differences, generator),
        won=int((differences > 0).sum()),
        lost=int((differences < 0).sum()),
        looks=looks,
        sign_p=sign_test(int((differences > 0).sum()), int((differences < 0).sum())),
        detectable=_detectable(differences, looks),
    )


def mean_interval(values: Sequence[float | None], seed: int = 0) -> tuple[float, float, float, int]:
    """Mean, lower and upper end of its 95 % bootstrap interval, and n of the values that are not missing; NaN where all are."""
    known = np.array([value for value in values if value is not None])
    if not len(known):
        return float("nan"), float("nan"), float("nan"), 0
    generator = np.random.default_rng(stream(seed, "interval").getrandbits(64))
    low, high = np.quantile(_bootstrap_means(known, generator), [0.025, 0.975])
    return float(known.mean()), float(low), float(high), len(known)


def verdict_of(comparison: Comparison) -> Verdict:
    """``improved`` or ``worse`` where the interval excludes zero and the sign-flip test agrees at 5 %; ``indecisive`` where too much is missing.

    The second condition guards the bootstrap where there are few examples: three wins in three have an interval of [1, 1] and a p-value of 0.25.
    """
    if comparison.missing > MISSING_SHARE * (comparison.n + comparison.missing):
        return "indecisive"
    if comparison.p <= comparison.level and comparison.low > 0:
        return "improved"
    if comparison.p <= comparison.level and comparison.high < 0:
        return "worse"
    return "not shown"


def _bootstrap_means(values: NDArray[np.float64], generator: np.random.Generator) -> NDArray[np.float64]:
    # in blocks, so that 10,000 resamples of 10,000 values do not take 800 MB
    block = max(1, 2_000_000 // len(values))
    means = []
    for start in range(0, RESAMPLES, block):
        picks = generator.integers(0, len(values), size=(min(block, RESAMPLES - start), len(values)))
        means.append(values[picks].mean(axis=1))
    return np.concatenate(means)


def _detectable(differences: NDArray[np.float64], looks: int) -> float | None:
    moved = np.abs(differences[differences != 0])
    if not len(moved):
        return None
    quantile = NormalDist().inv_cdf
    errors = quantile(1 - LEVEL / 2 / looks) + quantile(0.8)
    return float(errors * differences.std() / math.sqrt(len(differences)) + moved.mean() / len(differences))


def sign_test(won: int, lost: int) -> float:
    """Two-sided p-value of the exact sign test: under the null each difference is up or down by a fair coin.

    Example:
        >>> sign_test(9, 1)
        0.021484375
    """
    tosses = won + lost
    tail = sum(math.comb(tosses, k) for k in range(min(won, lost) + 1))
    # whole numbers, so that thousands of tosses neither overflow nor underflow
    return float(min(1.0, 2 * tail / 2**tosses))


def _sign_flip_p(differences: NDArray[np.float64], generator: np.random.Generator) -> float:
    """Under the null the sign of each difference is a coin: how often is the mean at least as far from zero? Exact where all are of one size and up to 14, else sampled."""
    moved = differences[differences != 0]
    if not len(moved):
        return 1.0
    sizes = np.abs(moved)
    if np.ptp(sizes) <= 1e-12 * sizes.max():
        return sign_test(int((moved > 0).sum()), int((moved < 0).sum()))
    observed = abs(moved.sum()) - 1e-12
    if len(moved) <= 14:
        signs = 1 - 2 * ((np.arange(2 ** len(moved))[:, None] >> np.arange(len(moved))) & 1)
        return float((np.abs(signs @ moved) >= observed).mean())
    block = max(1, 2_000_000 // len(moved))
    hits = 0
    for start in range(0, RESAMPLES, block):
        signs = 1 - 2 * generator.integers(0, 2, size=(min(block, RESAMPLES - start), len(moved)))
        hits += int((np.abs(signs @ moved) >= observed).sum())
    return (hits + 1) / (RESAMPLES + 1)
