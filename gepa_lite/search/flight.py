"""The steps in flight: which is started, which is committed next, and which is deferred."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gepa_lite.core.events import Deferred, Merged, Stopped
from gepa_lite.errors import BudgetSpentError
from gepa_lite.search.charges import Uncharged
from gepa_lite.search.merge import MergePlan
from gepa_lite.search.plan import StepPlan, plan_step
from gepa_lite.search.ports import Ports, Running
from gepa_lite.search.search import Search
from gepa_lite.search.state import RunState
from gepa_lite.search.stop import no_room, why_stop
from gepa_lite.search.trail import Trail

TakeStep = Callable[[StepPlan, RunState], list[Uncharged]]


class Flight:
    """Steps that are started and not committed yet: ``Search.window`` of them, and as many deferred ones at most.

    It keeps nothing that the log does not fix: a flight that is filled anew from a trail, as a resume does, holds the same steps, planned alike.

    Args:
        search: the rules.
        ports: start the steps.
        take: a step's straight line.
    """

    def __init__(self, search: Search, ports: Ports, take: TakeStep) -> None:
        self._search, self._ports, self._take = search, ports, take
        self._steps: dict[int, tuple[StepPlan, Running[list[Uncharged]]]] = {}
        self._ending: Stopped | None = None

    @property
    def ending(self) -> Stopped:
        """Why no step is started any more; known as soon as there is none in flight."""
        assert self._ending is not None
        return self._ending

    def fill(self, trail: Trail) -> None:
        """Start what may be started: deferred steps that an earlier session left, then the next ones in turn.

        Where the budget has no room for one more step beside those in flight at their worst, it waits until some of them are committed and have taken less.
        """
        state = trail.state
        for step in sorted(step for step, _ in state.deferred):
            if step not in self._steps and not self._start(trail, step):
                return
        while (ahead := self._in_turn(state)) < self._search.window:
            if not self._start(trail, state.next_step + ahead):
                return

    def first(self, state: RunState) -> int | None:
        """The step that is committed next; None where none is in flight."""
        behind = {step: (after, 1 + place) for place, (step, after) in enumerate(state.deferred)}
        return min(self._steps, key=lambda step: behind.get(step, (step, 0)), default=None)

    def is_stalled(self, step: int, state: RunState) -> bool:
        """Whether a step is to be deferred: it does not end within ``Search.patience``, and others could go on meanwhile."""
        if self._search.patience is None or self._ending is not None:
            return False
        deferred = {step for step, _ in state.deferred}
        if len(self._steps) == 1 if step in deferred else len(deferred) >= self._search.window:
            return False
        return not self._steps[step][1].ends_within(self._search.patience)

    def deferral(self, step: int, state: RunState) -> Deferred:
        """The event: the step is committed after all that are in flight, and after the one that takes its place in the window."""
        return Deferred(step, max(state.next_step, step + 1) + self._search.window - 1)

    def land(self, step: int) -> list[Uncharged]:
        """The outcome of a step, which is in flight no more.

        Raises:
            RunError: the run can't go on.
        """
        return self._steps.pop(step)[1].result()

    def end(self, why: Stopped) -> None:
        """Start nothing more, and wait for what is in flight; its outcome is dropped."""
        self._ending = why
        while self._steps:
            _, (_, running) = self._steps.popitem()
            try:
                running.result()
            except BudgetSpentError:
                continue

    def _in_turn(self, state: RunState) -> int:
        return len(self._steps.keys() - {step for step, _ in state.deferred})

    def _start(self, trail: Trail, step: int) -> bool:
        """Plan a step and start it, unless the search ends or has to wait."""
        if self._ending is not None:
            return False
        seen, search = trail.point(step), self._search
        plan = plan_step(seen, search, self._ports.models, step, self._merges_beside(seen, trail.state, step))
        around = self._ports.surroundings()
        self._ending = why_stop(seen, search, around)
        if self._ending is None:
            full = no_room(trail.state, [*(other for other, _ in self._steps.values()), plan], search, around)
            if full is not None:
                self._ending = None if self._steps else full
                return False
            self._steps[step] = plan, self._ports.start(partial(self._take, plan, seen))
        return self._ending is None

    def _merges_beside(self, seen: RunState, state: RunState, step: int) -> list[MergePlan | Merged]:
        """Merges by steps before this one that its point does not hold yet: what they try is fixed, only their outcome is not."""
        committed = [merge for merge in state.merges[len(seen.merges) :] if merge.step < step]
        return [*committed, *(plan.merge for plan, _ in self._steps.values() if plan.merge is not None and plan.step < step)]
