"""How much scores vary by themselves, and so the smallest gain that a set of examples can show."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from gepa_lite.core.rollout import Rollout
from gepa_lite.doctor.checkup import Diagnosis
from gepa_lite.run_spec import RunSpec
from gepa_lite.search.verdict import LEVEL, sign_test

_LARGE = 0.1
"""Of the range of scores: a smallest gain above it is worth a word."""


def noise_floor(values: Sequence[Sequence[float]]) -> float:
    """Standard deviation of one example's score over repeats of the same program: the root of the mean variance.

    >>> round(noise_floor([[0.0, 1.0], [1.0, 1.0]]), 3)
    0.5
    """
    return math.sqrt(statistics.fmean(statistics.variance(row) for row in values)) if values else 0.0


def smallest_gain(n: int, noise: float, steps: float | None) -> float:
    """The smallest gain in the mean of n examples that can be told from chance at 5 %, two-sided.

    Args:
        n: examples.
        noise: standard deviation of one example's score by itself.
        steps: how far a score moves where scores are right or wrong: then at least six net flips are needed, by the sign test; None for scores in between.

    >>> smallest_gain(100, 0.0, 1.0), round(smallest_gain(100, 0.5, 1.0), 3)
    (0.06, 0.139)
    """
    by_noise = statistics.NormalDist().inv_cdf(1 - LEVEL / 2) * math.sqrt(2 / n) * noise
    flips = next(count for count in range(1, 100) if sign_test(count, 0) <= LEVEL)
    by_flips = 0.0 if steps is None else flips * steps / n
    return max(by_noise, by_flips)


def check_noise(spec: RunSpec, repeats: Sequence[Sequence[Rollout]]) -> list[Diagnosis]:
    """The noise floor from repeats of the seed, one row of rollouts a repeat, and what the sets can show."""
    rows = [[rollout.value for rollout in group] for group in zip(*repeats, strict=True)]
    known = [[value for value in row if value is not None] for row in rows]
    whole = [row for row in known if len(row) >= 2 and len(row) == len(repeats)]
    if not whole:
        return [Diagnosis("warn", "noise", "The noise could not be measured: too many sample rollouts have no score.")]
    noise = noise_floor(whole)
    low, high = spec.search.objective.range
    ends = {spec.search.objective.best, spec.search.objective.worst}
    steps = (high - low) if all(value in ends for row in whole for value in row) else None
    changing = sum(len(set(row)) > 1 for row in whole)
    evidence = f"{changing} of {len(whole)} examples changed their score over {len(repeats)} runs of the same prompts; standard deviation {noise:.3g}"
    first = (
        Diagnosis("ok", "noise", "The same prompts get the same scores each time.", evidence)
        if not noise
        else Diagnosis(
            "warn" if noise > 0.25 * (high - low) else "ok",
            "noise",
            f"Scores vary by themselves: one example's by {noise:.2g} (standard deviation), the validation mean's by {noise / math.sqrt(len(spec.validation)):.2g}.",
            evidence,
            "Use temperature 0, Search(repeats=3), or more validation examples.",
        )
    )
    return [first, *(_gain(name, len(rows), noise, steps, high - low) for name, rows in _sets(spec))]


def _sets(spec: RunSpec) -> list[tuple[str, Sequence[object]]]:
    return [(name, rows) for name, rows in (("validation set", spec.validation), ("test set", spec.test)) if rows]


def _gain(name: str, n: int, noise: float, steps: float | None, width: float) -> Diagnosis:
    gain = smallest_gain(n, noise, steps)
    why = f"{n} examples" + ("" if steps is None else ", right or wrong") + f", noise {noise:.2g}"
    if gain <= _LARGE * width:
        return Diagnosis("ok", "smallest_gain", f"The {name} can show a gain of {gain:.3g} and above.", why)
    needed = math.ceil(n * (gain / (_LARGE * width)) ** (1 if steps is not None and not noise else 2))
    return Diagnosis(
        "warn",
        "smallest_gain",
        f"The {name} can show no gain below {gain:.2g}: less can't be told from chance.",
        why,
        f"About {needed} examples could show {_LARGE * width:g}.",
    )
