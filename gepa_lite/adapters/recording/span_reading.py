"""What an OpenTelemetry span with GenAI attributes says of a model call, in the forms that instrumentations write.

Forms of messages: JSON in ``gen_ai.input.messages`` and ``gen_ai.output.messages`` (semantic conventions from 1.37 on, as attributes or in an event); indexed attributes ``gen_ai.prompt.0.content``;
events ``gen_ai.user.message`` and ``gen_ai.choice``; and the two events ``gen_ai.content.prompt`` and ``gen_ai.content.completion`` of the first conventions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from gepa_lite.adapters.recording.wire import text_of
from gepa_lite.core.call import Message, Usage
from gepa_lite.core.ids import canonical_json
from gepa_lite.errors import ModelError
from gepa_lite.lm.faults import read_fault
from gepa_lite.lm.protocol import Completion, LMInfo, Params, Request
from gepa_lite.lm.wire import estimate_input, estimate_tokens

_OPERATIONS = frozenset({"chat", "completion", "embeddings", "generate_content", "text_completion"})
_PROVIDERS = {
    "aws.bedrock": "bedrock",
    "azure.ai.openai": "azure",
    "gcp.gemini": "gemini",
    "gcp.vertex_ai": "vertex_ai",
    "mistral_ai": "mistral",
    "x_ai": "xai",
}
"""litellm's names of providers, where they differ from the conventions'."""

_STATUSES = {
    "AuthenticationError": 401,
    "BadRequestError": 400,
    "InternalServerError": 500,
    "NotFoundError": 404,
    "PermissionDeniedError": 403,
    "RateLimitError": 429,
}
_STATUS = re.compile(r"(?:error code|status(?:[ _]code)?)\W{1,3}(\d{3})\b", re.IGNORECASE)


def is_call(attributes: Mapping[str, Any]) -> bool:
    """Whether a span is one model call, rather than an agent, a tool or a workflow around some.

    >>> is_call({"gen_ai.operation.name": "chat"}), is_call({"gen_ai.operation.name": "execute_tool"}), is_call({"http.request.method": "POST"})
    (True, False, False)
    """
    operation = attributes.get("gen_ai.operation.name")
    return operation in _OPERATIONS if operation else "gen_ai.request.model" in attributes


def model_of(attributes: Mapping[str, Any]) -> str:
    """The model's name as litellm's price map has it."""
    model = str(attributes.get("gen_ai.request.model") or attributes.get("gen_ai.response.model") or "")
    provider = str(attributes.get("gen_ai.provider.name") or attributes.get("gen_ai.system") or "").lower()
    provider = _PROVIDERS.get(provider, provider)
    return f"{provider}/{model}" if provider and "/" not in model else model


def request_of(span: Any) -> Request:
    """What was sent, as far as the span tells."""
    attributes = dict(span.attributes or {})
    messages = [*_instructions(attributes), *(message for message in _sent(attributes, span.events))]
    bound, temperature = attributes.get("gen_ai.request.max_tokens"), attributes.get("gen_ai.request.temperature")
    return Request(
        tuple(messages),
        Params(
            max_tokens=bound if isinstance(bound, int) else 0, temperature=temperature if isinstance(temperature, (int, float)) else None
        ),
    )


def outcome_of(span: Any, request: Request, info: LMInfo) -> Completion | ModelError:
    """What came of it. Tokens are estimated at four characters each where the span does not count them."""
    attributes = dict(span.attributes or {})
    replies, finish = _came(attributes, span.events)
    if span.status.status_code.name == "ERROR" and not replies:
        return _fault(span, attributes, info)
    text = "\n".join(replies)
    tokens_in = _count(attributes, "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
    tokens_out = _count(attributes, "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
    tokens_in = estimate_input(request.messages) if tokens_in is None else tokens_in
    tokens_out = estimate_tokens(text) if tokens_out is None else tokens_out
    usd = None
    if info.usd_per_input_token is not None and info.usd_per_output_token is not None:
        usd = tokens_in * info.usd_per_input_token + tokens_out * info.usd_per_output_token
    reasons = attributes.get("gen_ai.response.finish_reasons") or finish or ("stop",)
    model = str(attributes.get("gen_ai.response.model") or info.name)
    return Completion(text, str(reasons[0]), Usage(1, tokens_in, tokens_out, usd), model)


def _fault(span: Any, attributes: Mapping[str, Any], info: LMInfo) -> ModelError:
    raised = [dict(event.attributes or {}) for event in span.events if event.name == "exception"]
    said = " ".join(str(part.get("exception.message", "")) for part in raised) or str(span.status.description or "")
    name = str((raised[-1].get("exception.type") if raised else None) or attributes.get("error.type") or "Exception").rpartition(".")[2]
    given = str(attributes.get("http.response.status_code") or attributes.get("error.type") or "")
    found = _STATUS.search(said)
    status = int(given) if given.isdigit() else int(found[1]) if found else _STATUSES.get(name)
    error = type(name, (Exception,), {"status_code": status, "litellm_response_headers": {"via": "span"}})(said)
    return read_fault(error, f"{info.name} by a span")


def _count(attributes: Mapping[str, Any], *names: str) -> int | None:
    return next((attributes[name] for name in names if isinstance(attributes.get(name), int)), None)


def _instructions(attributes: Mapping[str, Any]) -> Iterator[Message]:
    given = _decoded(attributes.get("gen_ai.system_instructions"))
    if given:
        yield {"role": "system", "content": given if isinstance(given, str) else _parts(given)}


def _sent(attributes: Mapping[str, Any], events: Any) -> Iterator[Message]:
    given = _decoded(_told("gen_ai.input.messages", attributes, events))
    if isinstance(given, list):
        yield from map(_message, given)
    elif indexed := _indexed("gen_ai.prompt", attributes):
        yield from map(_message, indexed)
    elif told := [_message({"role": event.name.split(".")[1], **_body(event)}) for event in events if event.name.endswith(".message")]:
        yield from told
    else:
        whole = _decoded(_told("gen_ai.prompt", attributes, events))
        if isinstance(whole, list):
            yield from map(_message, whole)
        elif whole:
            yield {"role": "user", "content": str(whole)}


def _came(attributes: Mapping[str, Any], events: Any) -> tuple[list[str], list[str]]:
    """Texts of the reply's choices, and why they ended."""
    given = _decoded(_told("gen_ai.output.messages", attributes, events))
    if not isinstance(given, list):
        given = _indexed("gen_ai.completion", attributes) or [_choice(_body(event)) for event in events if event.name == "gen_ai.choice"]
    if not given:
        whole = _decoded(_told("gen_ai.completion", attributes, events))
        given = whole if isinstance(whole, list) else [{"content": str(whole)}] if whole else []
    texts = [_message(item)["content"] for item in given]
    return [text for text in texts if text], [
        str(item["finish_reason"]) for item in given if isinstance(item, Mapping) and item.get("finish_reason")
    ]


def _choice(body: Mapping[str, Any]) -> dict[str, Any]:
    message = _decoded(body.get("message"))
    return {**body, **message} if isinstance(message, Mapping) else {**body, "content": body.get("content", message)}


def _body(event: Any) -> dict[str, Any]:
    attributes = dict(event.attributes or {})
    inner = _decoded(attributes.get("gen_ai.event.content"))
    return {**attributes, **inner} if isinstance(inner, Mapping) else attributes


def _message(item: Any) -> Message:
    if not isinstance(item, Mapping):
        return {"role": "user", "content": text_of(item)}
    content = _parts(item["parts"]) if isinstance(item.get("parts"), list) else text_of(_decoded_list(item.get("content")))
    calls = _decoded(item.get("tool_calls"))
    shown = [content, canonical_json(calls) if calls else ""]
    return {"role": str(item.get("role") or "user"), "content": "\n".join(part for part in shown if part)}


def _parts(parts: Any) -> str:
    texts = []
    for part in parts if isinstance(parts, list) else [parts]:
        plain = isinstance(part, Mapping) and isinstance(part.get("content"), str)
        texts.append(part["content"] if plain else text_of([part]))
    return "\n".join(text for text in texts if text)


def _indexed(prefix: str, attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """``PREFIX.0.role``, ``PREFIX.0.tool_calls.0.name`` and so on, as dicts in order."""
    items: dict[int, dict[str, Any]] = {}
    for name, value in attributes.items():
        words = name.removeprefix(f"{prefix}.").split(".")
        if not name.startswith(f"{prefix}.") or not words[0].isdigit():
            continue
        item = items.setdefault(int(words[0]), {})
        if words[1:2] == ["tool_calls"] and len(words) == 4:
            item.setdefault("calls", {}).setdefault(words[2], {})[words[3]] = value
        else:
            item[".".join(words[1:])] = value
    for item in items.values():
        if calls := item.pop("calls", None):
            item["tool_calls"] = [calls[key] for key in sorted(calls)]
    return [items[index] for index in sorted(items)]


def _told(name: str, attributes: Mapping[str, Any], events: Any) -> Any:
    """An attribute of the span, or of one of its events."""
    return next((value for value in (attributes.get(name), *((event.attributes or {}).get(name) for event in events)) if value), None)


def _decoded(value: Any) -> Any:
    if not isinstance(value, str) or value[:1] not in ("[", "{"):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _decoded_list(value: Any) -> Any:
    """Content that was written as JSON because it is a list of parts; a reply that is JSON itself stays text."""
    found = _decoded(value)
    return found if isinstance(found, list) and found and all(isinstance(part, Mapping) and "type" in part for part in found) else value
