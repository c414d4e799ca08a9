"""Seconds to import the package and the loader of shipped prompts, each in a fresh process, and the modules they load."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from typing import Any

from benchmarks.report import Options, Report, Row

_CODE = """
import json, sys, time
before = set(sys.modules)
started = time.perf_counter()
{statement}
seconds = time.perf_counter() - started
print(json.dumps({{"seconds": seconds, "modules": sorted(set(sys.modules) - before)}}))
"""

_IMPORTS = {
    "gepa_lite": ("import gepa_lite", 0.2),
    "load_prompts": ("from gepa_lite import load_prompts", 0.2),
    "ship.bundle": ("import gepa_lite.ship.bundle", 0.2),
    "optimize": ("from gepa_lite import optimize, Program, Module, Feedback", None),
}
_HEAVY = ("litellm", "dspy", "numpy", "pydantic", "rich", "jinja2", "xllamacpp")


def run(options: Options) -> Report:
    """Median of the repeats, once the byte code is written."""
    repeats = 5 if options.quick else 15
    rows, modules = [], {}
    for name, (statement, goal) in _IMPORTS.items():
        runs = [_import(statement) for _ in range(repeats + 1)][1:]
        seconds = statistics.median(run["seconds"] for run in runs)
        loaded = runs[0]["modules"]
        modules[name] = loaded
        rows.append(
            Row(f"{name}: seconds", seconds, goal=None if goal is None else f"<= {goal} s", met=None if goal is None else seconds <= goal)
        )
        rows.append(Row(f"{name}: modules", len(loaded)))
        heavy = [module for module in _HEAVY if module in loaded]
        lean = name != "optimize"
        rows.append(
            Row(f"{name}: heavy modules", ", ".join(heavy) or "none", goal="none" if lean else None, met=not heavy if lean else None)
        )
    return Report("import-time", rows, n=repeats, extra={"modules": modules})


def _import(statement: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", _CODE.format(statement=statement)], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found
