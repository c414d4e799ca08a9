"""Another way to search than ours, within the same run: its rollouts, reflections, budget, record, verdict and resume are those of ``search_loop``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from gepa_lite.search.state import RunState
from gepa_lite.search.step import Course
from gepa_lite.search.trail import Trail


class Procedure(Protocol):
    """Takes the place of ``search_loop``. It commits its candidates as events and ends with ``Stopped``."""

    def settings(self) -> Mapping[str, Any]:
        """What fixes its course, its name first, as JSON types: part of the run's settings."""
        ...

    def __call__(self, trail: Trail, course: Course) -> RunState:
        """Search from where a trail stands.

        Raises:
            RunError: the run can't go on; every committed event and paid rollout is kept.
        """
        ...
