"""Who may see the pages, and what a browser may do with them."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "gepa_lite_token"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Whether an address is of this machine alone.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Stands before every page: a token where one is set, no foreign host name, no writing from another site, and headers that forbid what the pages don't need.

    A page of another site could make a browser ask this server under a name of its own (DNS rebinding); so without a token only names of this machine are answered.

    Args:
        app: the pages.
        token: what a visitor must bring, as ``?token=`` once and as a cookie then; None lets everybody on this machine in.
        names: host names that are answered where there is no token.
    """

    def __init__(self, app: ASGIApp, token: str | None, names: Iterable[str] = ("localhost", "127.0.0.1", "::1")) -> None:
        self._app, self._token, self._names = app, token, frozenset(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refuse(Request(scope))
        await (self._app if refusal is None else refusal)(scope, receive, send_guarded)

    def _refuse(self, request: Request) -> Response | None:
        if self._token is not None:
            given = request.query_params.get("token")
            if given is not None and _same(given, self._token):
                return _let_in(request, self._token)
            if not _same(request.cookies.get(COOKIE, ""), self._token):
                return PlainTextResponse("Open the address that `gepa-lite ui` has printed: it holds the token.\n", 401)
        elif _host(request.headers) not in self._names:
            return PlainTextResponse("This server answers to names of this machine alone.\n", 421)
        if request.method not in ("GET", "HEAD") and not _from_here(request.headers):
            return PlainTextResponse("This came from another site.\n", 403)
        return None


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


def _let_in(request: Request, token: str) -> Response:
    """The same page without the token in its address, where it could be seen or passed on."""
    kept = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
    address = request.url.replace(query="").include_query_params(**dict(kept))
    response = RedirectResponse(f"{address.path}{'?' + address.query if address.query else ''}", 303)
    response.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=request.url.scheme == "https")
    return response


def _host(headers: Headers) -> str:
    return urlsplit(f"//{headers.get('host', '')}").hostname or ""


def _from_here(headers: Headers) -> bool:
    """Whether a form was sent from a page of this server; every browser of today says so."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc == headers.get("host")
