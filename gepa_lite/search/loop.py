"""The search. Read ``search_loop`` here and ``draft_step`` in ``step.py`` from top to bottom: this is the whole algorithm (papers: GEPA §2, algorithm 1).

Every decision is an event; the state is a fold over events; the loop itself remembers nothing but the steps in flight. A step: choose a parent and a module, run the
minibatch, reflect, check the new text, run the child on the same minibatch, accept or reject, validate. Or: merge two candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from gepa_lite.core.events import BudgetChanged, Event, StepEnded, Stopped
from gepa_lite.errors import BudgetSpentError, ModelsDownError
from gepa_lite.search.charges import Uncharged, charged
from gepa_lite.search.flight import Flight
from gepa_lite.search.plan import StepPlan, plan_step
from gepa_lite.search.ports import Ports, Running
from gepa_lite.search.race import race
from gepa_lite.search.state import RunState
from gepa_lite.search.step import Child, Course, Draft, draft_step, left_out, proposals_of, take_step, validated
from gepa_lite.search.stop import no_room, why_stop
from gepa_lite.search.trail import Trail, stand_in
from gepa_lite.search.validate import validate_seed

VOID_IN_A_ROW = 5
"""Proposals in a row lost to outages that end the session with an error; a resume goes on from there."""


def search_loop(trail: Trail, course: Course) -> RunState:
    """Search from where a trail stands until a stop rule says why to end.

    Every step is planned from a state that its index and the log fix (``Trail.point``), and steps commit in their order, so the log depends on the models' answers and the seed, never
    on timing. With a window of 1 and without ``Search.overlap`` this is the paper's loop.

    Args:
        trail: after ``RunStarted`` at least.
        course: rules, facts and ports.

    Returns:
        The state with ``stopped`` set.

    Raises:
        RunError: the run can't go on; every committed event and paid rollout is kept.
    """
    search, ports = course.search, course.ports
    if not trail.state.seed_validated:
        trail = commit(trail, validate_seed(trail.state, search, ports), ports)
    if trail.state.stopped is None and not trail.state.rotation:
        return commit(trail, [Stopped("no_modules", "no module ran in the seed's validation: there is no prompt to improve")], ports).state
    while trail.state.stopped is None and trail.state.waiting_starts:
        for outcome in race(trail.state, search, ports):
            trail = commit(trail, [outcome], ports, search.repeats)
    return take_turns(trail, course) if search.overlaps else take_window(trail, course)


def take_turns(trail: Trail, course: Course) -> RunState:
    """One step after the other, each step's proposals beside the validation of the child before it, which is their parent (``Search.overlap``)."""
    search, ports = course.search, course.ports
    ahead: Running[Draft] | None = None
    while trail.state.stopped is None:
        step, planned_ahead = trail.state.next_step, ahead is not None
        try:
            if ahead is None:
                started = start_draft(course, step, trail.point(step), trail.state)
                if isinstance(started, Stopped):
                    trail = commit(trail, [started], ports)
                    continue
                ahead = started
            draft, ahead = ahead.result(), None
            outcome = draft.made
            ended = planned_ahead and why_stop(trail.state, search, ports.surroundings()) is not None
            if draft.child is not None and draft.child.holds and ended:
                # by the outcome of the step before, while the proposals were made
                outcome = [*outcome, *left_out(draft, draft.child, trail.state)]
            elif draft.child is not None:
                lead = _lead(trail, draft, draft.child, search.repeats)
                # a vetoed child joins no pool, so it can't stand in for anybody
                if draft.child.holds:
                    started = start_draft(course, step + 1, lead, lead, _validation_alone(draft.plan, lead, search.repeats))
                    # where it does not start now, it is asked for again once the validation has taken less than its worst
                    ahead = None if isinstance(started, Stopped) else started
                outcome = [*outcome, *validated(course, draft, trail.state)]
        except BudgetSpentError as error:
            # what the step ahead paid is on disk, and a resume finds it there
            _drop(ahead)
            ahead, trail = None, commit(trail, [Stopped("budget", str(error))], ports)
            continue
        trail = commit(trail, [*outcome, StepEnded(step)], ports, search.repeats)
        check_outage(trail.state, outcome)
        trail = rebudget(trail, ports)
    return trail.state


def start_draft(course: Course, step: int, seen: RunState, newest: RunState, *beside: StepPlan) -> Running[Draft] | Stopped:
    """Start a step's proposals, unless the search ends or has no room for them now: then why.

    Args:
        course: of the run.
        step: its index.
        seen: the step's point on the trail.
        newest: what is spent so far.
        beside: what is in flight already.
    """
    search, ports = course.search, course.ports
    plan = plan_step(seen, search, ports.models, step)
    around = ports.surroundings()
    why = why_stop(seen, search, around) or no_room(newest, [*beside, plan], search, around)
    return why or ports.start(partial(draft_step, course, plan, seen))


def _lead(trail: Trail, draft: Draft, child: Child, repeats: int) -> RunState:
    """The state that the next step is planned from: after the draft's proposals, with the child in the pool, still without a value."""
    for item in draft.made:
        trail = trail.after(charged(item, trail.state, repeats))
    return stand_in(trail.state, draft.plan.step, child.parents, child.texts)


def _validation_alone(plan: StepPlan, state: RunState, repeats: int) -> StepPlan:
    assert state.started is not None
    return replace(plan, rollouts=repeats * (len(state.started.validation_ids) + len(state.started.extra_pin_ids)), proposals=0)


def _drop(ahead: Running[Draft] | None) -> None:
    if ahead is not None:
        try:
            ahead.result()
        except BudgetSpentError:
            return


def take_window(trail: Trail, course: Course) -> RunState:
    """Up to ``Search.window`` whole steps in flight, committed in their order; a step that stalls may be deferred, by an event."""
    search, ports = course.search, course.ports
    flight = Flight(search, ports, partial(take_step, course))
    while trail.state.stopped is None:
        flight.fill(trail)
        step = flight.first(trail.state)
        if step is None:
            trail = commit(trail, [flight.ending], ports)
        elif flight.is_stalled(step, trail.state):
            trail = commit(trail, [flight.deferral(step, trail.state)], ports)
        else:
            try:
                outcome = flight.land(step)
            except BudgetSpentError as error:
                # what the others paid is on disk, and a resume finds it there
                flight.end(Stopped("budget", str(error)))
                continue
            trail = commit(trail, [*outcome, StepEnded(step)], ports, search.repeats)
            check_outage(trail.state, outcome)
            trail = rebudget(trail, ports)
    return trail.state


def rebudget(trail: Trail, ports: Ports) -> Trail:
    """The trail under the bounds that a person has asked for meanwhile."""
    budget = ports.surroundings().budget
    return trail if budget is None or budget == trail.state.budget else commit(trail, [BudgetChanged(budget)], ports)


def commit(trail: Trail, events: Sequence[Event | Uncharged], ports: Ports, repeats: int = 1) -> Trail:
    """Charge events for what no event before them was charged for, fold them into the state, and make them durable together."""
    made: list[Event] = []
    for item in events:
        made.append(charged(item, trail.state, repeats) if isinstance(item, Uncharged) else item)
        trail = trail.after(made[-1])
    ports.commit(made, trail.state)
    return trail


def check_outage(state: RunState, made: Sequence[Uncharged]) -> None:
    """End the session when proposals keep getting lost to outages."""
    lost = [proposal for proposal in proposals_of(made) if proposal.status == "void"]
    if lost and state.void_row // VOID_IN_A_ROW > max(0, state.void_row - len(lost)) // VOID_IN_A_ROW:
        raise ModelsDownError(
            f"the last {state.void_row} proposals were lost to outages (last: {lost[-1].reason}). What was paid is kept; resume when they have passed."
        )
