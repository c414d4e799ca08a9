"""The event loop that all async forwards of a process share, since global async clients bind to a loop; and which coroutine keeps it from going on."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import threading
import weakref
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from gepa_lite.errors import ModelTimeoutError

T = TypeVar("T")

_ANSWERS_IN = 1.0
"""Seconds within which a loop that goes on runs what it is given."""


@dataclass(frozen=True, slots=True)
class Holder:
    """What keeps the loop from going on: the coroutine of this context; None where that can't be told."""

    context: contextvars.Context | None


class _Loop:
    """One loop in a thread of its own, and who waits for it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.waiting: dict[concurrent.futures.Future[Any], contextvars.Context] = {}
        self._contexts: weakref.WeakKeyDictionary[asyncio.Future[Any], contextvars.Context] = weakref.WeakKeyDictionary()
        self.loop.set_task_factory(self._task)
        threading.Thread(target=self.loop.run_forever, name="gepa-lite-async", daemon=True).start()

    def holder(self) -> Holder | None:
        """What it is at, if it does not go on."""
        answered = threading.Event()
        self.loop.call_soon_threadsafe(answered.set)
        if answered.wait(_ANSWERS_IN):
            return None
        task = asyncio.current_task(self.loop)
        return Holder(None if task is None else self._contexts.get(task))

    def end(self) -> None:
        """Should it ever go on, it ends what is left and stops."""

        def stop() -> None:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            # after the cancelled ones have had their turn
            self.loop.call_soon(self.loop.call_soon, self.loop.stop)

        self.loop.call_soon_threadsafe(stop)

    def _task(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        context = options.pop("context", None) or contextvars.copy_context()
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, context=context, **options)
        self._contexts[task] = context
        return task


_lock = threading.Lock()
_current: list[_Loop] = []


def is_shared(loop: asyncio.AbstractEventLoop | None) -> bool:
    """Whether a loop is the shared one."""
    with _lock:
        return bool(_current) and _current[0].loop is loop


def run_there(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to completion on the shared loop, in the caller's context.

    Raises:
        ModelTimeoutError: another coroutine blocked the loop, and the loop was left.
    """
    context = contextvars.copy_context()
    done: concurrent.futures.Future[T] = concurrent.futures.Future()

    def start() -> None:
        task = shared.loop.create_task(coroutine, context=context)
        task.add_done_callback(finish)

    def finish(task: asyncio.Task[T]) -> None:
        # who waited on a loop that was left has an outcome already
        with contextlib.suppress(concurrent.futures.InvalidStateError):
            if task.cancelled():
                done.cancel()
            elif (error := task.exception()) is not None:
                done.set_exception(error)
            else:
                done.set_result(task.result())

    with _lock:
        if not _current:
            _current.append(_Loop())
        shared = _current[0]
        shared.waiting[done] = context
    try:
        shared.loop.call_soon_threadsafe(start)
        return done.result()
    finally:
        with _lock:
            del shared.waiting[done]


def held_up(mine: Callable[[contextvars.Context], bool]) -> Holder | None:
    """What keeps the shared loop from going on, where someone waits for it; None where none of these waits there, or it goes on. It takes up to a second.

    Args:
        mine: tells who is meant from a context.
    """
    with _lock:
        shared = _current[0] if _current else None
        waits = shared is not None and any(map(mine, shared.waiting.values()))
    return shared.holder() if shared is not None and waits else None


def leave_loop(mine: Callable[[contextvars.Context], bool]) -> list[contextvars.Context]:
    """Leave the shared loop to the coroutine that blocks it: what comes next gets a new one, and who else waits is told so.

    Args:
        mine: tells the coroutine that blocks it from the others; its caller waits on.

    Returns:
        The contexts of the others.
    """
    with _lock:
        left = _current.pop() if _current else None
        others = {} if left is None else {done: context for done, context in left.waiting.items() if not mine(context)}
    for done in others:
        with contextlib.suppress(concurrent.futures.InvalidStateError):
            done.set_exception(ModelTimeoutError(BLOCKED))
    if left is not None:
        left.end()
    return list(others.values())


BLOCKED = "another rollout's coroutine blocks the event loop that all share: await what it waits for, or run it by asyncio.to_thread"
"""What is said of a rollout that waited for a blocked loop."""
