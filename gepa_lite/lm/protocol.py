"""The seam between us and any model: one request, one completion, two methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from gepa_lite.core.call import Message, Usage

Structured = Literal["none", "json_schema"]


@dataclass(frozen=True, slots=True)
class Params:
    """How to sample. A None is left to the endpoint's default.

    Attributes:
        max_tokens: upper bound of the reply's length; always sent, since the ledger reserves it (design decision 7).
        temperature: 0 is greedy.
        top_p: nucleus mass in (0, 1].
        stop: texts that end the reply.
        seed: sampling seed for endpoints that take one.
        extra: further parameters of the endpoint, passed on untouched.
    """

    max_tokens: int = 1024
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """One chat call.

    Attributes:
        messages: role and content, in order.
        params: how to sample.
        json_schema: the schema the reply must follow, sent where ``LMInfo.structured`` is ``"json_schema"``.
        choices: the reply must be exactly one of these texts; an LM that can't constrain its reply may ignore it.
    """

    messages: tuple[Message, ...]
    params: Params = Params()
    json_schema: Mapping[str, Any] | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Completion:
    """One reply.

    Attributes:
        text: the reply, without separated reasoning.
        finish_reason: ``"stop"``, ``"length"``, ``"content_filter"`` or what the endpoint said.
        usage: tokens, and dollars where the price is known.
        model: the model that answered, as the endpoint names it.
        reasoning: reasoning that the endpoint separated from the reply, or "".
        attempts: how many requests it took, retries included.
    """

    text: str
    finish_reason: str = "stop"
    usage: Usage = field(default_factory=lambda: Usage(calls=1))
    model: str = ""
    reasoning: str = ""
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class LMInfo:
    """What is known of a model before it is called.

    Attributes:
        name: as the user gave it, e.g. ``"openai/gpt-4.1-mini"``.
        endpoint: what tells two servers of one model name apart; "" for the provider's default. Never holds a key.
        context_window: tokens of prompt and reply together, or None if unknown.
        usd_per_input_token: None if unknown; 0.0 for a local model.
        usd_per_output_token: likewise.
        structured: ``"json_schema"`` if it holds a reply to ``Request.json_schema`` and ``Request.choices``.
        deterministic: True where the same request always gives the same reply.
        max_in_flight: calls it can usefully serve at once, or None for no limit of its own.
        settings: tells apart two models of one name that answer differently, e.g. by their reasoning effort; "" for none. Never holds a key.
    """

    name: str
    endpoint: str = ""
    context_window: int | None = None
    usd_per_input_token: float | None = None
    usd_per_output_token: float | None = None
    structured: Structured = "none"
    deterministic: bool = False
    max_in_flight: int | None = None
    settings: str = ""

    @property
    def priced(self) -> bool:
        """Whether both prices are known."""
        return self.usd_per_input_token is not None and self.usd_per_output_token is not None


@runtime_checkable
class LM(Protocol):
    """A language model. Implementations are called from many threads at once.

    ``complete`` returns a full reply or raises a ``ModelError`` subclass (see ``errors``): never a partial reply as a success, never an error
    text as a reply. Retries of passing faults are its own; it makes no cache. ``describe`` costs nothing, never touches the network and returns the same each time.
    """

    def complete(self, request: Request) -> Completion:
        """Send one request and wait for the reply."""
        ...

    def describe(self) -> LMInfo:
        """What is known of the model before it is called."""
        ...


@runtime_checkable
class AddressedLM(Protocol):
    """An LM that samples by address: the optional ability behind runs that repeat a reply lost in flight, and draw several replies to one request."""

    def complete_at(self, request: Request, sample: int, address: tuple[int | str, ...]) -> Completion:
        """As ``complete``; the same request at the same sample number and address gets the same reply."""
        ...
