"""What the simple baselines share: one candidate a step, validated in full, until the budget or their own number of steps ends them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from gepa_lite.core.events import ProposalStatus, Proposed, StepEnded, Stopped
from gepa_lite.search.charges import Uncharged
from gepa_lite.search.loop import check_outage, commit, rebudget
from gepa_lite.search.mixing import choose_model
from gepa_lite.search.plan import Slot, StepPlan
from gepa_lite.search.rewrite import rewrite
from gepa_lite.search.search import Search
from gepa_lite.search.state import Member, RunState
from gepa_lite.search.step import Course, proposals_of
from gepa_lite.search.stop import no_room, why_stop
from gepa_lite.search.trail import Trail
from gepa_lite.search.validate import validate, validate_seed

TakeStep = Callable[[RunState, Course, int], Uncharged]
"""Makes the proposal of a step; an accepted one is validated."""


def begin(trail: Trail, course: Course) -> Trail:
    """The trail with the seed validated; stopped where there is no prompt to improve."""
    if not trail.state.seed_validated:
        trail = commit(trail, validate_seed(trail.state, course.search, course.ports), course.ports)
    if trail.state.stopped is None and not trail.state.rotation:
        none = Stopped("no_modules", "no module ran in the seed's validation: there is no prompt to improve")
        return commit(trail, [none], course.ports)
    return trail


def run_steps(trail: Trail, course: Course, take: TakeStep, most: int, extra: int = 0) -> RunState:
    """Take steps until one may not be taken.

    Args:
        trail: where the run stands.
        course: rules, facts and ports.
        take: makes a step's proposal.
        most: steps in all.
        extra: rollouts of a step beside its validation, at most.
    """
    trail = begin(trail, course)
    while (state := trail.state).stopped is None:
        step = state.next_step
        stop = Stopped("rule", f"{most} candidates were made") if step >= most else _why_stop(state, course, step, extra)
        if stop is not None:
            return commit(trail, [stop], course.ports).state
        made = [take(state, course, step)]
        (proposal,) = proposals_of(made)
        parent = state.pool[proposal.parent]
        child = parent.candidate.replace(proposal.texts)
        if proposal.status == "accepted" and child.id not in state.seen:
            made.append(validate(child, step, (parent.index,), proposal.texts, state, course.search, course.ports))
        trail = commit(trail, [*made, StepEnded(step)], course.ports, course.search.repeats)
        check_outage(trail.state, made)
        trail = rebudget(trail, course.ports)
    return trail.state


def rewritten(parent: Member, state: RunState, course: Course, step: int, template: str) -> Proposed:
    """A proposal that rewrites every module of a candidate without looking at any rollout."""
    slot = blank_slot(parent, state, course.search, course.ports.models, step)
    search = replace(course.search, reflection_template=template, proposer="rewrite")
    written = rewrite(slot, slot.rotation, (), state, search, course.facts, course.ports)
    whole = bool(written.texts)
    status: ProposalStatus = "void" if written.void else "accepted" if whole else "rejected"
    code, reason = ("candidate", "to be validated") if whole and not written.void else written.problem
    return Proposed(
        step=step,
        slot=0,
        parent=parent.index,
        modules=slot.rotation,
        example_ids=(),
        before=(),
        status=status,
        code=code,
        reason=reason,
        texts={} if written.void else written.texts,
        model=slot.model,
        spend=written.spend,
        findings=written.findings,
    )


def blank_slot(parent: Member, state: RunState, search: Search, models: Mapping[str, float], step: int) -> Slot:
    """A slot without a minibatch."""
    return Slot(step, 0, parent, state.rotation, (), 0, (), choose_model(state, search, models, step, 0), "rewrite", 0)


def _why_stop(state: RunState, course: Course, step: int, extra: int) -> Stopped | None:
    assert state.started is not None
    rollouts = extra + len(state.started.validation_ids) + len(state.started.extra_pin_ids)
    plan = StepPlan(step, (), None, rollouts * course.search.repeats, len(state.rotation))
    around = course.ports.surroundings()
    return why_stop(state, course.search, around) or no_room(state, [plan], course.search, around)
