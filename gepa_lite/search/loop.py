"""The search. Read ``search_loop`` and ``take_step`` from top to bottom: this is the whole algorithm (papers: GEPA §2, algorithm 1).

Every decision is an event; the state is a fold over events; the loop itself remembers nothing but the steps in flight. A step: choose a parent and a module, run the
minibatch, reflect, check the new text, run the child on the same minibatch, accept or reject, validate. Or: merge two candidates.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from gepa_lite.core.events import BudgetChanged, Event, Proposed, StepEnded, Stopped, Unjoined
from gepa_lite.errors import BudgetSpentError, ModelsDownError
from gepa_lite.search.merge import MergePlan, merge_event
from gepa_lite.search.plan import StepPlan, plan_step
from gepa_lite.search.ports import Ports, ProgramFacts
from gepa_lite.search.propose import MINIBATCH_FIRST, take_slot
from gepa_lite.search.search import Search
from gepa_lite.search.state import RunState
from gepa_lite.search.stop import why_stop
from gepa_lite.search.trial import run_trial
from gepa_lite.search.validate import validate, validate_seed

VOID_IN_A_ROW = 5
"""Proposals in a row lost to outages that end the session with an error; a resume goes on from there."""


@dataclass(frozen=True, slots=True)
class Course:
    """What stays the same over a run: the rules, what the reflection is told, and the way to the world."""

    search: Search
    facts: ProgramFacts
    ports: Ports


def search_loop(history: Sequence[RunState], course: Course) -> RunState:
    """Search from a state until a stop rule says why to end.

    Up to ``Search.window`` steps are in flight. Step k is planned from the state as committed through k - window and commits after step k - 1, so the log depends on the
    models' answers and the seed, never on timing; with a window of 1 this is the paper's loop.

    Args:
        history: the states after ``RunStarted``, after the seed's validation and after each committed step, the newest last; the last ``window`` are enough.
        course: rules, facts and ports.

    Returns:
        The state with ``stopped`` set.

    Raises:
        RunError: the run can't go on; every committed event and paid rollout is kept.
    """
    state, ports, search = history[-1], course.ports, course.search
    history = [replace(seen, budget=state.budget) for seen in history]
    if not state.seed_validated:
        state = commit(state, [validate_seed(state, search, ports)], ports)
        history = [state]
    if state.stopped is None and not state.rotation:
        return commit(state, [Stopped("no_modules", "no module ran in the seed's validation: there is no prompt to improve")], ports)
    flight: deque[tuple[StepPlan, Callable[[], list[Event]]]] = deque()
    stop: Stopped | None = None
    # on a resume, the steps that were in flight are planned again from the states they were planned from
    for seen in [history[max(0, len(history) - search.window + ahead)] for ahead in range(search.window)]:
        stop = stop or _launch(flight, state.next_step, seen, course)
    while state.stopped is None:
        if not flight:
            assert stop is not None
            return commit(state, [stop], ports)
        _, outcome = flight.popleft()
        try:
            events = outcome()
        except BudgetSpentError as error:
            stop = Stopped("budget", str(error))
            _land(flight)
            continue
        state = commit(state, events, ports)
        check_outage(state, events)
        state = _rebudget(state, ports)
        stop = stop or _launch(flight, state.next_step, state, course)
    return state


def _rebudget(state: RunState, ports: Ports) -> RunState:
    """The state under the bounds that a person has asked for meanwhile."""
    budget = ports.surroundings().budget
    return state if budget is None or budget == state.budget else commit(state, [BudgetChanged(budget)], ports)


def _launch(flight: deque[tuple[StepPlan, Callable[[], list[Event]]]], next_step: int, seen: RunState, course: Course) -> Stopped | None:
    """Plan one more step from a committed state and start it, or say why not."""
    search, ports = course.search, course.ports
    plan = plan_step(seen, search, ports.models, next_step + len(flight))
    uncommitted = [other for other, _ in flight if other.step >= seen.next_step]
    stop = why_stop(seen, plan, uncommitted, search, ports.surroundings())
    if stop is None:
        flight.append((plan, ports.start(partial(take_step, plan, seen, course))))
    return stop


def _land(flight: deque[tuple[StepPlan, Callable[[], list[Event]]]]) -> None:
    """Let the steps behind one that ran out of budget end; what they paid is on disk, and a resume finds it there."""
    while flight:
        _, outcome = flight.popleft()
        try:
            outcome()
        except BudgetSpentError:
            continue


def take_step(plan: StepPlan, state: RunState, course: Course) -> list[Event]:
    """One step: a fan of proposals from one parent; the best accepted text of each module joins one child, which alone is validated. Or a merge."""
    if plan.merge is not None:
        return [*take_merge(plan.merge, state, course), StepEnded(plan.step)]
    parent = plan.slots[0].parent
    proposals = course.ports.gather([partial(take_slot, slot, state, course.search, course.facts, course.ports) for slot in plan.slots])
    events: list[Event] = list(proposals)
    texts = best_texts(proposals)
    if len(texts) > 1 and (breach := course.facts.gate.program_breach(parent.candidate.replace(texts).texts)):
        events.append(Unjoined(plan.step, (parent.index,), texts, breach))
        texts = best_text(proposals)
    child = parent.candidate.replace(texts)
    if texts and child.id not in state.seen:
        events.append(validate(child, plan.step, (parent.index,), texts, state, course.search, course.ports))
    return [*events, StepEnded(plan.step)]


def best_texts(proposals: Sequence[Proposed]) -> dict[str, str]:
    """For each module the accepted text with the largest gain on its minibatch; of equal gains the lowest slot."""
    kept: dict[str, tuple[float, str]] = {}
    for proposal in proposals:
        for module, text in proposal.texts.items() if proposal.status == "accepted" else ():
            if module not in kept or proposal.gain > kept[module][0]:
                kept[module] = proposal.gain, text
    return {module: text for module, (_, text) in kept.items()}


def best_text(proposals: Sequence[Proposed]) -> dict[str, str]:
    """The texts of the accepted proposal with the largest gain; of equal gains the lowest slot."""
    accepted = [proposal for proposal in proposals if proposal.status == "accepted"]
    return dict(max(accepted, key=lambda proposal: proposal.gain).texts)


def take_merge(plan: MergePlan, state: RunState, course: Course) -> list[Event]:
    """Try a merged child on a few validation examples; at least as good as the better parent there, it is validated in full (papers: GEPA §1.4)."""
    search, event = course.search, merge_event(plan, state)
    # each text passed where it was proposed; only what they are together is new
    if breach := course.facts.gate.program_breach(plan.child.texts):
        return [replace(event, status="rejected", code="contract", reason=breach)]
    priority = (MINIBATCH_FIRST, plan.step)
    trial = run_trial(course.ports, plan.child, plan.example_ids, repeats=search.repeats, sample=0, priority=priority)
    event = replace(event, after=trial.values, spend=trial.spend())
    if trial.missing:
        return [replace(event, reason=trial.missing)]
    child, better = sum(value for value in trial.values if value is not None), max(sum(row) for row in plan.before)
    words = f"{better:g} to {child:g} on {len(plan.example_ids)} validation examples"
    if child < better:
        return [replace(event, status="rejected", code="not_better", reason=words)]
    validated = validate(plan.child, plan.step, plan.parents, event.texts, state, search, course.ports, plan.example_ids)
    return [replace(event, status="accepted", code="improved", reason=words), validated]


def commit(state: RunState, events: Sequence[Event], ports: Ports) -> RunState:
    """Fold events into the state, and make them durable together."""
    for event in events:
        state = state.apply(event)
    ports.commit(events, state)
    return state


def check_outage(state: RunState, events: Sequence[Event]) -> None:
    """End the session when proposals keep getting lost to outages."""
    lost = [event for event in events if isinstance(event, Proposed) and event.status == "void"]
    if lost and state.void_row // VOID_IN_A_ROW > max(0, state.void_row - len(lost)) // VOID_IN_A_ROW:
        raise ModelsDownError(
            f"the last {state.void_row} proposals were lost to outages (last: {lost[-1].reason}). What was paid is kept; resume when they have passed."
        )
