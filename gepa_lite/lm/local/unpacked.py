"""Copies of ``.gguf`` models in the form that PyTorch loads in seconds, in the user's cache of models: checked at each use, and made anew where one is damaged."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from gepa_lite.lm.local.cache import file_sha256, models_dir

_CARD = "unpacked.json"
_KEY = 24


def unpacked_root() -> Path:
    """The folder of all copies. Does not create it."""
    return models_dir() / "unpacked"


def unpacked_path(sha256: str) -> Path:
    """Where the copy of a file is, or would be.

    Args:
        sha256: hex digest of the ``.gguf`` file.
    """
    return unpacked_root() / sha256[:_KEY]


def find_unpacked(sha256: str, maker: str) -> Path | None:
    """The copy of a file, every byte of it checked; None where there is none, or one that is damaged or of another maker.

    Args:
        sha256: hex digest of the ``.gguf`` file.
        maker: what unpacked it, with its version.
    """
    folder = unpacked_path(sha256)
    try:
        card = json.loads((folder / _CARD).read_text())
        whole = card == _card_of(folder, sha256, maker)
    except (OSError, ValueError):
        return None
    return folder if whole else None


def keep_unpacked(sha256: str, maker: str, write: Callable[[Path], None]) -> Path:
    """Make the copy of a file, in place of a damaged one; it has its name only once it is whole. Of several processes that make it at once one does.

    Args:
        sha256: hex digest of the ``.gguf`` file.
        maker: what unpacks it, with its version.
        write: writes it into an empty folder.

    Raises:
        OSError: there is no room, or the folder can't be written to; nothing of it is left.
    """
    root = unpacked_root()
    root.mkdir(parents=True, exist_ok=True)
    with FileLock(root / f"{sha256[:_KEY]}.lock"):
        known = find_unpacked(sha256, maker)
        if known is not None:
            return known
        folder, work = unpacked_path(sha256), root / f"{sha256[:_KEY]}.{uuid.uuid4().hex[:8]}.partial"
        # what a process that was killed left behind
        for left in root.glob(f"{sha256[:_KEY]}.*.partial"):
            shutil.rmtree(left, ignore_errors=True)
        try:
            work.mkdir()
            write(work)
            (work / _CARD).write_text(json.dumps(_card_of(work, sha256, maker), indent=2) + "\n")
            if folder.exists():
                shutil.rmtree(folder)
            work.replace(folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return folder


def unpacked_bytes(sha256: str | None = None) -> int:
    """Bytes that the copy of a file takes, or those of all files; what an unfinished one left included."""
    return sum(entry.stat().st_size for path in _copies(sha256) for entry in path.rglob("*") if entry.is_file())


def remove_unpacked(sha256: str | None = None) -> int:
    """Delete the copy of a file, or those of all files.

    Returns:
        How many bytes were freed.
    """
    freed = unpacked_bytes(sha256)
    for path in _copies(sha256):
        with FileLock(path.with_name(f"{path.name[:_KEY]}.lock")):
            shutil.rmtree(path, ignore_errors=True)
    return freed


def _copies(sha256: str | None) -> list[Path]:
    name = "" if sha256 is None else sha256[:_KEY]
    return [path for path in unpacked_root().glob(f"{name}*") if path.is_dir()]


def _card_of(folder: Path, sha256: str, maker: str) -> dict[str, object]:
    files = {
        path.relative_to(folder).as_posix(): file_sha256(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != _CARD
    }
    return {"source": sha256, "maker": maker, "files": files}
