"""The search. Read ``search_loop`` and ``take_step`` from top to bottom: this is the whole algorithm (papers: GEPA §2, algorithm 1).

Every decision is an event; the state is a fold over events; the loop itself remembers nothing. A step: choose a parent and a module, run the minibatch, reflect,
check the new text, run the child on the same minibatch, accept or reject, validate.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gepa_lite.core.candidate import Candidate
from gepa_lite.core.events import Event, Proposed, SeedValidated, StepEnded, Stopped, Validated
from gepa_lite.errors import BudgetSpentError, ModelsDownError, UsageError
from gepa_lite.search.plan import StepPlan, plan_step
from gepa_lite.search.ports import Ports, ProgramFacts
from gepa_lite.search.propose import objectives_of, spend_of, take_slot, values_of
from gepa_lite.search.search import Search
from gepa_lite.search.state import RunState
from gepa_lite.search.stop import why_stop

VOID_IN_A_ROW = 5
"""Proposals in a row lost to outages that end the session with an error; a resume goes on from there."""

VALIDATION_LATER = 1
"""Priority of validation rollouts: minibatches, which proposals wait for, go first."""


def search_loop(state: RunState, search: Search, facts: ProgramFacts, ports: Ports) -> RunState:
    """Search from a state until a stop rule says why to end.

    Args:
        state: after ``RunStarted``; after any event of an earlier session where the run is resumed.
        search: the rules.
        facts: what the reflection model is told of the program.
        ports: the way to the world.

    Returns:
        The state with ``stopped`` set.

    Raises:
        RunError: the run can't go on; every committed event and paid rollout is kept.
    """
    if not state.seed_validated:
        state = commit(state, [validate_seed(state, ports)], ports)
    if state.stopped is None and not state.rotation:
        state = commit(state, [Stopped("no_modules", "no module ran in the seed's validation: there is no prompt to improve")], ports)
    while state.stopped is None:
        plan = plan_step(state, search)
        stop = why_stop(state, plan, search, ports.elapsed())
        if stop is None:
            try:
                events = take_step(state, plan, search, facts, ports)
            except BudgetSpentError as error:
                events = [Stopped("budget", str(error))]
        else:
            events = [stop]
        state = commit(state, events, ports)
        check_outage(state, events)
    return state


def take_step(state: RunState, plan: StepPlan, search: Search, facts: ProgramFacts, ports: Ports) -> list[Event]:
    """One step: a fan of proposals from one parent; the best accepted text of each module joins one child, which is validated in full."""
    step, parent = plan.slots[0].step, plan.slots[0].parent
    proposals = ports.gather([partial(take_slot, slot, state, search, facts, ports) for slot in plan.slots])
    events: list[Event] = list(proposals)
    texts = best_texts(proposals)
    child = parent.candidate.replace(texts)
    if texts and child.id not in state.seen:
        assert state.started is not None
        rollouts = ports.evaluate(child, state.started.validation_ids, sample=0, priority=(VALIDATION_LATER, step))
        events.append(Validated(step, (parent.index,), texts, values_of(rollouts), spend_of(rollouts), objectives_of(rollouts)))
    return [*events, StepEnded(step)]


def best_texts(proposals: Sequence[Proposed]) -> dict[str, str]:
    """For each module the accepted text with the largest gain on its minibatch; of equal gains the lowest slot."""
    kept: dict[str, tuple[float, str]] = {}
    for proposal in proposals:
        if proposal.status == "accepted" and proposal.text is not None:
            gain = sum(a - b for a, b in zip(proposal.after, proposal.before, strict=True) if a is not None and b is not None)
            if proposal.module not in kept or gain > kept[proposal.module][0]:
                kept[proposal.module] = gain, proposal.text
    return {module: text for module, (_, text) in kept.items()}


def validate_seed(state: RunState, ports: Ports) -> SeedValidated:
    """Run the seed on the whole validation set.

    Raises:
        RunError: the budget ran out, or a cell is missing: without the seed's scores nothing can be compared.
    """
    assert state.started is not None
    seed = Candidate(state.started.texts)
    try:
        rollouts = ports.evaluate(seed, state.started.validation_ids, sample=0, priority=(VALIDATION_LATER, -1))
    except BudgetSpentError as error:
        raise UsageError(f"the budget can't pay for the seed's validation: {error}. Raise it; what was paid is kept.") from error
    missing = [rollout for rollout in rollouts if rollout.missing]
    if missing:
        assert missing[0].failure is not None
        raise ModelsDownError(
            f"the seed's validation misses {len(missing)} of {len(rollouts)} scores, for reasons outside the program (first: {missing[0].failure.message}). Resume when they have passed."
        )
    ran = {module for rollout in rollouts for module in rollout.trace.modules}
    idle = tuple(module for module in state.started.texts if module not in ran)
    return SeedValidated(values_of(rollouts), idle, spend_of(rollouts), objectives_of(rollouts))


def commit(state: RunState, events: Sequence[Event], ports: Ports) -> RunState:
    """Fold events into the state, and make them durable together."""
    for event in events:
        state = state.apply(event)
    ports.commit(events, state)
    return state


def check_outage(state: RunState, events: Sequence[Event]) -> None:
    """End the session when proposals keep getting lost to outages."""
    lost = [event for event in events if isinstance(event, Proposed) and event.status == "void"]
    if lost and state.void_row and state.void_row % VOID_IN_A_ROW == 0:
        raise ModelsDownError(
            f"the last {state.void_row} proposals were lost to outages (last: {lost[-1].reason}). What was paid is kept; resume when they have passed."
        )
