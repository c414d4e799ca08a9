"""Queries of views: pages and sums over a run, finished or being written, with no more in memory than one page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gepa_lite.core.call import Message
from gepa_lite.core.example import Example
from gepa_lite.core.rollout import Rollout
from gepa_lite.lm.protocol import Completion
from gepa_lite.store.codec import COMPLETION, EXAMPLE, ROLLOUT
from gepa_lite.store.folders import find_run
from gepa_lite.store.json_text import decode_value, to_json
from gepa_lite.store.lock import refuse_network
from gepa_lite.store.reader import Reader
from gepa_lite.store.schema import FILE_NAME

_PAGE = 2_000
"""Events read at once: enough to be quick, little enough that a writer's log can be folded in between."""


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event as it lies on disk.

    Attributes:
        seq: its place in the log, from 1.
        kind: of the event.
        version: of its form.
        body: JSON text.
        at: when it was kept, UTC, ISO 8601.
    """

    seq: int
    kind: str
    version: int
    body: str
    at: str


@dataclass(frozen=True, slots=True)
class CallSum:
    """The settled calls of one role and model.

    Attributes:
        role: what they were for.
        model: who was asked.
        outcome: ``"ok"`` or the error's kind.
        calls: how many.
        input_tokens: sent.
        output_tokens: received.
        usd: known dollars.
        unpriced: calls whose price is not known.
        seconds: summed over calls at once.
    """

    role: str
    model: str
    outcome: str
    calls: int
    input_tokens: int
    output_tokens: int
    usd: float
    unpriced: int
    seconds: float


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session of the run.

    Attributes:
        number: from 1.
        workers: rollouts at once, None where it is not known.
        begun: UTC, ISO 8601.
        seconds: of wall time; of one that is going on up to its last commit.
        reason: why it ended, None while it goes on.
    """

    number: int
    workers: int | None
    begun: str
    seconds: float
    reason: str | None


@dataclass(frozen=True, slots=True)
class ReflectionRow:
    """What a reflection model was asked.

    Attributes:
        model: who.
        messages: what was sent.
        completion: the reply; None where there was none, or it is not kept.
        seconds: that it took.
    """

    model: str
    messages: Sequence[Message]
    completion: Completion | None
    seconds: float


class Browse:
    """A run's file, open for reading. It is not locked and not changed.

    Args:
        run: a name under the runs' folder, the path of a folder, or of its ``run.db``.

    Raises:
        UsageError: there is no such run.
        StoreError: the file is damaged, of another release or on a network file system.
    """

    def __init__(self, run: str | Path) -> None:
        self.folder = find_run(run)
        refuse_network(self.folder)
        self._reader = Reader(self.folder / FILE_NAME)
        self._places: dict[str, tuple[str, int]] = {}

    def events(self, after: int = 0) -> Iterator[EventRow]:
        """The events behind a place in the log, a page at a time."""
        while rows := self._reader.rows(
            "SELECT seq, kind, version, body, at FROM events WHERE seq > ? ORDER BY seq LIMIT ?", (after, _PAGE)
        ):
            yield from (EventRow(*row) for row in rows)
            after = rows[-1][0]

    def event(self, seq: int) -> EventRow | None:
        """One event."""
        row = self._reader.row("SELECT seq, kind, version, body, at FROM events WHERE seq = ?", (seq,))
        return None if row is None else EventRow(*row)

    def last_event(self, kind: str) -> EventRow | None:
        """The last event of a kind."""
        row = self._reader.row("SELECT seq, kind, version, body, at FROM events WHERE kind = ? ORDER BY seq DESC LIMIT 1", (kind,))
        return None if row is None else EventRow(*row)

    @property
    def last_seq(self) -> int:
        """The place of the newest event, 0 for none."""
        row = self._reader.row("SELECT max(seq) FROM events")
        return int(row[0] or 0) if row else 0

    @property
    def rollout_count(self) -> int:
        """Rollouts on disk, those of an open step included: rows are never deleted, so the last number is the count."""
        row = self._reader.row("SELECT max(id) FROM rollouts")
        return int(row[0] or 0) if row else 0

    def rollouts(self, candidate_id: str, *, after: int = 0, limit: int = 50) -> list[tuple[int, Rollout]]:
        """A page of a candidate's rollouts with their numbers, in the order they were kept; ``after`` is the last number of the page before."""
        sql = "SELECT id, version, body FROM rollouts WHERE candidate_id = ? AND id > ? ORDER BY id LIMIT ?"
        return [(number, ROLLOUT.decode(version, body)) for number, version, body in self._reader.rows(sql, (candidate_id, after, limit))]

    def rollouts_on(self, candidate_id: str, example_id: str) -> list[Rollout]:
        """The rollouts of a candidate on an example, one a sample."""
        sql = "SELECT version, body FROM rollouts WHERE candidate_id = ? AND example_id = ? ORDER BY sample"
        return [ROLLOUT.decode(*row) for row in self._reader.rows(sql, (candidate_id, example_id))]

    def newest_rollouts(self, limit: int) -> list[Rollout]:
        """The rollouts that were kept last, the newest first."""
        return [ROLLOUT.decode(*row) for row in self._reader.rows("SELECT version, body FROM rollouts ORDER BY id DESC LIMIT ?", (limit,))]

    def some_rollouts(self, limit: int) -> list[Rollout]:
        """At most ``limit`` rollouts, spread evenly over the run."""
        total = self.rollout_count
        if total <= limit:
            return self.newest_rollouts(limit)[::-1]
        numbers = sorted({1 + place * (total - 1) // max(1, limit - 1) for place in range(limit)})
        found = []
        for start in range(0, len(numbers), 500):
            some = numbers[start : start + 500]
            sql = f"SELECT version, body FROM rollouts WHERE id IN ({', '.join('?' * len(some))}) ORDER BY id"
            found += [ROLLOUT.decode(*row) for row in self._reader.rows(sql, tuple(some))]
        return found

    def example(self, example_id: str) -> tuple[str, Example] | None:
        """The split and the example of an id."""
        if example_id not in self._places:
            # ids lie within the bodies: they are read once, not at every look-up
            places = self._reader.rows(
                "SELECT json_extract(body, '$.id'), split, position FROM examples ORDER BY split DESC, position DESC"
            )
            self._places = {found: (split, position) for found, split, position in places}
        if example_id not in self._places:
            return None
        row = self._reader.row("SELECT split, version, body FROM examples WHERE split = ? AND position = ?", self._places[example_id])
        return None if row is None else (str(row[0]), EXAMPLE.decode(row[1], row[2]))

    def splits(self) -> dict[str, int]:
        """How many examples each split has."""
        return {str(split): int(count) for split, count in self._reader.rows("SELECT split, count(*) FROM examples GROUP BY split")}

    def reflections(self, addresses: Sequence[Sequence[int]]) -> dict[tuple[int, ...], ReflectionRow]:
        """What reflection models were asked at some addresses, and what they replied."""
        if self._reader.row("SELECT 1 FROM sqlite_master WHERE name = 'reflections'") is None:
            return {}
        sql = (
            "SELECT address, model, reflections.body, completions.version, completions.body, seconds "
            f"FROM reflections LEFT JOIN completions USING (key) WHERE address IN ({', '.join('?' * len(addresses))})"
        )
        found = {}
        for address, model, body, version, reply, seconds in self._reader.rows(sql, tuple(to_json(list(place)) for place in addresses)):
            messages = decode_value(body, f"the reflection {address} of {self.folder}")
            completion = None if reply is None else COMPLETION.decode(version, reply)
            found[tuple(json.loads(address))] = ReflectionRow(model, messages, completion, seconds or 0.0)
        return found

    def calls(self) -> list[CallSum]:
        """What the settled calls took, by role, model and outcome."""
        sql = (
            "SELECT role, model, outcome, sum(calls), sum(input), sum(output), coalesce(sum(usd), 0.0), sum(usd IS NULL), sum(seconds) "
            "FROM calls WHERE outcome IS NOT NULL GROUP BY role, model, outcome ORDER BY role, model, outcome"
        )
        return [CallSum(*row) for row in self._reader.rows(sql)]

    def sessions(self) -> list[SessionRow]:
        """The sessions in order."""
        rows = self._reader.rows("SELECT id, info, begun_at, seconds, reason FROM sessions ORDER BY id")
        found = []
        for number, info, begun, seconds, reason in rows:
            workers = decode_value(info, f"session {number} of {self.folder}").get("workers")
            found.append(SessionRow(number, workers if isinstance(workers, int) else None, begun, seconds, reason))
        return found

    def meta(self, key: str) -> Any:
        """The value under a name, or None."""
        row = self._reader.row("SELECT body FROM meta WHERE key = ?", (key,))
        return None if row is None else decode_value(row[0], f"The entry {key!r} of {self.folder}")

    def close(self) -> None:
        """Let go of the file."""
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()
