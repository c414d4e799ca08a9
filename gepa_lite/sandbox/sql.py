"""SQL that a model wrote, run on an SQLite file that it can only read."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gepa_lite.errors import UsageError

_READS = frozenset((sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE))
_REFUSED_FUNCTIONS = frozenset(("load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"))
_STEPS_BETWEEN_LOOKS = 10_000


@dataclass(frozen=True, slots=True)
class Rows:
    """What a query gave.

    Attributes:
        columns: the columns' names.
        rows: the rows, in order; bytes as they are.
        error: why there are none, in the database's words or ours; "" where the query ran.
    """

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Database:
    """An SQLite file, read-only: one connection a query, so that it can be used from many threads.

    Attributes:
        path: the file.
        seconds: time limit of a query.
        max_rows: a query that gives more is stopped.
        max_bytes: bound of one text, blob or statement.

    Raises:
        UsageError: there is no such file.
    """

    path: Path
    seconds: float = 5.0
    max_rows: int = 100_000
    max_bytes: int = 1_000_000

    def __post_init__(self) -> None:
        """Check that the file is there."""
        if not Path(self.path).is_file():
            raise UsageError(f"Database({str(self.path)!r}): there is no such file.")

    @property
    def schema(self) -> str:
        """The statements that made its tables."""
        found = self.query("SELECT sql FROM sqlite_master WHERE type = 'table' AND sql IS NOT NULL ORDER BY rowid")
        return "\n".join(f"{row[0]};" for row in found.rows)

    def query(self, sql: str) -> Rows:
        """Run one statement that reads. Never raises for what the statement says; the error is in the result."""
        uri = f"{Path(self.path).resolve().as_uri()}?mode=ro&immutable=1"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None)
        late: list[bool] = []
        try:
            self._confine(connection, late)
            cursor = connection.execute(sql)
            rows = cursor.fetchmany(self.max_rows + 1)
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
            return Rows(error=f"it ran longer than {self.seconds:g} s and was stopped" if late else _words(error))
        except MemoryError:
            return Rows(error="it needed too much memory")
        finally:
            connection.close()
        if len(rows) > self.max_rows:
            return Rows(error=f"it gives more than {self.max_rows} rows")
        return Rows(tuple(column[0] for column in cursor.description or ()), tuple(rows))

    def _confine(self, connection: sqlite3.Connection, late: list[bool]) -> None:
        connection.text_factory = lambda data: data.decode(errors="replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, self.max_bytes)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.set_authorizer(_authorize)
        connection.set_progress_handler(_watch(self.seconds, late), _STEPS_BETWEEN_LOOKS)


def _authorize(action: int, first: str | None, second: str | None, database: str | None, trigger: str | None) -> int:
    if action in _READS:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and second not in _REFUSED_FUNCTIONS:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _watch(seconds: float, late: list[bool]) -> Callable[[], bool]:
    end = time.monotonic() + seconds

    def stop() -> bool:
        if time.monotonic() > end:
            late.append(True)
            return True
        return False

    return stop


def _words(error: BaseException) -> str:
    words = str(error)
    return "only statements that read are allowed" if "not authorized" in words or "authorizer" in words else words
