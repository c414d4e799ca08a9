"""The runs of a folder, each followed by reading its file; what was read once is kept, so that a page costs what is new."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from gepa_lite.errors import GepaLiteError
from gepa_lite.insight.distance import TextSpace
from gepa_lite.insight.ending import is_finished
from gepa_lite.insight.stored import worker_of
from gepa_lite.insight.trail import Trail
from gepa_lite.report.pages import Look
from gepa_lite.store.browse import Browse
from gepa_lite.store.folders import list_runs
from gepa_lite.store.schema import FILE_NAME

_OPEN = 12
"""Runs that are kept in memory, the ones looked at last."""
_LONG = 8_000
"""Events that are not read while a visitor waits, but beside."""
_PATIENCE = 0.4
"""Seconds that the list may take for runs that were not looked at yet; the rest follows beside."""


NEVER_STARTED = (
    "It was made but not started: nothing is searched yet. It may hold the rollouts of an estimate, which the same call takes over."
)


class NotThereError(Exception):
    """No run has this name."""


class StillReadingError(Exception):
    """A long log is being read; ``read`` of ``total`` events are."""

    def __init__(self, read: int, total: int) -> None:
        super().__init__(f"{read:,} of {total:,} events are read")
        self.read, self.total = read, total


class Shelf:
    """One run: its open file and its course so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock = threading.RLock()
        self.browse = Browse(folder)
        self.trail = Trail()
        self.mark = _mark(folder)
        self._space: TextSpace | None = None
        self._look: Look | None = None
        self._looked_at = -1
        self._finished: tuple[int, bool] = (-1, False)

    def pending(self) -> int:
        """Events that are not read yet."""
        return self.browse.last_seq - self.trail.seq

    def catch_up(self) -> None:
        """Read what is new, in pieces, so that others get their turn."""
        while True:
            with self.lock:
                if not self.trail.follow(islice(self.browse.events(self.trail.seq), 2_000)):
                    return

    def look(self) -> Look:
        """The run as it is now; what was computed from it is kept while nothing is new."""
        with self.lock:
            if self._space is None or self._space.modules != self.trail.modules:
                self._space = TextSpace(self.trail.modules)
            if self._look is None or self._looked_at != self.trail.seq:
                self._look, self._looked_at = Look(self.trail, self.browse, self._space), self.trail.seq
            return self._look

    def finished(self) -> bool:
        """Whether nothing is left to do; asked once as long as nothing is new."""
        with self.lock:
            if self._finished[0] != self.trail.seq:
                self._finished = self.trail.seq, is_finished(self.trail, self.folder)
            return self._finished[1]

    def close(self) -> None:
        """Let go of the file."""
        with self.lock:
            self.browse.close()


@dataclass(frozen=True)
class Entry:
    """A run in the list.

    Attributes:
        name: of its folder.
        status: ``running``, ``finished``, ``stopped``, ``unstarted``, ``reading`` or ``error``.
        written: UTC, to the minute.
        rollouts: on disk.
        candidates: in the pool; None while it is being read.
        seed: the seed's validation mean, in the user's own direction.
        best: the best one's.
        tested: the winner's test mean.
        error: why it can't be read.
    """

    name: str
    status: str
    written: str
    rollouts: int = 0
    candidates: int | None = None
    seed: float | None = None
    best: float | None = None
    tested: float | None = None
    error: str = ""


class Library:
    """The runs directly under a folder.

    Args:
        root: the folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._shelves: OrderedDict[str, Shelf] = OrderedDict()
        self._lock = threading.Lock()
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="gepa-lite-ui-reader")
        self._reading: set[str] = set()
        self._entries: dict[str, tuple[tuple[float, ...], Entry]] = {}

    def names(self) -> list[str]:
        """The runs, the one written last first."""
        return [folder.name for folder in list_runs(self.root)]

    def shelf(self, name: str, *, wait: bool = False) -> Shelf:
        """A run with its course up to now. A name is looked up among the runs that are there, and never joined to a path before.

        Args:
            name: of the run.
            wait: read a long log at once.

        Raises:
            NotThereError: no run has this name.
            StillReadingError: its log is long and being read.
            StoreError: it can't be read.
        """
        shelf = self._open(name)
        pending = shelf.pending()
        if pending > _LONG and not wait:
            self._read_beside(name, shelf)
            raise StillReadingError(shelf.trail.seq, shelf.trail.seq + pending)
        shelf.catch_up()
        return shelf

    def entries(self) -> list[Entry]:
        """The list. What takes long is read beside, and shown as being read meanwhile."""
        begin = time.monotonic()
        found = []
        for name in self.names():
            found.append(self._entry(name, quick=time.monotonic() - begin > _PATIENCE))
        return found

    def status(self, shelf: Shelf) -> tuple[str, str | None]:
        """One word, and who works on it."""
        worker = worker_of(shelf.folder)
        if worker is not None:
            return "running", worker
        if shelf.trail.started is None:
            return "unstarted", None
        return ("finished" if shelf.finished() else "stopped"), None

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Lets go of all files at the end."""
        try:
            yield
        finally:
            self._reader.shutdown(wait=True, cancel_futures=True)
            with self._lock:
                for shelf in self._shelves.values():
                    shelf.close()
                self._shelves.clear()

    def _open(self, name: str) -> Shelf:
        folder = next((folder for folder in list_runs(self.root) if folder.name == name), None)
        if folder is None:
            raise NotThereError(name)
        with self._lock:
            shelf = self._shelves.get(name)
            if shelf is not None and shelf.mark != _mark(folder):
                # the run was deleted and made anew
                shelf.close()
                shelf = None
            if shelf is None:
                shelf = Shelf(folder)
            self._shelves[name] = shelf
            self._shelves.move_to_end(name)
            while len(self._shelves) > _OPEN:
                self._shelves.popitem(last=False)[1].close()
            return shelf

    def _read_beside(self, name: str, shelf: Shelf) -> None:
        with self._lock:
            if name in self._reading:
                return
            self._reading.add(name)

        def read() -> None:
            try:
                shelf.catch_up()
            except GepaLiteError:
                # whoever asks for the run next is told
                pass
            finally:
                with self._lock:
                    self._reading.discard(name)

        self._reader.submit(read)

    def _entry(self, name: str, quick: bool) -> Entry:
        folder = self.root / name
        stamp = _stamp(folder)
        with self._lock:
            known = self._entries.get(name)
        if known is not None and known[0] == stamp and known[1].status not in ("running", "reading"):
            return known[1]
        written = datetime.fromtimestamp(max(stamp), UTC).isoformat(sep=" ", timespec="minutes").removesuffix("+00:00")
        try:
            if quick and known is None:
                return Entry(name, "reading", written)
            entry = self._read_entry(name, written)
        except StillReadingError:
            entry = Entry(name, "reading", written)
        except (NotThereError, GepaLiteError) as error:
            entry = Entry(name, "error", written, error=str(error) or "it is gone")
        with self._lock:
            self._entries[name] = (stamp, entry)
        return entry

    def _read_entry(self, name: str, written: str) -> Entry:
        shelf = self.shelf(name)
        with shelf.lock:
            trail = shelf.trail
            status, _ = self.status(shelf)
            if trail.started is None:
                return Entry(name, status, written, shelf.browse.rollout_count, error=NEVER_STARTED)
            score = trail.objective.score
            seed = trail.nodes[0].mean if trail.nodes else None
            best = trail.best.mean if trail.best else None
            values = [value for value in trail.tested.winner_values if value is not None] if trail.tested else []
            return Entry(
                name,
                status,
                written,
                shelf.browse.rollout_count,
                len(trail.nodes),
                None if seed is None else score(seed),
                None if best is None else score(best),
                score(sum(values) / len(values)) if values else None,
            )


def _mark(folder: Path) -> tuple[int, int]:
    found = (folder / FILE_NAME).stat()
    return found.st_dev, found.st_ino


def _stamp(folder: Path) -> tuple[float, ...]:
    """When the file and its log were written last."""
    found = []
    for name in (FILE_NAME, f"{FILE_NAME}-wal"):
        try:
            found.append((folder / name).stat().st_mtime)
        except OSError:
            found.append(0.0)
    return tuple(found)
