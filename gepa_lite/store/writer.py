"""The one thread that writes to ``run.db``: takes what is queued, commits it as one transaction, then tells those who wait."""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gepa_lite.errors import StoreError
from gepa_lite.store.schema import connect_writer, store_error

Statement = tuple[str, tuple[Any, ...]]
"""SQL and its parameters."""

_GROUP_SIZE = 2048
"""At most so many operations share a transaction: a bound on what one failure undoes."""


class _Operation:
    """Statements that are written together or not at all.

    A lock that the writer opens is all it takes to wait for one outcome, at a fraction of a future's cost.

    Attributes:
        statements: in order.
        awaited: whether somebody waits. Otherwise a failure is told to nobody, so the operation is kept for the next group.
    """

    __slots__ = ("_done", "_failure", "awaited", "statements")

    def __init__(self, statements: Sequence[Statement], awaited: bool) -> None:
        self.statements = statements
        self.awaited = awaited
        self._failure: StoreError | None = None
        if awaited:
            self._done = threading.Lock()
            self._done.acquire()

    def wait(self) -> None:
        """Wait for the outcome; raises what it failed with. May be called again, and by several threads."""
        with self._done:
            pass
        if self._failure is not None:
            raise self._failure

    def settle(self, failure: StoreError | None = None) -> None:
        """Let the one who waits go on."""
        self._failure = failure
        if self.awaited:
            self._done.release()


class Writer:
    """Group commit.

    While one group is flushed to the disk the next one gathers, so many waiting threads share one flush, and a lone one waits for
    nothing but its own. A failed group is rolled back as a whole. The thread is a daemon: a program that ends without ``close`` loses
    nothing that it was told is saved.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, heartbeat: Callable[[], Sequence[Statement]]) -> None:
        """Start the thread.

        Args:
            path: the file, to connect again after a failure and for messages.
            connection: from ``connect_writer``; the writer owns it from here on.
            heartbeat: statements to add to each group, such as the session's clock.
        """
        self._path = path
        self._connection: sqlite3.Connection | None = connection
        self._heartbeat = heartbeat
        self._queue: queue.SimpleQueue[_Operation | None] = queue.SimpleQueue()
        self._kept: list[_Operation] = []
        self._gate = threading.Lock()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name=f"store-writer:{path.parent.name}", daemon=True)
        self._thread.start()

    def write(self, statements: Sequence[Statement]) -> None:
        """Write statements in one transaction and wait until they are durable.

        Raises:
            StoreError: nothing of them is written; says why and what to do.
        """
        self.hand_in(statements)()

    def hand_in(self, statements: Sequence[Statement]) -> Callable[[], None]:
        """Write statements in one transaction with the next group; what is returned waits until they are durable, or raises as ``write`` does."""
        operation = _Operation(statements, awaited=True)
        self._submit(operation)
        return operation.wait

    def queue(self, statements: Sequence[Statement]) -> None:
        """Write statements with the next group, without waiting; they are tried again with later groups until they succeed."""
        self._submit(_Operation(statements, awaited=False))

    def close(self) -> None:
        """Write what is queued, fold the log into the file, close the connection. The first call alone does it.

        Raises:
            StoreError: queued operations could not be written.
        """
        with self._gate:
            if self._closing:
                return
            self._closing = True
            self._queue.put(None)
        self._thread.join()
        if self._kept:
            raise StoreError(
                f"{len(self._kept)} notes of model calls could not be written to {self._path}: what was paid for them is not counted."
            )

    def _submit(self, operation: _Operation) -> None:
        with self._gate:
            if self._closing:
                raise StoreError(f"{self._path} is closed: nothing can be written any more. Open the run again.")
            self._queue.put(operation)

    def _work(self) -> None:
        more = True
        while more:
            group, more = self._next_group()
            if group:
                self._commit(group)
        self._disconnect()

    def _next_group(self) -> tuple[list[_Operation], bool]:
        """What is queued by now, after waiting for the first, and whether more may follow."""
        group, self._kept = self._kept, []
        operation = self._queue.get()
        with suppress(queue.Empty):
            while operation is not None:
                group.append(operation)
                if len(group) >= _GROUP_SIZE:
                    return group, True
                operation = self._queue.get_nowait()
            return group, False
        return group, True

    def _commit(self, group: list[_Operation]) -> None:
        try:
            self._transact(group)
        except Exception as error:
            # The world's errors (disk, lock, damage) hit every operation alike. Any other is the fault of one operation, which must not
            # take its neighbours down.
            if len(group) > 1 and not isinstance(error, sqlite3.OperationalError):
                for operation in group:
                    self._commit([operation])
            else:
                self._fail(group, error)
            return
        for operation in group:
            operation.settle()

    def _transact(self, group: list[_Operation]) -> None:
        if self._connection is None:
            self._connection = connect_writer(self._path)
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            for operation in group:
                for sql, parameters in operation.statements:
                    connection.execute(sql, parameters)
            for sql, parameters in self._heartbeat():
                connection.execute(sql, parameters)
            connection.execute("COMMIT")
        except BaseException:
            self._roll_back(connection)
            raise

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        """Undo the open transaction. A connection that can't even do that is replaced at the next group."""
        with suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            return
        self._connection = None
        with suppress(sqlite3.Error):
            connection.close()

    def _fail(self, group: list[_Operation], error: Exception) -> None:
        for operation in group:
            if operation.awaited:
                failure = store_error(error, self._path, "write")
                failure.__cause__ = error
                operation.settle(failure)
            else:
                self._kept.append(operation)

    def _disconnect(self) -> None:
        """Fold the log into the file so that it can be copied alone; with readers at work it is left to the next writer."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
