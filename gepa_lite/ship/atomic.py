"""Write a file so that whoever reads it finds the old content or the new one, never a part."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from gepa_lite.errors import UsageError


def write_atomically(path: Path, text: str) -> Path:
    """Put a text in place of a file's content, in one move and durable.

    Args:
        path: a file, new or not, in a folder that exists.
        text: written as UTF-8.

    Returns:
        The path.

    Raises:
        UsageError: the folder does not exist or can't be written.
    """
    if not path.parent.is_dir():
        raise UsageError(f"{path} can't be written: the folder {path.parent} does not exist.")
    try:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # a temporary file is private to its owner; a new file is as readable as any other, a replaced one stays as it was
        Path(file.name).chmod(path.stat().st_mode & 0o7777 if path.exists() else 0o666 & ~_umask())
        Path(file.name).replace(path)
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror}.") from error
    return path


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
