"""One reply in OpenAI's chat form, read with suspicion: what is not of the protocol is an error, never an empty success."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gepa_lite.core.call import Message
from gepa_lite.errors import ModelConnectionError, RefusedError, ServerError

# what endpoints call a reply that their side broke off; litellm reports these as "stop"
_BROKEN = frozenset({"abort", "aborted", "cancelled", "error", "malformed_response", "network_error"})


@dataclass(frozen=True, slots=True)
class WireReply:
    """One reply as the endpoint sent it.

    Attributes:
        text: the content, "" where it is null.
        reasoning: reasoning beside the content, or "".
        finish_reason: "stop" where the endpoint gave none.
        model: the model's name, or "".
        input_tokens: None where the endpoint does not count.
        output_tokens: likewise.
    """

    text: str
    reasoning: str
    finish_reason: str
    model: str
    input_tokens: int | None
    output_tokens: int | None


def estimate_tokens(text: str) -> int:
    """A rough count for endpoints that report none: four characters a token, rounded up.

    >>> estimate_tokens("12345")
    2
    """
    return -(-len(text) // 4)


def estimate_input(messages: tuple[Message, ...]) -> int:
    """``estimate_tokens`` over all messages."""
    return sum(estimate_tokens(message["content"]) for message in messages)


def read_reply(data: Mapping[str, Any], where: str) -> WireReply:
    """Read a chat completion.

    Args:
        data: the decoded JSON object.
        where: the model and its endpoint, in words, for messages.

    Raises:
        ModelConnectionError: it is not a chat completion.
        RefusedError: the model refused, or a filter took the reply.
        ServerError: the endpoint broke the reply off.
    """
    choices = data.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, Mapping) else None
    if not isinstance(choice, Mapping) or not isinstance(message, Mapping):
        raise ModelConnectionError(f"{where}: the reply holds no choices[0].message; it has {sorted(map(str, data))}. Check api_base.")
    text = message.get("content") or ""
    if not isinstance(text, str):
        raise ModelConnectionError(f"{where}: choices[0].message.content is {type(text).__name__}, not text. Check api_base.")
    finish_reason = str(choice.get("finish_reason") or "stop")
    native = str(_field(choice, "native_finish_reason") or finish_reason)
    if native.lower() in _BROKEN:
        raise ServerError(f"{where}: the endpoint broke its reply off (finish_reason {native!r}).")
    refusal = message.get("refusal")
    if refusal:
        raise RefusedError(f"{where}: the model refused: {str(refusal)[:300]}")
    if finish_reason == "content_filter":
        raise RefusedError(f"{where}: the provider's content filter took the reply (finish_reason 'content_filter').")
    usage = data.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    reasoning = message.get("reasoning_content") or message.get("reasoning") or _field(message, "reasoning") or ""
    return WireReply(
        text=text,
        reasoning=str(reasoning),
        finish_reason=finish_reason,
        model=str(data.get("model") or ""),
        input_tokens=_count(usage.get("prompt_tokens")),
        output_tokens=_count(usage.get("completion_tokens")),
    )


def _field(part: Mapping[str, Any], name: str) -> Any:
    """A field that litellm moved aside because it is not of OpenAI's protocol."""
    aside = part.get("provider_specific_fields")
    return aside.get(name) if isinstance(aside, Mapping) else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
