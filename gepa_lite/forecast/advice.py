"""What is wrong with the settings of a run to come, and which one to change to what: found by following the course under other settings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gepa_lite.forecast.course import Case, Shape, Tally, follow
from gepa_lite.forecast.samples import Samples
from gepa_lite.run_spec import RunSpec

FEW_PROPOSALS = 5
"""Fewer proposals than this seldom find anything."""
ENOUGH_PROPOSALS = 10
"""What advice aims at."""
VALIDATION_EATS = 0.65
"""The share of the rollouts above which validation is called too dear."""
_LEAST_VALIDATION = 12


@dataclass(frozen=True, slots=True)
class Caution:
    """A warning, with the change that mends it.

    Attributes:
        code: a short stable word: ``few_proposals``, ``validation``, ``perfect``, ``failing``, ``missing``, ``price``.
        what: what is wrong, in words.
        do: what to change, and to what; the first of them is the smallest change.
    """

    code: str
    what: str
    do: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.what} {' Or: '.join(self.do)}".strip()


def advise(spec: RunSpec, shape: Shape, likely: Case, tally: Tally, samples: Samples, unpriced: tuple[str, ...]) -> list[Caution]:
    """The warnings for a run.

    Args:
        spec: the run.
        shape: of its course.
        likely: the middle case.
        tally: its course.
        samples: the sample rollouts.
        unpriced: models without a known price.
    """
    found = []
    if tally.proposals < FEW_PROPOSALS:
        bound = f"the bound on {tally.ended_by}" if tally.ended_by else "the settings"
        what = f"Only about {tally.proposals:.0f} proposals fit: {bound} ends the search. Fewer than {FEW_PROPOSALS} seldom find anything."
        found.append(Caution("few_proposals", what, tuple(_more_proposals(shape, likely, tally))))
    # one that few proposals are left beside: a large budget may well spend most on validation
    if tally.validation_share > VALIDATION_EATS and tally.proposals < 4 * ENOUGH_PROPOSALS:
        what = f"Validation takes {tally.validation_share:.0%} of the rollouts ({tally.seed:.0f} for the seed, {tally.children:.0f} for its children)."
        found.append(Caution("validation", what, tuple(_less_validation(shape, likely, tally))))
    return [*found, *_of_samples(spec, samples), *_of_prices(unpriced)]


def _more_proposals(shape: Shape, case: Case, tally: Tally) -> list[str]:
    """Changes after which at least ``ENOUGH_PROPOSALS`` fit."""

    def enough(other: Shape) -> bool:
        return follow(other, case).proposals >= ENOUGH_PROPOSALS

    advice = []
    if tally.ended_by:
        amount = getattr(shape.budget, tally.ended_by)
        raised = _least_bound(shape, tally.ended_by, amount, enough)
        if raised is not None:
            advice.append(f"Raise Budget({tally.ended_by}={_number(amount)}) to {_number(raised)}.")
    smaller = _most_validation(shape, enough)
    if smaller is not None:
        advice.append(f"Use {smaller} validation examples instead of {shape.validation}.")
    if shape.fan != 1 and enough(replace(shape, fan=1)):
        advice.append("Use Search(fan=1), whose steps need less of the budget at a time.")
    return advice or ["Raise the budget, and use fewer validation examples."]


def _less_validation(shape: Shape, case: Case, tally: Tally) -> list[str]:
    def cheap(other: Shape) -> bool:
        course = follow(other, case)
        return course.validation_share <= 0.5 or course.proposals >= 2 * ENOUGH_PROPOSALS

    advice = []
    if shape.block is None:
        staged = follow(replace(shape, block=10), case)
        if staged.proposals >= 1.1 * tally.proposals:
            advice.append(f"Use Search(validation='staged'): about {staged.proposals:.0f} proposals fit instead of {tally.proposals:.0f}.")
    smaller = _most_validation(shape, cheap)
    if smaller is not None:
        fits = follow(replace(shape, validation=smaller), case).proposals
        advice.append(f"Use {smaller} validation examples instead of {shape.validation}: about {fits:.0f} proposals fit.")
    return advice or ["Move examples from the validation set to the train set."]


def _least_bound(shape: Shape, name: str, amount: float, enough: Callable[[Shape], bool]) -> float | None:
    """The smallest amount of a bound that is enough, to two digits; None where no 64-fold one is."""

    def with_amount(value: float) -> Shape:
        changed: dict[str, Any] = {name: value if name in ("usd", "seconds") else math.ceil(value)}
        return replace(shape, budget=replace(shape.budget, **changed))

    low, high = float(amount), float(amount) * 2
    while not enough(with_amount(high)):
        low, high = high, high * 2
        if high > 64 * amount:
            return None
    while high - low > 0.02 * low:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(with_amount(middle)) else (middle, high)
    return _rounded_up(high)


def _most_validation(shape: Shape, enough: Callable[[Shape], bool]) -> int | None:
    """The largest smaller validation set that is enough; None where not even a dozen examples are."""
    low, high = _LEAST_VALIDATION, shape.validation
    if low >= high or not enough(replace(shape, validation=low)):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if enough(replace(shape, validation=middle)) else (low, middle)
    return low


def _rounded_up(amount: float) -> float:
    """To two digits, upwards.

    >>> _rounded_up(213.0), _rounded_up(0.0123)
    (220.0, 0.013)
    """
    unit = 10.0 ** (math.floor(math.log10(amount)) - 1)
    return float(f"{math.ceil(amount / unit - 1e-9) * unit:.12g}")


def _number(amount: float) -> str:
    return f"{amount:g}" if amount < 1e6 else f"{amount:.0f}"


def _of_samples(spec: RunSpec, samples: Samples) -> list[Caution]:
    found, count = [], len(samples.rollouts)
    best = spec.search.objective.best
    failed = [rollout.failure for rollout in samples.scored if rollout.failure is not None]
    missing = [rollout.failure for rollout in samples.rollouts if rollout.missing and rollout.failure is not None]
    if failed:
        what = f"{len(failed)} of {count} sample rollouts failed: {_cut(failed[0].message)}"
        found.append(Caution("failing", what, ("Look at it before the run, unless the prompt is to repair it.",)))
    if missing:
        what = f"{len(missing)} of {count} sample rollouts have no score, for reasons outside the program: {_cut(missing[0].message)}"
        found.append(Caution("missing", what, ("Run `gepa-lite check`.",)))
    if (
        count > 1
        and len(samples.scored) == count
        and all(rollout.value is not None and rollout.value >= best for rollout in samples.scored)
    ):
        what = f"All {count} sample rollouts have the best possible score: there may be little to learn, and the run ends at once if the seed is perfect on all."
        found.append(Caution("perfect", what, ("Score the seed by gl.evaluate first, or use harder examples.",)))
    return found


def _of_prices(unpriced: tuple[str, ...]) -> list[Caution]:
    if not unpriced:
        return []
    names = ", ".join(unpriced)
    give = f"Give it: prices={{{unpriced[0]!r}: (USD per million input tokens, per million output tokens)}}."
    return [Caution("price", f"The price of {names} is not known, so dollars are not.", (give,))]


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else f"{line[:197]}..."
