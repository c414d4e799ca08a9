"""A real HTTP server on 127.0.0.1 that speaks OpenAI's chat protocol from a script, faults included.

It stands where a paid endpoint would, so that a client's time-outs, retries and error messages are tested over a real socket.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self, get_args

from gepa_lite.errors import UsageError

Messages = list[dict[str, Any]]

FaultName = Literal[
    "unauthorized",
    "forbidden",
    "not_found",
    "bad_request",
    "context_window",
    "content_policy",
    "rate_limit",
    "quota",
    "server",
    "hang",
    "cut",
    "empty",
    "huge",
    "bad_utf8",
    "wrong_types",
    "no_choices",
    "html",
]


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server does with one request.

    Attributes:
        text: the reply's content.
        finish_reason: as in OpenAI's protocol.
        reasoning: sent as ``reasoning_content`` where it is not empty.
        refusal: sent as the message's ``refusal`` where it is not empty.
        usage: prompt and completion tokens; ``"words"`` counts words, ``"none"`` leaves the usage out.
        seconds: how long the request holds its slot; None is the server's own.
        status: the HTTP status.
        headers: further headers, e.g. ``{"Retry-After": "1"}``.
        body: sent as it is in place of a chat completion.
        content_type: of ``body``.
        end: ``"cut"`` closes the socket half-way through the body; ``"hang"`` sends nothing until the server closes.
    """

    text: str = ""
    finish_reason: str = "stop"
    reasoning: str = ""
    refusal: str = ""
    usage: tuple[int, int] | Literal["words", "none"] = "words"
    seconds: float | None = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"
    end: Literal["full", "cut", "hang"] = "full"


def _error(status: int, message: str, code: str) -> Reply:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return Reply(status=status, body=json.dumps({"error": error}).encode())


_ERRORS: dict[str, tuple[int, str, str]] = {
    "unauthorized": (401, "Incorrect API key provided.", "invalid_api_key"),
    "forbidden": (403, "You are not allowed to sample from this model.", "forbidden"),
    "not_found": (404, "The model does not exist.", "model_not_found"),
    "bad_request": (400, "Unsupported value: 'temperature'.", "unsupported_value"),
    "context_window": (400, "This model's maximum context length is 128 tokens, you asked for 256.", "context_length_exceeded"),
    "content_policy": (400, "The response was filtered by the content management policy.", "content_filter"),
    "rate_limit": (429, "Rate limit reached.", "rate_limit_exceeded"),
    "quota": (429, "You exceeded your current quota, check your plan and billing details.", "insufficient_quota"),
    "server": (500, "The server had an error.", "server_error"),
}


def fault(name: FaultName, *, retry_after: str | None = None) -> Reply:
    """The reply that shows one fault of an endpoint.

    ``"huge"`` is a well-formed completion of 10 MB; every other name is an error status or a body that is not of the protocol.

    Args:
        name: which fault.
        retry_after: the ``Retry-After`` header, in seconds or as an HTTP date.

    Raises:
        UsageError: no such fault.

    >>> fault("rate_limit", retry_after="2").status
    429
    """
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    if name in _ERRORS:
        reply = _error(*_ERRORS[name])
        return Reply(status=reply.status, body=reply.body, headers=headers)
    match name:
        case "hang":
            return Reply(end="hang")
        case "cut":
            return Reply("never seen in full", end="cut")
        case "empty":
            return Reply(body=b"", headers=headers)
        case "huge":
            return Reply("word " * 2_000_000)
        case "bad_utf8":
            return Reply(body=b'{"choices": [{"message": {"content": "\xff\xfe"}}]}')
        case "wrong_types":
            return Reply(body=b'{"id": 7, "choices": [{"index": "x", "message": ["no"]}], "usage": "much"}')
        case "no_choices":
            return Reply(body=b'{"id": "1", "object": "chat.completion", "created": 1, "model": "m"}')
        case "html":
            return Reply(body=b"<html><body>Welcome to the Wi-Fi</body></html>", content_type="text/html")
    raise UsageError(f"No fault is called {name!r}. There are: {', '.join(get_args(FaultName))}.")


Answer = str | Reply
Script = str | Reply | Sequence[Answer] | Callable[[Messages], Answer]


class OpenAIServer:
    """An OpenAI-like chat server on a free port of 127.0.0.1.

    It serves ``POST /v1/chat/completions`` (whole and streamed) and ``GET /v1/models``. Use it as a context manager; it listens from the
    constructor on. Requests queue when all slots are busy. It never reaches another host.

    >>> import urllib.request
    >>> with OpenAIServer("hello") as server:
    ...     with urllib.request.urlopen(server.base_url + "/models") as reply:
    ...         reply.status
    200

    Args:
        script: one answer for every request; or answers in order of arrival, of which the last repeats; or a function of the messages.
        slots: how many requests are served at once; None for all.
        seconds: how long each request holds its slot, or a function of the messages that says so.
        models: the models it knows, others get 404; empty takes any name.
        api_key: the only key it takes; others get 401. As some endpoints do, the 401 repeats the key that came. None takes any.

    Raises:
        UsageError: no script, or fewer than one slot.
    """

    def __init__(
        self,
        script: Script = "ok",
        *,
        slots: int | None = None,
        seconds: float | Callable[[Messages], float] = 0.0,
        models: Sequence[str] = (),
        api_key: str | None = None,
    ) -> None:
        if isinstance(script, Sequence) and not isinstance(script, str) and not script:
            raise UsageError("OpenAIServer needs at least one answer in its script.")
        if slots is not None and slots < 1:
            raise UsageError(f"OpenAIServer needs at least one slot, but got slots={slots}.")
        self._script = script
        self._seconds = seconds
        self._models = tuple(models)
        self._api_key = api_key
        self._slots = None if slots is None else threading.Semaphore(slots)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._requests: list[dict[str, Any]] = []
        self._keys: list[str] = []
        self._busy = 0
        self._busy_peak = 0
        self._busy_seconds = 0.0
        self._http = _Listener(("127.0.0.1", 0), self)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, name="OpenAIServer", daemon=True)
        self._thread.start()

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as its base URL."""
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    @property
    def requests(self) -> list[dict[str, Any]]:
        """A copy of the chat requests' bodies so far, in order of arrival."""
        with self._lock:
            return list(self._requests)

    @property
    def keys(self) -> list[str]:
        """The API key of each chat request, "" where there was none."""
        with self._lock:
            return list(self._keys)

    @property
    def calls(self) -> int:
        """How many chat requests arrived."""
        with self._lock:
            return len(self._requests)

    @property
    def busy_peak(self) -> int:
        """The most slots that were busy at one moment."""
        with self._lock:
            return self._busy_peak

    @property
    def busy_seconds(self) -> float:
        """Slot-seconds spent on requests that have ended: divided by slots and wall time, the utilization."""
        with self._lock:
            return self._busy_seconds

    def close(self) -> None:
        """Stop listening, and release the requests that hang. Safe to call twice."""
        self._closed.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def serve(self, body: dict[str, Any], key: str, send: Callable[[Reply], None]) -> None:
        """Answer one chat request; called by the listener from its own thread."""
        with self._lock:
            index = len(self._requests)
            self._requests.append(body)
            self._keys.append(key)
        if self._slots is not None:
            self._slots.acquire()
        started = time.monotonic()
        with self._lock:
            self._busy += 1
            self._busy_peak = max(self._busy_peak, self._busy)
        try:
            reply = self._reply(body, key, index)
            seconds = self._latency(body) if reply.seconds is None else reply.seconds
            if reply.end == "hang":
                self._closed.wait()
            elif seconds > 0:
                self._closed.wait(seconds)
        finally:
            # before the reply leaves, so that whoever has it reads final counts
            with self._lock:
                self._busy -= 1
                self._busy_seconds += time.monotonic() - started
            if self._slots is not None:
                self._slots.release()
        if reply.end != "hang":
            send(reply)

    def listing(self) -> bytes:
        """The body of ``GET /v1/models``."""
        models = [{"id": name, "object": "model", "created": 1, "owned_by": "gepa_lite"} for name in self._models]
        return json.dumps({"object": "list", "data": models}).encode()

    def _latency(self, body: dict[str, Any]) -> float:
        return self._seconds(body.get("messages", [])) if callable(self._seconds) else self._seconds

    def _reply(self, body: dict[str, Any], key: str, index: int) -> Reply:
        if self._api_key is not None and key != self._api_key:
            return _error(401, f"Incorrect API key provided: {key}.", "invalid_api_key")
        if self._models and body.get("model") not in self._models:
            return _error(404, f"The model {body.get('model')!r} does not exist.", "model_not_found")
        script = self._script
        if isinstance(script, Sequence) and not isinstance(script, str):
            answer = script[min(index, len(script) - 1)]
        elif callable(script):
            try:
                answer = script(body.get("messages", []))
            except Exception as error:  # a bug in the user's script must show up in the client, not hang it
                return _error(500, f"The script raised {type(error).__name__}: {error}", "script")
        else:
            answer = script
        return Reply(answer) if isinstance(answer, str) else answer


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    # the default of 5 refuses a burst of clients
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], owner: OpenAIServer) -> None:
        self.owner = owner
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent: the only errors that reach here are clients that went away, which time-out tests do on purpose."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # with Nagle's algorithm each reply on a kept-alive connection waits 40 ms
    disable_nagle_algorithm = True
    server: _Listener

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, the name is http.server's
        """Nothing: a test's output is its own."""

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._write(200, self.server.owner.listing())
        else:
            self._write(404, _error(404, f"No such path: {self.path}", "not_found").body or b"")

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.path != "/v1/chat/completions":
            self._write(404, _error(404, f"No such path: {self.path}", "not_found").body or b"")
            return
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            self._write(400, _error(400, "The body is not a JSON object.", "bad_json").body or b"")
            return
        key = self.headers.get("Authorization", "").removeprefix("Bearer ")
        # until a reply is sent in full, the connection can't be used again
        self.close_connection = True
        self.server.owner.serve(body, key, lambda reply: self._send(reply, body))

    def _send(self, reply: Reply, body: dict[str, Any]) -> None:
        if reply.end == "cut":
            whole = _completion(reply, body)
            self._write(reply.status, whole[: len(whole) // 2], {"Content-Length": str(len(whole))})
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if reply.body is None and body.get("stream"):
            # a stream has no length: its end is the connection's
            self._write(200, _events(reply, body), {"Content-Type": "text/event-stream", "Connection": "close"})
            return
        content = _completion(reply, body) if reply.body is None else reply.body
        self._write(reply.status, content, {"Content-Type": reply.content_type, **reply.headers})
        self.close_connection = False

    def _write(self, status: int, content: bytes, headers: Mapping[str, str] | None = None) -> None:
        lines = {"Content-Type": "application/json", "Content-Length": str(len(content)), **(headers or {})}
        self.send_response(status)
        for name, value in lines.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def _usage(reply: Reply, body: dict[str, Any]) -> dict[str, int] | None:
    if reply.usage == "none":
        return None
    if reply.usage == "words":
        tokens_in = sum(len(str(message.get("content", "")).split()) for message in body.get("messages", []))
        tokens_out = len(reply.text.split()) + len(reply.reasoning.split())
    else:
        tokens_in, tokens_out = reply.usage
    return {"prompt_tokens": tokens_in, "completion_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}


def _completion(reply: Reply, body: dict[str, Any]) -> bytes:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.refusal:
        message |= {"content": None, "refusal": reply.refusal}
    choice = {"index": 0, "message": message, "finish_reason": reply.finish_reason}
    whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": body.get("model", ""), "choices": [choice]}
    usage = _usage(reply, body)
    return json.dumps(whole if usage is None else {**whole, "usage": usage}).encode()


def _events(reply: Reply, body: dict[str, Any]) -> bytes:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": body.get("model", "")}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if reply.reasoning:
        deltas.append({"reasoning_content": reply.reasoning})
    deltas += [{"content": word} for word in reply.text.split(" ")[:1]]
    deltas += [{"content": " " + word} for word in reply.text.split(" ")[1:]]
    chunks = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reply.finish_reason}]})
    if (body.get("stream_options") or {}).get("include_usage"):
        chunks.append({**head, "choices": [], "usage": _usage(reply, body)})
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
