"""Which records of which runs a mutator learns from, and why the others are left out. No torch here."""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from gepa_lite.core.ids import content_hash
from gepa_lite.errors import UsageError
from gepa_lite.insight.training_rows import training_rows
from gepa_lite.insight.transitions import TransitionRecord, transitions
from gepa_lite.mutator.settings import Tuning

Messages = Sequence[Mapping[str, str]]
Measure = Callable[[Messages, str], int]
"""Tokens of a question and a reply together."""
_FIELDS = {item.name for item in dataclasses.fields(TransitionRecord)}
_TUPLES = ("parent_ids", "minibatch_ids", "scores_before", "scores_after", "feedback", "messages")


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question and the reply to learn.

    Attributes:
        messages: what the reflection model was asked.
        reply: what it answered, and improved the prompt by; reasoning that came apart from it is not learned.
        about: what was rewritten: rows of one text stay on one side of the split.
    """

    messages: Messages
    reply: str
    about: str


@dataclass(frozen=True, slots=True)
class Pair:
    """A better and a worse reply, to the first one's question."""

    messages: Messages
    chosen: str
    rejected: str


@dataclass(frozen=True, slots=True)
class Selection:
    """What is kept of the records.

    Attributes:
        records: how many there were.
        rows: to learn; none is held out yet.
        pairs: empty unless pairs are asked for.
        dropped: how many records each filter left out. With ``rows`` they sum to ``records``.
        longest: tokens of the longest record that was left out for its length; 0 where none was.
    """

    records: int
    rows: tuple[Exchange, ...]
    pairs: tuple[Pair, ...]
    dropped: Mapping[str, int]
    longest: int = 0

    def __str__(self) -> str:
        left = ", ".join(f"{count} {name}" for name, count in sorted(self.dropped.items(), key=lambda item: -item[1]))
        return f"{len(self.rows)} of {self.records} records kept{f'; left out: {left}' if left else ''}"


def read_records(sources: Sequence[str | os.PathLike[str]]) -> list[TransitionRecord]:
    """The records of runs, and of files that ``gepa-lite export --format transitions`` wrote; one that comes twice counts once.

    Args:
        sources: names or folders of runs, and ``.jsonl`` files.

    Raises:
        UsageError: there is no such run or file, or a file holds something else.
    """
    if not sources:
        raise UsageError("no run was named: give the names or folders of runs, or files of `gepa-lite export RUN --format transitions`.")
    found: dict[str, TransitionRecord] = {}
    for source in (os.fspath(each) for each in sources):
        for record in _from_file(Path(source)) if source.endswith(".jsonl") else transitions(source):
            found.setdefault(record.uid, record)
    return list(found.values())


def _from_file(path: Path) -> list[TransitionRecord]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}.") from error
    return [_record(path, place, line) for place, line in enumerate(lines, 1) if line.strip()]


def _record(path: Path, place: int, line: str) -> TransitionRecord:
    try:
        data = json.loads(line)
    except ValueError as error:
        raise UsageError(f"{path}, line {place}: no JSON ({error}).") from error
    if not isinstance(data, dict) or not data.keys() >= _FIELDS:
        raise UsageError(
            f"{path}, line {place}: no transition record. Write the file by `gepa-lite export RUN --format transitions`; the other forms have lost what the filters look at."
        )
    fields: dict[str, Any] = {name: tuple(data[name]) if name in _TUPLES else data[name] for name in _FIELDS}
    return TransitionRecord(**fields)


def select(records: Sequence[TransitionRecord], tuning: Tuning, measure: Measure | None = None) -> Selection:
    """Apply the filters, in this order; the first that holds is the one that counts.

    ``merge`` (no model was asked), the record's own mark (``no_child``, ``breakage``, ``unrecoverable``, ``systematic``, ``too_long``), ``no_messages``, ``no_change``, ``regressed``,
    ``below_min_gain``, ``repeated`` (the same question and reply) and ``over_max_length``.

    Args:
        records: of any number of runs.
        tuning: the bounds.
        measure: counts tokens; None leaves lengths aside.
    """
    dropped: Counter[str] = Counter()
    rows: dict[str, Exchange] = {}
    longest = 0
    for record in records:
        key = content_hash([[dict(message) for message in record.messages], record.response])
        why = _why_not(record, tuning) or ("repeated" if key in rows else "")
        if not why and measure is not None and (length := measure(record.messages, record.response)) > tuning.max_length:
            why, longest = "over_max_length", max(longest, length)
        if why:
            dropped[why] += 1
        else:
            rows[key] = Exchange(record.messages, record.response, content_hash([record.module, record.parent_text]))
    return Selection(len(records), tuple(rows.values()), _pairs(records, tuning, measure), dict(dropped), longest)


def _why_not(record: TransitionRecord, tuning: Tuning) -> str:
    if record.op != "mutation":
        return "merge"
    if record.dropped:
        return record.dropped
    if not record.messages or not record.response:
        return "no_messages"
    if record.label != "improved":
        return record.label
    return "below_min_gain" if record.delta is not None and record.delta <= tuning.min_gain else ""


def _pairs(records: Sequence[TransitionRecord], tuning: Tuning, measure: Measure | None) -> tuple[Pair, ...]:
    if not tuning.preferences:
        return ()
    rows = [row for row in training_rows(records, "preferences") if row["margin"] > tuning.min_gain]
    pairs = [Pair(row["prompt"], row["chosen"][0]["content"], row["rejected"][0]["content"]) for row in rows]
    return tuple(
        pair
        for pair in pairs
        if measure is None or max(measure(pair.messages, reply) for reply in (pair.chosen, pair.rejected)) <= tuning.max_length
    )


def check_enough(selection: Selection, tuning: Tuning) -> None:
    """Refuse a selection that is too small to train on.

    Raises:
        UsageError: says which filters left what out.
    """
    if len(selection.rows) < tuning.min_records:
        long = f" The longest of those over max_length={tuning.max_length} has {selection.longest} tokens." if selection.longest else ""
        raise UsageError(
            f"{selection}. At least {tuning.min_records} are needed (min_records).{long} Name more runs; `gepa-lite probe` makes records too."
        )
    if tuning.preferences and not selection.pairs:
        raise UsageError(
            "preferences=True, and there is no pair: nowhere does an improved reply stand beside one to the same module's same text that brought nothing. Runs of gepa-lite probe have such pairs."
        )


def split(rows: Sequence[Exchange], tuning: Tuning) -> tuple[list[Exchange], list[Exchange]]:
    """Rows to train on and rows to hold out; those about the same text stay together, so the share is met as nearly as whole groups allow.

    Raises:
        UsageError: all rows are about one text, so that none can be held out.
    """
    if not tuning.held_out:
        return list(rows), []
    ordered = sorted(rows, key=_about)
    groups = [list(group) for _, group in groupby(ordered, key=_about)]
    if len(groups) < 2:
        raise UsageError(f"held_out={tuning.held_out:g}: all {len(rows)} rows rewrite the same text, so none can be held out. Use 0.")
    groups.sort(key=lambda group: content_hash([tuning.seed, group[0].about]))
    target = max(1, round(tuning.held_out * len(rows)))
    held: list[list[Exchange]] = []
    for group in groups:
        if sum(map(len, held)) + len(group) <= target:
            held.append(group)
    held = held or [min(groups, key=len)]
    out = {group[0].about for group in held}
    return [row for row in rows if row.about not in out], [row for row in rows if row.about in out]


def _about(row: Exchange) -> Any:
    return row.about
