"""``python -m benchmarks NAME [--quick] [--seeds 0,1,2] [--out FILE] [-- arguments of its own]``."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from pathlib import Path

import benchmarks
from benchmarks.report import Options

_PARTS = {
    "__main__",
    "cell_plots",
    "cell_tables",
    "cells",
    "data_sets",
    "engine_recording",
    "estimate_tasks",
    "fault_bench",
    "fault_task",
    "guard_sets",
    "http_lm",
    "hub",
    "local_data",
    "local_tasks",
    "mutator_reward",
    "mutator_task",
    "paper_splits",
    "published",
    "replies",
    "report",
    "rl_model",
    "rl_task",
    "search_code",
    "search_runs",
    "search_tables",
    "study_local",
    "study_pages",
    "study_runs",
    "study_tables",
    "trajectory_models",
    "trajectory_recorded",
    "trajectory_runs",
    "ui_following",
    "ui_recording",
    "ui_server",
    "utilization_task",
    "weights_tables",
    "weights_tasks",
}


def _seeds(text: str) -> tuple[int, ...]:
    seeds: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds.extend(range(int(first), int(last or first) + 1))
    return tuple(seeds)


def main() -> None:
    """Run one benchmark by name."""
    found = sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(benchmarks.__path__) if module.name not in _PARTS)
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("name", choices=found)
    parser.add_argument("--quick", action="store_true", help="under 50 seconds once installed")
    parser.add_argument("--seeds", default="0", help="comma-separated numbers and ranges: 0,1 or 0-49")
    parser.add_argument("--out", type=Path, help="keep the JSON line in this file")
    known, rest = parser.parse_known_args()
    options = Options(known.quick, _seeds(known.seeds), tuple(arg for arg in rest if arg != "--"))
    importlib.import_module(f"benchmarks.{known.name.replace('-', '_')}").run(options).write(known.out)


if __name__ == "__main__":
    main()
