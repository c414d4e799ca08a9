"""One step, in a straight line: a fan of proposals from one parent whose best accepted texts are joined in one child, or a merge; then the child's validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from gepa_lite.core.candidate import Candidate
from gepa_lite.core.events import Proposed, Unjoined, Validated
from gepa_lite.search.charges import Uncharged
from gepa_lite.search.merge import MergePlan, merge_event
from gepa_lite.search.plan import StepPlan
from gepa_lite.search.ports import Ports, ProgramFacts
from gepa_lite.search.propose import MINIBATCH_FIRST, take_slot
from gepa_lite.search.search import Search
from gepa_lite.search.state import RunState
from gepa_lite.search.trial import Trial, run_trial
from gepa_lite.search.validate import broken_pins, run_pins, validate


@dataclass(frozen=True, slots=True)
class Course:
    """What stays the same over a run: the rules, what the reflection is told, and the way to the world."""

    search: Search
    facts: ProgramFacts
    ports: Ports


@dataclass(frozen=True, slots=True)
class Child:
    """What a step brings to validation.

    Attributes:
        candidate: its texts.
        parents: indices of its parents.
        texts: the modules in which it differs from the first parent.
        pinned: its rollouts on the pins.
        holds: whether it is as good as the seed there.
    """

    candidate: Candidate
    parents: tuple[int, ...]
    texts: Mapping[str, str]
    pinned: Trial
    holds: bool


@dataclass(frozen=True, slots=True)
class Draft:
    """A step before its validation.

    Attributes:
        plan: what it was to do.
        made: its events so far.
        child: what is to be validated, or None.
    """

    plan: StepPlan
    made: list[Uncharged] = field(default_factory=list)
    child: Child | None = None


def take_step(course: Course, plan: StepPlan, state: RunState) -> list[Uncharged]:
    """A whole step, seen from one state."""
    draft = draft_step(course, plan, state)
    return [*draft.made, *validated(course, draft, state)]


def draft_step(course: Course, plan: StepPlan, state: RunState) -> Draft:
    """A step up to its validation: proposals from one parent, at once; the best accepted text of each module joins one child. Or a merge."""
    if plan.merge is not None:
        return draft_merge(course, plan, plan.merge, state)
    parent = plan.slots[0].parent
    made = course.ports.gather([partial(take_slot, slot, state, course.search, course.facts, course.ports) for slot in plan.slots])
    proposals = proposals_of(made)
    texts = best_texts(proposals)
    if len(texts) > 1 and (breach := course.facts.gate.program_breach(parent.candidate.replace(texts).texts)):
        made.append(Uncharged(Unjoined(plan.step, (parent.index,), texts, breach)))
        texts = best_text(proposals)
    candidate = parent.candidate.replace(texts)
    if not texts or candidate.id in state.seen:
        return Draft(plan, made)
    return Draft(plan, made, _child(course, plan, candidate, (parent.index,), texts, state))


def draft_merge(course: Course, plan: StepPlan, merge: MergePlan, state: RunState) -> Draft:
    """Try a merged child on a few validation examples; at least as good as the better parent there, it is validated (papers: GEPA §1.4)."""
    search, event = course.search, merge_event(merge, state)
    # each text passed where it was proposed; only what they are together is new
    if breach := course.facts.gate.program_breach(merge.child.texts):
        return Draft(plan, [Uncharged(replace(event, status="rejected", code="contract", reason=breach))])
    priority = (MINIBATCH_FIRST, plan.step)
    trial = run_trial(course.ports, merge.child, merge.example_ids, repeats=search.repeats, sample=0, priority=priority)
    event = replace(event, after=trial.values)
    if trial.missing:
        return Draft(plan, [Uncharged(replace(event, reason=trial.missing), (trial,))])
    score, better = sum(value for value in trial.values if value is not None), max(sum(row) for row in merge.before)
    words = f"{better:g} to {score:g} on {len(merge.example_ids)} validation examples"
    if score < better:
        return Draft(plan, [Uncharged(replace(event, status="rejected", code="not_better", reason=words), (trial,))])
    made = [Uncharged(replace(event, status="accepted", code="improved", reason=words), (trial,))]
    return Draft(plan, made, _child(course, plan, merge.child, merge.parents, event.texts, state))


def validated(course: Course, draft: Draft, state: RunState) -> list[Uncharged]:
    """The validation of a draft's child, if it has one; a state tells what the child is compared with."""
    child = draft.child
    if child is None:
        return []
    return [validate(child.candidate, draft.plan.step, child.parents, child.texts, state, course.search, course.ports, child.pinned)]


def left_out(draft: Draft, child: Child, state: RunState) -> list[Uncharged]:
    """What remains of a child that is validated no more: nothing, but where it was run on the pins, which is charged."""
    assert state.started is not None
    if not child.pinned.rollouts:
        return []
    unrun = len(state.started.validation_ids)
    return [Uncharged(Validated(draft.plan.step, child.parents, child.texts, (None,) * unrun, unrun=unrun), (child.pinned,))]


def _child(
    course: Course, plan: StepPlan, candidate: Candidate, parents: tuple[int, ...], texts: Mapping[str, str], state: RunState
) -> Child:
    pinned = run_pins(candidate, plan.step, state, course.search, course.ports)
    return Child(candidate, parents, texts, pinned, not broken_pins(state, pinned))


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
