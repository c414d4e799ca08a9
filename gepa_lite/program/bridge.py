"""The one bridge between worker threads and coroutines, both ways."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
from collections.abc import Callable, Coroutine
from functools import cache, partial
from typing import Any, ParamSpec, TypeVar

from gepa_lite.program.shared_loop import is_shared, run_there

P = ParamSpec("P")
T = TypeVar("T")

_MOST_WAITING = 1024
"""Threads are made only as calls come; a thread that waits for another's call takes one too."""


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _on_a_loop_of_its_own(coroutine: Coroutine[Any, Any, T]) -> T:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(contextvars.copy_context().run, asyncio.run, coroutine).result()


@cache
def _threads() -> concurrent.futures.ThreadPoolExecutor:
    return concurrent.futures.ThreadPoolExecutor(_MOST_WAITING, thread_name_prefix="gepa-lite-waiting")


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a blocking function in a thread, in this context, and wait for it without holding up the loop.

    Unlike ``asyncio.to_thread``, whose threads are few on a small machine, it lets as many model calls wait at once as there are rollouts to make them.
    """
    call = partial(contextvars.copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_threads(), call)


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to completion on the shared loop, in the caller's context, and return its result.

    Works in any thread, also where another event loop runs. Called from the shared loop itself, e.g. by an async feedback function that calls
    an async program without ``await program.acall(...)``, it blocks that loop and runs the coroutine on a loop of its own.
    """
    if is_shared(_running_loop()):
        return _on_a_loop_of_its_own(coroutine)
    return run_there(coroutine)
