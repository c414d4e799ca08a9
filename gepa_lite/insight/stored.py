"""A run as it lies on disk: read without its code, its models and a lock, finished or while another process works on it."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gepa_lite.adapters.native import NativeProgram
from gepa_lite.core.events import RunStarted
from gepa_lite.core.feedback import Objective
from gepa_lite.errors import StoreError, UsageError
from gepa_lite.program.program import Program
from gepa_lite.search.reserve import milestones_of
from gepa_lite.search.search import Search
from gepa_lite.search.shorten import may_cut
from gepa_lite.search.state import RunState, replay
from gepa_lite.search.winner import winner_of
from gepa_lite.ship.result import Costs, Result, make_result
from gepa_lite.store.run_store import RunStore

_KEPT_RULES = ("prefer", "require", "milestones", "shorten", "repeats", "validation_block")
"""What a result, and what is left to do, depend on."""


class StoredProgram(Program):
    """The prompts of a run whose code is not at hand: it can be read, not run."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        super().__init__()
        self._stored = dict(texts)

    @property
    def prompts(self) -> dict[str, str]:
        return dict(self._stored)

    def with_prompts(self, prompts: Mapping[str, str]) -> StoredProgram:
        return StoredProgram({**self._stored, **prompts})


@dataclass(frozen=True)
class StoredRun:
    """A run's content at one moment.

    Attributes:
        folder: where it is.
        state: its events, folded.
        search: of its rules, those that a result is made by.
        costs: what it took so far.
        kept_rollouts: rollouts on disk, those of an open step included.
        worker: who is working on it, in words; None for nobody.
        recipe: how it was started, as it was kept.
        written: when it was written last.
    """

    folder: Path
    state: RunState
    search: Search
    costs: Costs
    kept_rollouts: int
    worker: str | None
    recipe: Any
    written: datetime

    @property
    def objective(self) -> Objective:
        """Direction and range of its scores."""
        return self.search.objective

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do: the search has ended, the shortening pass too, the test set is scored for the candidate that won, and every milestone on the curve, where there are such sets."""
        return self._left() is None

    @property
    def status(self) -> str:
        """One word: ``running``, ``finished`` or ``stopped``."""
        if self.worker is not None:
            return "running"
        return "finished" if self.finished else "stopped"

    def result(self) -> Result[Any]:
        """What can be said of it now.

        Raises:
            UsageError: the seed's validation is not complete.
        """
        if not self.state.seed_validated:
            assert self.state.started is not None
            raise UsageError(
                f"The run in {self.folder} has no result yet: the seed's validation is not complete "
                f"({self.kept_rollouts} of {len(self.state.started.validation_ids)} rollouts kept)."
            )
        assert self.state.started is not None
        program = NativeProgram(StoredProgram(self.state.started.texts))
        result = make_result(program, self.state, self.search, self.costs, interrupted=False, run=self.folder, notices=())
        if self.finished:
            return result
        return dataclasses.replace(result, finished=False, stopped=self._why_not_finished(), run=None if self.worker else self.folder)

    def _why_not_finished(self) -> str:
        if self.worker is not None:
            return f"{self.worker} is working on it"
        left = self._left()
        return f"interrupted within {left}" if left else "interrupted"

    def _left(self) -> str | None:
        """What a resume would go on with, in words: "" for the search itself, None for nothing."""
        state, search = self.state, self.search
        assert state.started is not None
        if state.stopped is None:
            return ""
        if not state.seed_validated:
            return None
        if search.shorten and state.tested is None and not state.milestones and may_cut(state, search):
            return "the shortening pass"
        if state.started.test_ids and (state.tested is None or state.tested.winner != winner_of(state, search).index):
            return "the test set"
        scored = {event.member for event in state.milestones}
        if state.started.curve_ids and not scored.issuperset(milestones_of(state, search)):
            return "the curve's examples"
        return None


def read_run(folder: Path) -> StoredRun:
    """Read a run. It is not locked and not changed.

    Raises:
        UsageError: there is none, or it was never started.
        StoreError: the file is damaged.
    """
    with RunStore.read(folder) as store:
        state = replay(store.events())
        if state.started is None:
            raise UsageError(
                f"The run in {folder} was made but never started; it may hold the samples of an estimate. Start it by the same call."
            )
        paid = store.paid()
        costs = Costs(state.spend, paid.total, store.seconds(), paid.seconds)
        kept = sum(1 for _ in store.rollouts()) if not state.seed_validated else state.spend.rollouts
        recipe = _meta(store)
    # not the log's index, which readers touch too
    written = max(file.stat().st_mtime for file in folder.glob("run.db*") if not file.name.endswith("-shm"))
    return StoredRun(folder, state, rules_of(state.started), costs, kept, worker_of(folder), recipe, datetime.fromtimestamp(written, UTC))


def _meta(store: RunStore) -> Any:
    from gepa_lite.origin import ORIGIN_KEY

    return store.meta(ORIGIN_KEY)


def rules_of(started: RunStarted) -> Search:
    """Of a run's rules, those that a result, and what is left to do, depend on.

    Raises:
        StoreError: another release wrote them.
    """
    rules = started.settings.get("search")
    if not isinstance(rules, Mapping) or not isinstance(rules.get("objective"), Mapping):
        raise StoreError("The run does not say what its scores mean: another release of gepa_lite wrote it.")
    meaning = rules["objective"]
    try:
        low, high = meaning["range"]
        objective = Objective(meaning["direction"], (float(low), float(high)))
        return Search(objective=objective, **{name: rules[name] for name in _KEPT_RULES if name in rules})
    except (KeyError, TypeError, ValueError, UsageError) as error:
        raise StoreError(f"The run's rules can't be read ({error}): another release of gepa_lite wrote it.") from error


def worker_of(folder: Path) -> str | None:
    """Who holds the run's lock, by the note that a writer leaves beside it. The lock itself is not tried: that could make a writer fail."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        note = json.loads((folder / "run.holder").read_text(encoding="utf-8"))
        pid, host = int(note["pid"]), str(note["host"])
        if host == socket.gethostname():
            return f"process {pid}" if _alive(pid) else None
        return f"process {pid} on host {host}"
    return None


def _alive(pid: int) -> bool:
    # signal 0 asks without sending; where the system has no such thing the note alone is believed
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except OSError as error:
        # another user's process may not be asked, but it is there
        return isinstance(error, PermissionError)
    return True
