"""Which state of the search's code made a kept cell: kept cells are not run again, so what is said of them says how many are of another state."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import gepa_lite as gl
from benchmarks.report import Row

_UNKNOWN = "unknown"


@lru_cache(maxsize=1)
def code_hash() -> str:
    """Tells results of one state of the search and the programs' rendering from those of another."""
    root = Path(gl.__file__).parent
    text = hashlib.sha256()
    for folder in ("search", "baselines", "program"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".py", ".j2"):
                text.update(path.read_bytes())
    return text.hexdigest()[:12]


@dataclass(frozen=True)
class MadeBy:
    """By which states of the code some cells were made.

    Attributes:
        counts: cells by hash, ``unknown`` for those that keep none.
        now: the state of the code as it is.

    Example:
        >>> MadeBy.of(["aa", "aa", "bb", None], "aa").words
        '2 of 4 kept cells were made by another or an unknown state of the search code: 1 by bb, 1 unknown'
    """

    counts: Counter[str]
    now: str

    @classmethod
    def of(cls, hashes: Iterable[str | None], now: str | None = None) -> MadeBy:
        """Count them."""
        return cls(Counter(found or _UNKNOWN for found in hashes), now or code_hash())

    @property
    def others(self) -> int:
        """Cells that the code as it is did not make, as far as is known."""
        return self.counts.total() - self.counts[self.now]

    @property
    def _named(self) -> str:
        named = [f"{count} by {made}" for made, count in sorted(self.counts.items()) if made not in (self.now, _UNKNOWN)]
        return ", ".join([*named, *([f"{self.counts[_UNKNOWN]} unknown"] if self.counts[_UNKNOWN] else [])])

    @property
    def words(self) -> str:
        """In one line."""
        told = f"{self.others} of {self.counts.total()} kept cells were made by another or an unknown state of the search code"
        return f"{told}: {self._named}" if self.others else told

    @property
    def row(self) -> Row:
        """For the table."""
        return Row(
            f"kept cells of another or an unknown state of the search code, of {self.counts.total()}", self.others, goal=self._named or None
        )

    @property
    def data(self) -> dict[str, Any]:
        """For the report."""
        return {"now": self.now, "cells": dict(sorted(self.counts.items()))}

    def tell(self) -> None:
        """Say it to who started the benchmark, where there is anything to say."""
        if self.others:
            print(f"{self.words}. They are not run again; delete their file to do so.", file=sys.stderr)
