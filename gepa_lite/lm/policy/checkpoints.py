"""Where a training that was broken off goes on."""

from __future__ import annotations

from pathlib import Path


def newest_checkpoint(folder: Path) -> str | None:
    """The folder of a trainer's last checkpoint that was written to its end; None where there is none."""
    found = [path for path in folder.glob("checkpoint-*") if (path / "trainer_state.json").exists()]
    return str(max(found, key=lambda path: int(path.name.rpartition("-")[2]))) if found else None
