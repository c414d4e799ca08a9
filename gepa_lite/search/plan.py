"""The next step, decided from committed state alone: merge or fan, parent, modules, minibatches, models, and what it may cost at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gepa_lite.core.events import Merged
from gepa_lite.core.seeds import stream
from gepa_lite.search.fans import fan_at, proposals_before
from gepa_lite.search.frontier import front_of
from gepa_lite.search.merge import MergePlan, plan_merge
from gepa_lite.search.minibatch import epoch_minibatch, hard_minibatch, size_at
from gepa_lite.search.mixing import ProposerName, choose_model, choose_proposer
from gepa_lite.search.search import Search
from gepa_lite.search.state import Member, RunState


@dataclass(frozen=True, slots=True)
class Slot:
    """One proposal of a step's fan.

    Attributes:
        step: the step's index.
        index: place in the fan.
        parent: the candidate to improve.
        rotation: module paths, the one whose turn it is first.
        example_ids: the minibatch.
        sample: rollouts of one sample number are paid once.
        unpaid: examples of the minibatch whose rollouts by the parent were not charged before.
        model: name of the reflection model to ask.
        proposer: how the text is rewritten.
        horizon: calls around the module's own that the reflection sees; None is all.
    """

    step: int
    index: int
    parent: Member
    rotation: tuple[str, ...]
    example_ids: tuple[str, ...]
    sample: int
    unpaid: tuple[str, ...]
    model: str
    proposer: ProposerName
    horizon: int | None


@dataclass(frozen=True, slots=True)
class StepPlan:
    """A step.

    Attributes:
        step: its index.
        slots: its proposals; empty where it is a merge.
        merge: the merge, or None.
        rollouts: what it takes at most.
        proposals: reflections that it asks for at most.
    """

    step: int
    slots: tuple[Slot, ...]
    merge: MergePlan | None
    rollouts: int
    proposals: int


def plan_step(
    state: RunState, search: Search, models: Mapping[str, float], step: int, beside: Sequence[MergePlan | Merged] = ()
) -> StepPlan:
    """The step of an index, as a state suggests it. Pure: the same arguments give the same plan.

    Args:
        state: the step's point on the trail.
        search: the rules.
        models: weights of the reflection models, by name.
        step: the step's index.
        beside: merges by steps before this one that the state does not hold yet.
    """
    assert state.started is not None
    merge = plan_merge(state, search, step, beside)
    if merge is not None:
        return StepPlan(step, (), merge, (merge.rollouts + len(state.started.extra_pin_ids)) * search.repeats, 0)
    front = front_of(state, search)
    parent = _standing_for(
        state, search, state.pool[int(front.members[search.parent_selector(front, stream(search.seed, "parent", step))])]
    )
    count = fan_at(search.fan, step, len(state.started.texts))
    slots = tuple(_slot(state, search, models, parent, step, index) for index in range(count))
    rollouts = sum(len(slot.unpaid) + len(slot.example_ids) for slot in slots)
    rollouts += len(state.started.validation_ids) + len(state.started.extra_pin_ids)
    proposals = len(slots) * (len(state.rotation) if search.modules == "all" else 1)
    return StepPlan(step, slots, None, rollouts * search.repeats, proposals)


def _standing_for(state: RunState, search: Search, chosen: Member) -> Member:
    """A child whose validation is still running is the parent, whichever was chosen; where there is none, the chosen one itself."""
    newest = state.pool[len(state.pool) - 1]
    # the step that made it has not ended
    waiting = search.overlaps and newest.step == state.next_step and newest.mean is None
    return newest if waiting else chosen


def _slot(state: RunState, search: Search, models: Mapping[str, float], parent: Member, step: int, index: int) -> Slot:
    assert state.started is not None
    number = proposals_before(search.fan, step, len(state.started.texts)) + index
    ids = _minibatch(state, search, state.started.train_ids, number)
    start = (state.pointers[parent.index] + index) % len(state.rotation)
    return Slot(
        step,
        index,
        parent,
        state.rotation[start:] + state.rotation[:start],
        ids,
        0 if search.reuse else 1 + number,
        tuple(example for example in ids if not search.reuse or (parent.candidate.id, example) not in state.paid_rollouts),
        choose_model(state, search, models, step, index),
        choose_proposer(state, search),
        horizon_now(state, search),
    )


def _minibatch(state: RunState, search: Search, ids: Sequence[str], number: int) -> tuple[str, ...]:
    size, index = size_at(search.minibatch, number)
    if search.sampling == "epoch":
        return epoch_minibatch(ids, size, index, search.seed)
    scale = search.objective.best - search.objective.worst
    seen: dict[str, list[float]] = {}
    for proposal in state.proposals:
        for row in (proposal.before, proposal.after):
            for example, value in zip(proposal.example_ids, row, strict=False):
                if value is not None:
                    seen.setdefault(example, []).append((value - search.objective.worst) / scale)
    return hard_minibatch(ids, size, number, search.seed, {example: sum(values) / len(values) for example, values in seen.items()})


def horizon_now(state: RunState, search: Search) -> int | None:
    """The credit horizon of the next proposal.

    ``"adaptive"`` shows the call alone while proposals get accepted, one neighbour on each side after four in a row that were not, and the whole rollout after eight.
    """
    if search.horizon == "episode":
        return None
    if search.horizon != "adaptive":
        return int(search.horizon)
    row = 0
    for proposal in reversed(state.proposals):
        if proposal.status == "accepted" or row == 8:
            break
        row += 1
    return 0 if row < 4 else 1 if row < 8 else None
