"""The server of the live pages."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from gepa_lite.errors import GepaLiteError, UsageError
from gepa_lite.report.pages import Look, settings_rows
from gepa_lite.report.rendering import style_sheet
from gepa_lite.report.svg import Frame
from gepa_lite.ui.guard import Guard
from gepa_lite.ui.library import Entry, Library, NotThereError, StillReadingError
from gepa_lite.ui.pages import page_of, render, static_text
from gepa_lite.ui.run_pages import RunPages, verdict_of

_STATES = ("", "running", "finished", "stopped", "unstarted", "reading", "error")
_ROWS = 100
_COMPARED = 6


def make_app(root: Path, token: str | None = None, names: Sequence[str] = ("localhost", "127.0.0.1", "::1")) -> ASGIApp:
    """The pages over a folder of runs, as an ASGI application.

    Args:
        root: the folder that the runs are directly in.
        token: what a visitor must bring; None lets everybody in who reaches this machine's own names.
        names: host names that are answered where there is no token.
    """
    library = Library(root)
    lists, pages = ListPages(library), RunPages(library)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        with library.closing():
            yield

    run = "/run/{name}"
    routes = [
        Route("/", lists.runs),
        Route("/now", lists.now),
        Route("/compare", lists.compare),
        Route("/static/ui.js", _script),
        Route("/static/style.css", _style),
        Route(run, pages.overview),
        Route(f"{run}/now", pages.now),
        Route(f"{run}/ask", pages.ask, methods=["POST"]),
        Route(f"{run}/candidates", pages.candidates),
        Route(f"{run}/candidate/{{index}}", pages.candidate),
        Route(f"{run}/rollout", pages.rollout),
        Route(f"{run}/proposals", pages.proposals),
        Route(f"{run}/proposal/{{seq:int}}", pages.proposal),
        Route(f"{run}/lineage", pages.lineage),
        Route(f"{run}/matrix", pages.matrix),
        Route(f"{run}/measures", pages.measures),
        Route(f"{run}/settings", pages.settings),
        Route(f"{run}/report.html", pages.report),
    ]
    handlers: dict[Any, Any] = {
        NotThereError: _not_there,
        StillReadingError: _still_reading,
        GepaLiteError: _unreadable,
        HTTPException: _refused,
    }
    return Guard(Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan), token, names)


class ListPages:
    """The list of runs and their comparison.

    Args:
        library: the runs.
    """

    def __init__(self, library: Library) -> None:
        self._library = library

    def runs(self, request: Request) -> Response:
        """The list, filtered."""
        query, state = request.query_params.get("q", "")[:100], request.query_params.get("state", "")
        entries = self._library.entries()
        rows = [entry for entry in entries if query.lower() in entry.name.lower() and state in ("", entry.status)]
        some, pager = page_of(request, rows, _ROWS)
        values = {"root": str(self._library.root), "q": query, "state": state, "states": _STATES, "rows": some, **pager}
        return render(
            request, "list.html.j2", {**values, "now": f"{request.scope.get('root_path', '')}/now", "mark": _mark(entries), "live": True}
        )

    def now(self, request: Request) -> Response:
        """The mark of now."""
        return JSONResponse({"mark": _mark(self._library.entries())})

    def compare(self, request: Request) -> Response:
        """Some runs side by side."""
        looks: dict[str, Look] = {}
        for name in list(dict.fromkeys(request.query_params.getlist("run")))[:_COMPARED]:
            shelf = self._library.shelf(name)
            with shelf.lock:
                if shelf.look().trail.nodes:
                    looks[name] = shelf.look()
        columns = [{"name": name} for name in looks]
        settings = [dict(settings_rows(look.trail)) for look in looks.values()]
        names = dict.fromkeys(key for rows in settings for key in rows)
        differing = [(key, [rows.get(key, "-") for rows in settings]) for key in names if len({rows.get(key) for rows in settings}) > 1]
        values = {"columns": columns, "chart": _overlay(list(looks.values())), "rows": self._figures(looks), "differences": differing}
        return render(request, "compare.html.j2", values)

    def _figures(self, looks: dict[str, Look]) -> list[tuple[str, list[str]]]:
        found: dict[str, dict[str, str]] = {}
        for name, look in looks.items():
            shelf = self._library.shelf(name)
            status, _ = self._library.status(shelf)
            found[name] = {"state": status, "verdict": verdict_of(shelf, status)[1][0], **dict(look.summary)}
        keys = dict.fromkeys(key for figures in found.values() for key in figures)
        return [(key, [figures.get(key, "-") for figures in found.values()]) for key in keys]


def _overlay(looks: Sequence[Look]) -> Markup:
    """The best so far of several runs over rollouts."""
    lines = []
    for look in looks:
        trail = look.trail
        points = [(float(trail.nodes[index].rollouts), trail.objective.score(trail.nodes[index].mean or 0.0)) for index in trail.leads]
        lines.append([*points, (float(trail.spent_rollouts), points[-1][1])])
    if not lines:
        return Markup("")
    frame = Frame.around(
        [0.0, *(x for line in lines for x, _ in line)],
        [y for line in lines for _, y in line],
        ("rollouts spent", "best validation mean"),
        counts=True,
    )
    parts = [frame.line(line, f"s{place}", steps=True) for place, line in enumerate(lines, 1)]
    return frame.picture("Best validation mean of each run over rollouts", *parts)


def _mark(entries: Sequence[Entry]) -> str:
    return hashlib.sha256(repr(entries).encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _script(request: Request) -> Response:
    return Response(static_text("ui.js"), media_type="text/javascript")


def _style(request: Request) -> Response:
    return Response(style_sheet() + static_text("ui.css"), media_type="text/css")


def _message(request: Request, status: int, heading: str, words: str) -> Response:
    if request.url.path.endswith("/now"):
        return JSONResponse({"error": words}, status)
    return render(request, "message.html.j2", {"heading": heading, "words": words}, status)


def _not_there(request: Request, error: Exception) -> Response:
    return _message(
        request,
        404,
        "Not there",
        f"There is no {error} here." if str(error).startswith(("candidate", "proposal")) else "There is no such run here.",
    )


def _still_reading(request: Request, error: Exception) -> Response:
    assert isinstance(error, StillReadingError)
    if request.url.path.endswith("/now"):
        return JSONResponse({"mark": f"reading-{error.read}"})
    name = request.path_params.get("name", "")
    base = str(request.scope.get("root_path", "")).rstrip("/")
    now = f"{base}/run/{name}/now" if name else f"{base}/now"
    return render(
        request,
        "wait.html.j2",
        {"name": name or "Runs", "read": error.read, "total": error.total, "now": now, "mark": f"reading-{error.read}", "live": True},
        202,
    )


def _unreadable(request: Request, error: Exception) -> Response:
    if request.method == "POST":
        return _message(request, 400, "That did not work", str(error))
    # a damaged file is this server's trouble; a run that is not that far is nobody's
    return (
        _message(request, 404, "Not there yet", str(error))
        if isinstance(error, UsageError)
        else _message(request, 500, "It can't be read", str(error))
    )


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _message(request, error.status_code, "Not there" if error.status_code == 404 else "Refused", str(error.detail))
