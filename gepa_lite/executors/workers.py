"""How many rollouts run at once, and in what."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from typing import Literal

from gepa_lite.errors import UsageError

DEFAULT_TIMEOUT = 3600.0
"""Seconds after which a rollout counts as stuck."""


@dataclass(frozen=True, slots=True)
class Workers:
    """Rollouts at once, and the engine that runs them.

    A rollout that takes longer than ``timeout`` is given up, so that a program or a feedback function that hangs does not stop the run for ever. A program's hang is its candidate's failure; where a model call
    was still running, the rollout is missing; a feedback function's hang ends the run, and the example is named. Processes are ended; a thread can't be, so it is left behind, and a run ends when too many are.

    Attributes:
        count: rollouts at once, at least 1.
        engine: ``"threads"`` where the work is waiting for models; ``"processes"`` for programs and feedback that compute.
        timeout: seconds that one rollout may take with its judgement, above 0; None for any time.

    Raises:
        UsageError: a value is out of range.

    Example:
        >>> import gepa_lite as gl
        >>> str(gl.Workers(8, "processes", timeout=120))
        'processes:8,timeout:120'
    """

    count: int
    engine: Literal["threads", "processes"] = "threads"
    timeout: float | None = DEFAULT_TIMEOUT

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1:
            raise UsageError(f"count={self.count!r} of the workers: a whole number of at least 1 is needed.")
        if self.engine not in ("threads", "processes"):
            raise UsageError(f"engine={self.engine!r} of the workers: 'threads' or 'processes' is needed.")
        number = isinstance(self.timeout, int | float) and not isinstance(self.timeout, bool)
        if self.timeout is not None and not (number and 0 < self.timeout < math.inf):
            raise UsageError(f"timeout={self.timeout!r} of the workers: seconds above 0 are needed, or None for any time.")

    def __str__(self) -> str:
        words = f"{self.engine}:{self.count}"
        if self.timeout == DEFAULT_TIMEOUT:
            return words
        return f"{words},timeout:{'none' if self.timeout is None else f'{self.timeout:g}'}"


WorkersSpec = int | str | Workers
"""What ``read_workers`` takes."""


def read_workers(spec: WorkersSpec) -> Workers:
    """The workers that a user means.

    >>> read_workers(16), read_workers("processes:4,timeout:60")
    (Workers(count=16, engine='threads', timeout=3600.0), Workers(count=4, engine='processes', timeout=60.0))

    Args:
        spec: ``Workers``; a number of threads; ``"processes"`` (one for each core) or ``"processes:4"``; ``"threads:16"``; each text with ``",timeout:60"`` after it where a rollout may take 60
            seconds, or ``",timeout:none"``.

    Raises:
        UsageError: it is none of these.
    """
    if isinstance(spec, Workers):
        return spec
    if isinstance(spec, int) and not isinstance(spec, bool) and spec >= 1:
        return Workers(spec)
    if isinstance(spec, str) and (found := _FORM.fullmatch(spec)) is not None:
        engine: Literal["threads", "processes"] = "processes" if found["engine"] == "processes" else "threads"
        count = int(found["count"] or found["threads"] or os.cpu_count() or 1)
        if count:
            timeout = found["timeout"]
            return Workers(count, engine, DEFAULT_TIMEOUT if timeout is None else None if timeout == "none" else float(timeout))
    raise UsageError(
        f"workers={spec!r}: a whole number of at least 1 (threads), 'processes' or 'processes:4' is needed, with ',timeout:60' where a rollout may take 60 s."
    )


_FORM = re.compile(
    r"(?:(?:threads:)?(?P<threads>\d+)|(?P<engine>processes)(?::(?P<count>\d+))?)(?:,timeout:(?P<timeout>none|\d+(?:\.\d+)?))?", re.ASCII
)
