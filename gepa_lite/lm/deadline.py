"""A bound on how long a blocking call may take."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class DeadlineError(Exception):
    """A call took longer than it was given."""


def within(seconds: float, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function that can't be interrupted and wait for it so long at most; after that it ends on its own, and what it returns is dropped.

    It runs in this call's context, in a daemon thread of its own, so that one that never ends keeps no process alive.

    >>> within(5.0, sorted, [2, 1])
    [1, 2]

    Raises:
        DeadlineError: it took longer; what the function itself raises passes through.
    """
    done: Future[R] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            done.set_result(context.run(function, *args, **kwargs))
        except BaseException as error:  # handed to the caller
            done.set_exception(error)

    threading.Thread(target=run, name="gepa-lite-call", daemon=True).start()
    if not wait([done], timeout=seconds).done:
        raise DeadlineError(f"no result within {seconds:g} seconds")
    return done.result()
