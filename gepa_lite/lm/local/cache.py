"""The user's cache folder of models, and whether a file is the one it should be."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from platformdirs import user_cache_path

from gepa_lite.errors import ModelError
from gepa_lite.lm.local.catalogue import ModelSpec

CACHE_VARIABLE = "GEPA_LITE_CACHE"
_CHUNK = 1 << 20

Advance = Callable[[int], None]
"""Told how many more bytes are done."""


class FetchError(ModelError):
    """A model's file could not be had: no source had it, there is no room, or it is not the right file."""

    kind = "fetch"


def models_dir() -> Path:
    """Where models are kept: ``$GEPA_LITE_CACHE/models``, or ``models`` in the user's cache folder. Does not create it."""
    chosen = os.environ.get(CACHE_VARIABLE)
    root = Path(chosen).expanduser() if chosen else user_cache_path("gepa_lite", appauthor=False)
    return root / "models"


def cached_path(spec: ModelSpec) -> Path:
    """Where the model's file is, or would be."""
    return models_dir() / spec.file


def file_sha256(path: Path, advance: Advance | None = None) -> str:
    """The hex SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_CHUNK):
            digest.update(block)
            if advance is not None:
                advance(len(block))
    return digest.hexdigest()


def check_file(spec: ModelSpec, path: Path, where: str) -> None:
    """Refuse a file that is not the model.

    Args:
        spec: what it should be.
        path: the file.
        where: where it came from, in words.

    Raises:
        FetchError: its size or its SHA-256 is wrong; the message names what was expected and what came.
    """
    size = path.stat().st_size
    if size != spec.size:
        raise FetchError(f"{spec.name}: the file from {where} has {size} bytes, expected {spec.size}. It was not used.")
    came = file_sha256(path)
    if came != spec.sha256:
        raise FetchError(f"{spec.name}: the file from {where} has SHA-256 {came}, expected {spec.sha256}. It was not used.")
