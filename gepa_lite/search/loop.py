"""The search. Read ``search_loop`` and ``take_step`` from top to bottom: this is the whole algorithm (papers: GEPA §2, algorithm 1).

Every decision is an event; the state is a fold over events; the loop itself remembers nothing but the steps in flight. A step: choose a parent and a module, run the
minibatch, reflect, check the new text, run the child on the same minibatch, accept or reject, validate. Or: merge two candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from gepa_lite.core.events import BudgetChanged, Event, Proposed, StepEnded, Stopped, Unjoined
from gepa_lite.errors import BudgetSpentError, ModelsDownError
from gepa_lite.search.charges import Uncharged, charged
from gepa_lite.search.flight import Flight
from gepa_lite.search.merge import MergePlan, merge_event
from gepa_lite.search.plan import StepPlan
from gepa_lite.search.ports import Ports, ProgramFacts
from gepa_lite.search.propose import MINIBATCH_FIRST, take_slot
from gepa_lite.search.search import Search
from gepa_lite.search.state import RunState
from gepa_lite.search.trail import Trail
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


def search_loop(trail: Trail, course: Course) -> RunState:
    """Search from where a trail stands until a stop rule says why to end.

    Up to ``Search.window`` steps are in flight. Each is planned from a state that its index and the log fix (``Trail.point``), and they commit in their order, so the log depends on the
    models' answers and the seed, never on timing; with a window of 1 this is the paper's loop. A step that stalls may be deferred, by an event.

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
        trail = commit(trail, [validate_seed(trail.state, search, ports)], ports)
    if trail.state.stopped is None and not trail.state.rotation:
        return commit(trail, [Stopped("no_modules", "no module ran in the seed's validation: there is no prompt to improve")], ports).state
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


def take_step(course: Course, plan: StepPlan, state: RunState) -> list[Uncharged]:
    """One step: a fan of proposals from one parent; the best accepted text of each module joins one child, which alone is validated. Or a merge."""
    if plan.merge is not None:
        return take_merge(plan.merge, state, course)
    parent = plan.slots[0].parent
    made = course.ports.gather([partial(take_slot, slot, state, course.search, course.facts, course.ports) for slot in plan.slots])
    proposals = proposals_of(made)
    texts = best_texts(proposals)
    if len(texts) > 1 and (breach := course.facts.gate.program_breach(parent.candidate.replace(texts).texts)):
        made.append(Uncharged(Unjoined(plan.step, (parent.index,), texts, breach)))
        texts = best_text(proposals)
    child = parent.candidate.replace(texts)
    if texts and child.id not in state.seen:
        made.append(validate(child, plan.step, (parent.index,), texts, state, course.search, course.ports))
    return made


def proposals_of(made: Sequence[Uncharged]) -> list[Proposed]:
    """The proposals among a step's events."""
    return [item.event for item in made if isinstance(item.event, Proposed)]


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


def take_merge(plan: MergePlan, state: RunState, course: Course) -> list[Uncharged]:
    """Try a merged child on a few validation examples; at least as good as the better parent there, it is validated in full (papers: GEPA §1.4)."""
    search, event = course.search, merge_event(plan, state)
    # each text passed where it was proposed; only what they are together is new
    if breach := course.facts.gate.program_breach(plan.child.texts):
        return [Uncharged(replace(event, status="rejected", code="contract", reason=breach))]
    priority = (MINIBATCH_FIRST, plan.step)
    trial = run_trial(course.ports, plan.child, plan.example_ids, repeats=search.repeats, sample=0, priority=priority)
    event = replace(event, after=trial.values)
    if trial.missing:
        return [Uncharged(replace(event, reason=trial.missing), (trial,))]
    child, better = sum(value for value in trial.values if value is not None), max(sum(row) for row in plan.before)
    words = f"{better:g} to {child:g} on {len(plan.example_ids)} validation examples"
    if child < better:
        return [Uncharged(replace(event, status="rejected", code="not_better", reason=words), (trial,))]
    validated = validate(plan.child, plan.step, plan.parents, event.texts, state, search, course.ports)
    return [Uncharged(replace(event, status="accepted", code="improved", reason=words), (trial,)), validated]


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
