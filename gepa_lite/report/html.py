"""One self-contained file about a run: no network, no script, and a policy that forbids both."""

from __future__ import annotations

import base64
import hashlib
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gepa_lite.errors import UsageError
from gepa_lite.insight.distance import Embedding, TextSpace
from gepa_lite.insight.measures import read_trail, run_of
from gepa_lite.insight.stored import StoredRun, read_run
from gepa_lite.report import charts
from gepa_lite.report.lineage import MOST, lineage_chart
from gepa_lite.report.matrix import MOST_ROWS, matrix_chart, matrix_of, matrix_picture
from gepa_lite.report.pages import (
    Look,
    candidate_row,
    diff,
    lineage_steps,
    settings_rows,
    telling_cases,
)
from gepa_lite.report.rendering import environment, style_markup, style_sheet
from gepa_lite.ship.findings import findings_text
from gepa_lite.ship.verdict_text import verdict_text
from gepa_lite.store.browse import Browse

if TYPE_CHECKING:
    from gepa_lite.ship.result import Result

_CASES = 3
"""Rollouts shown of each candidate."""
_READ = 4
"""Candidates of the front whose rollouts are shown, beside seed and winner."""
_FLIPS = 60
_ROWS = 1_000
_LINE_STEPS = 40
_FRONT_ROWS = 24


def report_html(run: Result[Any] | str | Path, *, embedding: str | Embedding = "ngrams") -> str:
    """A report of a run, finished or going on, as one HTML file that needs nothing else.

    Args:
        run: a result, the name of a run, or the path of its folder.
        embedding: what texts are compared by; see ``gl.measures``.

    Raises:
        UsageError: there is no such run, it was kept in memory, or its seed is not validated yet.
    """
    with Browse(run_of(run)) as browse:
        stored = read_run(browse.folder)
        result = stored.result()
        trail = read_trail(browse)
        look = Look(trail, browse, TextSpace(trail.modules, embedding))
        parts = {**_verdict(stored, result), **_course(look), **_texts(look, result)}
        style = style_sheet()
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
        return environment().get_template("report.html.j2").render(look=look, style=style_markup(), policy=policy, **parts)


def write_text(path: Path, text: str) -> Path:
    """Write a file in one move.

    Raises:
        UsageError: the folder does not exist or can't be written to.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8", errors="backslashreplace")
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UsageError(f"{path} can't be written: {error.strerror}. Name a file in a folder that is there.") from error
    return path


def _verdict(stored: StoredRun, result: Result[Any]) -> dict[str, Any]:
    lines = verdict_text(result).splitlines()
    if not result.finished:
        lines.append(f"The run is {stored.status}: this is how it stood when the report was written.")
    aside = [result.state.set_aside.words] if result.state.set_aside is not None else []
    return {
        "name": stored.folder.name,
        "written": datetime.now(UTC).isoformat(timespec="minutes").replace("T", " ").replace("+00:00", " UTC"),
        "verdict": result.verdict,
        "verdict_lines": [line.replace(" %", "\u00a0%") for line in lines],
        "comparisons": comparisons(result),
        "notices": [*result.notices, *aside],
        "checks": findings_text(result.findings).splitlines()[1:],
        "paid": result.costs.paid,
    }


def comparisons(result: Result[Any]) -> list[dict[str, Any]]:
    """Seed and winner on each set, and by each further objective, in the user's own direction."""
    sign = 1 if result.objective.direction == "maximize" else -1
    rows = [("validation, where the winner was chosen", result.validation, sign)]
    rows += [("test", result.test, sign)] if result.test is not None else []
    rows += [(f"objective {name}", row, 1) for name, row in result.objectives.items()]
    found = []
    for name, row, turn in rows:
        low, high = sorted((turn * row.low, turn * row.high))
        before, after = turn * row.before, turn * row.after
        found.append(
            {"name": name, "before": before, "after": after, "gain": turn * row.gain, "low": low, "high": high}
            | {"won": row.won, "lost": row.lost, "n": row.n, "p": row.p}
        )
    return found


def _course(look: Look) -> dict[str, Any]:
    trail = look.trail
    order = [node.index for node in trail.nodes][:_ROWS]
    front = sorted(look.front, key=lambda index: -(trail.nodes[index].mean or 0.0))[:_FRONT_ROWS]
    if trail.winner is not None and trail.winner.index not in front:
        front = [trail.winner.index, *front][:_FRONT_ROWS]
    measures = look.measures
    purposes = [(name, float(count), f"{count:,}") for name, count in measures.rollouts.items()]
    return {
        "lineage": lineage_chart(trail, look.front),
        "lineage_left": max(0, len(trail.nodes) - MOST),
        "front_matrix": matrix_chart(matrix_of(trail, front if 0 in front else [*front, 0]), trail),
        "matrix": matrix_picture(matrix_of(trail), "Values of all candidates on the validation examples"),
        "matrix_thinned": len(trail.nodes) > MOST_ROWS,
        "rows": [candidate_row(look, index) for index in order],
        "rows_left": max(0, len(trail.nodes) - _ROWS),
        "novelty": charts.novelty_chart(look.course),
        "map": charts.map_chart(trail, look.space, look.front),
        "entropy": charts.entropy_chart(measures.generations),
        "spend_bars": charts.bars(charts.spend_rows(measures.spend), "Spend by role"),
        "rollout_bars": charts.bars(purposes, "Rollouts by purpose"),
        "settings": settings_rows(trail),
    }


def _texts(look: Look, result: Result[Any]) -> dict[str, Any]:
    index = result.winner_index
    seed, winner = result.seed_prompts, result.winner_prompts
    steps, dropped = lineage_steps(look.trail, index, _LINE_STEPS)
    flips = result.flips
    won = sum(flip.won for flip in flips)
    names = dict.fromkeys([0, index])
    names |= dict.fromkeys(sorted(look.front, key=lambda member: -(look.trail.nodes[member].mean or 0.0))[:_READ])
    titles = {0: "The seed", index: f"#{index}, the winner"}
    return {
        "changes": [(module, diff(seed[module], text)) for module, text in winner.items() if text != seed[module]],
        "blame": [row for row in result.blame if winner[row.module] != seed[row.module]],
        "steps": steps,
        "dropped": dropped,
        "flips": flips[:_FLIPS],
        "flip_words": f"{won} better, {len(flips) - won} worse{f'; the first {_FLIPS}' if len(flips) > _FLIPS else ''}",
        "readings": [(titles.get(member, f"#{member}, on the front"), telling_cases(look, member, _CASES)) for member in names],
        "prompts": result.prompts,
    }
