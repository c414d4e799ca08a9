"""``gl.proxy``: a recording proxy on loopback before any OpenAI-compatible endpoint, so that code needs no change but its base URL."""

from __future__ import annotations

import os
import socket
import threading
from typing import Any, Self

from gepa_lite.adapters.recording.scope import Scope, all_scopes, attributed, current_scope, only_scope, scope_of
from gepa_lite.errors import UsageError
from gepa_lite.lm.providers import load_litellm

ROLLOUT_HEADER = "x-gepa-lite-rollout"
MODULE_HEADER = "x-gepa-lite-module"
PLACE_HEADER = "x-gepa-lite-place"

_KEY = "gepa-lite-"
_OPENAI = "https://api.openai.com/v1"
_UNDECIDED = (
    "a call came to the proxy's shared_url that could belong to several rollouts: use proxy.base_url or proxy.api_key where the client is made, the hook proxy.stamp, "
    "or workers=1 or workers='processes'."
)


class Proxy:
    """A proxy before one upstream; make one by ``gl.proxy`` and give it to ``gl.wrap(record=...)``. It listens on 127.0.0.1 alone, from the first use on; each worker process has its own.

    Args:
        upstream: base URL of the endpoint.
        api_key: sent to it in place of the client's own; kept in memory alone.
        timeout: seconds to connect to it, and to wait for the next bytes of its answer.
    """

    def __init__(self, upstream: str, api_key: str | None, timeout: float) -> None:
        self.upstream = upstream.rstrip("/")
        self._api_key = api_key
        self.timeout = timeout
        self._lock = threading.Lock()
        self._server: Any = None
        self._port = 0

    def __repr__(self) -> str:
        from gepa_lite.lm.faults import shown_url

        return f"Proxy({shown_url(self.upstream)!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {"upstream": self.upstream, "_api_key": self._api_key, "timeout": self.timeout}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["upstream"], state["_api_key"], state["timeout"])  # type: ignore[misc]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def base_url(self) -> str:
        """What a client takes as its base URL, here and now: within a rollout the proxy's, with the rollout's token; elsewhere the upstream's own, so that the same code runs in production.

        Read it where the rollout runs, not once when a module is imported; for a client that is made once see ``shared_url`` and ``stamp``.
        """
        return self.url()

    def url(self, module: str | None = None) -> str:
        """``base_url``; with a name, the calls made through it belong to that prompt, whatever their messages hold."""
        scope = current_scope()
        if scope is None:
            return self.upstream
        self.listen()
        module = module or attributed()
        return f"http://127.0.0.1:{self._port}/r/{scope.token}/{'' if module is None else f'm/{module}/'}v1"

    @property
    def shared_url(self) -> str:
        """A base URL without a token, for a client that is made once for all rollouts, or ``OPENAI_BASE_URL``.

        The rollout is told from the key (``api_key``), from the header that ``stamp`` sets, or it is the only one that runs in the process (``workers=1``, ``workers="processes"``). Where it can't
        be told, the run stops and says so. Calls outside of rollouts go straight on.
        """
        self.listen()
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def api_key(self) -> str:
        """What a client takes as its key, here and now: within a rollout the rollout's token, which the proxy replaces by the real key; elsewhere the real key.

        Raises:
            UsageError: the proxy was given no key, and ``OPENAI_API_KEY`` is not set.
        """
        key = self.key_for("")
        if not key:
            raise UsageError("gl.proxy has no key: pass api_key=..., or set OPENAI_API_KEY in the environment.")
        scope = current_scope()
        return key if scope is None else f"{_KEY}{scope.token}"

    def stamp(self, request: Any) -> None:
        """An httpx event hook that names the rollout in each request's headers: ``httpx.Client(event_hooks={"request": [proxy.stamp]})``, with ``shared_url`` as base URL.

        It also gives the request its place in the trace where it is made, so that coroutines that are gathered stand there in their order, whichever reaches the proxy first.
        """
        scope, module = current_scope(), attributed()
        if scope is not None:
            request.headers[ROLLOUT_HEADER] = scope.token
            request.headers[PLACE_HEADER] = str(scope.next_place())
        if module is not None:
            request.headers[MODULE_HEADER] = module

    async def astamp(self, request: Any) -> None:
        """The same for ``httpx.AsyncClient``."""
        self.stamp(request)

    @property
    def holds(self) -> bool:
        """See ``scope.CallSource``."""
        return True

    def listen(self) -> None:
        """See ``scope.CallSource``.

        Raises:
            UsageError: a package is missing.
        """
        with self._lock:
            if self._server is not None:
                return
            try:
                from gepa_lite.adapters.recording.proxy_server import serve
            except ImportError as error:
                raise UsageError(f"gl.proxy needs {error.name}: pip install 'gepa-lite[proxy]'.") from error
            # seconds, and here rather than in the first call, whose client may be less patient
            load_litellm()
            listening = socket.socket()
            listening.bind(("127.0.0.1", 0))
            self._port = listening.getsockname()[1]
            self._server = serve(self, listening)

    def close(self) -> None:
        """Stop listening; the next use starts again."""
        with self._lock:
            if self._server is not None:
                self._server.stop()
            self._server = None

    def key_for(self, given: str) -> str:
        """The key that is sent upstream where a client sent this one."""
        if self._api_key is not None:
            return self._api_key
        return given if given and not given.startswith(_KEY) else os.environ.get("OPENAI_API_KEY", "")

    def rollout(self, token: str, key: str, header: str) -> Scope | None:
        """The rollout of a request; None where none runs.

        Raises:
            LookupError: it is over, or can't be told.
        """
        named = token or header or (key.removeprefix(_KEY) if key.startswith(_KEY) else "")
        if named:
            scope = scope_of(named)
            if scope is None:
                raise LookupError("the rollout of this call is over: wait for your calls before the function returns.")
            return scope
        scope = only_scope()
        if scope is None and all_scopes():
            for other in all_scopes():
                # an error for each: one that several threads raise at once mixes their tracebacks
                other.stop = other.stop or UsageError(_UNDECIDED)
            raise LookupError(_UNDECIDED)
        return scope


def proxy(upstream: str | None = None, *, api_key: str | None = None, timeout: float = 600.0) -> Proxy:
    """A recording proxy before an OpenAI-compatible endpoint. Needs ``pip install 'gepa-lite[proxy]'``.

    Code needs no change but its base URL: ``OpenAI(base_url=proxy.base_url)``, ``ChatOpenAI(base_url=proxy.base_url)``. Requests and answers pass through byte for byte: streams, tools, errors.
    Each call is traced under the prompt that it carries; its bound is held to the budget before it is sent, and its usage is on the ledger. Within a run an equal call of an equal rollout is
    answered from the run's own file, so that a resumed run pays nothing twice.

    Args:
        upstream: base URL of the endpoint; by default ``OPENAI_BASE_URL``, or OpenAI's own.
        api_key: sent to it in place of the client's own key. Never written anywhere.
        timeout: seconds to connect to it, and to wait for the next bytes of its answer.

    Example:
        >>> import gepa_lite as gl
        >>> proxy = gl.proxy("https://api.openai.com/v1")
        >>> proxy.base_url  # within a rollout: http://127.0.0.1:PORT/r/TOKEN/v1
        'https://api.openai.com/v1'
    """
    base = upstream or os.environ.get("OPENAI_BASE_URL") or _OPENAI
    if not base.startswith(("http://", "https://")):
        raise UsageError(f"gl.proxy({base!r}): a base URL is needed, e.g. 'https://api.openai.com/v1'.")
    if timeout <= 0:
        raise UsageError(f"gl.proxy(timeout={timeout!r}): seconds above 0 are needed.")
    return Proxy(base, api_key, timeout)
