"""The endpoint behind the proxy, as an ``LM``: it sends a request as it came and keeps the answer as it came."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

from gepa_lite.adapters.recording.wire import Answer, body_of, completion_of
from gepa_lite.errors import ModelConnectionError, ModelError, ModelTimeoutError
from gepa_lite.lm.faults import read_fault, scrub, shown_url
from gepa_lite.lm.protocol import Completion, LMInfo, Request
from gepa_lite.lm.providers import look_up

_NOT_PASSED_ON = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_SECRETS = frozenset({"authorization", "api-key", "x-api-key", "x-goog-api-key", "cookie"})


def passed_on(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers without those of the connection itself and our own, in lower case."""
    return {
        name.lower(): value for name, value in headers if name.lower() not in _NOT_PASSED_ON and not name.lower().startswith("x-gepa-lite-")
    }


class Sink(Protocol):
    """Who takes a streamed answer while it comes."""

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """The answer's head."""
        ...

    def chunk(self, data: bytes) -> None:
        """Some of its body."""
        ...


@cache
def _client(timeout: float) -> Any:
    import httpx

    return httpx.Client(timeout=timeout, limits=httpx.Limits(max_connections=None, max_keepalive_connections=64), follow_redirects=False)


@cache
def _info(model: str, base: str) -> LMInfo:
    return look_up(model, base, 16) if model else LMInfo("(no model)", shown_url(base))


@dataclass(frozen=True)
class Upstream:
    """Implements ``LM`` for one model at one base URL, with the headers of the client that called.

    Attributes:
        base: the endpoint's base URL.
        model: as the client names it.
        headers: of the client, its key among them; in no repr, no message and no record.
        timeout: seconds to connect, and to wait for the next bytes.
    """

    base: str
    model: str
    headers: Mapping[str, str] = field(repr=False)
    timeout: float

    def describe(self) -> LMInfo:
        """Prices and window by litellm's map."""
        return _info(self.model, self.base)

    def complete(self, request: Request) -> Completion:
        """Send it.

        Raises:
            ModelError: by kind.
        """
        return self.send(request, None)[0]

    def send(
        self, request: Request, sink: Sink | None, failed: Callable[[Answer], None] = lambda answer: None
    ) -> tuple[Completion, Answer]:
        """Send it, and hand a streamed answer on while it comes.

        Args:
            request: read by ``wire.read_request``.
            sink: takes an answer that is no error; None keeps it to the end.
            failed: is told an answer that is an error.

        Raises:
            ModelError: by kind.
        """
        import httpx

        url = self.base.rstrip("/") + "/" + str(request.params.extra["path"]).lstrip("/")
        headers = {**self.headers, "accept-encoding": "identity"}
        body = b""
        try:
            with _client(self.timeout).stream("POST", url, content=body_of(request), headers=headers) as response:
                kept = passed_on(response.headers.items())
                if sink is not None and response.is_success:
                    sink.begin(response.status_code, kept)
                parts = []
                for part in response.iter_bytes():
                    parts.append(part)
                    if sink is not None and response.is_success:
                        sink.chunk(part)
                body = b"".join(parts)
        except httpx.TimeoutException as error:
            raise ModelTimeoutError(f"{self._where}: no full reply within {self.timeout:g} seconds ({type(error).__name__}).") from error
        except httpx.HTTPError as error:
            raise ModelConnectionError(
                scrub(f"{self._where}: no connection, or it was cut ({type(error).__name__}: {error}).", self._secrets)
            ) from error
        answer = Answer(response.status_code, kept, body)
        if not response.is_success:
            failed(answer)
            raise read_fault(_Told(answer), self._where, self._secrets)
        try:
            return completion_of(answer, request, self.describe()), answer
        except ModelError:
            failed(answer)
            raise

    @property
    def _where(self) -> str:
        return f"{self.model or 'a model'} at {shown_url(self.base)}"

    @property
    def _secrets(self) -> tuple[str, ...]:
        return tuple(word for name, value in self.headers.items() if name in _SECRETS for word in value.split())


class _Told(Exception):
    """An HTTP error as ``read_fault`` takes a client's exception."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.body.decode("utf-8", "replace")[:2_000])
        self.status_code = answer.status
        self.litellm_response_headers = answer.headers


class Live:
    """One call to an upstream whose answer is passed on as it comes. Sent to another process, it is the upstream itself, and the answer comes as a whole.

    Attributes:
        failed: the answer, where it is an error.

    Args:
        upstream: who is asked.
        sink: takes a stream while it comes, or None.
    """

    def __init__(self, upstream: Upstream, sink: Sink | None) -> None:
        self._upstream = upstream
        self._sink = sink
        self.failed: Answer | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        upstream = self._upstream
        return Upstream, (upstream.base, upstream.model, dict(upstream.headers), upstream.timeout)

    def describe(self) -> LMInfo:
        """The upstream's."""
        return self._upstream.describe()

    def complete(self, request: Request) -> Completion:
        """Send it.

        Raises:
            ModelError: by kind.
        """
        return self._upstream.send(request, self._sink, self._fail)[0]

    def _fail(self, answer: Answer) -> None:
        self.failed = answer
