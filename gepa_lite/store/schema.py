"""The tables of ``run.db``, how connections to it are made, and what its failures mean in words."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from gepa_lite.errors import StoreError

FILE_NAME = "run.db"
SCHEMA_VERSION = 2
"""1 had no table of reflections; it is read as it is, and gets one when it is next written to."""
APPLICATION_ID = 0x47455041
"""``GEPA``: tells our files from other SQLite files."""

_BUSY_SECONDS = 10.0

# Rows are never updated but for calls (settled), sessions (clock), meta and examples (replaced). Bodies are JSON text with the version of
# their form beside it; `at` columns are UTC, observations, never read back into a run.
_TABLES = """
CREATE TABLE events (
    seq INTEGER PRIMARY KEY, step INTEGER, kind TEXT NOT NULL, version INTEGER NOT NULL, body TEXT NOT NULL, at TEXT NOT NULL);
CREATE TABLE rollouts (
    id INTEGER PRIMARY KEY, candidate_id TEXT NOT NULL, example_id TEXT NOT NULL, sample INTEGER NOT NULL,
    version INTEGER NOT NULL, body TEXT NOT NULL, at TEXT NOT NULL, UNIQUE (candidate_id, example_id, sample));
CREATE TABLE completions (
    key TEXT NOT NULL UNIQUE, role TEXT NOT NULL, seconds REAL NOT NULL, version INTEGER NOT NULL, body TEXT NOT NULL, at TEXT NOT NULL);
CREATE TABLE calls (
    id INTEGER PRIMARY KEY, call_id TEXT NOT NULL, session INTEGER NOT NULL, role TEXT NOT NULL, model TEXT NOT NULL,
    bound_calls INTEGER NOT NULL, bound_input INTEGER NOT NULL, bound_output INTEGER NOT NULL, bound_usd REAL, begun_at TEXT NOT NULL,
    calls INTEGER, input INTEGER, output INTEGER, usd REAL, seconds REAL, attempts INTEGER, outcome TEXT, settled_at TEXT);
CREATE TABLE examples (
    split TEXT NOT NULL, position INTEGER NOT NULL, version INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (split, position));
CREATE TABLE meta (key TEXT PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY, info TEXT NOT NULL, begun_at TEXT NOT NULL, seconds REAL NOT NULL, ended_at TEXT, reason TEXT);
"""
# what reflection models were asked, by the address of the proposal; the reply is the completion of this key
_REFLECTIONS = (
    "CREATE TABLE reflections (address TEXT PRIMARY KEY, model TEXT NOT NULL, key TEXT NOT NULL, body TEXT NOT NULL, at TEXT NOT NULL);"
)


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """A connection that any thread may use, one at a time, with transactions under our control.

    Args:
        path: the file.
        mode: ``"rwc"`` creates it, ``"rw"`` writes, ``"ro"`` reads; ``"ro&immutable=1"`` reads a file that can't change, in a folder that
            takes no new files.
    """
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)


def connect_writer(path: Path) -> sqlite3.Connection:
    """A connection for the one writer, to a file that has its tables."""
    connection = connect(path, "rw")
    try:
        make_durable(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def make_durable(connection: sqlite3.Connection) -> None:
    """Write-ahead log, and a commit returns once it is on the disk."""
    connection.execute("PRAGMA journal_mode = WAL").fetchone()
    connection.execute("PRAGMA synchronous = FULL")


def is_blank(connection: sqlite3.Connection) -> bool:
    """Whether nothing was ever created in the file: it is new, or a crash came before the tables."""
    (count,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return int(count) == 0


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables and stamp the file, all or nothing."""
    connection.executescript(
        f"BEGIN IMMEDIATE; {_TABLES} {_REFLECTIONS} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
    )


def bring_up_to_date(connection: sqlite3.Connection) -> None:
    """Add what an earlier layout lacks, all or nothing."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version < SCHEMA_VERSION:
        connection.executescript(f"BEGIN IMMEDIATE; {_REFLECTIONS} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")


def check_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that is not a run's, or of a release after this one.

    Raises:
        StoreError: naming the file.
    """
    if is_blank(connection):
        raise StoreError(f"{path} is empty: the run was never started, or the file was cut off. Start a new run, or restore the folder.")
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise StoreError(f"{path} is an SQLite file, but not one of a gepa_lite run. Name the folder of a run.")
    if not 1 <= version <= SCHEMA_VERSION:
        raise StoreError(
            f"{path} has the layout {version} (known: up to {SCHEMA_VERSION}): another release of gepa_lite wrote it. "
            f"Upgrade with `pip install -U gepa-lite`."
        )


_DAMAGED = "the file is damaged or cut off. Restore the run's folder from a copy, or start a new run"
_ADVICE: dict[int, str] = {
    sqlite3.SQLITE_FULL: "the disk is full. Free some space; the run goes on, or can be resumed, from what was saved",
    sqlite3.SQLITE_IOERR: "the disk failed, is full, or a quota or size limit is reached. Check it, then resume: what was saved is kept",
    sqlite3.SQLITE_BUSY: "another program holds the database. Close it (a database browser?) and resume",
    sqlite3.SQLITE_LOCKED: "another program holds the database. Close it (a database browser?) and resume",
    sqlite3.SQLITE_READONLY: "the file may not be written. Check the permissions of it and of its folder",
    sqlite3.SQLITE_CANTOPEN: "the file can't be opened. Check that it is there, and the permissions of it and of its folder",
    sqlite3.SQLITE_PERM: "the file may not be opened. Check the permissions of it and of its folder",
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
}


def store_error(error: BaseException, path: Path, action: str) -> StoreError:
    """What an error of SQLite means and what to do about it.

    Args:
        error: what came.
        path: the file.
        action: ``"read"`` or ``"write"``.
    """
    # the low byte is the kind; the bytes above it tell its variants apart
    code = getattr(error, "sqlite_errorcode", None)
    advice = None if code is None else _ADVICE.get(code & 0xFF)
    if advice is None:
        return StoreError(f"Can't {action} {path}: {type(error).__name__}: {error}.")
    return StoreError(f"Can't {action} {path}: {advice}. (SQLite: {error})")
