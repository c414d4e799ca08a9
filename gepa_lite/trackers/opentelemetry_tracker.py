"""A run as OpenTelemetry spans; needs ``opentelemetry-api``, and an SDK that sends them somewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gepa_lite.core.events import Event, Merged, Proposed, StepEnded, Validated
from gepa_lite.core.rollout import Rollout
from gepa_lite.errors import UsageError
from gepa_lite.trackers.protocol import Tracked


class OpenTelemetryTracker:
    """A run as one trace: a span for the session, one for each rollout and, in it, for each model call; proposals, merges and validations are events of the session's span.

    No messages, inputs or outputs are in it: candidate and example ids, scores, kinds of failures, models, tokens and seconds. The calls of a rollout are laid end to end before its end, since each has a length and no
    clock time of its own.

    Args:
        tracer_provider: None for the global one, which an OpenTelemetry set-up installs.

    Raises:
        UsageError: ``opentelemetry-api`` is not installed.
    """

    name = "OpenTelemetry"

    def __init__(self, tracer_provider: Any = None) -> None:
        try:
            from opentelemetry import trace
        except ImportError as error:
            raise UsageError("the OpenTelemetry tracker needs its API: pip install 'gepa-lite[opentelemetry]'") from error
        self._trace: Any = trace
        self._tracer: Any = trace.get_tracer("gepa_lite", tracer_provider=tracer_provider)
        self._session: Any = None

    def begin(self, run: Tracked) -> None:
        """See ``Tracker``."""
        plain = {f"gepa_lite.{name}": value for name, value in run.params.items()}
        self._session = self._tracer.start_span(
            "gepa_lite.run", attributes={"gepa_lite.run": run.name, "gepa_lite.key": run.key, "gepa_lite.resumed": run.resumed, **plain}
        )

    def event(self, event: Event) -> None:
        """See ``Tracker``."""
        if isinstance(event, Proposed):
            self._note(
                "proposed",
                event.step,
                {"module": event.module, "status": event.status, "code": event.code, "gain": event.gain, "model": event.model},
            )
        elif isinstance(event, Merged):
            self._note("merged", event.step, {"status": event.status, "code": event.code})
        elif isinstance(event, Validated):
            self._note("validated", event.step, {"modules": ", ".join(event.texts)})
        elif isinstance(event, StepEnded):
            self._note("step ended", event.step, {})

    def _note(self, name: str, step: int, values: Mapping[str, Any]) -> None:
        self._session.add_event(name, {"gepa_lite.step": step, **{f"gepa_lite.{key}": value for key, value in values.items()}})

    def rollout(self, rollout: Rollout, ended: int) -> None:
        """See ``Tracker``."""
        if self._session is None:
            return
        within = self._trace.set_span_in_context(self._session)
        begun = ended - int(rollout.seconds * 1e9)
        key, usage = rollout.key, rollout.usage
        attributes: dict[str, Any] = {
            "gepa_lite.candidate": key.candidate_id,
            "gepa_lite.example": key.example_id,
            "gepa_lite.sample": key.sample,
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
        }
        if rollout.feedback is not None:
            attributes["gepa_lite.score"] = rollout.feedback.score
        span = self._tracer.start_span("gepa_lite.rollout", context=within, start_time=begun, attributes=attributes)
        if rollout.failure is not None:
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, rollout.failure.kind))
        inside, at = self._trace.set_span_in_context(span), begun
        for call in rollout.trace.calls:
            call_ended = min(ended, at + int(call.seconds * 1e9))
            about = {
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": call.model,
                "gen_ai.usage.input_tokens": call.usage.input_tokens,
                "gen_ai.usage.output_tokens": call.usage.output_tokens,
                "gepa_lite.module": call.module,
            }
            made = self._tracer.start_span(f"chat {call.module}", context=inside, start_time=at, attributes=about)
            if call.error_kind is not None:
                made.set_status(self._trace.Status(self._trace.StatusCode.ERROR, call.error_kind))
            made.end(end_time=call_ended)
            at = call_ended
        span.end(end_time=ended)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """See ``Tracker``: the newest stand at the session's span."""
        for name, value in values.items():
            self._session.set_attribute(f"gepa_lite.{name}", value)

    def text(self, name: str, text: str) -> None:
        """Texts are in the run's file."""

    def end(self, reason: str) -> None:
        """See ``Tracker``."""
        if self._session is not None:
            self._session.set_attribute("gepa_lite.stopped", reason or "not finished")
            self._session.end()
