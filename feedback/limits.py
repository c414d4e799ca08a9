"""Judge the form and the price of an answer: a pattern, a length, the time and the money it took."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

from gepa_lite.core.call import Trace
from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback
from gepa_lite.errors import UsageError

from .match import FieldFeedback, shown

TraceFeedback = Callable[[Example, Any, Trace], Feedback]
"""A feedback function that reads the trace."""


def regex(field: str, pattern: str, *, meaning: str, wanted: bool = True, flags: int = 0) -> FieldFeedback:
    r"""A feedback function: 1 where a pattern occurs in the output field (or, with ``wanted=False``, where it does not), else 0.

    Args:
        field: the output field.
        pattern: a regular expression, searched for; anchor it by ``^`` and ``$`` for a full match.
        meaning: the rule in words, e.g. ``"the answer ends with a full stop"``: the reflection model learns from it, not from the pattern.
        wanted: whether it has to occur or must not.
        flags: flags of ``re``.

    Raises:
        UsageError: no regular expression.

    Example:
        >>> judge = regex("answer", r"\.$", meaning="the answer ends with a full stop")
        >>> judge(Example("id", {}, {}), {"answer": "Yes"}).text
        "Broken: the answer ends with a full stop. It was 'Yes'."
    """
    try:
        compiled = re.compile(pattern, flags)
    except re.error as error:
        raise UsageError(f"regex(pattern={pattern!r}): not a regular expression: {error}.") from None

    def feedback(example: Example, output: Any) -> Feedback:
        text = str(output[field])
        found = compiled.search(text)
        if (found is not None) == wanted:
            return Feedback(1.0, f"Kept: {meaning}.")
        where = f" {shown(found.group())} stands there." if found else ""
        return Feedback(0.0, f"Broken: {meaning}.{where} It was {shown(text)}.")

    return feedback


def length(
    field: str, *, at_least: int = 0, at_most: int | None = None, unit: Literal["words", "characters", "sentences", "lines"] = "words"
) -> FieldFeedback:
    """A feedback function: 1 within the bounds, falling to 0 at twice the upper or none of the lower one, with by how much it is off.

    Args:
        field: the output field.
        at_least: lower bound, included.
        at_most: upper bound, included; None for none.
        unit: what is counted.

    Raises:
        UsageError: bounds that nothing can meet, or an unknown unit.

    Example:
        >>> judge = length("answer", at_most=2)
        >>> judge(Example("id", {}, {}), {"answer": "Yes of course"})
        Feedback(score=0.5, text='Too long: 3 words, 1 over the limit of 2.', modules={}, objectives={}, scores={})
    """
    if at_least < 0 or (at_most is not None and at_most < max(at_least, 1)):
        raise UsageError(f"length(at_least={at_least}, at_most={at_most}): 0 <= at_least <= at_most is needed.")
    if unit not in _COUNTS:
        raise UsageError(f"length(unit={unit!r}): one of {', '.join(_COUNTS)} is needed.")

    def feedback(example: Example, output: Any) -> Feedback:
        count = _COUNTS[unit](str(output[field]))
        if at_most is not None and count > at_most:
            over = count - at_most
            return Feedback(max(0.0, 1.0 - over / at_most), f"Too long: {_counted(count, unit)}, {over} over the limit of {at_most}.")
        if count < at_least:
            return Feedback(count / at_least, f"Too short: {_counted(count, unit)}, {at_least - count} under the minimum of {at_least}.")
        return Feedback(1.0, f"The length is right: {_counted(count, unit)}.")

    return feedback


def latency(seconds: float) -> TraceFeedback:
    """A feedback function: 1 up to a target, then falling as target / time, with the slowest module named.

    Times are observations: a reply from the cache takes none, and two runs need not agree. Use it as a part of ``weighted``, never alone.

    Args:
        seconds: the target for all calls of a rollout together.

    Raises:
        UsageError: the target is not above 0.
    """
    if seconds <= 0:
        raise UsageError(f"latency(seconds={seconds!r}): more than 0 is needed.")

    def feedback(example: Example, output: Any, trace: Trace) -> Feedback:
        spent = _by_module(trace, lambda call: call.seconds)
        return _against_target(sum(spent.values()), seconds, spent, lambda value: f"{value:.2g} s", "took")

    return feedback


def cost(*, usd: float | None = None, tokens: int | None = None) -> TraceFeedback:
    """A feedback function: 1 up to a target, then falling as target / cost, with the dearest module named. Cached replies count as if they were paid.

    Args:
        usd: the target in dollars a rollout; or
        tokens: the target in input and output tokens a rollout.

    Raises:
        UsageError: both or neither, not above 0, or a call whose price is not known.

    Example:
        >>> from gepa_lite.core.call import Call, Usage
        >>> judge = cost(tokens=100)
        >>> judge(Example("id", {}, {}), {}, Trace((Call("answer", {}, (), usage=Usage(1, 150, 50)),))).text
        'It cost 200 tokens; the target is 100 tokens. Most of it is by answer: 200 tokens.'
    """
    target = usd if usd is not None else tokens
    if target is None or (usd is not None and tokens is not None) or target <= 0:
        raise UsageError(f"cost(usd={usd}, tokens={tokens}): one of the two, above 0, is needed.")

    def paid(call: Any) -> float:
        if usd is None:
            return float(call.usage.tokens)
        if call.usage.usd is None:
            raise UsageError(
                f"cost(usd=...): the price of {call.model or 'the model'} is not known. Give it by prices=, or use cost(tokens=...)."
            )
        return float(call.usage.usd)

    def feedback(example: Example, output: Any, trace: Trace) -> Feedback:
        spent = _by_module(trace, paid)
        return _against_target(
            sum(spent.values()), target, spent, lambda value: f"{value:g} tokens" if usd is None else f"${value:.4g}", "cost"
        )

    return feedback


def _counted(count: int, unit: str) -> str:
    return f"{count} {unit.removesuffix('s') if count == 1 else unit}"


def _by_module(trace: Trace, measure: Callable[[Any], float]) -> dict[str, float]:
    return {module: sum(measure(call) for call in trace.of(module)) for module in trace.modules}


def _against_target(total: float, target: float, spent: dict[str, float], text: Callable[[float], str], verb: str) -> Feedback:
    if total <= target:
        return Feedback(1.0, f"It {verb} {text(total)}, within the target of {text(target)}.")
    worst = max(spent, key=lambda module: spent[module])
    words = f"It {verb} {text(total)}; the target is {text(target)}."
    modules = {module: f"{words} Of it, {text(share)} is by this module." for module, share in spent.items()}
    return Feedback(target / total, f"{words} Most of it is by {worst}: {text(spent[worst])}.", modules=modules)


_COUNTS: dict[str, Callable[[str], int]] = {
    "words": lambda text: len(text.split()),
    "characters": len,
    "sentences": lambda text: len([one for one in re.split(r"[.!?]+(?:\s|$)", text) if one.strip()]),
    "lines": lambda text: len([line for line in text.splitlines() if line.strip()]),
}
