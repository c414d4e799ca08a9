"""What crosses between dspy's LM calls and ours: messages and outputs as text, so that replies can be kept and used again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gepa_lite.core.call import Message, Usage
from gepa_lite.core.ids import canonical_json, jsonable
from gepa_lite.lm.protocol import LMInfo, Params, Request
from gepa_lite.lm.wire import estimate_input, estimate_tokens

REPLY_BOUND = 4_096
"""Tokens that a reply is taken to have at most where neither the LM nor the call sets a bound: dspy then sends none, so the budget may be passed by the calls in flight."""

_MARK = "\x00dspy:"
"""Starts the text of outputs that are more than one text. No model writes a NUL."""

# how a request is carried out, not what is asked
_NOT_ASKED = frozenset({"api_key", "cache", "headers", "extra_headers", "num_retries", "max_retries", "timeout", "callbacks"})


class _Attributes(dict[str, Any]):
    """A mapping whose entries are attributes too, as dspy's adapters read tool calls."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def text_of_outputs(outputs: Sequence[Any]) -> str:
    """Dspy's outputs of one call (texts, or dicts with text, tool calls, reasoning) as one text.

    >>> text_of_outputs(["Paris"])
    'Paris'
    """
    if len(outputs) == 1 and isinstance(outputs[0], str) and not outputs[0].startswith(_MARK):
        return outputs[0]
    return _MARK + canonical_json(list(outputs))


def outputs_of_text(text: str) -> list[Any]:
    """The inverse of ``text_of_outputs``.

    >>> outputs_of_text(text_of_outputs([None, {"text": "a", "tool_calls": [{"function": {"name": "f"}}]}]))[1]["tool_calls"][0].function.name
    'f'
    """
    return list(_attributes(json.loads(text.removeprefix(_MARK)))) if text.startswith(_MARK) else [text]


def shown_outputs(outputs: Sequence[Any]) -> str:
    """Outputs for a reader: the text alone where there is no more."""
    if len(outputs) == 1 and isinstance(outputs[0], str):
        return outputs[0]
    if len(outputs) == 1 and isinstance(outputs[0], Mapping) and set(outputs[0]) <= {"text", "reasoning_content"}:
        return str(outputs[0].get("text") or "")
    return json.dumps(jsonable(list(outputs)), ensure_ascii=False)


def _attributes(value: Any) -> Any:
    if isinstance(value, dict):
        return _Attributes({key: _attributes(item) for key, item in value.items()})
    return [_attributes(item) for item in value] if isinstance(value, list) else value


def request_of(prompt: Any, messages: Any, options: Mapping[str, Any]) -> Request:
    """An LM call of dspy as a request: all that tells it from another call, and the bound of its reply. The call itself is made by dspy."""
    asked = {name: value for name, value in options.items() if name not in _NOT_ASKED and value is not None}
    bounds = [asked.pop(name, None) for name in ("max_tokens", "max_completion_tokens")]
    bound = next((value for value in bounds if isinstance(value, int)), REPLY_BOUND)
    temperature = asked.pop("temperature", None)
    choices = asked.get("n")
    params = Params(
        max_tokens=bound * (choices if isinstance(choices, int) and choices > 0 else 1),
        temperature=temperature if isinstance(temperature, (int, float)) else None,
        extra={name: _plain(value) for name, value in asked.items()},
    )
    return Request(tuple(_texts(prompt, messages)), params)


def _plain(value: Any) -> Any:
    schema = getattr(value, "model_json_schema", None)
    return schema() if isinstance(value, type) and callable(schema) else jsonable(value)


def _texts(prompt: Any, messages: Any) -> Iterator[Message]:
    if not messages:
        yield {"role": "user", "content": _text(prompt)}
        return
    for message in messages:
        rest = {key: value for key, value in message.items() if key not in ("role", "content")}
        content = _text(message.get("content"))
        yield {"role": str(message.get("role", "user")), "content": f"{content}\n{canonical_json(rest)}" if rest else content}


def _text(content: Any) -> str:
    return content if isinstance(content, str) else canonical_json(content)


def usage_of(entry: Mapping[str, Any], request: Request, reply: str, info: LMInfo) -> Usage:
    """What a call consumed, by dspy's history entry; tokens are estimated where the endpoint did not count, dollars are None where the price is not known."""
    counted = entry.get("usage") or {}
    tokens_in, tokens_out = counted.get("prompt_tokens"), counted.get("completion_tokens")
    usd = entry.get("cost")
    if not tokens_in or tokens_out is None:
        tokens_in, tokens_out, usd = estimate_input(request.messages), estimate_tokens(reply), None
    if usd is None and info.usd_per_input_token is not None and info.usd_per_output_token is not None:
        usd = tokens_in * info.usd_per_input_token + tokens_out * info.usd_per_output_token
    return Usage(1, int(tokens_in), int(tokens_out), None if usd is None else float(usd))


def finish_reason_of(entry: Mapping[str, Any]) -> str:
    """Why a reply ended, by dspy's history entry; ``"stop"`` where it does not say."""
    response = entry.get("response")
    response = response[0] if isinstance(response, tuple) and response else response
    reason = _value(response, "finish_reason")
    if reason is None:
        choices = _value(response, "choices") or [None]
        reason = _value(choices[0], "finish_reason")
    return str(reason or "stop")


def _value(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
