"""``gl.spans``: model calls that a user's code tells by OpenTelemetry spans with GenAI attributes (``gen_ai.*``)."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from functools import cache
from typing import Any

from gepa_lite.adapters.recording.scope import Scope, attributed, current_scope
from gepa_lite.adapters.recording.span_reading import is_call, model_of, outcome_of, request_of
from gepa_lite.errors import UsageError
from gepa_lite.lm.made import MadeCall
from gepa_lite.lm.protocol import LMInfo
from gepa_lite.lm.providers import load_litellm, look_up
from gepa_lite.prompting import last_read


@dataclass(slots=True)
class _Begun:
    """A span that began in a rollout; ``place`` is None where it did not say yet that it is a model call."""

    scope: Scope
    module: str | None
    read: str | None
    place: int | None


class _Taken:
    """The spans that began in rollouts of this process. One for all, since a span comes here once from each processor that was added."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.begun: dict[tuple[int, int], _Begun] = {}
        self.watched: weakref.WeakSet[Any] = weakref.WeakSet()

    def drop(self, key: tuple[int, int]) -> _Begun | None:
        """Take a span out."""
        with self.lock:
            return self.begun.pop(key, None)


_taken = _Taken()


class Spans:
    """Implements ``CallSource``, and OpenTelemetry's ``SpanProcessor``; make one by ``gl.spans``.

    Args:
        provider: the SDK's tracer provider; None for the global one.
    """

    def __init__(self, provider: Any = None) -> None:
        self._provider = provider

    def __reduce__(self) -> tuple[Any, ...]:
        # a provider stays in its process: a worker process has its own
        return Spans, ()

    @property
    def holds(self) -> bool:
        return False

    def listen(self) -> None:
        """Add itself to the provider, once.

        Raises:
            UsageError: there is none.
        """
        try:
            from opentelemetry import trace
        except ImportError as error:
            raise UsageError("gl.spans needs OpenTelemetry: pip install 'gepa-lite[opentelemetry]'.") from error
        provider = self._provider or trace.get_tracer_provider()
        if not hasattr(provider, "add_span_processor"):
            raise UsageError(
                f"gl.spans: the tracer provider ({type(provider).__name__}) takes no span processors. Set one of the SDK first, "
                "opentelemetry.trace.set_tracer_provider(TracerProvider()), in worker processes as well, or pass gl.spans(provider)."
            )
        # seconds, and here rather than in the first rollout's last span
        load_litellm()
        with _taken.lock:
            if provider in _taken.watched:
                return
            _taken.watched.add(provider)
        provider.add_span_processor(self)

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        """A span begins, told in its own context."""
        scope = current_scope(Spans)
        if scope is None:
            return
        key, calls = _key(span.context), is_call(span.attributes or {})
        with _taken.lock:
            within = _taken.begun.get(_key(span.parent)) if span.parent is not None else None
            # an SDK's span within a framework's is the same call once more
            if key in _taken.begun or (within is not None and within.place is not None):
                return
            begun = _Begun(scope, attributed(), last_read(), None)
            _taken.begun[key] = begun
        if calls:
            begun.place = scope.opened(lambda: _abandon(key))

    def on_end(self, span: Any) -> None:
        """A span has ended, in whatever thread."""
        begun = _taken.drop(_key(span.context))
        if begun is None:
            return
        scope, place = begun.scope, begun.place
        try:
            if is_call(span.attributes or {}):
                request, info = request_of(span), _look_up(model_of(span.attributes))
                made = MadeCall(info, outcome_of(span, request, info), (span.end_time - span.start_time) / 1e9)
                # a span without messages is taken for the prompt that was read last
                module = begun.module or (None if request.messages else begun.read)
                scope.book(made, request, module=module, read=begun.read, place=place)
        finally:
            if place is not None:
                scope.closed(place)

    def _on_ending(self, span: Any) -> None:
        """The SDK asks it of every processor; there is nothing to do."""

    def shutdown(self) -> None:
        """There is nothing to close."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing is held back."""
        return True


def _abandon(key: tuple[int, int]) -> None:
    """The rollout is over and the span goes on: nobody takes its end."""
    _taken.drop(key)


def _key(context: Any) -> tuple[int, int]:
    return context.trace_id, context.span_id


@cache
def _look_up(model: str) -> LMInfo:
    return look_up(model, None, 16) if model else LMInfo("(no model)")


def spans(provider: Any = None) -> Spans:
    """Model calls as your code's OpenTelemetry instrumentation tells them, for ``gl.wrap(record=...)``. Needs ``pip install 'gepa-lite[opentelemetry]'``.

    It is a span processor and adds itself to the tracer provider when the first rollout begins; outside of rollouts it does nothing. Spans of model calls with GenAI attributes
    (``gen_ai.operation.name``, ``gen_ai.request.model``, ``gen_ai.usage.*``) that begin in a rollout's context are booked with tokens, errors and, by litellm's prices, dollars. Switch the recording
    of message contents on in your instrumentation, so that a call is traced under the prompt that it carries; without them it counts for the prompt that was read last.

    Args:
        provider: the SDK's tracer provider; None for the global one.

    Example:
        >>> import gepa_lite as gl
        >>> pipeline = gl.wrap(lambda message: message, {"route": "Decide how urgent it is."}, record=gl.spans())
    """
    return Spans(provider)
