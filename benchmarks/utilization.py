"""How busy a search keeps 32 model slots, and how long it takes: our fans and windows beside upstream ``gepa``'s default and best settings, over real HTTP.

``python -m benchmarks utilization [--quick] [-- --minutes 5]``. A local server of its own process answers a rollout in 200 ms and a reflection in 1 s or 4 s; validation sets of 100 and 32 examples; of five
proposals two are better, in a fixed order (``utilization_task.py``). Busy is slot-seconds of rollouts over 32 x wall: reflections go to another model, as in most runs, and don't count. Both sides use the
same light client; what litellm's own client costs a call is measured apart. Each run's figures are kept in ``benchmarks/results/utilization-cells.json``, or where ``--cells`` says, and not
measured again: delete the file to start afresh.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.http_lm import HttpLM
from benchmarks.report import Options, Report, Row
from benchmarks.search_code import MadeBy, code_hash
from benchmarks.utilization_task import SLOTS, Course, ModelServer, measure
from gepa_lite import Search
from gepa_lite.lm.protocol import LM, Params, Request

CELLS = Path(__file__).parent / "results" / "utilization-cells.json"
FANS = (1, 2, 4, 8, 16)
WINDOWS = (1, 4, 16)
BUDGETS = {100: 1_000, 32: 500}
"""Rollouts for each size of the validation set: about 20 proposals of a fan of 1."""

OURS: Mapping[str, Search] = {
    **{f"fan {fan} window {window}": Search(fan=fan, window=window) for window in WINDOWS for fan in FANS},
    **{f"fan {fan} window 1, no overlap": Search(fan=fan, overlap=False) for fan in (1, 4)},
    "paper": Search.paper(),
    "paper, window 16": Search.paper(window=16),
}


PEER = {"default": 10, "default, 1 thread": 1, "default, 32 threads": 32, "best": 32}
"""Threads of the peer's settings: 10 is what its default adapter has for a model by name, 1 for a model that is a function. ``best`` is its best in this respect: 4 parents with 4 proposals each."""


def peer_settings(name: str) -> dict[str, Any]:
    """The peer's keywords and its threads."""
    from gepa.strategies.proposal_sampling import PxNSampling

    return {"threads": PEER[name], **({"sampling_strategy": PxNSampling(4, 4)} if name == "best" else {})}


def courses(quick: bool) -> list[Course]:
    """Every run, ours and the peer's in turns; with reflections of 4 s a part of the grid."""
    if quick:
        return [Course(*side, 32, 1.0, 150) for side in (("ours", "fan 4 window 1"), ("peer", "best"), ("ours", "fan 1 window 4"))]
    found = []
    for validation, rollouts in BUDGETS.items():
        for reflection in (1.0, 4.0):
            some = (
                "fan 1 window 1",
                "fan 2 window 1",
                "fan 4 window 1",
                "fan 8 window 1",
                "fan 16 window 1",
                "fan 1 window 1, no overlap",
                "fan 4 window 1, no overlap",
                "fan 1 window 16",
                "fan 4 window 4",
            )
            mine = [name for name in OURS if name != "paper, window 16"] if reflection == 1 else some
            theirs = [name for name in PEER if reflection == 1 or name != "default, 1 thread"]
            for turn in range(max(len(mine), len(theirs))):
                found += [Course("ours", name, validation, reflection, rollouts) for name in mine[turn : turn + 1]]
                found += [Course("peer", name, validation, reflection, rollouts) for name in theirs[turn : turn + 1]]
    # long, so that its start and its end, when the slots can't be full, weigh little
    return [*found, Course("ours", "paper, window 16", 100, 1.0, 8_000)]


def run(options: Options) -> Report:
    """Measure what is missing, then compare."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks utilization")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end after so long; the next call goes on")
    parser.add_argument("--cells", type=Path, default=CELLS, help="where the runs' figures are kept")
    chosen = parser.parse_args(list(options.rest))
    until = time.monotonic() + 60 * chosen.minutes
    path = None if options.quick else chosen.cells
    kept: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path is not None and path.exists() else {}
    wanted = courses(options.quick)
    _made_by([kept[course.name] for course in wanted if course.name in kept]).tell()
    lacking = [course for course in wanted if course.name not in kept]
    if lacking:
        # what a process does once, imports above all, is no part of any run
        for side, rules in (("ours", OURS["paper"]), ("peer", peer_settings("default"))):
            measure(Course(side, "", 4, 0.0, 20), rules, seconds=0.0)
    for course in lacking:
        if time.monotonic() > until:
            raise SystemExit(
                f"{sum(other.name not in kept for other in wanted)} runs of {len(wanted)} are left; the same command goes on with them"
            )
        rules = OURS[course.rules] if course.side == "ours" else peer_settings(course.rules)
        kept[course.name] = {**asdict(course), **measure(course, rules), **({"search_code": code_hash()} if course.side == "ours" else {})}
        if path is not None:
            path.write_text("{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(cell)}" for name, cell in kept.items()) + "\n}\n")
    cells = [kept[course.name] for course in wanted]
    made = _made_by(cells)
    rows = [made.row, *_rows(cells), *client_rows()]
    return Report(
        "utilization",
        rows,
        n=1,
        model="a scripted model over HTTP, 200 ms",
        extra={"peer": f"gepa {version('gepa')}", "slots": SLOTS, "search_code": made.data, "cells": cells},
    )


def _made_by(cells: Sequence[Mapping[str, Any]]) -> MadeBy:
    """The states of the code behind our own runs; the peer's owe nothing to it."""
    return MadeBy.of(cell.get("search_code") for cell in cells if cell["side"] == "ours")


def _rows(cells: Sequence[Mapping[str, Any]]) -> list[Row]:
    rows = []
    for cell in cells:
        same = [
            other
            for other in cells
            if (other["validation"], other["reflection"], other["rollouts"]) == (cell["validation"], cell["reflection"], cell["rollouts"])
        ]
        peer = next((_wall(other) for other in same if (other["side"], other["rules"]) == ("peer", "default")), None)
        label = f"{cell['side']} {cell['rules']}, {cell['validation']} ex., {cell['reflection']:g} s"
        ratio = None if peer is None else _wall(cell) / peer
        goal, met = None, None
        if cell["rules"] == "fan 4 window 1":
            goal, met = "<= 1/5 of the peer's default", None if ratio is None else ratio <= 0.2
        rows.append(Row(f"{label}: s per 1,000 rollouts", _wall(cell), peer, ratio, goal, met))
        own = cell["rules"] == "fan 4 window 1"
        for base in ("fan 1 window 1", "fan 1 window 1, no overlap"):
            first = next((_wall(other) for other in same if other["rules"] == base), None)
            if first is not None and " window 1" in cell["rules"].replace("window 16", ""):
                share = _wall(cell) / first
                goal = "<= 0.45" if own else None
                rows.append(Row(f"{label}: wall of {base}", share, goal=goal, met=share <= 0.45 if own else None))
        aim = cell["rules"] == "paper, window 16"
        rows.append(Row(f"{label}: busy", cell["busy"], goal=">= 0.9" if aim else None, met=cell["busy"] >= 0.9 if aim else None))
    return rows


def _wall(cell: Mapping[str, Any]) -> float:
    """Seconds per 1,000 rollouts: runs end at slightly different numbers below their budget, or above the peer's."""
    return float(cell["wall"] / cell["calls"] * 1_000)


def client_rows(calls: int = 100) -> list[Row]:
    """CPU milliseconds a call of the light client and of litellm's, one after the other, against a server that answers at once."""
    from gepa_lite.lm.litellm_client import LiteLLM

    rows = []
    with ModelServer(0.0, seconds=0.0) as server:
        clients: dict[str, LM] = {
            "the light client": HttpLM(server.task, "task"),
            "litellm": LiteLLM("openai/task", api_base=server.task, api_key="none"),
        }
        for name, client in clients.items():
            request = Request(({"role": "system", "content": "Level 0."}, {"role": "user", "content": "question 1"}), Params())
            client.complete(request)
            start = time.process_time()
            for _ in range(calls):
                client.complete(request)
            rows.append(Row(f"a call by {name}, CPU ms", (time.process_time() - start) / calls * 1e3))
    return rows
