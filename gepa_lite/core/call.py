"""A model call as the program made it, and the trace of a rollout: its calls in the order they began."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Message = Mapping[str, str]
"""``{"role": "system" | "user" | "assistant", "content": text}``"""


@dataclass(frozen=True, slots=True)
class Usage:
    """What calls consumed. ``usd`` is None where a price is unknown: an unknown price is never taken as zero."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = 0.0

    @property
    def tokens(self) -> int:
        """Input and output tokens."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        return Usage(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            usd,
        )


def total_usage(usages: Iterable[Usage]) -> Usage:
    """The sum, in one pass: rollouts are summed by the hundred in every step."""
    calls, input_tokens, output_tokens = 0, 0, 0
    usd: float | None = 0.0
    for usage in usages:
        calls += usage.calls
        input_tokens += usage.input_tokens
        output_tokens += usage.output_tokens
        usd = None if usd is None or usage.usd is None else usd + usage.usd
    return Usage(calls, input_tokens, output_tokens, usd)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of one module.

    Attributes:
        module: the module's path in the program, e.g. ``"route"`` or ``"search.query"``.
        inputs: the module's own inputs by field name.
        messages: what was sent.
        reply: the model's raw text, "" where the call failed.
        outputs: the parsed outputs by field name, None where parsing or the call failed.
        error: why it failed, in words, or None.
        error_kind: the error's kind (see ``errors``), or None.
        finish_reason: ``"stop"``, ``"length"`` or what the endpoint said.
        model: the model that answered.
        usage: tokens and dollars of this call (logical: the same when it came from the cache).
        seconds: wall time of this call; an observation, not part of the event log's equality.
        retry: True for the one visible second call after an unparsable reply.
    """

    module: str
    inputs: Mapping[str, Any]
    messages: tuple[Message, ...]
    reply: str = ""
    outputs: Mapping[str, Any] | None = None
    error: str | None = None
    error_kind: str | None = None
    finish_reason: str | None = None
    model: str = ""
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    retry: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """The calls of one rollout."""

    calls: tuple[Call, ...] = ()

    def of(self, module: str) -> tuple[Call, ...]:
        """The calls of one module, in order."""
        return tuple(call for call in self.calls if call.module == module)

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules that ran, each once, in order of their first call."""
        return tuple(dict.fromkeys(call.module for call in self.calls))

    @property
    def usage(self) -> Usage:
        """The sum over the calls."""
        return total_usage(call.usage for call in self.calls)
