"""The one bridge from worker threads to coroutines.

All async forwards of a process share one event loop in a thread of its own, since global async clients bind to a loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")

_starting = threading.Lock()


@cache
def _new_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="gepa-lite-async", daemon=True).start()
    return loop


def _shared_loop() -> asyncio.AbstractEventLoop:
    # cache alone could start two loops when two threads come first at once
    with _starting:
        return _new_loop()


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to completion on the shared loop, in the caller's context, and return its result.

    Works in any thread, also where another event loop runs; never call it from the shared loop itself.
    """
    loop = _shared_loop()
    context = contextvars.copy_context()
    done: concurrent.futures.Future[T] = concurrent.futures.Future()

    def start() -> None:
        task = loop.create_task(coroutine, context=context)
        task.add_done_callback(finish)

    def finish(task: asyncio.Task[T]) -> None:
        if task.cancelled():
            done.cancel()
        elif (error := task.exception()) is not None:
            done.set_exception(error)
        else:
            done.set_result(task.result())

    loop.call_soon_threadsafe(start)
    return done.result()
