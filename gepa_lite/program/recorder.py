"""One rollout's recorder: it sends each module's call to its model and keeps the trace.

The active recorder lives in a context variable, so it travels into coroutines and into threads started through ``gl.carry``.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from gepa_lite.core.call import Call, Trace
from gepa_lite.core.ids import content_hash, jsonable
from gepa_lite.errors import ModelError, OutputError, RolloutError, RunError, UsageError
from gepa_lite.lm.protocol import LM, Completion, Params, Request
from gepa_lite.program.outputs import Outputs
from gepa_lite.program.parse import parse_reply, retry_messages
from gepa_lite.program.render import constraint, render_messages
from gepa_lite.program.signature import Signature

if TYPE_CHECKING:
    from gepa_lite.program.module import Module

P = ParamSpec("P")
R = TypeVar("R")


class CallModel(Protocol):
    """How a request reaches a model: straight, or through the run's cache and ledger."""

    def __call__(self, lm: LM, request: Request, occurrence: int) -> Completion:
        """Answer, or raise a ``ModelError``. ``occurrence`` counts equal requests within the rollout, from 0."""
        ...


def call_directly(lm: LM, request: Request, occurrence: int) -> Completion:
    """The way outside a run: no cache, no ledger."""
    return lm.complete(request)


@dataclass(frozen=True, slots=True)
class Binding:
    """A module as it stands in one program: its path, its text there and its model."""

    path: str
    text: str
    lm: LM


@dataclass(slots=True)
class _Timing:
    """A call's place among those that its rollout began, from 0, and how long it took."""

    place: int
    started: float
    seconds: float = 0.0

    def stop(self) -> None:
        """The reply is there, or there will be none."""
        self.seconds = time.perf_counter() - self.started


class Recorder:
    """Runs the modules of one program for one rollout and records their calls. Safe to use from several threads."""

    def __init__(self, bind: Callable[[Module], Binding], call: CallModel) -> None:
        self._bind = bind
        self._call = call
        self._calls: list[tuple[int, Call]] = []
        self._begun = 0
        self._occurrences: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.outage: ModelError | None = None
        """The first failure of a model call that was the world's fault, also where the program swallowed it."""
        self.stop: RunError | None = None
        """An error that ends the run, also where the program swallowed it."""

    @property
    def trace(self) -> Trace:
        """The calls that have ended so far, in the order they began."""
        with self._lock:
            return Trace(tuple(call for _, call in sorted(self._calls, key=lambda item: item[0])))

    def run(self, module: Module, inputs: Mapping[str, Any]) -> Outputs:
        """Run one module: render, call, parse; after an unparsable reply, once more where the module allows it.

        Raises:
            OutputError: the last reply could not be parsed.
            ModelError: the call failed.
        """
        binding = self._bind(module)
        values = module.signature.inputs_of(inputs)
        messages = render_messages(module.signature, binding.text, values)
        for attempt in range(module.retries + 1):
            request = _request(module.signature, messages, module.params, binding.lm)
            timing = self._begin()
            completion = self._complete(binding, values, request, timing, retry=attempt > 0)
            try:
                outputs = parse_reply(module.signature, completion.text)
            except OutputError as error:
                failure: OutputError = _cut_off(error) if completion.finish_reason == "length" else error
                self._record(binding, values, request, completion, timing, retry=attempt > 0, error=failure)
                if attempt == module.retries:
                    raise failure from None
                messages = tuple(retry_messages(messages, completion.text, failure))
            else:
                self._record(binding, values, request, completion, timing, retry=attempt > 0, outputs=outputs)
                return Outputs(**outputs)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def run_code(self, module: Module, inputs: Mapping[str, Any], work: Callable[[str, Mapping[str, Any]], Mapping[str, Any]]) -> Outputs:
        """Run a module that calls no model and record it: ``work`` makes its outputs from its text and its inputs.

        Raises:
            RolloutError: what ``work`` raised; it is in the trace.
        """
        binding = self._bind(module)
        values = module.signature.inputs_of(inputs)
        timing = self._begin()
        call = Call(binding.path, dict(values), ())
        try:
            outputs = work(binding.text, values)
        except RolloutError as error:
            call = replace(call, error=str(error), error_kind=error.kind)
            raise
        except RunError as error:
            self.stop = self.stop or error
            raise
        else:
            call = replace(call, reply=json.dumps(jsonable(outputs), ensure_ascii=False), outputs=outputs)
            return Outputs(**outputs)
        finally:
            timing.stop()
            with self._lock:
                self._calls.append((timing.place, replace(call, seconds=timing.seconds)))

    def _begin(self) -> _Timing:
        with self._lock:
            self._begun += 1
            return _Timing(self._begun - 1, time.perf_counter())

    def _complete(self, binding: Binding, values: Mapping[str, Any], request: Request, timing: _Timing, *, retry: bool) -> Completion:
        digest = content_hash({"lm": id(binding.lm), "request": request})
        with self._lock:
            occurrence = self._occurrences[digest]
            self._occurrences[digest] += 1
        try:
            completion = self._call(binding.lm, request, occurrence)
        except ModelError as error:
            timing.stop()
            self._record(binding, values, request, None, timing, retry=retry, error=error)
            raise
        except RunError as error:
            self.stop = self.stop or error
            raise
        timing.stop()
        return completion

    def _record(
        self,
        binding: Binding,
        values: Mapping[str, Any],
        request: Request,
        completion: Completion | None,
        timing: _Timing,
        *,
        retry: bool,
        outputs: Mapping[str, Any] | None = None,
        error: OutputError | ModelError | None = None,
    ) -> None:
        reply = completion or Completion(text="")
        call = Call(
            module=binding.path,
            inputs=dict(values),
            messages=request.messages,
            reply=reply.text,
            outputs=outputs,
            error=None if error is None else str(error),
            error_kind=None if error is None else error.kind,
            finish_reason=None if completion is None else completion.finish_reason,
            model=reply.model or binding.lm.describe().name,
            usage=reply.usage,
            seconds=timing.seconds,
            retry=retry,
        )
        with self._lock:
            self._calls.append((timing.place, call))
            if isinstance(error, ModelError) and error.fault == "world" and self.outage is None:
                self.outage = error


def _cut_off(error: OutputError) -> OutputError:
    return OutputError(f"The reply was cut off at the module's max_tokens. {error}")


def _request(signature: Signature, messages: tuple[Any, ...], params: Params, lm: LM) -> Request:
    if lm.describe().structured == "none":
        return Request(messages, params)
    json_schema, choices = constraint(signature)
    return Request(messages, params, json_schema, choices)


_active: contextvars.ContextVar[Recorder | None] = contextvars.ContextVar("gepa_lite_recorder", default=None)


def active_recorder() -> Recorder | None:
    """The recorder of the rollout that this code runs in, or None."""
    return _active.get()


def require_recorder(what: str) -> Recorder:
    """The active recorder.

    Raises:
        UsageError: there is none; names the ways to get one.
    """
    recorder = _active.get()
    if recorder is None:
        raise UsageError(
            f"{what} was called outside its program: call the program itself. In a thread that your forward starts, wrap the function first: "
            f"executor.submit(gl.carry(fn), ...), since context variables do not travel into threads."
        )
    return recorder


_way_out: contextvars.ContextVar[CallModel] = contextvars.ContextVar("gepa_lite_way_out", default=call_directly)


def way_out() -> CallModel:
    """How a program that is called at top level reaches its models here: straight, or through a run where a feedback function is judging."""
    return _way_out.get()


@contextlib.contextmanager
def calling_through(call: CallModel) -> Iterator[None]:
    """Programs called at top level within the block reach their models by ``call``."""
    token = _way_out.set(call)
    try:
        yield
    finally:
        _way_out.reset(token)


def activate(recorder: Recorder) -> contextvars.Token[Recorder | None]:
    """Make a recorder the active one of this context; give the token to ``deactivate``."""
    return _active.set(recorder)


def deactivate(token: contextvars.Token[Recorder | None]) -> None:
    """Undo ``activate``."""
    _active.reset(token)


def carry(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that it runs, in whatever thread, in the context of this call: modules called there join the rollout's trace.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor() as pool:
    ...     pool.submit(carry(abs), -1).result()
    1
    """
    context = contextvars.copy_context()

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        # a context can be entered once at a time, so each call gets a copy
        return context.copy().run(function, *args, **kwargs)

    return run
