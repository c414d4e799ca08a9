"""Every name that ``python -m benchmarks`` offers is a benchmark."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path


def test_every_benchmark_that_is_offered_can_be_run() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--help"], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True
    ).stdout
    names = re.search(r"\{(.+?)\}", shown, re.DOTALL)
    assert names is not None
    for name in re.sub(r"\s", "", names[1]).split(","):
        assert callable(importlib.import_module(f"benchmarks.{name.replace('-', '_')}").run), name
