"""The user's feedback function, called once per rollout, with its answer held to the contract."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from gepa_lite.core.call import Trace
from gepa_lite.core.code_id import code_id
from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback, Objective, as_feedback
from gepa_lite.errors import FeedbackError, ModelError, OutputError, RunError, UsageError
from gepa_lite.program.bridge import run_coroutine
from gepa_lite.program.recorder import CallModel, calling_through

FeedbackFunction = Callable[..., Any]


class Judge:
    """Calls ``feedback(example, output)`` or ``feedback(example, output, trace)`` and checks what it returns.

    A ``gl.Program`` that the function calls (an LM judge) reaches its model through the run: cached, in the ledger under ``judge``.

    Args:
        function: the feedback function; may be a coroutine function.
        objective: the score's direction and range.

    Raises:
        UsageError: the function does not take two or three positional arguments.
    """

    def __init__(self, function: FeedbackFunction, objective: Objective) -> None:
        self._function = function
        self._objective = objective
        self._wants_trace = takes_trace(function)

    @property
    def fingerprint(self) -> str:
        """A hash of the function's code: a changed judge makes other scores."""
        return code_id(self._function)

    def __call__(self, example: Example, output: Any, trace: Trace, call: CallModel) -> Feedback:
        """Judge one output.

        Raises:
            ModelError: a model that the function asked is down: the rollout is missing, not scored.
            OutputError: a model that the function asked gave a reply that can't be read: likewise.
            FeedbackError: the function raised, or returned no feedback; names the example.
        """
        try:
            with calling_through(call):
                value = self._function(example, output, trace) if self._wants_trace else self._function(example, output)
                if inspect.iscoroutine(value):
                    value = run_coroutine(value)
        except (ModelError, OutputError, RunError, UsageError):
            raise
        except Exception as error:
            raise FeedbackError(
                f"the feedback function raised {type(error).__name__}: {error} (example {example.id}, output {_short(output)}). "
                f"It must return a score for every output. What was paid is kept: mend it and start a run of another name with replies_from= this one; its model replies are not paid for again.",
                example.id,
            ) from error
        try:
            feedback = as_feedback(value)
        except ValueError as error:
            raise FeedbackError(
                f"the feedback function returned {_short(value)} for example {example.id}: {error}. "
                f"Return gl.Feedback(score, text), a number, a bool or (score, text).",
                example.id,
            ) from None
        if not self._objective.contains(feedback.score):
            low, high = self._objective.range
            raise FeedbackError(
                f"the feedback function returned the score {feedback.score:g} for example {example.id}; the range is {low:g} to {high:g}. "
                f"Say which range your scores have: search=gl.Search(objective=gl.Objective(range=(low, high))).",
                example.id,
            )
        return feedback


def takes_trace(function: FeedbackFunction) -> bool:
    """Whether a feedback function takes ``(example, output, trace)`` rather than ``(example, output)``.

    Raises:
        UsageError: it is no function, or takes neither.
    """
    if not callable(function):
        raise UsageError(f"feedback is of type {type(function).__name__}; a function feedback(example, output, trace) is needed.")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return True
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    if len(positional) < 2 or len(required) > 3 or any(p.kind is p.KEYWORD_ONLY for p in required):
        name = getattr(function, "__name__", type(function).__name__)
        raise UsageError(f"{name}{inspect.signature(function)}: a feedback function takes (example, output) or (example, output, trace).")
    return len(positional) >= 3


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 160 else text[:157] + "..."
