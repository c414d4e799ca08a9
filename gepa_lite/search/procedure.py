"""Another way to search than ours, within the same run: its rollouts, reflections, budget, record, verdict and resume are those of ``search_loop``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gepa_lite.search.loop import Course
from gepa_lite.search.state import RunState


class Procedure(Protocol):
    """Takes the place of ``search_loop``. It commits its candidates as events and ends with ``Stopped``."""

    def settings(self) -> Mapping[str, Any]:
        """What fixes its course, its name first, as JSON types: part of the run's settings."""
        ...

    def __call__(self, history: Sequence[RunState], course: Course) -> RunState:
        """Search from the newest state.

        Raises:
            RunError: the run can't go on; every committed event and paid rollout is kept.
        """
        ...
