"""The suite's tables from its result files: ``python -m benchmarks table [--lm M] [--ours gepa_lite] [--peer gepa] [--markdown FILE] [--plot FILE]``. Runs no model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.cell_plots import plot
from benchmarks.cell_tables import markdown, read_cells, tables
from benchmarks.cells import RESULTS
from benchmarks.report import Options, Report, Row
from benchmarks.run import MODEL


def run(options: Options) -> Report:
    """Read the results and compare."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks table")
    parser.add_argument("--lm", default=MODEL)
    parser.add_argument("--ours", default="gepa_lite")
    parser.add_argument("--peer", default="gepa")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--markdown", type=Path, help="write the tables to this file")
    parser.add_argument("--plot", type=Path, help="draw the resource curves of both to this image")
    own = parser.parse_args(options.rest)
    cells = read_cells(own.lm, own.results)
    found = tables(cells, own.ours, own.peer)
    text = markdown(found, own.ours, own.peer)
    print(text)
    if own.markdown is not None:
        own.markdown.write_text(text + "\n", encoding="utf-8")
    if own.plot is not None:
        plot(cells, (own.ours, own.peer), own.plot)
    seeds = sorted({cell["seed"] for cell in cells})
    return Report("table", rows_of(found, own.ours, own.peer), n=len(cells), seeds=seeds, model=own.lm, extra={"tasks": found})


def rows_of(found: dict[str, Any], ours: str, peer: str) -> list[Row]:
    """A row a task: ours beside the peer, with whether it is above the seed program's, and not clearly below the peer's."""
    rows = []
    for task, parts in found.items():
        mine, other, both = parts["optimizers"].get(ours), parts["optimizers"].get(peer), parts["pair"]
        if mine is None:
            continue
        gain = mine["test"] - mine["seed_test"]
        rows.append(Row(f"{task}: test above the seed program's", round(gain, 4), None, None, "> 0 where there is room", gain > 0))
        if other is not None and both is not None:
            label = f"{task}: test, {ours} beside {peer}"
            rows.append(Row(label, round(mine["test"], 4), round(other["test"], 4), None, "interval not below", both["high"] >= 0))
    return rows
