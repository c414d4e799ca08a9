"""Cells of the suite's table: ``python -m benchmarks run --task T --optimizer O --lm M --budget B --seeds 0,1,2``.

``--task`` and ``--optimizer`` take several names with commas between them. Each cell is one run with train, validation, curve and sealed test rows; its result is a file under
``benchmarks/results/runs``. What is there already is not run again, what was interrupted goes on. ``--quick`` runs the demo's task on a scripted model and keeps nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.cells import RESULTS, UNOPTIMIZED, Cell, model_slug, open_model, optimizer_of, run_cell
from benchmarks.local_tasks import TASKS, find_task
from benchmarks.replies import RememberingLM
from benchmarks.report import Options, Report, Row
from gepa_lite.demo.task import load_splits
from gepa_lite.errors import GepaLiteError
from gepa_lite.lm.protocol import Request
from gepa_lite.session import InterruptedRunError
from gepa_lite.testing import ScriptedLM

MODEL = "local/qwen2.5-coder-1.5b"
BUDGET = 200
"""Rollouts of the search: the seed's validation on 30 examples, and six times as much."""


def run(options: Options) -> Report:
    """Run the cells that are asked for."""
    own = parse(options.rest)
    if options.quick:
        return quick()
    cells = [
        Cell(task, optimizer, seed, own.lm, own.budget)
        for seed in options.seeds
        for task in own.task.split(",")
        for optimizer in own.optimizer.split(",")
    ]
    for cell in cells:
        check(cell)
    found, failed = run_all(cells, own.results)
    return Report("run", [row_of(each) for each in found], n=len(found), seeds=options.seeds, model=own.lm, extra={"failed": failed})


def parse(rest: Sequence[str]) -> argparse.Namespace:
    """The arguments of the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks run")
    parser.add_argument("--task", default="fernpost-local", help=f"of {', '.join(TASKS)}")
    parser.add_argument("--optimizer", default="gepa_lite", help="seed, by_hand, a name of gl.compare's optimizers, or OPTIMIZER:SETTING")
    parser.add_argument("--lm", default=MODEL)
    parser.add_argument("--budget", type=int, default=BUDGET, help="rollouts of the search, validation included")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args(rest)


def check(cell: Cell) -> None:
    """Refuse names that are not known before anything is run.

    Raises:
        UsageError: names the unknown one.
    """
    find_task(cell.task)
    if cell.optimizer not in UNOPTIMIZED:
        optimizer_of(cell.optimizer)


def command_of(cell: Cell) -> str:
    """What a reader types to get a cell."""
    return f"python -m benchmarks run --task {cell.task} --optimizer {cell.optimizer} --lm {cell.model} --budget {cell.budget} --seeds {cell.seed}"


def run_all(cells: Sequence[Cell], results: Path = RESULTS, until: float = float("inf")) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Run cells one after another, each kept as it ends; one that fails does not keep the others from running.

    Args:
        cells: in order.
        results: the folder of results.
        until: by ``time.monotonic``, no cell is begun later.

    Returns:
        What was found, and the errors by cell.
    """
    os.environ.setdefault("GEPA_LITE_PROGRESS", "0")
    models: dict[str, RememberingLM] = {}
    found: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    for cell in cells:
        if time.monotonic() > until:
            break
        if cell.done(results):
            print(f"{cell.slug}: done before", flush=True)
            continue
        lm = models.get(cell.model) or models.setdefault(cell.model, open_model(cell.model))
        try:
            found.append(run_cell(cell, lm, results, command_of(cell)))
        except InterruptedRunError as stopped:
            print(stopped, flush=True)
            break
        except GepaLiteError as error:
            failed[cell.slug] = f"{type(error).__name__}: {error}"
            print(f"{cell.slug}: {failed[cell.slug]}", flush=True)
            continue
        print(line_of(found[-1]), flush=True)
    return found, failed


def line_of(found: dict[str, Any]) -> str:
    """A result in a line."""
    figures = found["figures"]
    seed = f"{figures['seed_test']:.3f} -> " if "seed_test" in figures else ""
    return (
        f"{found['task']} {found['optimizer']} {found['seed']}: test {seed}{figures['test']:.3f}, validation {figures['validation']:.3f}, "
        f"{figures['rollouts']} rollouts, {figures['tokens']:,} tokens, {found['session_seconds']:.0f} s at load {found['load_average'][1]}"
    )


def row_of(found: dict[str, Any]) -> Row:
    """A result as a row: the winner's held-out score beside the seed program's."""
    figures = found["figures"]
    label = f"{found['task']}, {found['optimizer']}, seed {found['seed']}: test"
    return Row(label, round(figures["test"], 4), None if "seed_test" not in figures else round(figures["seed_test"], 4))


def quick() -> Report:
    """One cell each of four optimizers on the demo's task, on a scripted model; keeps nothing."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        cells = [Cell("fernpost-local", name, 0, "scripted", 100) for name in ("seed", "gepa_lite", "gepa", "best_of_n")]
        with (
            contextlib.closing(RememberingLM(ScriptedLM(scripted), root / "replies.db")) as lm,
            mock.patch.dict(os.environ, GEPA_LITE_RUNS=str(root / "runs"), GEPA_LITE_PROGRESS="0"),
        ):
            found = [run_cell(cell, lm, root) for cell in cells]
    return Report("run", [row_of(each) for each in found], n=len(found), seeds=(0,), model=model_slug("scripted"))


def scripted(request: Request) -> str:
    """Answers for the demo's task without a model: a prompt that speaks of house rules knows them, another says the same of every message."""
    told = request.messages[0]["content"]
    if "<prompt>" in told or "```" in told:
        return "```\nChoose by the house rules of the shop.\n```"
    knows = "house rules" in told
    asked = request.messages[-1]["content"]
    row = next(
        (row for rows in load_splits() for row in rows if row["message"] in asked or f"topic: {row['topic']}" == asked.strip()), None
    )
    if "fern" in told:
        return row["team"] if knows and row else "fern"
    return row["topic"] if knows and row else "plants"
