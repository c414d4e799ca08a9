"""Threads for steps and proposals, which mostly wait. They are daemons: a second Ctrl-C ends the process without waiting for calls in flight."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeVar

from gepa_lite.errors import RunError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Started(Generic[T]):
    """A task on a thread of its own; see ``search.ports.Running``."""

    future: Future[T]

    def ends_within(self, seconds: float) -> bool:
        """Wait so long at most; whether it has ended."""
        try:
            self.future.exception(timeout=seconds)
        except TimeoutError:
            return False
        return True

    def result(self) -> T:
        """Wait for its result, or raise its exception."""
        return self.future.result()


class DaemonThreads:
    """Runs each task on a new daemon thread. A pool of ``concurrent.futures`` would be joined at the interpreter's exit, however long its tasks take.

    Args:
        name: of the threads.

    Example:
        >>> threads = DaemonThreads("example")
        >>> threads.start(lambda: 6 * 7).result()
        42
        >>> threads.close()
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._running: set[threading.Thread] = set()
        self._closed = False

    def start(self, task: Callable[[], T]) -> Started[T]:
        """Run a task.

        Raises:
            RunError: the threads are closed.
        """
        future: Future[T] = Future()

        def run() -> None:
            try:
                result = task()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            finally:
                with self._lock:
                    self._running.discard(threading.current_thread())

        thread = threading.Thread(target=run, name=self._name, daemon=True)
        with self._lock:
            if self._closed:
                raise RunError("the run is ending: no new step is taken")
            self._running.add(thread)
        thread.start()
        return Started(future)

    def close(self, wait: bool = True) -> None:
        """Take no more tasks, and wait for those that run unless told not to."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for thread in running if wait else ():
            thread.join()
