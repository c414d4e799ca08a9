"""Reading ``run.db``: what both the process that writes a run and any other use."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from gepa_lite.core.budget import ROLES, Role
from gepa_lite.core.call import Usage
from gepa_lite.errors import StoreError
from gepa_lite.store.paid import Paid
from gepa_lite.store.schema import check_tables, connect, store_error

_PAGE = 256


class Reader:
    """One read-only connection that the threads take turns at.

    A look-up by key takes microseconds, so turns are cheaper than the memory and open files of a connection per thread; and it never
    waits for the writer, since in SQLite's log readers see the last commit while the next one is written. No query stays open between
    calls, so the log can always be folded in.
    """

    def __init__(self, path: Path) -> None:
        """Open the file.

        Raises:
            StoreError: it is not there, not a run's, damaged or of a later release.
        """
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        try:
            self._connection = _connect(path)
            check_tables(self._connection, path)
        except sqlite3.Error as error:
            self.close()
            raise store_error(error, path, "read") from error
        except BaseException:
            self.close()
            raise

    def rows(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query.

        Raises:
            StoreError: the store is closed, or the file can't be read.
        """
        with self._lock:
            if self._connection is None:
                raise StoreError(f"{self._path} is closed: nothing can be read any more. Open the run again.")
            try:
                return self._connection.execute(sql, parameters).fetchall()
            except sqlite3.Error as error:
                raise store_error(error, self._path, "read") from error

    def row(self, sql: str, parameters: tuple[Any, ...] = ()) -> tuple[Any, ...] | None:
        """The first row of a query, or None."""
        rows = self.rows(sql, parameters)
        return rows[0] if rows else None

    def pages(self, sql: str, parameters: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a query that may be large, a page at a time.

        Args:
            sql: selects the row's number first and ends in ``id > ? ORDER BY id LIMIT ?``.
            parameters: those before these two.
        """
        after = 0
        while page := self.rows(sql, (*parameters, after, _PAGE)):
            yield from page
            after = page[-1][0]

    def close(self) -> None:
        """Close the connection. A second call does nothing."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


def _connect(path: Path) -> sqlite3.Connection:
    """Read-only, also where the folder takes no new files: then there is no writer, and a file without a log can be taken as it stands."""
    connection = connect(path, "ro")
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        return connection
    except sqlite3.OperationalError:
        connection.close()
        if not _without_log(path):
            raise
    return connect(path, "ro&immutable=1")


def _without_log(path: Path) -> bool:
    log = path.with_name(f"{path.name}-wal")
    with suppress(OSError):
        return path.is_file() and (not log.exists() or log.stat().st_size == 0)
    return False


_SETTLED = "SELECT role, calls, input, output, usd, seconds FROM calls WHERE outcome IS NOT NULL ORDER BY id"
_UNSETTLED = (
    "SELECT role, bound_calls, bound_input, bound_output, bound_usd, 0.0 FROM calls WHERE outcome IS NULL AND session IS NOT ? ORDER BY id"
)


def read_paid(reader: Reader, live_session: int | None) -> Paid:
    """The sums over all calls.

    Args:
        reader: of the run.
        live_session: the session whose open calls are in flight, not lost; None for none.
    """
    settled, seconds = _sum(reader.rows(_SETTLED))
    lost, _ = _sum(reader.rows(_UNSETTLED, (live_session,)))
    return Paid(settled, lost, seconds)


def _sum(rows: list[tuple[Any, ...]]) -> tuple[dict[Role, Usage], dict[Role, float]]:
    # Added up here rather than by SQL: an unknown price makes the sum unknown.
    usage: dict[Role, Usage] = {role: Usage() for role in ROLES}
    seconds: dict[Role, float] = dict.fromkeys(ROLES, 0.0)
    for role, calls, tokens_in, tokens_out, usd, took in rows:
        usage[role] = usage[role] + Usage(calls, tokens_in, tokens_out, usd)
        seconds[role] += took
    return usage, seconds
