"""dspy metrics as feedback functions: two to five arguments, and whatever they return."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from gepa_lite.adapters.dspy import is_dspy_module, load_dspy
from gepa_lite.adapters.dspy.recorder import Recorder
from gepa_lite.core.call import Trace
from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback, as_feedback
from gepa_lite.errors import ModelError, UsageError
from gepa_lite.program.bridge import run_coroutine

_NAME = 3
"""The place of ``pred_name`` among the arguments of a metric with words for single predictors."""


class DspyMetric:
    """A metric as ``(example, output, trace)``.

    It is called as ``dspy.Evaluate`` calls it, ``metric(example, prediction)``, once for each rollout: further parameters keep their defaults. A third parameter without a default gets our ``Trace``.
    A metric that takes ``pred_name`` and said nothing in words is asked once more for each predictor that ran, for the words alone: the score stays the first call's.

    Args:
        function: the metric.
        judging: the context of a call: dspy's settings, with its model calls on the run's ledger.
        predictors: of the program, by path.

    Raises:
        UsageError: it can't be called with two to five arguments.
    """

    def __init__(
        self, function: Callable[..., Any], judging: Callable[[], AbstractContextManager[Recorder]], predictors: Mapping[str, Any]
    ) -> None:
        self._function = function
        self._judging = judging
        self._predictors = predictors
        self._required, self._takes, self._has_names = _shape(function)
        # how it is called is ours; the source that the run's fingerprint is of is the user's
        self.__signature__ = inspect.signature(type(self).__call__.__get__(self))
        self.__wrapped__ = type(function) if is_dspy_module(function) else function

    def __call__(self, example: Example, output: Any, trace: Trace) -> Any:
        """Judge one prediction."""
        gold = load_dspy().Example(**example.inputs, **example.labels).with_inputs(*example.inputs)
        value = self._call(gold, output, *self._more(trace))
        if not self._has_names:
            return value
        try:
            feedback = as_feedback(value)
        except ValueError:
            return value
        if feedback.text or feedback.modules:
            return feedback
        steps = self._steps(trace)
        words = {}
        for path in dict.fromkeys(path for path, _ in steps):
            own = [step for name, step in steps if name == path]
            words[path] = _words(self._call(*(gold, output, [step for _, step in steps], path, own)[: self._takes]))
        return Feedback(feedback.score, "", {path: text for path, text in words.items() if text}, feedback.objectives, feedback.scores)

    def _more(self, trace: Trace) -> tuple[Any, ...]:
        if self._required <= 2:
            return ()
        return (trace,) if self._required == 3 else (None,) * (self._required - 2)

    def _call(self, *arguments: Any) -> Any:
        error: Exception | None = None
        value: Any = None
        with self._judging() as recorder:
            try:
                value = self._function(*arguments)
                if inspect.iscoroutine(value):
                    value = run_coroutine(value)
            except Exception as raised:
                error = raised
        if recorder.stop is not None:
            raise recorder.stop
        # an outage counts even where the metric caught it: what it returned then is no judgement
        fault: ModelError | None = recorder.outage or (None if error is None else recorder.faults.get(id(error)))
        if fault is not None:
            raise fault
        if error is not None:
            raise error
        return value

    def _steps(self, trace: Trace) -> list[tuple[str, tuple[Any, Mapping[str, Any], Any]]]:
        """The predictors' calls in dspy's form of a trace: (predictor, inputs, prediction)."""
        prediction = load_dspy().Prediction
        return [
            (call.module, (self._predictors[call.module], dict(call.inputs), prediction(**(call.outputs or {}))))
            for call in trace.calls
            if call.module in self._predictors and call.outputs is not None
        ]


def _words(value: Any) -> str:
    try:
        return as_feedback(value).text
    except ValueError:
        return ""


def _shape(function: Any) -> tuple[int, int, bool]:
    """How many arguments must be given, how many may be, and whether it takes the name of a predictor."""
    if not callable(function):
        raise UsageError(f"feedback is of type {type(function).__name__}; a dspy metric(example, prediction, ...) is needed.")
    name = getattr(function, "__name__", type(function).__name__)
    try:
        parameters = list(inspect.signature(type(function).forward if is_dspy_module(function) else function).parameters.values())
    except (TypeError, ValueError):
        return 2, 2, False
    if is_dspy_module(function):
        parameters = parameters[1:]
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if any(p.kind is p.KEYWORD_ONLY for p in required) or len(required) > 5 or (len(positional) < 2 and not takes_any):
        raise UsageError(
            f"{name}({', '.join(map(str, parameters))}): a dspy metric takes two to five arguments: (example, prediction, trace, pred_name, pred_trace)."
        )
    named = len(positional) > _NAME and (len(positional) > _NAME + 1 or positional[_NAME].name == "pred_name")
    return max(2, len(required)), len(positional), named
