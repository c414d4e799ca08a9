"""A run in a file. One thread writes (``writer``), all threads read through one connection (``reader``); the tables are in ``schema``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gepa_lite.core.budget import Role
from gepa_lite.core.call import Message, Usage
from gepa_lite.core.events import Deferred, Event, Merged, Proposed, StepEnded, Twin, Unjoined, Validated, Vetoed
from gepa_lite.core.example import Example
from gepa_lite.core.rollout import Rollout, RolloutKey
from gepa_lite.errors import StoreError
from gepa_lite.lm.protocol import Completion
from gepa_lite.store.codec import COMPLETION, EXAMPLE, ROLLOUT, decode_event, encode_event, encode_value
from gepa_lite.store.json_text import decode_value
from gepa_lite.store.lock import refuse_network
from gepa_lite.store.paid import Paid
from gepa_lite.store.reader import Reader, read_paid
from gepa_lite.store.schema import FILE_NAME
from gepa_lite.store.writer import Statement
from gepa_lite.store.writing import Writing, check_there, start_writing

# A rollout or reply that is there already stays: it may have been used. Any other conflict is an error.
_ROLLOUT = (
    "INSERT INTO rollouts (candidate_id, example_id, sample, version, body, at) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (candidate_id, example_id, sample) DO NOTHING"
)
_COMPLETION = "INSERT INTO completions (key, role, seconds, version, body, at) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO NOTHING"
_REFLECTION = "INSERT INTO reflections (address, model, key, body, at) VALUES (?, ?, ?, ?, ?) ON CONFLICT (address) DO NOTHING"
_BEGIN = (
    "INSERT INTO calls (id, call_id, session, role, model, bound_calls, bound_input, bound_output, bound_usd, begun_at) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_SETTLE = (
    "UPDATE calls SET calls = ?, input = ?, output = ?, usd = ?, seconds = ?, attempts = ?, outcome = ?, settled_at = ? "
    "WHERE id = ? AND outcome IS NULL"
)

_AT_ONCE = 500
"""Keys asked for in one query: below the least bound on parameters that SQLite was ever built with."""


class RunStore:
    """A run on disk; see ``protocol.Store`` for what each method promises.

    Example:
        >>> import tempfile
        >>> from gepa_lite.core.events import StepEnded
        >>> with tempfile.TemporaryDirectory() as folder, RunStore.create(Path(folder) / "demo") as store:
        ...     store.commit([StepEnded(0), StepEnded(1)])
        ...     store.events_since(1)
        [(2, StepEnded(step=1))]

    Attributes:
        folder: the run's folder.
        path: the file.
    """

    def __init__(self, folder: Path, reader: Reader, writing: Writing | None) -> None:
        """For ``create``, ``open`` and ``read``."""
        self.folder = folder
        self.path = folder / FILE_NAME
        self._reader = reader
        self._writing = writing

    @classmethod
    def create(cls, folder: Path) -> Self:
        """Start a run in a folder, which is made where it is not there.

        Raises:
            UsageError: the folder holds a run already, or can't be written to.
            RunLockedError: another process is at work there.
            StoreError: it is on a network file system, or the disk fails.
        """
        return cls(folder, *start_writing(folder, create=True))

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Go on with a run, as its one writer.

        Raises:
            UsageError: the folder holds no run, or can't be written to.
            RunLockedError: another process writes to it; the message names it where it is known.
            StoreError: the file is damaged, of another release or on a network file system.
        """
        return cls(folder, *start_writing(folder, create=False))

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Look at a run, finished or being written, without a lock and without changing it.

        Raises:
            UsageError: the folder holds no run.
            StoreError: the file is damaged, of another release or on a network file system.
        """
        refuse_network(folder)
        check_there(folder)
        return cls(folder, Reader(folder / FILE_NAME), None)

    def commit(self, events: Sequence[Event]) -> None:
        """See ``Store.commit``."""
        rows = [(_step(event), *encode_event(event), _now()) for event in events]
        if rows:
            seal = self._writer().seal
            seal.check(events)
            self._write([("INSERT INTO events (step, kind, version, body, at) VALUES (?, ?, ?, ?, ?)", row) for row in rows])
            seal.follow(events)

    def events(self) -> list[Event]:
        """See ``Store.events``."""
        return [event for _, event in self.events_since(0)]

    def events_since(self, seq: int) -> list[tuple[int, Event]]:
        """See ``Store.events_since``."""
        rows = self._reader.rows("SELECT seq, kind, version, body FROM events WHERE seq > ? ORDER BY seq", (seq,))
        return [(number, decode_event(kind, version, body)) for number, kind, version, body in rows]

    def completion(self, key: str) -> Completion | None:
        """See ``Store.completion``."""
        row = self._reader.row("SELECT version, body FROM completions WHERE key = ?", (key,))
        return None if row is None else COMPLETION.decode(*row)

    def save_completion(self, key: str, completion: Completion, role: Role, seconds: float, call_id: str | None = None) -> None:
        """See ``Store.save_completion``."""
        row = (_name(key), role, float(seconds), COMPLETION.version, COMPLETION.encode(completion), _now())
        statements: list[Statement] = [(_COMPLETION, row)]
        if call_id is None:
            self._write(statements)
            return
        book = self._writer().book
        statements.append(_settlement(book.find(call_id).row, completion.usage, seconds, completion.attempts, "ok"))
        self._write(statements)
        book.settle(call_id, completion.usage, seconds)

    def note_reflection(self, address: Sequence[int], model: str, key: str, messages: Sequence[Message]) -> None:
        """See ``Store.note_reflection``."""
        row = (encode_value(list(address)), _shown(model), _name(key), encode_value([dict(message) for message in messages]), _now())
        self._writer().writer.queue([(_REFLECTION, row)])

    def rollout(self, key: RolloutKey) -> Rollout | None:
        """See ``Store.rollout``."""
        sql = "SELECT version, body FROM rollouts WHERE candidate_id = ? AND example_id = ? AND sample = ?"
        row = self._reader.row(sql, (key.candidate_id, key.example_id, key.sample))
        return None if row is None else ROLLOUT.decode(*row)

    def rollouts_at(self, keys: Sequence[RolloutKey]) -> dict[RolloutKey, Rollout]:
        """See ``Store.rollouts_at``."""
        groups: dict[tuple[str, int], list[str]] = {}
        for key in keys:
            groups.setdefault((key.candidate_id, key.sample), []).append(key.example_id)
        found = {}
        for (candidate, sample), examples in groups.items():
            for start in range(0, len(examples), _AT_ONCE):
                some = examples[start : start + _AT_ONCE]
                sql = f"SELECT version, body FROM rollouts WHERE candidate_id = ? AND sample = ? AND example_id IN ({', '.join('?' * len(some))})"
                rollouts = [ROLLOUT.decode(*row) for row in self._reader.rows(sql, (candidate, sample, *some))]
                found.update({rollout.key: rollout for rollout in rollouts})
        return found

    def save_rollout(self, rollout: Rollout) -> None:
        """See ``Store.save_rollout``."""
        self.hand_in_rollout(rollout)()

    def hand_in_rollout(self, rollout: Rollout) -> Callable[[], None]:
        """See ``Store.hand_in_rollout``."""
        key = rollout.key
        if rollout.missing:
            raise ValueError(f"the rollout of {key.candidate_id} on {key.example_id} is missing: only scored rollouts are kept.")
        self._writer().seal.admit(key)
        row = (_name(key.candidate_id), _name(key.example_id), key.sample, ROLLOUT.version, ROLLOUT.encode(rollout), _now())
        return self._writer().writer.hand_in([(_ROLLOUT, row)])

    def rollouts(self) -> Iterator[Rollout]:
        """See ``Store.rollouts``."""
        for _, version, body in self._reader.pages("SELECT id, version, body FROM rollouts WHERE id > ? ORDER BY id LIMIT ?"):
            yield ROLLOUT.decode(version, body)

    def rollouts_of(self, candidate_id: str) -> Iterator[Rollout]:
        """See ``Store.rollouts_of``."""
        sql = "SELECT id, version, body FROM rollouts WHERE candidate_id = ? AND id > ? ORDER BY id LIMIT ?"
        for _, version, body in self._reader.pages(sql, (candidate_id,)):
            yield ROLLOUT.decode(version, body)

    def begin_call(self, call_id: str, role: Role, model: str, bound: Usage) -> None:
        """See ``Store.begin_call``."""
        columns, writing = _usage_columns(bound), self._writer()
        call = writing.book.begin(_name(call_id), role, bound)
        writing.writer.queue([(_BEGIN, (call.row, call_id, call.session, role, _shown(model), *columns, _now()))])

    def end_call(self, call_id: str, usage: Usage, seconds: float, attempts: int, outcome: str) -> None:
        """See ``Store.end_call``."""
        writing = self._writer()
        statement = _settlement(writing.book.find(call_id).row, usage, seconds, attempts, outcome)
        writing.book.settle(call_id, usage, seconds)
        writing.writer.queue([statement])

    def paid(self) -> Paid:
        """See ``Store.paid``; a reader, which can't tell work from a crash, takes open calls of a session without an end as in flight."""
        if self._writing is not None:
            return self._writer().book.paid()
        row = self._reader.row("SELECT id, reason FROM sessions ORDER BY id DESC LIMIT 1")
        return read_paid(self._reader, row[0] if row is not None and row[1] is None else None)

    def save_examples(self, split: str, examples: Sequence[Example]) -> None:
        """See ``Store.save_examples``."""
        split = _name(split)
        rows = [(split, position, EXAMPLE.version, EXAMPLE.encode(example)) for position, example in enumerate(examples)]
        sql = "INSERT INTO examples (split, position, version, body) VALUES (?, ?, ?, ?)"
        self._write([("DELETE FROM examples WHERE split = ?", (split,)), *((sql, row) for row in rows)])

    def examples(self, split: str) -> list[Example]:
        """See ``Store.examples``."""
        rows = self._reader.rows("SELECT version, body FROM examples WHERE split = ? ORDER BY position", (split,))
        return [EXAMPLE.decode(*row) for row in rows]

    def put_meta(self, key: str, value: Any) -> None:
        """See ``Store.put_meta``."""
        row = (_name(key), encode_value(value))
        self._write([("INSERT INTO meta (key, body) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET body = excluded.body", row)])

    def meta(self, key: str) -> Any:
        """See ``Store.meta``."""
        row = self._reader.row("SELECT body FROM meta WHERE key = ?", (key,))
        return None if row is None else decode_value(row[0], f"The entry {key!r} of {self.path}")

    def begin_session(self, info: Mapping[str, Any]) -> int:
        """See ``Store.begin_session``."""
        row = (encode_value(info), _now())
        writing = self._writer()
        number = writing.book.begin_session()
        self._write(
            [
                ("UPDATE sessions SET reason = 'crashed' WHERE reason IS NULL", ()),
                ("INSERT INTO sessions (id, info, begun_at, seconds) VALUES (?, ?, ?, 0.0)", (number, *row)),
            ]
        )
        writing.clock.start(number)
        return number

    def end_session(self, seconds: float, reason: str) -> None:
        """See ``Store.end_session``."""
        writing = self._writer()
        number = writing.clock.session
        if number is None:
            raise ValueError("no session is open: begin_session comes first.")
        row = (float(seconds), _now(), _shown(reason), number)
        self._write([("UPDATE sessions SET seconds = ?, ended_at = ?, reason = ? WHERE id = ?", row)])
        writing.clock.stop()

    def seconds(self) -> float:
        """See ``Store.seconds``; to a reader every session is an earlier one."""
        current = None if self._writing is None else self._writing.clock.session
        (total,) = self._reader.rows("SELECT coalesce(sum(seconds), 0.0) FROM sessions WHERE id IS NOT ?", (current,))[0]
        return float(total)

    def close(self) -> None:
        """See ``Store.close``."""
        # first, so that no reader of ours keeps the writer from folding in the log
        self._reader.close()
        if self._writing is not None:
            self._writing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if error is None:
            self.close()
            return
        # the error that brought us here says more than a consequence of it would
        with suppress(StoreError):
            self.close()

    def _write(self, statements: Sequence[Statement]) -> None:
        self._writer().writer.write(statements)

    def _writer(self) -> Writing:
        if self._writing is None:
            raise StoreError(f"{self.path} was opened for reading: nothing can be written. Use RunStore.open.")
        self._writing.check_open()
        return self._writing


def _settlement(row: int, usage: Usage, seconds: float, attempts: int, outcome: str) -> Statement:
    return _SETTLE, (*_usage_columns(usage), float(seconds), int(attempts), _shown(outcome), _now(), row)


def _usage_columns(usage: Usage) -> tuple[int, int, int, float | None]:
    """Plain numbers that fit their columns, so that a queued statement, whose failure nobody would see, can't fail for its values."""
    counts = (int(usage.calls), int(usage.input_tokens), int(usage.output_tokens))
    if max(counts) >= 2**62 or (usage.usd is not None and not math.isfinite(usage.usd)):
        raise ValueError(f"{usage} can't be saved: a count is too large or the price is not a finite number.")
    return (*counts, None if usage.usd is None else float(usage.usd))


def _step(event: Event) -> int | None:
    return event.step if isinstance(event, (Proposed, Merged, Validated, Vetoed, Unjoined, Twin, Deferred, StepEnded)) else None


def _name(text: str) -> str:
    """A text to look things up by: as it is, or not at all."""
    try:
        text.encode()
    except (AttributeError, UnicodeEncodeError):
        raise ValueError(f"{text!r:.100} can't be a key in the store: valid Unicode text is needed.") from None
    return text


def _shown(text: str) -> str:
    """A text for people to read, with what UTF-8 can't hold spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _now() -> str:
    return datetime.now(UTC).isoformat()
