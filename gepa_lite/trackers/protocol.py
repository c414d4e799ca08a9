"""What a tracker is: the seam between a run's events and somebody else's tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from gepa_lite.core.events import Event
from gepa_lite.core.rollout import Rollout


@dataclass(frozen=True, slots=True)
class Tracked:
    """The run that is tracked.

    Attributes:
        name: of its folder.
        key: the same in each session of the run, and in no other run.
        params: settings that fix its course, flat, as texts and numbers.
        resumed: whether it had begun before this session.
    """

    name: str
    key: str
    params: Mapping[str, Any]
    resumed: bool = False


class Tracker(Protocol):
    """Called from one thread of its own, in order. It may raise: the run then goes on without it."""

    @property
    def name(self) -> str:
        """As notices name it."""
        ...

    def begin(self, run: Tracked) -> None:
        """The session begins."""
        ...

    def event(self, event: Event) -> None:
        """An event was committed."""
        ...

    def rollout(self, rollout: Rollout, ended: int) -> None:
        """A rollout was run, not read from disk; ``ended`` is in nanoseconds since 1970."""
        ...

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Figures after a step, or at the end."""
        ...

    def text(self, name: str, text: str) -> None:
        """A text to keep, such as the best prompts so far."""
        ...

    def end(self, reason: str) -> None:
        """The session is over; ``reason`` is why the search ended, or "" where it did not."""
        ...
