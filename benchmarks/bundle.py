"""What production pays for shipped prompts: time to load a bundle in a fresh process, the modules that it imports, and a look at a registry."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.report import Options, Report, Row
from gepa_lite.ship.registry import Registry

GOAL_SECONDS = 0.05
_CODE = """
import sys, time
before = set(sys.modules)
started, cpu = time.perf_counter(), time.process_time()
import gepa_lite as gl
prompts = gl.load_prompts({path!r})
seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
loaded = sorted(set(sys.modules) - before)
foreign = sorted({{name.partition(".")[0] for name in loaded}} - set(sys.stdlib_module_names) - {{"gepa_lite"}})
import json
print(json.dumps({{"seconds": seconds, "cpu": cpu, "modules": loaded, "foreign": foreign, "prompts": len(prompts)}}))
"""
_LOOK = """
import json, sys, time
import gepa_lite as gl
live = gl.LivePrompts({path!r})
started = time.perf_counter()
for _ in range(10_000):
    live.now()
print(json.dumps({{"seconds": (time.perf_counter() - started) / 10_000}}))
"""


def run(options: Options) -> Report:
    """Median of the repeats, for bundles of 2 and of 50 modules, with byte code that is written already, as an installed package has it, whatever this environment says of writing it.

    On a busy machine the CPU seconds and the fastest repeat say more.
    """
    repeats = 5 if options.quick else 25
    rows: list[Row] = []
    modules: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for count in (2, 50):
            path = Path(folder, f"{count}.prompts.json")
            path.write_text(json.dumps(_bundle(count)), encoding="utf-8")
            runs = [_python(_CODE.format(path=str(path)), folder) for _ in range(repeats + 1)][1:]
            seconds = statistics.median(run["seconds"] for run in runs)
            modules[f"{count} modules"] = runs[0]["modules"]
            rows += [
                Row(f"{count} prompts: import and load, CPU seconds", statistics.median(run["cpu"] for run in runs)),
                Row(f"{count} prompts: import and load, fastest, seconds", min(run["seconds"] for run in runs)),
                Row(f"{count} prompts: import and load, seconds", seconds, goal=f"<= {GOAL_SECONDS} s", met=seconds <= GOAL_SECONDS),
                Row(f"{count} prompts: modules imported", len(runs[0]["modules"])),
                Row(
                    f"{count} prompts: of them not the standard library's",
                    ", ".join(runs[0]["foreign"]) or "none",
                    goal="none",
                    met=not runs[0]["foreign"],
                ),
            ]
        registry = Registry(Path(folder, "registry"))
        registry.add(Path(folder, "2.prompts.json"), why="first", promote=True)
        look = _python(_LOOK.format(path=str(registry.folder)), folder)["seconds"]
        rows.append(Row("LivePrompts.now(), microseconds", look * 1e6))
    return Report("bundle", rows, n=repeats, extra={"modules": modules, "load_average": os.getloadavg()[0]})


def _bundle(count: int) -> dict[str, Any]:
    """A bundle whose prompts are 2,000 characters long and held to a contract."""
    module = {
        "prompt": "Say {what} to do. " + "word " * 396,
        "signature": "message -> reply",
        "fingerprint": "0",
        "contract": {"max_tokens": 2000, "placeholders": ["{what}"], "banned": ["(?i)as an ai"]},
    }
    return {"schema": "gepa_lite.prompts", "version": 1, "program": "Bench", "modules": {f"module_{i}": module for i in range(count)}}


def _python(code: str, folder: str) -> dict[str, Any]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = {**kept, "PYTHONPYCACHEPREFIX": str(Path(folder, "byte code"))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    found: dict[str, Any] = json.loads(done.stdout)
    return found
