"""Replies that are remembered between runs, so that a table does not pay twice for the same greedy call."""

from __future__ import annotations

import sqlite3
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from gepa_lite.core.call import Usage
from gepa_lite.core.ids import content_hash
from gepa_lite.lm.protocol import LM, Completion, LMInfo, Request
from gepa_lite.lm.resolve import check_lm

_TABLE = "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, text TEXT, finish TEXT, input INTEGER, output INTEGER, seconds REAL)"


@dataclass(frozen=True)
class Asked:
    """What a model was asked for so far.

    Attributes:
        calls: in all.
        remembered: of these, answered from the file.
        remembered_seconds: that these took when they were first asked, summed over calls at once.
    """

    calls: int = 0
    remembered: int = 0
    remembered_seconds: float = 0.0

    def __sub__(self, other: Asked) -> Asked:
        return Asked(
            self.calls - other.calls, self.remembered - other.remembered, round(self.remembered_seconds - other.remembered_seconds, 3)
        )


class RememberingLM:
    """A model whose greedy replies (temperature 0) are kept in a file; others are asked for anew each time.

    A remembered reply brings the tokens of the first one, so a run's ledger counts the same whether or not another run has asked before. Seed prompts therefore score the same in every
    run of a task, also on a model that isn't deterministic under load.

    Args:
        lm: the model.
        path: the file; its folder is made.
    """

    def __init__(self, lm: LM, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lm = lm
        self._lock = threading.Lock()
        self._file = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._file.execute(_TABLE)
        self.asked = Asked()

    def complete(self, request: Request) -> Completion:
        """The remembered reply, or the model's."""
        if request.params.temperature != 0:
            self._count(None)
            return self._lm.complete(request)
        key = content_hash({"model": self._lm.describe().name, "request": request})
        with self._lock:
            row = self._file.execute("SELECT text, finish, input, output, seconds FROM replies WHERE key = ?", (key,)).fetchone()
        self._count(None if row is None else row[4])
        if row is not None:
            return Completion(row[0], row[1], Usage(1, row[2], row[3], 0.0), self._lm.describe().name)
        begun = time.perf_counter()
        reply = self._lm.complete(request)
        took = time.perf_counter() - begun
        cells = (key, reply.text, reply.finish_reason, reply.usage.input_tokens, reply.usage.output_tokens, took)
        with self._lock:
            self._file.execute("INSERT OR IGNORE INTO replies VALUES (?, ?, ?, ?, ?, ?)", cells)
        return reply

    def describe(self) -> LMInfo:
        """The model's."""
        return self._lm.describe()

    def check_ready(self) -> None:
        """Refuse a model that can't be called."""
        check_lm(self._lm)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _count(self, seconds: float | None) -> None:
        with self._lock:
            now = self.asked
            self.asked = Asked(now.calls + 1, now.remembered + (seconds is not None), now.remembered_seconds + (seconds or 0.0))
