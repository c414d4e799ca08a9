"""How a local model is served, and defaults that fit the machine."""

from __future__ import annotations

import os
from dataclasses import dataclass

from gepa_lite.errors import UsageError

DEFAULT_SLOTS = 4
DEFAULT_BATCH = 512
DEFAULT_TIMEOUT = 600.0


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """How a local model is served.

    Attributes:
        slots: requests that are worked on at once.
        context: tokens of prompt and reply together that one request may use.
        threads: cores that llama.cpp computes on.
        batch: tokens that it works through in one pass.
        timeout: seconds until a request that has a slot is given up.
    """

    slots: int = DEFAULT_SLOTS
    context: int = 8192
    threads: int = 2
    batch: int = DEFAULT_BATCH
    timeout: float = DEFAULT_TIMEOUT

    def __post_init__(self) -> None:
        for name, least in (("slots", 1), ("context", 256), ("threads", 1), ("batch", 32)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UsageError(f"{name} of a local model must be a whole number of at least {least}, but got {value!r}.")
        if not self.timeout > 0:
            raise UsageError(f"timeout of a local model must be a number of seconds above 0, but got {self.timeout!r}.")


def usable_threads() -> int:
    """A good number of threads for this process: the cores it may use, and from 8 on half of them, since those are mostly hyperthreads."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return int(cores if cores < 8 else max(4, cores // 2))
