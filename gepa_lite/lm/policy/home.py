"""Where the files of an open model are: a ``.gguf`` file, which takes a minute to unpack, and the unpacked copy of it that was kept."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

from gepa_lite.errors import UsageError
from gepa_lite.lm.local import catalogue, fetch
from gepa_lite.lm.local.cache import file_sha256
from gepa_lite.lm.local.unpacked import find_unpacked, keep_unpacked, unpacked_root


class Home:
    """The place that ``transformers`` loads a model from. Finds and checks it once.

    Args:
        base: see ``Engine``.
    """

    def __init__(self, base: str) -> None:
        self._base = base

    def place(self) -> tuple[str, dict[str, str]]:
        """What to load, and further arguments of ``from_pretrained``.

        Raises:
            UsageError: there is no such file.
        """
        if self._file is None:
            return self._base, {}
        if self._copy is not None:
            return str(self._copy), {}
        return str(self._file.parent), {"gguf_file": self._file.name}

    @property
    def unpacks(self) -> bool:
        """Whether it is a ``.gguf`` file without a copy that can be used."""
        return self._file is not None and self._copy is None

    def keep(self, model: Any, tokenizer: Any) -> None:
        """Keep what was unpacked from a ``.gguf`` file, so that the next process loads it in seconds. Where it can't be written a warning says so, and nothing else changes.

        Args:
            model: as it was loaded, without an adapter, in float32.
            tokenizer: its own.
        """
        if not self.unpacks:
            return
        assert self._file is not None

        def write(folder: Path) -> None:
            with quiet():
                model.save_pretrained(folder)
                tokenizer.save_pretrained(folder)

        try:
            keep_unpacked(self._sha256, _maker(), write)
        except OSError as error:
            text = f"no unpacked copy of {self._file.name} could be kept in {unpacked_root()}, so each load takes a minute again: {error}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    @functools.cached_property
    def _file(self) -> Path | None:
        if self._base in catalogue.MODELS:
            return fetch.ensure_model(self._base)
        if not self._base.endswith(".gguf"):
            return None
        path = Path(self._base)
        if not path.exists():
            raise UsageError(f"there is no file {path}.")
        return path

    @functools.cached_property
    def _sha256(self) -> str:
        assert self._file is not None
        return file_sha256(self._file)

    @functools.cached_property
    def _copy(self) -> Path | None:
        return find_unpacked(self._sha256, _maker())


def _maker() -> str:
    return f"transformers {import_module('transformers').__version__}"


@contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars of loading and saving."""
    with redirect_stderr(StringIO()):
        yield
