"""Stop files as a session sees them: one that lies there from an earlier run stops nothing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


class StopFiles:
    """The files that end a search when they are made or touched while it runs.

    A file that is there when the session starts is left over, and ignored until it is touched again: it would end a new run before its first step.

    Args:
        paths: that the stop rules name.

    Attributes:
        left_over: those that were there at the start, in order.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._before = {path: _touched(path) for path in sorted(paths)}
        self.left_over = tuple(path for path, touched in self._before.items() if touched is not None)

    def now(self) -> frozenset[str]:
        """The paths of those that are there, and were not left over."""
        found = {path: _touched(path) for path in self._before}
        return frozenset(path for path, touched in found.items() if touched is not None and touched != self._before[path])


def _touched(path: str) -> int | None:
    """When a file was last changed, in nanoseconds; None where there is none."""
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return None
