"""Make one feedback of several: all at once, a weighted mean, or one that opens the way to another. Words for single modules are kept apart.

Step rewards (``Feedback.scores``) of the parts of ``all_of`` and ``weighted`` are not carried over: a mean of some of them would blame the wrong module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gepa_lite.core.call import Trace
from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback, as_feedback
from gepa_lite.errors import UsageError
from gepa_lite.rollouts.judge import takes_trace

from .limits import TraceFeedback

AnyFeedback = Callable[..., Any]
"""What ``gl.optimize(feedback=)`` takes, coroutines apart."""


def judged(feedback: AnyFeedback) -> TraceFeedback:
    """A feedback function in one form: it takes the trace and returns a ``Feedback``, whatever the given one takes and returns.

    >>> judged(lambda example, output: True)(Example("id", {}, {}), {}, Trace()).score
    1.0
    """
    wants_trace = takes_trace(feedback)

    def call(example: Example, output: Any, trace: Trace) -> Feedback:
        return as_feedback(feedback(example, output, trace) if wants_trace else feedback(example, output))

    return call


def all_of(**parts: AnyFeedback) -> TraceFeedback:
    """A feedback function: the lowest score of several, each by a name, with the words of all that are not perfect.

    Args:
        parts: feedback functions with scores in 0 to 1, by name. The scores go into ``objectives`` under these names.

    Raises:
        UsageError: fewer than one part.

    Example:
        >>> from gepa_lite.feedback.limits import length
        >>> from gepa_lite.feedback.match import exact_match
        >>> judge = all_of(right=exact_match("answer"), short=length("answer", at_most=1))
        >>> judge(Example("id", {}, {"answer": "a b"}), {"answer": "a b"}, Trace()).text
        '[short 0.00] Too long: 2 words, 1 over the limit of 1.'
    """
    functions = _functions("all_of", parts)

    def feedback(example: Example, output: Any, trace: Trace) -> Feedback:
        found = {name: function(example, output, trace) for name, function in functions.items()}
        told = {name: one for name, one in found.items() if one.score < 1.0} or found
        return _joined(min(one.score for one in found.values()), told, found)

    return feedback


def weighted(parts: Mapping[str, tuple[AnyFeedback, float]]) -> TraceFeedback:
    r"""A feedback function: the weighted mean of several scores, with the words of each, the one that costs most first.

    Args:
        parts: a feedback function and its weight, by name. The scores go into ``objectives`` under these names.

    Raises:
        UsageError: fewer than one part, or weights that are not above 0.

    Example:
        >>> judge = weighted({"a": (lambda example, output: (1.0, "fine"), 3), "b": (lambda example, output: (0.0, "bad"), 1)})
        >>> judge(Example("id", {}, {}), {}, Trace()).text
        '[b 0.00] bad\n[a 1.00] fine'
    """
    functions = _functions("weighted", {name: function for name, (function, _) in parts.items()})
    weights = {name: float(weight) for name, (_, weight) in parts.items()}
    for name, weight in weights.items():
        if not 0 < weight < float("inf"):
            raise UsageError(f"weighted: the weight of {name!r} is {weight!r}; a number above 0 is needed.")
    total = sum(weights.values())

    def feedback(example: Example, output: Any, trace: Trace) -> Feedback:
        found = {name: function(example, output, trace) for name, function in functions.items()}
        by_loss = sorted(found, key=lambda name: -weights[name] * (1 - found[name].score))
        score = sum(weights[name] * one.score for name, one in found.items()) / total
        return _joined(score, {name: found[name] for name in by_loss}, found)

    return feedback


def gate(condition: AnyFeedback, then: AnyFeedback, *, at_least: float = 1.0, floor: float = 0.0) -> TraceFeedback:
    r"""A feedback function that asks a second one only where a first is met: what follows costs nothing for an answer of the wrong form.

    Args:
        condition: the feedback that has to be met.
        then: the feedback that gives the score where it is.
        at_least: the score from which the condition is met.
        floor: the share of the score, in 0 to 1, that an answer gets for meeting the condition alone; below it the condition's score counts, times ``floor``.

    Raises:
        UsageError: ``floor`` outside 0 to 1.

    Example:
        >>> from gepa_lite.feedback.limits import regex
        >>> judge = gate(regex("answer", r"^\d+$", meaning="the answer is a whole number"), lambda example, output: output["answer"] == "4")
        >>> judge(Example("id", {}, {}), {"answer": "four"}, Trace()).text
        "Broken: the answer is a whole number. It was 'four'. Nothing else was judged."
    """
    if not 0.0 <= floor < 1.0:
        raise UsageError(f"gate(floor={floor!r}): 0 or more and less than 1 is needed.")
    first, second = judged(condition), judged(then)

    def feedback(example: Example, output: Any, trace: Trace) -> Feedback:
        met = first(example, output, trace)
        if met.score >= at_least:
            found = second(example, output, trace)
            return Feedback(floor + (1 - floor) * found.score, found.text, found.modules, found.objectives, found.scores)
        return Feedback(floor * met.score, f"{met.text} Nothing else was judged.", met.modules, scores=met.scores)

    return feedback


def _functions(what: str, parts: Mapping[str, AnyFeedback]) -> dict[str, TraceFeedback]:
    if not parts:
        raise UsageError(f"{what}: at least one feedback function is needed.")
    return {name: judged(function) for name, function in parts.items()}


def _joined(score: float, told: Mapping[str, Feedback], found: Mapping[str, Feedback]) -> Feedback:
    """One feedback of several: the words of those to tell, for each module that any of them speaks to."""
    named = dict.fromkeys(module for one in told.values() for module in one.modules)
    modules = {module: _words(told, _words_for(module)) for module in named}
    objectives = {name: one.score for name, one in found.items()}
    for name, one in found.items():
        objectives.update({f"{name}.{inner}": value for inner, value in one.objectives.items()})
    return Feedback(score, _words(told, lambda one: one.text), modules, objectives)


def _words_for(module: str) -> Callable[[Feedback], str]:
    return lambda one: one.for_module(module)


def _words(told: Mapping[str, Feedback], pick: Callable[[Feedback], str]) -> str:
    return "\n".join(f"[{name} {one.score:.2f}] {pick(one)}" for name, one in told.items() if pick(one))
