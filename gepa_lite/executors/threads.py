"""The default engine: threads, since the work is waiting for models."""

from __future__ import annotations

import contextvars
import heapq
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from gepa_lite.core.example import Example
from gepa_lite.core.rollout import Rollout, RolloutKey
from gepa_lite.errors import RunError
from gepa_lite.rollouts.executor import Keep, RunRollout
from gepa_lite.rollouts.overdue import Attempt, begin


@dataclass(slots=True, eq=False)
class _Work:
    """One rollout, queued or running."""

    run: RunRollout
    keep: Keep
    example: Example
    key: RolloutKey
    context: contextvars.Context
    future: Future[Rollout] = field(default_factory=Future)
    attempt: Attempt = field(default_factory=Attempt)
    started: float = 0.0

    def __call__(self) -> Rollout:
        # the context is this rollout's own, so nothing has to be put back
        self.context.run(begin, self.attempt)
        return self.context.run(self.run, self.example, self.key)

    def settle(self, outcome: Callable[[], Rollout]) -> None:
        """Keep what came of it, and tell who waits."""
        try:
            rollout = outcome()
            self.keep(rollout)
        except BaseException as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(rollout)


class ThreadExecutor:
    """A pool of daemon threads over one priority queue. ``contextvars`` of the submitter travel into the work.

    A rollout that takes too long is given up: no thread can be killed, so its thread is left behind and another takes its place. What it returns later is not used, and the model calls that it tries are
    refused; those that it had made are paid and kept.

    Args:
        workers: rollouts at once, at least 1.
        timeout: seconds that a rollout may take; None for any time.
    """

    def __init__(self, workers: int, timeout: float | None = None) -> None:
        self._queue: list[tuple[tuple[int, ...], int, _Work]] = []
        self._order = itertools.count()
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        # of the watch alone: one that waits with the workers would take the wake-up that is meant for one of them
        self._due = threading.Condition(lock)
        self._closed = False
        self._programs: dict[str, tuple[RunRollout, Keep]] = {}
        self._timeout = timeout
        self._workers = workers
        self._running: dict[_Work, None] = {}
        self._serving = 0
        self._left_behind = 0
        for _ in range(workers):
            self._start()
        if timeout is not None:
            threading.Thread(target=self._watch, args=(timeout,), name="gepa-lite-rollout-watch", daemon=True).start()

    def put(self, ref: str, run: RunRollout, keep: Keep) -> str:
        """Keep a candidate's runner under its content id."""
        self._programs.setdefault(ref, (run, keep))
        return ref

    def submit(self, ref: str, example: Example, key: RolloutKey, priority: tuple[int, ...]) -> Future[Rollout]:
        """Queue one rollout."""
        run, keep = self._programs[ref]
        work = _Work(run, keep, example, key, contextvars.copy_context())
        with self._changed:
            if self._closed:
                raise RunError("the run is ending: no new rollout is taken")
            heapq.heappush(self._queue, (priority, next(self._order), work))
            self._changed.notify()
        return work.future

    def close(self, wait: bool = True) -> None:
        """Drop what is queued, and wait for what runs unless told not to; not for what was given up."""
        with self._changed:
            self._closed = True
            for _, _, work in self._queue:
                if work.future.cancel():
                    # who waits for a cancelled future is only told by this
                    work.future.set_running_or_notify_cancel()
            self._queue.clear()
            self._changed.notify_all()
            self._due.notify_all()
            while wait and self._serving:
                self._changed.wait()

    def _start(self) -> None:
        self._serving += 1
        threading.Thread(target=self._serve, name="gepa-lite-rollout", daemon=True).start()

    def _serve(self) -> None:
        work = self._next()
        while work is not None:
            try:
                rollout = work()
            except BaseException as error:
                outcome: Callable[[], Rollout] = _raising(error)
            else:
                outcome = _returning(rollout)
            if not work.attempt.end():
                with self._changed:
                    self._left_behind -= 1
                # another thread has this one's place
                return
            work.settle(outcome)
            del outcome
            work = self._next(work)

    def _next(self, ended: _Work | None = None) -> _Work | None:
        """The next rollout after one that has ended; None at the end."""
        with self._changed:
            if ended is not None:
                self._running.pop(ended, None)
            while True:
                while not self._queue and not self._closed:
                    self._changed.wait()
                if not self._queue:
                    self._serving -= 1
                    self._changed.notify_all()
                    self._due.notify_all()
                    return None
                _, _, work = heapq.heappop(self._queue)
                if work.future.set_running_or_notify_cancel():
                    break
            if self._timeout is not None:
                work.started = time.monotonic()
                self._running[work] = None
            return work

    def _watch(self, timeout: float) -> None:
        """Give up what takes too long."""
        while True:
            with self._changed:
                while True:
                    oldest = next(iter(self._running), None)
                    left = timeout if oldest is None else oldest.started + timeout - time.monotonic()
                    if left <= 0 and oldest is not None:
                        break
                    if self._closed and not self._serving:
                        return
                    self._due.wait(left)
                # in the order in which they were started, so the oldest is due first
                del self._running[oldest]
            if oldest.attempt.end():
                self._give_up(oldest, timeout)

    def _give_up(self, work: _Work, timeout: float) -> None:
        with self._changed:
            self._left_behind += 1
            left_behind = self._left_behind
        if left_behind > max(4, self._workers):
            words = (
                f"{left_behind} rollouts did not end within {timeout:g} s, and their threads can't be stopped. Look at what blocks in the program or the feedback function, "
                'or use workers="processes", whose processes are ended; what was paid is kept.'
            )
            work.settle(_raising(RunError(words)))
        else:
            work.settle(lambda: work.attempt.given_up(work.example, work.key, timeout))
        with self._changed:
            # its own thread does not serve any more
            self._serving -= 1
            self._start()
            self._changed.notify_all()


def _returning(rollout: Rollout) -> Callable[[], Rollout]:
    return lambda: rollout


def _raising(error: BaseException) -> Callable[[], Rollout]:
    def again() -> Rollout:
        raise error

    return again
