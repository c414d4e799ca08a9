"""What every page is made with: the templates, the numbers of pages, and the mark that tells whether anything is new."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, TypeVar
from urllib.parse import urlencode

from jinja2 import ChoiceLoader, Environment, PackageLoader
from starlette.requests import Request
from starlette.responses import HTMLResponse

from gepa_lite.report.rendering import environment

T = TypeVar("T")

_QUICKEST, _IDLE, _SLOWEST = 2.0, 10.0, 60.0
_SHARE = 0.02
"""Of one core, that one open page may take: a search on the same machine is not to be slowed by who looks at it."""

VIEWS: Sequence[tuple[str, str]] = (
    ("", "Overview"),
    ("/candidates", "Candidates"),
    ("/proposals", "Proposals"),
    ("/lineage", "Lineage"),
    ("/matrix", "Matrix"),
    ("/measures", "Measures"),
    ("/settings", "Settings"),
)
"""The views of a run: the end of the address, and the words for it."""


@cache
def _engine() -> Environment:
    shared = environment()
    assert shared.loader is not None
    return shared.overlay(loader=ChoiceLoader([PackageLoader("gepa_lite.ui", "templates"), shared.loader]))


@cache
def static_text(name: str) -> str:
    """A file of the pages' own."""
    return resources.files("gepa_lite.ui").joinpath(f"static/{name}").read_text(encoding="utf-8")


def render(request: Request, template: str, values: Mapping[str, Any], status: int = 200) -> HTMLResponse:
    """A page."""
    base = request.scope.get("root_path", "").rstrip("/")
    live = bool(values.get("live"))
    context = {"base": base, "now": "", "mark": "", "said": "", "live": False, "pace": pace_of(0.0, live), **values}
    text = _engine().get_template(template).render(context)
    # what a model wrote may hold half a character
    return HTMLResponse(text.encode("utf-8", "backslashreplace"), status)


def pace_of(cost: float, live: bool) -> int:
    """Milliseconds after which an open page asks again: two seconds, ten where nobody works on the run, and so long that following takes at most a fiftieth of a core.

    Args:
        cost: seconds of CPU that making the page took.
        live: somebody works on the run.

    Example:
        >>> pace_of(0.01, True), pace_of(0.01, False), pace_of(0.2, True), pace_of(9.0, True)
        (2000, 10000, 10000, 60000)
    """
    least = _QUICKEST if live else _IDLE
    return round(1000 * min(_SLOWEST, max(least, cost / _SHARE)))


def page_of(request: Request, items: Sequence[T], size: int) -> tuple[Sequence[T], dict[str, Any]]:
    """One page of a list by ``?page=``, and what its pager needs."""
    pages = max(1, -(-len(items) // size))
    page = min(max(1, whole(request, "page", 1)), pages)
    kept = {name: value for name, value in request.query_params.items() if name != "page"}

    def address(number: int) -> str:
        return "?" + urlencode({**kept, "page": number})

    pager: dict[str, Any] = {"page": page, "pages": pages, "address": address, "total": len(items)}
    return items[(page - 1) * size : page * size], pager


def whole(request: Request, name: str, default: int) -> int:
    """A whole number of the address, not below zero; what is none counts as the default."""
    text = request.query_params.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else default


def chosen(request: Request, name: str, known: Sequence[str]) -> str:
    """A choice of the address among the known ones, or ""."""
    value = request.query_params.get(name, "")
    return value if value in known else ""


Handler = Callable[[Request], Any]
