"""Where a search stands: the newest state, and the older states that the steps in flight are planned from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gepa_lite.core.events import Deferred, Event, SeedValidated, StepEnded
from gepa_lite.search.state import RunState


@dataclass(frozen=True, slots=True)
class Trail:
    """The newest state and its past, as far as steps are planned from it.

    Step k is planned from the point after the seed's validation where k is below the window, else from the one at which the (k + 1 - window)-th step was committed in its turn or
    deferred. So what a step starts from is fixed by the event log and its own index, and a resume plans it as the first session did.

    Attributes:
        window: steps in flight, deferred ones apart.
        state: after all events.
        points: the last ``window`` points, the newest last.
        waiting: the point of each deferred step.
    """

    window: int
    state: RunState = field(default_factory=RunState)
    points: tuple[RunState, ...] = ()
    waiting: Mapping[int, RunState] = field(default_factory=dict)

    def point(self, step: int) -> RunState:
        """What a step is planned from; under the bounds in force now, so that a run with a larger budget goes on as one that had it from the start."""
        seen = self.waiting.get(step)
        if seen is None:
            seen = self.points[max(0, len(self.points) - self.window + step - self.state.next_step)]
        return seen.under(self.state.budget)

    def after(self, event: Event) -> Trail:
        """The trail with one more event."""
        state, waiting, points = self.state.apply(event), self.waiting, self.points
        if isinstance(event, Deferred):
            waiting = {**waiting, event.step: self.point(event.step)}
        elif isinstance(event, StepEnded) and event.step in waiting:
            waiting = {step: seen for step, seen in waiting.items() if step != event.step}
        if isinstance(event, SeedValidated) or state.next_step > self.state.next_step:
            points = (*points, state)[-self.window :]
        return Trail(self.window, state, points, waiting)


def follow(events: Iterable[Event], window: int) -> Trail:
    """The trail of a log."""
    trail = Trail(window)
    for event in events:
        trail = trail.after(event)
    return trail
