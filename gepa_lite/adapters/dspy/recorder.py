"""One rollout of a dspy program: its LM calls on the way to the run, and the trace of its predictors.

It is a dspy callback (each predictor's own inputs, outputs and exception, by the very object and not by its signature) and the taker of its LMs' calls.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gepa_lite.adapters.dspy.calls import DspyLM, Made, Pending, RoutedCalls, Sink, completion_of, is_routed
from gepa_lite.adapters.dspy.faults import DeclinedError
from gepa_lite.adapters.dspy.replies import outputs_of_text, request_of, shown_outputs
from gepa_lite.core.call import Call, Trace
from gepa_lite.core.ids import content_hash
from gepa_lite.errors import BadRequestError, ModelError, RunError
from gepa_lite.lm.protocol import LM, Completion, Request
from gepa_lite.program.recorder import CallModel

PATH = "_gepa_lite_path"
"""The attribute of a copied predictor that holds its path. Copies of it, which dspy's own modules make, keep it."""

_OUTSIDE = "(lm)"


@dataclass
class _Visit:
    """One call of one predictor, while it runs and after."""

    path: str
    inputs: Mapping[str, Any]
    asked: list[_Asked] = field(default_factory=list)
    outputs: Mapping[str, Any] | None = None
    error: str | None = None
    began: float = field(default_factory=time.perf_counter)


@dataclass
class _Asked:
    """One LM call."""

    visit: _Visit
    request: Request
    reply: str
    completion: Completion | None
    model: str
    seconds: float
    began: float
    fault: ModelError | None = None
    unparsed: str | None = None


_visits: contextvars.ContextVar[tuple[_Visit, ...]] = contextvars.ContextVar("gepa_lite_dspy_visits", default=())


class Recorder:
    """See above. Used by several threads where the program starts them.

    Args:
        call: how calls reach their models.
        predict: dspy's class of predictors.
    """

    is_gepa_lite_recorder = True

    def __init__(self, call: CallModel, predict: type) -> None:
        self._call = call
        self._predict = predict
        self._lock = threading.Lock()
        self._occurrences: Counter[str] = Counter()
        self._log: list[_Asked | _Visit] = []
        self._open: dict[str, _Visit] = {}
        self._unrouted: dict[str, tuple[Any, Mapping[str, Any], float]] = {}
        self.sink = Sink()
        self.outage: ModelError | None = None
        """The first failure of a model call that was the world's fault, also where the program swallowed it."""
        self.stop: RunError | None = None
        """An error that ends the run, also where the program swallowed it."""
        self.faults: dict[int, ModelError] = {}
        """The model calls' faults by the ``id`` of the exception that the program got."""
        self._kept: list[Exception] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        # dspy calls a handler for each kind of event; the rest mean nothing here
        if name.startswith("on_"):
            return lambda **_: None
        raise AttributeError(name)

    # --- predictors

    def on_module_start(self, call_id: str, instance: Any, inputs: Mapping[str, Any]) -> None:
        """A module is called; only predictors count."""
        if not isinstance(instance, self._predict):
            return
        signature: Any = getattr(instance, "signature", None)
        given = inputs.get("kwargs") or {}
        own = {name: value for name, value in given.items() if name in signature.input_fields}
        visit = _Visit(vars(instance).get(PATH) or _unlisted(signature), own)
        with self._lock:
            self._open[call_id] = visit
        _visits.set((*_visits.get(), visit))

    def on_module_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """A module returned or raised."""
        with self._lock:
            visit = self._open.pop(call_id, None)
        if visit is None:
            return
        _visits.set(tuple(other for other in _visits.get() if other is not visit))
        if exception is None:
            visit.outputs = dict(outputs.items()) if hasattr(outputs, "items") else {"output": outputs}
            return
        visit.error = f"{type(exception).__name__}: {exception}"
        with self._lock:
            if not visit.asked:
                self._log.append(visit)
            elif isinstance(fault := visit.asked[-1].fault, DeclinedError) and self.outage is None:
                self.outage = BadRequestError(str(fault), status=fault.status)

    def on_adapter_parse_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """A reply was read, or could not be."""
        visits = _visits.get()
        if exception is not None and visits and visits[-1].asked:
            visits[-1].asked[-1].unparsed = str(exception)

    # --- calls of the program's LMs

    def call(self, lm: RoutedCalls, prompt: Any, messages: Any, options: Mapping[str, Any], ask: Callable[[], Any]) -> list[Any]:
        """See ``calls.TakesCalls``.

        Raises:
            Exception: what dspy raised, as outside a run; a ``RunError`` where the run can't go on.
        """
        if self.stop is not None:
            raise self.stop
        request = request_of(prompt, messages, {**lm.kwargs, **options})
        pending = Pending(lm.gepa_lite_lm, request, ask)
        completion, fault = self._pay(pending, request)
        if completion is not None:
            return outputs_of_text(completion.text)
        assert fault is not None
        if pending.raised is None:
            raise fault
        self.faults[id(pending.raised)] = fault
        self._kept.append(pending.raised)
        raise pending.raised

    def _pay(self, lm: LM, request: Request, began: float | None = None) -> tuple[Completion | None, ModelError | None]:
        info = lm.describe()
        digest = content_hash([info.endpoint, info.name, request])
        with self._lock:
            occurrence = self._occurrences[digest]
            self._occurrences[digest] += 1
        started = time.perf_counter()
        completion: Completion | None = None
        fault: ModelError | None = None
        try:
            completion = self._call(lm, request, occurrence)
        except ModelError as error:
            fault = error
        except RunError as error:
            self.stop = self.stop or error
            raise
        visits = _visits.get()
        visit = visits[-1] if visits else _Visit(_OUTSIDE, {})
        reply = "" if completion is None else shown_outputs(outputs_of_text(completion.text))
        model = info.name if completion is None else completion.model
        asked = _Asked(visit, request, reply, completion, model, time.perf_counter() - started, started if began is None else began, fault)
        with self._lock:
            visit.asked.append(asked)
            self._log.append(asked)
            if fault is not None and fault.fault == "world" and self.outage is None:
                self.outage = fault
        return completion, fault

    # --- calls of LMs that the program made or found elsewhere

    def on_lm_start(self, call_id: str, instance: Any, inputs: Mapping[str, Any]) -> None:
        """An LM is called that is none of the program's copies."""
        if not is_routed(instance):
            with self._lock:
                self._unrouted[call_id] = (instance, inputs, time.perf_counter())

    def on_lm_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """It answered or failed: book it afterwards."""
        with self._lock:
            instance, inputs, began = self._unrouted.pop(call_id, (None, {}, 0.0))
            entry = next((entry for entry in self.sink.history if entry.get("outputs") is outputs), {}) if outputs is not None else {}
        if instance is None:
            return
        lm = DspyLM(instance)
        options = inputs.get("kwargs") or {}
        # each was really made, so none is taken for another that was paid for before
        told = {**getattr(instance, "kwargs", {}), **options, "call": call_id}
        request = request_of(inputs.get("prompt"), inputs.get("messages"), told)
        try:
            if isinstance(exception, Exception):
                _, fault = self._pay(Made(lm, exception), request, began)
                if fault is not None:
                    self.faults[id(exception)] = fault
                    self._kept.append(exception)
            elif isinstance(outputs, list):
                self._pay(Made(lm, completion_of(entry, outputs, request, lm.describe())), request, began)
        except RunError:
            return  # kept in stop: dspy swallows what a callback raises

    # --- what came of it

    @property
    def trace(self) -> Trace:
        """Each LM call under its predictor's path, in the order they began; a predictor that failed before any call has one without messages."""
        with self._lock:
            log = sorted(self._log, key=lambda item: item.began)
        return Trace(tuple(_call_of(item) if isinstance(item, _Asked) else _call_without_lm(item) for item in log))


def _unlisted(signature: Any) -> str:
    return f"({', '.join(signature.input_fields)} -> {', '.join(signature.output_fields)})"


def _call_without_lm(visit: _Visit) -> Call:
    return Call(visit.path, visit.inputs, (), error=visit.error, error_kind="exception")


def _call_of(asked: _Asked) -> Call:
    visit, fault, completion = asked.visit, asked.fault, asked.completion
    last = not visit.asked or asked is visit.asked[-1]
    error, kind = (None, None) if fault is None else (str(fault), fault.kind)
    if error is None and asked.unparsed is not None:
        error, kind = asked.unparsed, "parse"
    if error is None and last and visit.error is not None:
        error, kind = visit.error, "exception"
    if completion is not None and completion.finish_reason == "length" and error is not None:
        error = f"The reply was cut off at its token limit. {error}"
    outputs: Mapping[str, Any] | None = None
    if error is None:
        outputs = visit.outputs if last and visit.outputs is not None else {"text": asked.reply}
    return Call(
        module=visit.path,
        inputs=visit.inputs,
        messages=asked.request.messages,
        reply=asked.reply,
        outputs=outputs,
        error=error,
        error_kind=kind,
        finish_reason=None if completion is None else completion.finish_reason,
        model=asked.model,
        usage=Completion("").usage if completion is None else completion.usage,
        seconds=asked.seconds,
        retry=bool(visit.asked) and asked is not visit.asked[0],
    )
