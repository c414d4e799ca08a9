"""Where a search stands: the newest state, and the older states that the steps in flight are planned from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gepa_lite.core.events import Deferred, Event, SeedValidated, StepEnded, Validated, Vetoed
from gepa_lite.search.search import Search
from gepa_lite.search.state import RunState


@dataclass(frozen=True, slots=True)
class Trail:
    """The newest state and its past, as far as steps are planned from it.

    Step k is planned from the point after the validation of the seed, and of other starts, where k is below the window, else from the one at which the (k + 1 - window)-th step was committed in its turn or
    deferred. With ``overlap``, and a window of 1, step k is planned from the point before the validation of the child of step k - 1, if it had one. So what a step
    starts from is fixed by the event log and its own index, and a resume plans it as the first session did.

    Attributes:
        window: steps in flight, deferred ones apart.
        state: after all events.
        points: the last ``window`` points, the newest last.
        waiting: the point of each deferred step.
        overlap: whether a step's proposals are made beside the validation before it.
        lead: within a step that has validated its child, the state before that.
    """

    window: int
    state: RunState = field(default_factory=RunState)
    points: tuple[RunState, ...] = ()
    waiting: Mapping[int, RunState] = field(default_factory=dict)
    overlap: bool = False
    lead: RunState | None = None

    def point(self, step: int) -> RunState:
        """What a step is planned from; under the bounds in force now, so that a run with a larger budget goes on as one that had it from the start."""
        seen = self.waiting.get(step)
        if seen is None:
            seen = self.points[max(0, len(self.points) - self.window + step - self.state.next_step)]
        return seen.under(self.state.budget)

    def after(self, event: Event) -> Trail:
        """The trail with one more event."""
        state, waiting, points, lead = self.state.apply(event), self.waiting, self.points, self.lead
        if self.overlap and isinstance(event, Validated) and event.step >= 0:
            lead = stand_in(self.state, event.step, event.parents, event.texts)
        if isinstance(event, Deferred):
            waiting = {**waiting, event.step: self.point(event.step)}
        elif isinstance(event, StepEnded) and event.step in waiting:
            waiting = {step: seen for step, seen in waiting.items() if step != event.step}
        if isinstance(event, SeedValidated) or state.next_step > self.state.next_step:
            points = (*points, lead or state)[-self.window :]
            lead = None
        elif isinstance(event, (Validated, Vetoed)) and event.step < 0:
            # another start: the search begins once all of them are known
            points = (state,)
        return Trail(self.window, state, points, waiting, self.overlap, lead)


def stand_in(state: RunState, step: int, parents: tuple[int, ...], texts: Mapping[str, str]) -> RunState:
    """The state with a child whose validation is not known yet: it is in the pool without a value, and ``plan_step`` makes it the parent."""
    assert state.started is not None
    return state.apply(Validated(step, parents, texts, (None,) * len(state.started.validation_ids)))


def follow(events: Iterable[Event], search: Search) -> Trail:
    """The trail of a log under the rules of a search."""
    trail = Trail(search.window, overlap=search.overlaps)
    for event in events:
        trail = trail.after(event)
    return trail
