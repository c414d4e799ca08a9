"""``python -m benchmarks ui``: how quick the live pages are over a run of 10,000 candidates and 1,000,000 rollouts, and what following a run costs the run.

Seconds are a visitor's, and grow with what else the machine does; seconds of CPU are the server's own.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.engine import kept
from benchmarks.report import Options, Report, Row
from benchmarks.ui_following import PROPOSALS, following_rows, measure_pair
from benchmarks.ui_recording import Size, write_large_run
from benchmarks.ui_server import Server

VIEWS = ("", "/candidates", "/candidate/1", "/proposals", "/lineage", "/matrix", "/measures", "/settings")
_SERVERS = 5
"""Servers that are started anew, so that each view is asked for the first time as often."""
_AGAIN = 5
"""Times that each server is asked for each view again."""
_PAIRS = 8
"""Of two searches alone beside two that are watched."""


def run(options: Options) -> Report:
    """Write the run, start the server as a user would, and time each view as a browser would ask for it; then pairs of searches with and without a page open.

    ``-- FOLDER`` keeps the large run, each server's times and each pair there, and goes on from there when it is called again.
    """
    size = Size(1_000, 100_000) if options.quick else Size()
    servers, pairs, proposals = (2, 2, 40) if options.quick else (_SERVERS, _PAIRS, PROPOSALS)
    load = os.getloadavg()
    with tempfile.TemporaryDirectory() as scratch:
        pieces = Path(options.rest[0]) if options.rest else None
        root = (pieces or Path(scratch)) / "runs"
        if not (root / "large").exists():
            write_large_run(root / "written", size, options.seeds[0])
            (root / "written").rename(root / "large")
        times: dict[str, list[float]] = {}
        for number in range(servers):
            for name, values in kept(pieces, f"server-{number}", partial(_visit, root)).items():
                times.setdefault(name, []).extend(values)
        found = [kept(pieces, f"pair-{number}", partial(measure_pair, number, proposals)) for number in range(pairs)]
    extra = {
        "candidates": size.candidates,
        "rollouts": size.rollouts,
        "servers": servers,
        "pairs": found,
        "proposals_a_search": proposals,
        "load_average": [load, os.getloadavg()],
    }
    rows = [_row(name, values) for name, values in times.items()]
    return Report("ui", [*rows, *following_rows(found)], size.rollouts, options.seeds, extra=extra)


def _visit(root: Path) -> dict[str, list[float]]:
    """Start a server, ask for every view, and say what was measured."""
    times: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        times.setdefault(name, []).append(value)

    with Server(root) as server:
        begun = server.cpu()
        note(_FIRST, server.seconds("/"))
        note("list, the first page, CPU s", server.cpu() - begun)
        begin = time.perf_counter()
        while server.status("/run/large") == 202:
            time.sleep(0.05)
        note("until the run's whole log is read, s", time.perf_counter() - begin)
        for view in VIEWS:
            name, begun = view or "/", server.cpu()
            note(f"{name} the first time, s", server.seconds(f"/run/large{view}"))
            note(f"{name} the first time, CPU s", server.cpu() - begun)
            for _ in range(_AGAIN):
                note(f"{name} again, s", server.seconds(f"/run/large{view}"))
        note(_MEMORY, server.memory())
    return times


_FIRST = "list, the first page, s"
_MEMORY = "memory of the server at most, MB"
_GOALS = {_FIRST: ("< 1", 1.0), _MEMORY: ("< 500", 500.0)}


def _row(name: str, values: Sequence[float]) -> Row:
    """The median and the spread; a goal is met where the worst meets it."""
    spread = (min(values), max(values))
    if name not in _GOALS:
        return Row(name, statistics.median(values), spread=spread)
    words, bound = _GOALS[name]
    return Row(name, statistics.median(values), goal=words, met=max(values) < bound, spread=spread)
