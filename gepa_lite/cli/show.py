"""``gepa-lite show``: read a run, or list them all, while or after they go on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gepa_lite.cli.options import Json

if TYPE_CHECKING:
    from gepa_lite.insight.stored import StoredRun
    from gepa_lite.ship.result import Result


def show(
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="A name under the runs' folder, or the path of a run's folder.")] = None,
    candidate: Annotated[int | None, typer.Option(metavar="N", min=0, help="Print the prompts of candidate N; 0 is the seed.")] = None,
    as_json: Json = False,
) -> None:
    """Show a run, or list all runs.

    Nothing is locked, changed, called or paid for, so a run can be looked at while another process works on it, and without its code. With a RUN:
    its result so far, its candidates with their lineage, and why proposals were not accepted. Without: the runs in the runs' folder, the one
    written last first.
    """
    from gepa_lite.cli.output import answer, answer_json, result_data
    from gepa_lite.errors import UsageError
    from gepa_lite.insight.stored import read_run
    from gepa_lite.store.folders import find_run

    if run is None:
        if candidate is not None:
            raise UsageError("--candidate needs the RUN that the candidate is of.")
        _list_runs(as_json)
        return
    stored = read_run(find_run(run))
    if candidate is not None:
        texts = _texts(stored, candidate)
        if as_json:
            answer_json(texts)
        else:
            answer("\n\n".join(f"--- {path} ---\n{text}" for path, text in texts.items()))
    elif as_json:
        answer_json({**_head(stored), **(result_data(stored.result()) if stored.state.seed_validated else {}), "run": str(stored.folder)})
    else:
        answer(_report(stored))


def _report(stored: StoredRun) -> str:
    if not stored.state.seed_validated:
        head = _head(stored)
        done = f"{head['rollouts']} of {head['validation_examples']} rollouts"
        if stored.state.stopped is not None:
            return f"Run {stored.folder}: ended while the seed was validated, {done}: {stored.state.stopped.reason}."
        return f"Run {stored.folder}: {stored.status}, validating the seed: {done}."
    result = stored.result()
    return "\n\n".join([f"Run {stored.folder.name}: {stored.status}", str(result), _candidates(result, stored.folder), _proposals(result)])


def _head(stored: StoredRun) -> dict[str, Any]:
    """What can be said of every run."""
    state, score = stored.state, stored.objective.score
    assert state.started is not None
    best = state.best.mean if state.seed_validated else None
    seed = state.pool[0].mean if state.seed_validated else None
    return {
        "run": str(stored.folder),
        "status": stored.status,
        "seed": None if seed is None else score(seed),
        "best": None if best is None else score(best),
        "pool_size": len(state.pool),
        "rollouts": stored.kept_rollouts,
        "validation_examples": len(state.started.validation_ids),
        "budget": state.budget.describe(),
        "written": stored.written.isoformat(timespec="seconds"),
    }


_CANDIDATES = 40
"""Candidates that are listed: a terminal is not for thousands."""


def _listed(result: Result[Any]) -> set[int]:
    """Places of the candidates that are listed: all where they are few, else seed and winner, then the winner's ancestors, the front and the rest, each the best first."""
    members = result.candidates
    line, waiting = {result.winner_index}, [result.winner_index]
    while waiting:
        for parent in members[waiting.pop()].parents:
            if parent not in line:
                line.add(parent)
                waiting.append(parent)
    best = sorted(members, key=lambda member: (member.mean is None, -(member.mean or 0.0), member.index))
    ranked = [0, result.winner_index, *(m.index for m in best if m.index in line), *(m.index for m in best if m.index in result.front)]
    return set(list(dict.fromkeys([*ranked, *(member.index for member in best)]))[:_CANDIDATES])


def _candidates(result: Result[Any], folder: Path) -> str:
    from gepa_lite.cli.output import changed_modules

    rows = [f"{'candidate':>9}{'mean':>9}{'step':>6}{'parent':>8}  changed"]
    best, listed = result.winner_index, _listed(result)
    for member in result.candidates:
        if member.index not in listed:
            continue
        mean = "missing" if member.mean is None else f"{result.objective.score(member.mean):.3f}"
        step, parent = ("start" if member.step < 0 else str(member.step), f"#{member.parents[0]}") if member.parents else ("", "")
        marks = [word for word, true in (("best", member.index == best), ("front", member.index in result.front)) if true]
        changed = ", ".join(changed_modules(member, result.state)) or "(the seed)"
        note = f"{changed}  [{', '.join(marks)}]" if marks else changed
        rows.append(f"{f'#{member.index}':>9}{mean:>9}{step:>6}{parent:>8}  {note}")
    if left := len(result.candidates) - len(listed):
        rows.append(f"{left:,} more are not listed: those that scored less. All of them: gepa-lite show {folder} --json")
    return "\n".join(rows)


def _proposals(result: Result[Any]) -> str:
    from gepa_lite.cli.output import outcome_counts

    counts = outcome_counts(result.state)
    parts = [f"{counts['accepted']} accepted", *(f"{count} {reason.replace('_', ' ')}" for reason, count in counts["not_accepted"].items())]
    return f"Proposals: {', '.join(parts)}"


def _texts(stored: StoredRun, index: int) -> dict[str, str]:
    from gepa_lite.errors import UsageError

    pool = stored.state.pool
    if index >= len(pool):
        known = f"0 to {len(pool) - 1}" if len(pool) else "none yet"
        raise UsageError(f"candidate {index} is not in this run; it has {known}.")
    return dict(pool[index].candidate.texts)


def _list_runs(as_json: bool) -> None:
    from gepa_lite.cli.output import answer, answer_json
    from gepa_lite.store.folders import list_runs, runs_root

    rows = [_row(folder) for folder in list_runs()]
    if as_json:
        answer_json({"root": str(runs_root()), "runs": rows})
        return
    if not rows:
        answer(f"There are no runs in {runs_root()}. Start one: gepa-lite demo, or gepa-lite run --help.")
        return
    width = max(len(Path(row["run"]).name) for row in rows)
    lines = [f"{'run':<{width}}  {'status':<9}{'seed':>8}{'best':>8}{'rollouts':>10}  written (UTC)"]
    for row in rows:
        name = f"{Path(row['run']).name:<{width}}"
        if "error" in row:
            lines.append(f"{name}  {row['error']}")
            continue
        seed, best = (("-" if row[key] is None else f"{row[key]:.3f}") for key in ("seed", "best"))
        lines.append(f"{name}  {row['status']:<9}{seed:>8}{best:>8}{row['rollouts']:>10,}  {row['written'][:16].replace('T', ' ')}")
    answer("\n".join(lines))


def _row(folder: Path) -> dict[str, Any]:
    """A run for the list; one that can't be read does not hide the others."""
    from gepa_lite.errors import GepaLiteError
    from gepa_lite.insight.stored import read_run

    try:
        return _head(read_run(folder))
    except GepaLiteError as error:
        return {"run": str(folder), "error": str(error)}
