"""Looks at a sealed test set by other runs beside this one: a second run on the same examples is a second try at the same exam."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gepa_lite.core.events import RunStarted, SealOpened
from gepa_lite.errors import GepaLiteError
from gepa_lite.store.codec import EVENTS, decode_event
from gepa_lite.store.reader import Reader
from gepa_lite.store.schema import FILE_NAME


def looks_beside(folder: Path, test_ids: Sequence[str], candidate_id: str) -> int:
    """How many other candidates the runs in the folders beside this one have scored on any of the same test examples.

    A run that can't be read, and one whose winner was its seed or the same candidate, does not count.

    Args:
        folder: this run's.
        test_ids: its test examples.
        candidate_id: its winner.
    """
    wanted = set(test_ids)
    found: set[str] = set()
    for path in sorted(folder.absolute().parent.glob(f"*/{FILE_NAME}")):
        if path.parent != folder.absolute():
            with suppress(GepaLiteError):
                found |= _looks(path, wanted)
    return len(found - {candidate_id})


def _looks(path: Path, wanted: set[str]) -> set[str]:
    reader = Reader(path)
    try:
        kinds = EVENTS[RunStarted].kind, EVENTS[SealOpened].kind
        rows = reader.rows("SELECT kind, version, body FROM events WHERE kind IN (?, ?) ORDER BY seq", kinds)
    finally:
        reader.close()
    events = [decode_event(*row) for row in rows]
    if not any(isinstance(event, RunStarted) and wanted & set(event.test_ids) for event in events):
        return set()
    # the first id is the seed's
    return {candidate for event in events if isinstance(event, SealOpened) for candidate in event.candidate_ids[1:]}
