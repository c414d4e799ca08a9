"""How many rollouts run at once, and in what."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from gepa_lite.errors import UsageError

WorkersSpec = int | str
"""What ``read_workers`` takes."""


@dataclass(frozen=True, slots=True)
class Workers:
    """Rollouts at once, and the engine that runs them.

    Attributes:
        count: rollouts at once, at least 1.
        engine: ``"threads"`` where the work is waiting for models; ``"processes"`` for programs and feedback that compute.
    """

    count: int
    engine: Literal["threads", "processes"] = "threads"


def read_workers(spec: WorkersSpec) -> Workers:
    """The workers that a user means.

    >>> read_workers(16), read_workers("processes:4")
    (Workers(count=16, engine='threads'), Workers(count=4, engine='processes'))

    Args:
        spec: a number of threads; ``"processes"`` (one for each core) or ``"processes:4"``; ``"threads:16"``.

    Raises:
        UsageError: it is none of these.
    """
    if isinstance(spec, int) and not isinstance(spec, bool) and spec >= 1:
        return Workers(spec)
    if isinstance(spec, str):
        engine, _, count = spec.partition(":")
        if engine == "processes" and not count:
            return Workers(os.cpu_count() or 1, "processes")
        if engine in ("threads", "processes") and count.isdecimal() and int(count) >= 1:
            return Workers(int(count), "processes" if engine == "processes" else "threads")
        if spec.isdecimal() and int(spec) >= 1:
            return Workers(int(spec))
    raise UsageError(f"workers={spec!r}: a whole number of at least 1 (threads), 'processes' or 'processes:4' is needed.")
