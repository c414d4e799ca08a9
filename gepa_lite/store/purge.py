"""Drop what was said from a run's file: messages, replies, inputs, outputs, words of the feedback. Scores, prompts, costs and the log stay."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gepa_lite.errors import StoreError
from gepa_lite.store.bare import bare_event, bare_rollout
from gepa_lite.store.codec import ROLLOUT, decode_event, encode_event, encode_value
from gepa_lite.store.folders import TRAINING_SAMPLES, find_run
from gepa_lite.store.json_text import decode_value
from gepa_lite.store.lock import RunLock, refuse_network
from gepa_lite.store.private_store import PURGED_KEY
from gepa_lite.store.schema import FILE_NAME, bring_up_to_date, check_tables, connect, store_error

_PAGE = 500


@dataclass(frozen=True, slots=True)
class Purged:
    """What ``purge`` dropped.

    Attributes:
        folder: of the run.
        rollouts: whose words were dropped.
        replies: of models.
        questions: to reflection models.
        examples: of all splits.
        samples: files of what a training of weights sampled.
        bytes_before: of the run's file with its log.
        bytes_after: likewise.
    """

    folder: Path
    rollouts: int
    replies: int
    questions: int
    examples: int
    samples: int
    bytes_before: int
    bytes_after: int

    def __str__(self) -> str:
        return (
            f"{self.folder}: dropped what was said in {self.rollouts:,} rollouts, {self.replies:,} replies, {self.questions:,} questions to "
            f"reflection models and {self.examples:,} examples; {self.bytes_before:,} bytes before, {self.bytes_after:,} now. Scores, prompts and costs are kept."
        )


def purge(run: str | Path) -> Purged:
    """Drop the messages and inputs of a run for good; its scores, prompts and costs are kept. A second time changes nothing.

    A training of weights that was broken off can't go on afterwards, since what it sampled is gone too.

    The file is written anew, so that the bytes are gone from it and from its log. Copies elsewhere (reports, exports, back-ups, what a file system keeps of deleted blocks) are not reached.

    Args:
        run: the name of a run, or the path of its folder.

    Raises:
        UsageError: there is no such run.
        RunLockedError: a process works on it.
        StoreError: the file is damaged, or another program reads it now.

    Example:
        >>> print(purge("triage-1"))  # doctest: +SKIP
    """
    folder = find_run(run)
    refuse_network(folder)
    lock, path = RunLock.take(folder), folder / FILE_NAME
    try:
        before = _size(path)
        with closing(connect(path, "rw")) as connection:
            check_tables(connection, path)
            bring_up_to_date(connection)
            counts = _drop(connection)
            _write_anew(connection, path)
        return Purged(folder, *counts, _drop_samples(folder / TRAINING_SAMPLES), before, _size(path))
    except sqlite3.Error as error:
        raise store_error(error, path, "write") from error
    finally:
        lock.release()


def _drop(connection: sqlite3.Connection) -> tuple[int, int, int, int]:
    """All or nothing."""
    connection.execute("PRAGMA secure_delete = ON").fetchone()
    connection.execute("BEGIN IMMEDIATE")
    try:
        rollouts = 0
        for number, body in _rollouts(connection):
            connection.execute("UPDATE rollouts SET body = ? WHERE id = ?", (body, number))
            rollouts += 1
        for number, kind, version, body in connection.execute("SELECT seq, kind, version, body FROM events").fetchall():
            event = decode_event(kind, version, body)
            bare = bare_event(event)
            if bare != event:
                connection.execute("UPDATE events SET body = ? WHERE seq = ?", (encode_event(bare)[2], number))
        for key, body in connection.execute("SELECT key, body FROM meta").fetchall():
            connection.execute("UPDATE meta SET body = ? WHERE key = ?", (encode_value(_without_pins(decode_value(body, key))), key))
        replies, questions, examples = (
            connection.execute(f"DELETE FROM {table}").rowcount for table in ("completions", "reflections", "examples")
        )
        now = encode_value(datetime.now(UTC).isoformat(timespec="seconds"))
        connection.execute("INSERT INTO meta (key, body) VALUES (?, ?) ON CONFLICT (key) DO NOTHING", (PURGED_KEY, now))
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    return rollouts, replies, questions, examples


def _drop_samples(folder: Path) -> int:
    """What a training that was broken off, or that the budget ended, keeps to go on."""
    found = list(folder.glob("*.jsonl"))
    for path in found:
        path.unlink()
    return len(found)


def _without_pins(value: Any) -> Any:
    """How a run was started, without the examples that its search pins."""
    search = value.get("search") if isinstance(value, dict) else None
    if not isinstance(search, dict) or "pins" not in search:
        return value
    return {**value, "search": {name: rule for name, rule in search.items() if name != "pins"}}


def _rollouts(connection: sqlite3.Connection) -> Iterator[tuple[int, str]]:
    """Numbers and new bodies of rollouts that hold words."""
    after = 0
    while rows := connection.execute("SELECT id, version, body FROM rollouts WHERE id > ? ORDER BY id LIMIT ?", (after, _PAGE)).fetchall():
        for number, version, body in rows:
            bare = ROLLOUT.encode(bare_rollout(ROLLOUT.decode(version, body)))
            if bare != body:
                yield number, bare
        after = rows[-1][0]


def _write_anew(connection: sqlite3.Connection, path: Path) -> None:
    """Into a file without free pages, and with an empty log."""
    connection.execute("VACUUM")
    (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise StoreError(
            f"Another program reads {path}, so what was dropped is still in its log. Close it (a dashboard, a database browser?) and purge again."
        )


def _size(path: Path) -> int:
    log = path.with_name(f"{path.name}-wal")
    return path.stat().st_size + (log.stat().st_size if log.exists() else 0)


def purged_data(purged: Purged) -> dict[str, object]:
    """JSON types."""
    return {**dataclasses.asdict(purged), "folder": str(purged.folder)}
