"""Where a training that was broken off goes on."""

from __future__ import annotations

import json
from pathlib import Path


def newest_checkpoint(folder: Path) -> str | None:
    """The folder of a trainer's last checkpoint that was written to its end; None where there is none."""
    found = [path for path in folder.glob("checkpoint-*") if path.name.rpartition("-")[2].isdecimal() and _whole(path)]
    return str(max(found, key=lambda path: int(path.name.rpartition("-")[2]))) if found else None


def _whole(checkpoint: Path) -> bool:
    """Whether its state, which is written last, can be read."""
    try:
        json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True
