"""The proxy's HTTP side: starlette on uvicorn, in a thread of its own. What is asked of a model waits in worker threads, since the ledger may make it wait."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from gepa_lite.adapters.recording.scope import Scope
from gepa_lite.adapters.recording.upstream import Live, Upstream, passed_on
from gepa_lite.adapters.recording.wire import answer_of, read_request, shown_answer
from gepa_lite.errors import GepaLiteError, ModelError
from gepa_lite.lm.protocol import Completion, Request

if TYPE_CHECKING:
    from gepa_lite.adapters.recording.proxy import Proxy

_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
_AT_ONCE = 256
"""Calls that wait for their models at once."""


class Server:
    """A listening proxy.

    Args:
        proxy: whose it is.
        listening: a bound socket.
    """

    def __init__(self, proxy: Proxy, listening: socket.socket) -> None:
        pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="gepa-lite-proxy-call")
        self._pool = pool
        app = Starlette(routes=[Route("/{path:path}", _Handler(proxy, pool), methods=_METHODS)])
        config = uvicorn.Config(app, log_level="critical", access_log=False, lifespan="off", loop="asyncio", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([listening],), name="gepa-lite-proxy", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take no more requests and end."""
        self._server.should_exit = True
        self._thread.join(timeout=5)
        self._pool.shutdown(wait=False, cancel_futures=True)


def serve(proxy: Proxy, listening: socket.socket) -> Server:
    """Serve a proxy on a bound socket; connections queue from now on."""
    listening.listen(512)
    return Server(proxy, listening)


class _Handler:
    """Takes every request; an ASGI application, so that starlette asks nothing of its form."""

    def __init__(self, proxy: Proxy, pool: ThreadPoolExecutor) -> None:
        self._proxy = proxy
        self._pool = pool
        self._client: httpx.AsyncClient | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        request = HttpRequest(scope, receive, send)
        response = await self._answer(request)
        await response(scope, receive, send)

    async def _answer(self, request: HttpRequest) -> Response:
        from gepa_lite.adapters.recording.proxy import MODULE_HEADER, PLACE_HEADER, ROLLOUT_HEADER

        token, module, path = _parts(request.url.path)
        key = request.headers.get("authorization", "").removeprefix("Bearer ")
        try:
            rollout = self._proxy.rollout(token, key, request.headers.get(ROLLOUT_HEADER, ""))
        except LookupError as error:
            return _refusal(400, str(error).strip("'\""))
        headers = passed_on(request.headers.items())
        # another process of this machine, which knows no rollout and no key, gets none lent
        if (key or rollout is not None) and (real := self._proxy.key_for(key)):
            headers["authorization"] = f"Bearer {real}"
        if request.url.query:
            path = f"{path}?{request.url.query}"
        body = await request.body()
        if rollout is None or request.method != "POST":
            return await self._straight(request.method, path, headers, body)
        call = read_request(path, body)
        asked = _object(body)
        upstream = Upstream(self._proxy.upstream, str(asked.get("model") or ""), headers, self._proxy.timeout)
        stamped = request.headers.get(PLACE_HEADER, "")
        # it has begun, so that the rollout's end waits for its record
        place = rollout.opened(place=int(stamped) if stamped.isdecimal() and len(stamped) < 10 else None)
        return await self._recorded(
            rollout, upstream, call, module or request.headers.get(MODULE_HEADER), place, streams=bool(asked.get("stream"))
        )

    async def _straight(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Response:
        """Pass a request on that is no model call of a rollout."""
        if self._client is None:
            self._client = httpx.AsyncClient(timeout=self._proxy.timeout)
        url = f"{self._proxy.upstream}/{path}"
        request = self._client.build_request(method, url, content=body, headers={**headers, "accept-encoding": "identity"})
        try:
            answer = await self._client.send(request, stream=True)
        except httpx.HTTPError as error:
            return _refusal(502, f"the upstream could not be reached ({type(error).__name__}).")
        return StreamingResponse(_all_of(answer), answer.status_code, passed_on(answer.headers.items()))

    async def _recorded(
        self, rollout: Scope, upstream: Upstream, call: Request, module: str | None, place: int, *, streams: bool
    ) -> Response:
        arrivals = _Arrivals(asyncio.get_running_loop())
        live = Live(upstream, arrivals if streams else None)
        paid = asyncio.get_running_loop().run_in_executor(self._pool, _pay, rollout, live, call, module, place)
        paid.add_done_callback(lambda _: arrivals.queue.put_nowait(None))
        first = await arrivals.queue.get()
        if first is not None:
            return StreamingResponse(arrivals.rest(paid), arrivals.status, arrivals.headers)
        try:
            answer = answer_of((await paid).text)
        except GepaLiteError as error:
            if live.failed is None:
                return _failed(error)
            answer = live.failed
        return Response(answer.body, answer.status, dict(answer.headers))


class _Arrivals:
    """A streamed answer on its way from the thread that reads it to the loop that writes it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.status = 200
        self.headers: dict[str, str] = {}

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """See ``upstream.Sink``."""
        self.status, self.headers = status, dict(headers)
        self.chunk(b"")

    def chunk(self, data: bytes) -> None:
        """See ``upstream.Sink``."""
        self._loop.call_soon_threadsafe(self.queue.put_nowait, data)

    async def rest(self, paid: asyncio.Future[Completion]) -> AsyncIterator[bytes]:
        """The body. It ends after the call is booked, and breaks off where the upstream's did."""
        while (data := await self.queue.get()) is not None:
            yield data
        await paid


def _pay(rollout: Scope, live: Live, call: Request, module: str | None, place: int) -> Completion:
    try:
        return rollout.pay(live, call, module=module, shown=shown_answer, place=place)
    finally:
        rollout.closed(place)


async def _all_of(answer: httpx.Response) -> AsyncIterator[bytes]:
    async for part in answer.aiter_bytes():
        yield part
    await answer.aclose()


def _parts(path: str) -> tuple[str, str | None, str]:
    """Token, module and rest of a path such as ``/r/TOKEN/m/MODULE/v1/chat/completions``."""
    words = path.strip("/").split("/")
    token, module = "", None
    if words[:1] == ["r"] and len(words) > 1:
        token, words = words[1], words[2:]
    if words[:1] == ["m"] and len(words) > 1:
        module, words = words[1], words[2:]
    return token, module, "/".join(words[1:] if words[:1] == ["v1"] else words)


def _object(body: bytes) -> dict[str, Any]:
    try:
        data = json.loads(body)
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def _failed(error: GepaLiteError) -> Response:
    """What a client is told where there is no answer of the upstream to pass on."""
    if not isinstance(error, ModelError):
        return _refusal(400, f"the run is ending: {error}")
    headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
    return _refusal(error.status or 502, str(error), headers, retry=error.retryable)


def _refusal(status: int, words: str, headers: Mapping[str, str] | None = None, *, retry: bool = False) -> Response:
    body = json.dumps({"error": {"message": words, "type": "gepa_lite", "param": None, "code": "gepa_lite"}})
    # the clients' own word for: don't try this again
    return Response(body, status, {"content-type": "application/json", "x-should-retry": str(retry).lower(), **(headers or {})})
