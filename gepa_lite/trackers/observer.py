"""Hands a run to a tracker, on a thread of its own, and keeps every fault of the tracker away from the run."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gepa_lite.core.events import Event, RunStarted, StepEnded, Stopped, Tested
from gepa_lite.core.feedback import Objective
from gepa_lite.core.ids import canonical_json, content_hash
from gepa_lite.core.rollout import Rollout
from gepa_lite.search.state import RunState, mean_of
from gepa_lite.store.browse import Browse
from gepa_lite.trackers.protocol import Tracked, Tracker

WAIT = 20.0
"""Seconds that the end of a session waits for a tracker to take what is queued."""
QUEUED = 10_000
"""Calls that may wait for a slow tracker; further rollouts are then left out, events never."""


class TrackerObserver:
    """Implements ``session.Observer`` for one tracker.

    Nothing of the run waits for the tracker, but for at most 20 seconds at its end; the first error of the tracker is told as a warning, and the run goes on without it.

    Args:
        tracker: who is told.
        folder: the run's.
        objective: turns values into the user's own scores.
        warn: told what a person should know.
    """

    def __init__(self, tracker: Tracker, folder: Path, objective: Objective, warn: Callable[[str], None]) -> None:
        self._tracker, self._folder, self._objective, self._warn = tracker, folder, objective, warn
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._failed = threading.Event()
        self._began = False
        self._best = -1
        self._reason = ""
        self._thread = threading.Thread(target=self._work, name=f"gepa-lite-tracker:{tracker.name}", daemon=True)
        self._thread.start()

    def on_event(self, event: Event, state: RunState) -> None:
        """See ``Observer``."""
        self._begin(state, resumed=not isinstance(event, RunStarted))
        self._put(lambda: self._tracker.event(event))
        if isinstance(event, (StepEnded, Stopped, Tested)) and state.seed_validated:
            step, values = state.next_step, self._figures(state)
            self._put(lambda: self._tracker.metrics(step, values))
            if state.best.index != self._best:
                self._best = state.best.index
                text = "\n\n".join(f"## {module}\n{text}" for module, text in state.best.candidate.texts.items())
                self._put(lambda: self._tracker.text("best prompts", text))
        if isinstance(event, Stopped):
            self._reason = event.reason

    def on_rollout(self, rollout: Rollout, saved: bool) -> None:
        """See ``Observer``."""
        if not saved and self._queue.qsize() < QUEUED:
            ended = time.time_ns()
            self._put(lambda: self._tracker.rollout(rollout, ended))

    def on_notice(self, text: str) -> None:
        """Notices are for people."""

    def close(self) -> None:
        """End the tracker's run, and wait a little for it; a second call does nothing."""
        if self._thread.is_alive():
            reason = self._reason
            self._put(lambda: self._tracker.end(reason))
            self._queue.put(None)
            self._thread.join(WAIT)
            if self._thread.is_alive() and not self._failed.is_set():
                self._failed.set()
                self._warn(f"{self._tracker.name} did not take all of the run within {WAIT:g} seconds; the run itself is whole.")

    def _begin(self, state: RunState, resumed: bool) -> None:
        if self._began or state.started is None:
            return
        self._began = True
        started = state.started
        params = {
            **flat(started.settings),
            **{f"{name}_examples": len(getattr(started, f"{name}_ids")) for name in ("train", "validation", "test")},
        }
        self._put(lambda: self._tracker.begin(Tracked(self._folder.name, self._key(started), params, resumed)))

    def _key(self, started: RunStarted) -> str:
        """Another one for a run that is started again in the folder of one that was deleted: its first session began later."""
        with Browse(self._folder) as browse:
            begun = browse.sessions()[0].begun
        return content_hash([str(self._folder.absolute()), begun, started.settings, started.texts])

    def _figures(self, state: RunState) -> dict[str, float]:
        spend, score = state.spend, self._objective.score
        values: dict[str, float | None] = {
            "best_validation": None if state.best.mean is None else score(state.best.mean),
            "seed_validation": None if state.pool[0].mean is None else score(state.pool[0].mean),
            "candidates": len(state.pool),
            "proposals": len(state.proposals),
            "accepted": sum(proposal.status == "accepted" for proposal in state.proposals),
            "rollouts": spend.rollouts,
            "tokens": spend.tokens,
            "usd": spend.usd,
        }
        if state.tested is not None:
            for name, row in (("seed_test", state.tested.seed_values), ("winner_test", state.tested.winner_values)):
                mean = mean_of([value for value in row if value is not None])
                values[name] = None if mean is None else score(mean)
        return {name: float(value) for name, value in values.items() if value is not None}

    def _put(self, call: Callable[[], None]) -> None:
        if not self._failed.is_set():
            self._queue.put(call)

    def _work(self) -> None:
        while (call := self._queue.get()) is not None:
            if self._failed.is_set():
                continue
            try:
                call()
            # whatever a tool of others raises is no reason to end a run
            except Exception as error:
                self._failed.set()
                with suppress(Exception):
                    self._warn(
                        f"{self._tracker.name} failed and is told nothing more of this run: {type(error).__name__}: {str(error)[:300]}"
                    )


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by dotted names; what is no text, number or truth is JSON.

    >>> flat({"search": {"fan": 4, "stop": []}})
    {'search.fan': 4, 'search.stop': '[]'}
    """
    found: dict[str, Any] = {}
    for key, value in settings.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{name}.")
        else:
            found[name] = value if isinstance(value, (str, int, float, bool)) else canonical_json(value)
    return found
