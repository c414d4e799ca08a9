"""How far estimates are from the truth: five real runs of a small local model, each estimated before it is paid for.

``python -m benchmarks estimate [--seeds 0,1] [-- PIECE ...]``. Each seed takes other rows and another seed of the search. A piece keeps its estimate beside its run under
``GEPA_LITE_RUNS``; what is finished costs nothing to look at again, so an interrupted table continues. ``--quick`` runs the demo's piece alone, on a scripted model.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import gepa_lite as gl
from benchmarks.estimate_tasks import TASKS, Task
from benchmarks.report import Options, Report, Row
from gepa_lite.testing import ScriptedLM

MEASURES = ("proposals", "rollouts", "task calls", "task tokens", "reflection tokens", "minutes")
MODEL = "local/qwen2.5-coder-1.5b"


def run(options: Options) -> Report:
    """Estimate each piece, run it, compare."""
    chosen = [task for task in TASKS if not options.rest or task.name in options.rest]
    if options.quick:
        chosen = [task for task in TASKS if task.file is None]
    rows, pieces = [], {}
    for task, seed in [(task, seed) for seed in options.seeds for task in chosen]:
        data = task.rows(seed)
        if data is None:
            print(f"{task.name}: {task.file} is not at hand, so this piece is left out.")
            continue
        name = f"{task.name} {seed}"
        estimated, true = _piece(task, data, seed, quick=options.quick)
        pieces[name] = {"estimate": estimated, "truth": true}
        rows += [_row(name, measure, estimated, true) for measure in MEASURES]
    rows += _summary(pieces)
    return Report(
        "estimate", rows, n=len(pieces), seeds=options.seeds, model="scripted" if options.quick else MODEL, extra={"pieces": pieces}
    )


def _piece(
    task: Task, data: tuple[list[dict[str, Any]], list[dict[str, Any]]], seed: int, *, quick: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    program: Any = task.program
    folder = Path(os.environ.get("GEPA_LITE_RUNS", "gepa_runs")) / f"estimate-{task.name}-{seed}{'-quick' if quick else ''}" / "run"
    lm = ScriptedLM(_scripted) if quick else MODEL
    common: dict[str, Any] = {"budget": task.budget, "search": replace(task.search, seed=seed), "run": folder, "workers": 4}
    kept = folder / "estimate.json"
    if not kept.exists():
        found = gl.estimate(program(lm=lm), *data, **common)
        print(found, flush=True)
        kept.write_text(json.dumps(found.to_dict()), encoding="utf-8")
    result = gl.optimize(program(lm=lm), *data, **common)
    print(result, flush=True)
    spend = result.costs.logical
    true = {
        "proposals": spend.proposals,
        "rollouts": spend.rollouts,
        "task calls": spend.task.calls,
        "task tokens": spend.task.tokens,
        "reflection tokens": spend.reflection.tokens,
        "minutes": result.costs.seconds / 60,
        "stopped": result.stopped,
    }
    estimated = json.loads(kept.read_text(encoding="utf-8"))
    # a path of this machine
    del estimated["run"]
    return estimated, true


def _scripted(request: gl.Request) -> str:
    text = request.messages[0]["content"]
    return "<edit><add>Mind the house rules.</add></edit>" if "<edit>" in text else "fern" if "team" in text else "plants"


def _range_of(measure: str, estimated: dict[str, Any]) -> dict[str, float]:
    if " " not in measure:
        return dict(estimated[measure])
    role, what = measure.split()
    return dict(estimated["roles"][role][what])


def _row(name: str, measure: str, estimated: dict[str, Any], true: dict[str, Any]) -> Row:
    expected, value = _range_of(measure, estimated), float(true[measure])
    ratio = value / expected["likely"] if expected["likely"] else None
    within = expected["low"] * 0.999 <= value <= expected["high"] * 1.001
    label = f"{name}: {measure}, {expected['low']:,.3g} to {expected['high']:,.3g}"
    return Row(label, value, round(expected["likely"], 2), None if ratio is None else round(ratio, 3), "within the range", within)


def _summary(pieces: dict[str, Any]) -> list[Row]:
    """For each measure: in how many runs the truth lay in the range, and the median factor by which ``likely`` was off."""
    rows = []
    for measure in MEASURES:
        found = [_row("", measure, piece["estimate"], piece["truth"]) for piece in pieces.values()]
        inside = sum(bool(row.met) for row in found)
        factors = sorted(math.exp(abs(math.log(row.ratio))) for row in found if row.ratio)
        factor = factors[len(factors) // 2] if factors else math.nan
        rows.append(
            Row(f"all: {measure}, runs within the range", f"{inside} of {len(found)}", None, None, f"median factor off {factor:.2f}")
        )
    return rows
