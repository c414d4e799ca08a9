"""Taking a run for writing: the lock, the file with its tables, the writer, the book of calls and the session's clock."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gepa_lite.core.events import RunStarted, SealOpened, Stopped, Tested
from gepa_lite.errors import StoreError, UsageError
from gepa_lite.store.codec import EVENTS, decode_event
from gepa_lite.store.lock import RunLock, refuse_network
from gepa_lite.store.paid import CallBook
from gepa_lite.store.reader import Reader, read_paid
from gepa_lite.store.schema import FILE_NAME, bring_up_to_date, check_tables, connect, create_tables, is_blank, make_durable, store_error
from gepa_lite.store.seal import Seal
from gepa_lite.store.writer import Statement, Writer


class SessionClock:
    """How long the current session has lasted."""

    def __init__(self) -> None:
        # one tuple, replaced as a whole: the writer's thread reads it while others set it
        self._running: tuple[int, float] | None = None

    @property
    def session(self) -> int | None:
        """The current session's number, or None between sessions."""
        running = self._running
        return None if running is None else running[0]

    def start(self, session: int) -> None:
        """A session begins now."""
        self._running = (session, time.monotonic())

    def stop(self) -> None:
        """The session has ended."""
        self._running = None

    def heartbeat(self) -> Sequence[Statement]:
        """Statements that note the session's length so far, for each group of writes: what a crash leaves of it."""
        running = self._running
        if running is None:
            return ()
        session, began = running
        return (("UPDATE sessions SET seconds = ? WHERE id = ? AND reason IS NULL", (time.monotonic() - began, session)),)


@dataclass(eq=False, slots=True)
class Writing:
    """What the one process that writes a run holds."""

    path: Path
    lock: RunLock
    writer: Writer
    book: CallBook
    clock: SessionClock
    seal: Seal
    closed: bool = field(default=False, init=False)

    def check_open(self) -> None:
        """Refuse work after ``close``.

        Raises:
            StoreError: it is closed.
        """
        if self.closed:
            raise StoreError(f"{self.path} is closed: nothing can be read or written any more. Open the run again.")

    def close(self) -> None:
        """Finish what is queued, then let go of the lock.

        Raises:
            StoreError: queued operations could not be written.
        """
        self.closed = True
        try:
            self.writer.close()
        finally:
            self.lock.release()


def start_writing(folder: Path, create: bool) -> tuple[Reader, Writing]:
    """Lock a run's folder and open its file, a new one or one that is there.

    Raises:
        UsageError: the folder can't be written to, or holds a run where none may be, or none where one must be.
        RunLockedError: another store writes to it.
        StoreError: a damaged file, one of another release, a network file system.
    """
    refuse_network(folder)
    if create:
        _make(folder)
    else:
        check_there(folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"The run's folder {folder} can't be written to. Change its permissions, or name another folder.")
    path, lock = folder / FILE_NAME, RunLock.take(folder)
    try:
        connection = _open_file(path, create)
        try:
            reader = Reader(path)
            book = _open_book(reader)
            seal = _open_seal(reader)
        except BaseException:
            connection.close()
            raise
    except BaseException as error:
        lock.release()
        if isinstance(error, sqlite3.Error):
            raise store_error(error, path, "write") from error
        raise
    clock = SessionClock()
    return reader, Writing(path, lock, Writer(path, connection, clock.heartbeat), book, clock, seal)


def check_there(folder: Path) -> None:
    """Refuse a folder without a run.

    Raises:
        UsageError: naming it.
    """
    if not (folder / FILE_NAME).is_file():
        raise UsageError(f"There is no run in {folder}: it has no {FILE_NAME}. Check the name, or start a run there.")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"Can't make the run's folder {folder}: {error.strerror}. Name a folder that you may write to.") from error


def _open_file(path: Path, create: bool) -> sqlite3.Connection:
    connection = connect(path, "rwc" if create else "rw")
    try:
        # nothing is changed in a file before it is known to be ours
        if not create:
            check_tables(connection, path)
        elif not is_blank(connection):
            raise UsageError(f"{path.parent} holds a run already. Resume it, or give the new run another name.")
        make_durable(connection)
        if create:
            create_tables(connection)
        else:
            bring_up_to_date(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _open_book(reader: Reader) -> CallBook:
    (last_call,) = reader.rows("SELECT coalesce(max(id), 0) FROM calls")[0]
    (last_session,) = reader.rows("SELECT coalesce(max(id), 0) FROM sessions")[0]
    return CallBook(read_paid(reader, None), last_call + 1, last_session)


def _open_seal(reader: Reader) -> Seal:
    kinds = [EVENTS[kind].kind for kind in (RunStarted, Stopped, SealOpened, Tested)]
    marks = ", ".join("?" * len(kinds))
    rows = reader.rows(f"SELECT kind, version, body FROM events WHERE kind IN ({marks}) ORDER BY seq", tuple(kinds))
    return Seal(decode_event(*row) for row in rows)
