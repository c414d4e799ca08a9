"""The default engine: threads, since the work is waiting for models."""

from __future__ import annotations

import contextvars
import heapq
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future

from gepa_lite.core.example import Example
from gepa_lite.core.rollout import Rollout, RolloutKey
from gepa_lite.errors import RunError
from gepa_lite.rollouts.executor import RunRollout


class ThreadExecutor:
    """A pool of daemon threads over one priority queue. ``contextvars`` of the submitter travel into the work.

    Args:
        workers: rollouts at once, at least 1.
    """

    def __init__(self, workers: int) -> None:
        self._queue: list[tuple[tuple[int, ...], int, Future[Rollout], Callable[[], Rollout]]] = []
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._programs: dict[str, RunRollout] = {}
        self._threads = [threading.Thread(target=self._serve, name=f"gepa-lite-rollout-{i}", daemon=True) for i in range(workers)]
        for thread in self._threads:
            thread.start()

    def put(self, ref: str, run: RunRollout) -> str:
        """Keep a candidate's runner under its content id."""
        self._programs.setdefault(ref, run)
        return ref

    def submit(self, ref: str, example: Example, key: RolloutKey, priority: tuple[int, ...]) -> Future[Rollout]:
        """Queue one rollout."""
        run = self._programs[ref]
        context = contextvars.copy_context()
        future: Future[Rollout] = Future()
        with self._changed:
            if self._closed:
                raise RunError("the run is ending: no new rollout is taken")
            heapq.heappush(self._queue, (priority, next(self._order), future, lambda: context.run(run, example, key)))
            self._changed.notify()
        return future

    def close(self, wait: bool = True) -> None:
        """Drop what is queued, and wait for what runs unless told not to."""
        with self._changed:
            self._closed = True
            for _, _, future, _ in self._queue:
                if future.cancel():
                    # who waits for a cancelled future is only told by this
                    future.set_running_or_notify_cancel()
            self._queue.clear()
            self._changed.notify_all()
        for thread in self._threads if wait else ():
            thread.join()

    def _serve(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._closed:
                    self._changed.wait()
                if not self._queue:
                    return
                _, _, future, work = heapq.heappop(self._queue)
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = work()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            del future, work
