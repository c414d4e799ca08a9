"""What went over the wire to an endpoint and came back, read as a call: chat completions, the Responses API, plain completions, embeddings; whole or as a stream."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gepa_lite.core.call import Message, Usage
from gepa_lite.core.ids import canonical_json
from gepa_lite.errors import ModelConnectionError
from gepa_lite.lm.protocol import Completion, LMInfo, Params, Request
from gepa_lite.lm.wire import estimate_input, estimate_tokens

REPLY_BOUND = 4_096
"""Tokens that a reply is taken to have at most where the request sets no bound: the budget may then be passed by the calls in flight."""

_MARK = "\x00http:"
"""Starts the text of a kept answer. No model writes a NUL."""

_BOUNDS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
_MESSAGES = ("system", "instructions", "messages", "input", "prompt")


@dataclass(frozen=True, slots=True)
class Answer:
    """What an endpoint answered, byte for byte.

    Attributes:
        status: of HTTP.
        headers: those that are passed on.
        body: as it came.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    def kept(self) -> str:
        """It as the text of a completion, for the run's cache."""
        try:
            body: Any = self.body.decode("utf-8")
        except UnicodeDecodeError:
            body = {"base64": base64.b64encode(self.body).decode("ascii")}
        return _MARK + canonical_json({"status": self.status, "headers": dict(self.headers), "body": body})


def answer_of(text: str) -> Answer:
    """The inverse of ``Answer.kept``."""
    data = json.loads(text.removeprefix(_MARK))
    body = data["body"]
    return Answer(data["status"], data["headers"], body.encode("utf-8") if isinstance(body, str) else base64.b64decode(body["base64"]))


def read_request(path: str, body: bytes) -> Request:
    """A request as a call: its messages to read, its bounds to hold, and the whole of it to send and to tell it from others."""
    try:
        data = json.loads(body)
    except ValueError:
        data = None
    data = data if isinstance(data, dict) else {}
    bound = next((data[name] for name in _BOUNDS if isinstance(data.get(name), int)), REPLY_BOUND)
    choices = data.get("n")
    temperature = data.get("temperature")
    params = Params(
        max_tokens=bound * (choices if isinstance(choices, int) and choices > 0 else 1),
        temperature=temperature if isinstance(temperature, (int, float)) else None,
        extra={"path": path, "body": body.decode("utf-8", "surrogateescape")},
    )
    rest = {name: data[name] for name in ("tools", "functions", "response_format", "text") if data.get(name)}
    messages = [message for name in _MESSAGES if data.get(name) for message in _messages(name, data[name])]
    # what else makes the input longer is counted with it
    return Request((*messages, *([{"role": "request", "content": canonical_json(rest)}] if rest else [])), params)


def body_of(request: Request) -> bytes:
    """The body of a request, byte for byte."""
    return str(request.params.extra["body"]).encode("utf-8", "surrogateescape")


def _messages(name: str, value: Any) -> Iterator[Message]:
    if isinstance(value, list):
        for item in value:
            if isinstance(item, Mapping):
                rest = {key: part for key, part in item.items() if key not in ("role", "content") and part}
                text = text_of(item.get("content"))
                yield {
                    "role": str(item.get("role", name)),
                    "content": "\n".join(part for part in (text, canonical_json(rest) if rest else "") if part),
                }
            else:
                yield {"role": name, "content": text_of(item)}
    else:
        yield {"role": {"instructions": "system", "input": "user", "prompt": "user"}.get(name, name), "content": text_of(value)}


def text_of(content: Any) -> str:
    r"""The text of a message's content, which may be a list of parts; parts that are no text as JSON.

    >>> text_of([{"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": {"url": "x"}}])
    'Look:\n{"image_url":{"url":"x"},"type":"image_url"}'
    """
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return canonical_json(content)
    parts = [part["text"] if isinstance(part, Mapping) and isinstance(part.get("text"), str) else part for part in content]
    return "\n".join(part if isinstance(part, str) else canonical_json(part) for part in parts)


@dataclass
class _Reading:
    """What was read of an answer so far."""

    texts: list[str] = field(default_factory=list)
    tools: dict[Any, dict[str, Any]] = field(default_factory=dict)
    finish: str = ""
    model: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None

    def whole(self, data: Mapping[str, Any]) -> None:
        """An answer in one piece, or a chunk of a stream of chat completions."""
        self.model = str(data.get("model") or self.model)
        self._usage(data.get("usage"))
        for choice in data.get("choices") or ():
            message = choice.get("message") or choice.get("delta") or {}
            self.texts.append(text_of(message.get("content") or message.get("refusal") or choice.get("text")))
            self.finish = str(choice.get("finish_reason") or self.finish)
            for place, tool in enumerate(message.get("tool_calls") or ()):
                self._tool(tool.get("index", place), tool.get("function") or {})
        for item in data.get("output") or ():
            self.texts.append(text_of(item.get("content")) if item.get("type") == "message" else canonical_json(item))
        if isinstance(data.get("content"), list):
            self.texts.append(text_of(data["content"]))
        self.finish = str(data.get("stop_reason") or self.finish)

    def event(self, data: Mapping[str, Any]) -> None:
        """One event of a stream."""
        kind = str(data.get("type", ""))
        if kind in ("response.completed", "response.incomplete", "response.failed") and isinstance(data.get("response"), Mapping):
            self.texts.clear()
            self.whole(data["response"])
        elif kind == "response.output_text.delta":
            self.texts.append(str(data.get("delta", "")))
        elif isinstance(data.get("choices"), list):
            self.whole(data)

    def _tool(self, index: Any, function: Mapping[str, Any]) -> None:
        tool = self.tools.setdefault(index, {"name": "", "arguments": ""})
        for name in tool:
            tool[name] += str(function.get(name) or "")

    def _usage(self, usage: Any) -> None:
        if isinstance(usage, Mapping):
            self.input_tokens = _count(usage, "prompt_tokens", "input_tokens", self.input_tokens)
            self.output_tokens = _count(usage, "completion_tokens", "output_tokens", self.output_tokens)

    @property
    def text(self) -> str:
        tools = canonical_json(list(self.tools.values())) if self.tools else ""
        return "\n".join(part for part in ("".join(self.texts), tools) if part)


def _count(usage: Mapping[str, Any], first: str, second: str, before: int | None) -> int | None:
    value = usage.get(first, usage.get(second))
    return value if isinstance(value, int) and not isinstance(value, bool) else before


def _read(answer: Answer) -> _Reading | None:
    found = _Reading()
    if "text/event-stream" in answer.headers.get("content-type", ""):
        for line in answer.body.decode("utf-8", "replace").splitlines():
            event = _object(line.removeprefix("data:")) if line.startswith("data:") else None
            found.event(event or {})
        return found
    data = _object(answer.body)
    if data is None:
        return None
    found.whole(data)
    return found


def _object(text: str | bytes) -> dict[str, Any] | None:
    try:
        data = json.loads(text)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def shown_answer(text: str) -> str:
    """A kept answer as the reflection model sees it: its text, and the tools it calls."""
    found = _read(answer_of(text))
    return "" if found is None else found.text


def completion_of(answer: Answer, request: Request, info: LMInfo) -> Completion:
    """An answer as a completion: the whole of it as the text, with what it consumed.

    Tokens are estimated at four characters each where the endpoint did not count them, as in streams without ``include_usage``.

    Raises:
        ModelConnectionError: it is no answer of an API.
    """
    try:
        found = _read(answer)
    except (AttributeError, TypeError):
        found = None
    if found is None:
        raise ModelConnectionError(
            f"{info.name} at {info.endpoint}: the answer is not of the protocol ({answer.headers.get('content-type', 'no type')}). Check the proxy's upstream."
        )
    tokens_in, tokens_out = found.input_tokens, found.output_tokens
    if tokens_in is None:
        tokens_in = estimate_input(request.messages)
    if tokens_out is None:
        tokens_out = estimate_tokens(found.text)
    usd = None
    if info.usd_per_input_token is not None and info.usd_per_output_token is not None:
        usd = tokens_in * info.usd_per_input_token + tokens_out * info.usd_per_output_token
    return Completion(answer.kept(), found.finish or "stop", Usage(1, tokens_in, tokens_out, usd), found.model or info.name)
