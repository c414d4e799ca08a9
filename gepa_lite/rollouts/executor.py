"""The seam to whatever runs rollouts: threads by default."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from gepa_lite.core.example import Example
from gepa_lite.core.rollout import Rollout, RolloutKey

RunRollout = Callable[[Example, RolloutKey], Rollout]


Keep = Callable[[Rollout], None]


class Executor(Protocol):
    """Runs rollouts at least once each; results are keyed, so a repeat does no harm."""

    def put(self, ref: str, run: RunRollout, keep: Keep) -> str:
        """Make a candidate's program known under its content id, shipped once; returns the ref. ``keep`` is told of each rollout's outcome before its future is, once."""
        ...

    def submit(self, ref: str, example: Example, key: RolloutKey, priority: tuple[int, ...]) -> Future[Rollout]:
        """Queue one rollout; a smaller priority is served first, equal ones in order of arrival."""
        ...

    def close(self, wait: bool = True) -> None:
        """Drop what is queued, and wait for what runs unless told not to."""
        ...
