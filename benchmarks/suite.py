"""The local suite, in pieces: ``python -m benchmarks suite --minutes 60 [--seeds 0,1,2]`` runs the cells that are still missing, as many as there is time for.

The naive prompts, our search and upstream's on every task with the first seed, the prompts written by hand, then seed by seed, then the other optimizers. A cell that was interrupted goes on; each
result is kept as it ends. ``--quick`` is that of ``python -m benchmarks run``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.cells import RESULTS, UNOPTIMIZED, Cell
from benchmarks.local_tasks import SUITE
from benchmarks.report import Options, Report
from benchmarks.run import BUDGET, MODEL, check, quick, row_of, run_all

FIRST, LATER = ("gepa_lite", "gepa"), ("best_of_n", "few_shot", "random_rewrite", "gepa_lite:paper")


def run(options: Options) -> Report:
    """Run what is missing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks suite")
    parser.add_argument("--minutes", type=float, default=60.0, help="no cell is begun later")
    parser.add_argument("--tasks", default=",".join(SUITE))
    parser.add_argument("--optimizers", default=",".join(FIRST), help="those that every seed runs first")
    parser.add_argument("--others", default=",".join(LATER), help="those that come last")
    parser.add_argument("--lm", default=MODEL)
    parser.add_argument("--budget", type=int, default=BUDGET)
    parser.add_argument("--results", type=Path, default=RESULTS)
    own = parser.parse_args(options.rest)
    if options.quick:
        return quick()
    seeds = options.seeds if options.seeds != (0,) else (0, 1, 2)
    first, others = ([name for name in text.split(",") if name] for text in (own.optimizers, own.others))
    cells = list(ordered(own.tasks.split(","), first, others, seeds, own.lm, own.budget))
    for cell in cells:
        check(cell)
    missing = [cell for cell in cells if not cell.done(own.results)]
    print(f"{len(missing)} of {len(cells)} cells are missing", flush=True)
    found, failed = run_all(missing, own.results, time.monotonic() + own.minutes * 60)
    left = len(missing) - len(found)
    rows = [row_of(each) for each in found]
    return Report("suite", rows, n=len(found), seeds=seeds, model=own.lm, extra={"failed": failed, "missing": left})


def ordered(
    tasks: Sequence[str], first: Sequence[str], others: Sequence[str], seeds: Sequence[int], model: str, budget: int
) -> Iterator[Cell]:
    """All cells, in the order in which a table fills best."""
    naive, by_hand = UNOPTIMIZED
    yield from (Cell(task, optimizer, seeds[0], model, budget) for task in tasks for optimizer in (naive, *first))
    yield from (Cell(task, by_hand, seeds[0], model, budget) for task in tasks)
    yield from (Cell(task, optimizer, seed, model, budget) for seed in seeds[1:] for task in tasks for optimizer in first)
    yield from (Cell(task, optimizer, seed, model, budget) for seed in seeds for task in tasks for optimizer in others)
