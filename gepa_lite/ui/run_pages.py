"""The pages of one run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from gepa_lite.core.budget import Budget
from gepa_lite.core.candidate import Candidate
from gepa_lite.core.events import Merged, Proposed
from gepa_lite.errors import UsageError
from gepa_lite.insight.stored import read_run
from gepa_lite.report import charts
from gepa_lite.report.html import report_html
from gepa_lite.report.lineage import MOST, line_of, lineage_chart
from gepa_lite.report.matrix import MOST_ROWS, matrix_chart, matrix_of, matrix_picture
from gepa_lite.report.pages import Look, candidate_row, case_of, clock, diff, lineage_steps, settings_rows
from gepa_lite.ship.verdict_text import verdict_text
from gepa_lite.store.asks import Ask, ask
from gepa_lite.store.codec import decode_event
from gepa_lite.ui.blame import blame_in
from gepa_lite.ui.library import NEVER_STARTED, Library, NotThereError, Shelf
from gepa_lite.ui.pages import VIEWS, chosen, pace_of, page_of, render, whole

_ROWS = 50
_MATRIX_ROWS = 40
_CASES = 20
_QUICK = 2_000
"""Proposals up to which advice and verdict stand on the overview; beyond, they have pages of their own."""
_LONGEST_FORM = 4_096
_BOUNDS = ("rollouts", "tokens", "usd", "seconds", "proposals")


class RunPages:
    """The handlers; each reads what is new of its run first.

    Args:
        library: the runs.
    """

    def __init__(self, library: Library) -> None:
        self._library = library

    def overview(self, request: Request) -> Response:
        """Verdict, figures, score over cost, what to do, the latest proposals; stop or extend."""
        return self._page(request, "overview.html.j2", "", self._overview)

    def now(self, request: Request) -> Response:
        """The mark of now: it changes with anything new."""
        shelf = self._shelf(request)
        with shelf.lock:
            return JSONResponse({"mark": self._mark(shelf)})

    def proposals(self, request: Request) -> Response:
        """All proposals and merges, the newest first, filtered."""
        return self._page(request, "proposals.html.j2", "/proposals", self._proposals)

    def proposal(self, request: Request) -> Response:
        """One proposal: what it changed, and how it did."""
        return self._page(request, "proposal.html.j2", "/proposals", self._proposal)

    def candidates(self, request: Request) -> Response:
        """All candidates, a page at a time."""
        return self._page(request, "candidates.html.j2", "/candidates", self._candidates)

    def candidate(self, request: Request) -> Response:
        """One candidate: prompts, origin, rollouts."""
        return self._page(request, "candidate.html.j2", "/candidates", self._candidate)

    def rollout(self, request: Request) -> Response:
        """A candidate's rollouts on one example, whole."""
        return self._page(request, "rollout.html.j2", "/candidates", self._rollout)

    def lineage(self, request: Request) -> Response:
        """The tree and the map."""
        return self._page(request, "lineage.html.j2", "/lineage", self._lineage)

    def matrix(self, request: Request) -> Response:
        """Candidates and examples."""
        return self._page(request, "matrix.html.j2", "/matrix", self._matrix)

    def measures(self, request: Request) -> Response:
        """Measures, advice, spend."""
        return self._page(request, "measures.html.j2", "/measures", self._measures)

    def settings(self, request: Request) -> Response:
        """What fixed the run's course."""
        return self._page(request, "settings.html.j2", "/settings", lambda request, shelf, look: {"settings": settings_rows(look.trail)})

    def report(self, request: Request) -> Response:
        """The report as one file."""
        shelf = self._shelf(request)
        return HTMLResponse(
            report_html(shelf.folder).encode("utf-8", "backslashreplace"),
            headers={"content-disposition": f"attachment; filename=report.html; filename*=UTF-8''{quote(shelf.folder.name, safe='')}.html"},
        )

    async def ask(self, request: Request) -> Response:
        """Leave an ask for the process that works on the run."""
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > _LONGEST_FORM:
                raise UsageError("the form is too long.")
        shelf = self._shelf(request)
        with shelf.lock:
            wanted = _wanted(dict(parse_qsl(body.decode("utf-8", "replace"))), shelf.trail.budget)
            if self._library.status(shelf)[0] != "running":
                raise UsageError("nobody works on this run now: there is nobody to ask.")
            ask(shelf.folder, wanted)
        said = {"finish": "finish", "pause": "pause"}.get(wanted.stop, "budget")
        return RedirectResponse(f"{_here(request)}?asked={said}", 303)

    def _shelf(self, request: Request) -> Shelf:
        return self._library.shelf(request.path_params["name"])

    def _mark(self, shelf: Shelf) -> str:
        return f"{shelf.trail.seq}-{shelf.browse.rollout_count}-{self._library.status(shelf)[0]}"

    def _page(self, request: Request, template: str, view: str, fill: Callable[[Request, Shelf, Look], dict[str, Any]]) -> Response:
        begun = time.thread_time()
        shelf = self._shelf(request)
        with shelf.lock:
            status, worker = self._library.status(shelf)
            here = _here(request)
            live: dict[str, Any] = {"now": f"{here}/now", "mark": self._mark(shelf), "live": status == "running"}
            if shelf.trail.started is None:
                return render(request, "message.html.j2", {"heading": shelf.folder.name, "words": NEVER_STARTED, **live})
            look = shelf.look()
            frame = {
                **live,
                "name": shelf.folder.name,
                "folder": str(shelf.folder),
                "status": status,
                "worker": worker,
                "views": VIEWS,
                "view": view,
                "here": here,
                "look": look,
                "score": look.trail.objective.score,
            }
            page = render(request, template, {**frame, **fill(request, shelf, look)})
        page.headers["x-next-look"] = str(pace_of(time.thread_time() - begun, status == "running"))
        return page

    def _overview(self, request: Request, shelf: Shelf, look: Look) -> dict[str, Any]:
        trail = look.trail
        status, _ = self._library.status(shelf)
        kind, lines = verdict_of(shelf, status)
        bounds = [(name, value) for name in _BOUNDS if (value := getattr(trail.budget, name)) is not None]
        said = {"finish": "Asked to finish.", "pause": "Asked to pause.", "budget": "Asked for the larger budget."}
        return {
            "verdict_kind": kind,
            "verdict": lines,
            "bounds": bounds,
            "advice": look.advice if len(trail.attempts) <= _QUICK else None,
            "proposals": trail.attempts[-1:-16:-1],
            # what was asked of a run that has ended since is no news
            "said": said.get(request.query_params.get("asked", ""), "") if status == "running" else "",
        }

    def _proposals(self, request: Request, shelf: Shelf, look: Look) -> dict[str, Any]:
        attempts = look.trail.attempts
        statuses = ["", *sorted({attempt.status for attempt in attempts} | {attempt.code for attempt in attempts})]
        models = ["", *sorted({attempt.model for attempt in attempts if attempt.model})]
        modules = ["", *look.trail.modules]
        rules = ["", *sorted(look.checks)]
        picked = {
            "status": chosen(request, "status", statuses),
            "module": chosen(request, "module", modules),
            "model": chosen(request, "model", models),
            "rule": chosen(request, "rule", rules),
        }
        found = [
            attempt
            for attempt in reversed(attempts)
            if picked["status"] in ("", attempt.status, attempt.code)
            and (not picked["module"] or picked["module"] in attempt.modules)
            and picked["model"] in ("", attempt.model)
            and (not picked["rule"] or picked["rule"] in attempt.rules)
        ]
        rows, pager = page_of(request, found, _ROWS)
        offered = {"statuses": statuses, "modules": modules, "models": models, "rules": rules}
        return {"proposals": rows, **offered, "chosen": picked, **pager}

    def _proposal(self, request: Request, shelf: Shelf, look: Look) -> dict[str, Any]:
        trail = look.trail
        seq = int(request.path_params["seq"])
        row = next((attempt for attempt in trail.attempts if attempt.seq == seq), None)
        stored = shelf.browse.event(seq)
        if row is None or stored is None:
            raise NotThereError(f"proposal {seq}")
        event = decode_event(stored.kind, stored.version, stored.body)
        assert isinstance(event, Proposed | Merged)
        score = trail.objective.score
        # a merge is held to the better of its parents
        before = event.before if isinstance(event, Proposed) else max(event.before, key=lambda cells: sum(filter(None, cells)), default=())
        after = event.after or (None,) * len(event.example_ids)
        cells = [(id_, _score(score, b), _score(score, a)) for id_, b, a in zip(event.example_ids, before, after, strict=False)]
        facts = [("outcome", f"{row.status}: {row.code.replace('_', ' ')}"), ("from", ", ".join(f"#{parent}" for parent in row.parents))]
        facts += [("became", f"#{row.child}")] if row.child is not None else []
        facts += [("by", row.model)] if row.model else []
        facts += [("cost", "unknown" if row.usd is None else f"{row.usd:.4f} USD")] if row.usd or row.usd is None else []
        parent = trail.nodes[row.parents[0]]
        return {
            "row": row,
            "facts": facts,
            "diffs": [(module, diff(parent.texts[module], text)) for module, text in row.texts.items()],
            "findings": event.findings if isinstance(event, Proposed) else (),
            "cells": cells,
        }

    def _candidates(self, request: Request, shelf: Shelf, look: Look) -> dict[str, Any]:
        trail = look.trail
        picked = {"which": chosen(request, "which", ("front", "line")), "order": chosen(request, "order", ("new", "old"))}
        indices = list(range(len(trail.nodes)))
        if picked["which"] == "front":
            indices = sorted(look.front)
        elif picked["which"] == "line" and trail.winner is not None:
            indices = [node.index for node in line_of(trail, trail.winner.index)]
        if picked["order"] == "new":
            indices.reverse()
        elif picked["order"] == "":
            indices.sort(key=lambda index: (-(-math.inf if (mean := trail.nodes[index].mean) is None else mean), index))
        some, pager = page_of(request, indices, _ROWS)
        return {"rows": [candidate_row(look, index) for index in some], "chosen": picked, **pager}

    def _candidate(self, request: Request, shelf: Shelf, look: Look) -> dict[str, Any]:
        trail = look.trail
        index = _index(request.path_params["index"], look)
        node, seed = trail.nodes[index], trail.nodes[0]
        row = candidate_row(look, index)
        rollouts = shelf.browse.rollouts(Candidate(node.texts).id, after=whole(request, "after", 0), limit=_CASES)
        steps, dropped = lineage_steps(trail, index, 40)
        facts = [
            ("validation", "missing" if row.score is None else f"{row.score:.3f}"),
            ("step", str(node.step) if node.step >= 0 else "a start beside the seed" if node.parents else "the seed"),
        ]
        facts += [("from", ", ".join(f"#{parent}" for parent in node.parents))] if node.parents else []
        facts.append(("joined after", f"{node.rollouts:,} rollouts, {clock(node.at - trail.begun)}"))
        return {
            "row": row,
            "facts": facts,
            "changes": [(module, diff(seed.texts[module], text)) for module, text in node.texts.items() if text != seed.texts[module]],
            "blame": blame_in(trail, index),
            "steps": steps,
            "dropped": dropped,
            "children": [other.index for other in trail.nodes if index in other.parents][:200],
            "cases": [case_of(trail, shelf.browse, rollout) for _, rollout in rollouts],
            "after": rollouts[-1][0] if len(rollouts) == _CASES else 0,
        }

    def _rollout(self, request: Request, shelf: Shelf, look: Look) -> dict[str, Any]:
        index = _index(request.query_params.get("candidate", ""), look)
        example = request.query_params.get("example", "")
        rollouts = shelf.browse.rollouts_on(Candidate(look.trail.nodes[index].texts).id, example)
        return {"index": index, "example": example, "cases": [case_of(look.trail, shelf.browse, rollout) for rollout in rollouts]}

    def _lineage(self, request: Request, shelf: Shelf, look: Look) -> dict[str, Any]:
        return {
            "chart": lineage_chart(look.trail, look.front, f"{_here(request)}/candidate/{{}}"),
            "left": max(0, len(look.trail.nodes) - MOST),
            "map": charts.map_chart(look.trail, look.space, look.front),
        }

    def _matrix(self, request: Request, shelf: Shelf, look: Look) -> dict[str, Any]:
        trail = look.trail
        order = sorted(range(len(trail.nodes)), key=lambda index: (-(trail.nodes[index].mean or -math.inf), index))
        some, pager = page_of(request, order, _MATRIX_ROWS)
        return {
            "picture": matrix_picture(matrix_of(trail), "Values of all candidates on the validation examples"),
            "thinned": len(trail.nodes) > MOST_ROWS,
            "chart": matrix_chart(matrix_of(trail, some), trail),
            **pager,
        }

    def _measures(self, request: Request, shelf: Shelf, look: Look) -> dict[str, Any]:
        measures = look.measures
        return {
            "novelty": charts.novelty_chart(look.course),
            "entropy": charts.entropy_chart(measures.generations),
            "spend_bars": charts.bars(charts.spend_rows(measures.spend), "Spend by role"),
            "rollout_bars": charts.bars(
                [(name, float(count), f"{count:,}") for name, count in measures.rollouts.items()], "Rollouts by purpose"
            ),
        }


def verdict_of(shelf: Shelf, status: str) -> tuple[str, list[str]]:
    """The verdict and its lines, as far as there is one."""
    trail = shelf.trail
    if not trail.nodes:
        width = len(trail.started.validation_ids) if trail.started else 0
        done = f"{shelf.browse.rollout_count:,} of {width:,} rollouts"
        if trail.stopped is not None:
            return "none", [f"No verdict: the search ended while the seed was validated, {done}.", f"Search ended: {trail.stopped.reason}."]
        return "none", [
            f"No verdict yet: {'validating the seed' if status == 'running' else 'interrupted while the seed was validated'}, {done}."
        ]
    if status == "running":
        return "none", ["No verdict yet: the run goes on."]
    if len(trail.attempts) > _QUICK:
        if trail.tested is None:
            why = trail.stopped.reason if trail.stopped else "interrupted"
            return "none", [
                "No verdict: the test set is not scored." if trail.started and trail.started.test_ids else "Verdict: validated only.",
                f"Search ended: {why}.",
            ]
        return "none", ["The test set is scored. The report has the verdict: it takes a while for a run of this length."]
    result = read_run(shelf.folder).result()
    return result.verdict.replace(" ", "-"), [line.replace(" %", "\u00a0%") for line in verdict_text(result).splitlines()]


def _here(request: Request) -> str:
    base = str(request.scope.get("root_path", "")).rstrip("/")
    return f"{base}/run/{quote(request.path_params['name'], safe='')}"


def _index(text: str, look: Look) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) < len(look.trail.nodes)):
        raise NotThereError(f"candidate {text[:20]}")
    return int(text)


def _score(score: Callable[[float], float], value: float | None) -> float | None:
    return None if value is None else score(value)


def _wanted(form: dict[str, str], budget: Budget) -> Ask:
    """What a form asks for.

    Raises:
        UsageError: it makes no sense, or a bound would become smaller or appear.
    """
    stop = form.get("stop", "")
    if stop == "finish":
        return Ask("finish")
    if stop == "pause":
        return Ask("pause")
    bounds: dict[str, Any] = {}
    for name in _BOUNDS:
        now = getattr(budget, name)
        if now is None:
            continue
        try:
            value = float(form.get(name, now))
        except ValueError:
            raise UsageError(f"{name}: a number is needed, got {form.get(name, '')[:40]!r}.") from None
        if not math.isfinite(value) or value < now:
            raise UsageError(f"{name}: a bound can be raised, not lowered; it is {now:g}, and {value:g} was asked for.")
        bounds[name] = value if name in ("usd", "seconds") else int(value)
    if not bounds:
        raise UsageError("nothing was asked for.")
    return Ask(budget=Budget(**bounds))
