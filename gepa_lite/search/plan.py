"""The next step, decided from the committed state alone: parent, modules, minibatches, and what it may cost at most."""

from __future__ import annotations

from dataclasses import dataclass

from gepa_lite.core.seeds import stream
from gepa_lite.search.frontier import front_of
from gepa_lite.search.minibatch import epoch_minibatch
from gepa_lite.search.search import Search
from gepa_lite.search.state import Member, RunState


@dataclass(frozen=True, slots=True)
class Slot:
    """One proposal of a step's fan.

    Attributes:
        step: the step's index.
        index: place in the fan.
        parent: the candidate to improve.
        modules: paths in the order they are tried: the first that ran in the minibatch is rewritten.
        example_ids: the minibatch.
        sample: rollouts of one sample number are paid once.
        unpaid: parent's rollouts on the minibatch that were not charged before.
    """

    step: int
    index: int
    parent: Member
    modules: tuple[str, ...]
    example_ids: tuple[str, ...]
    sample: int
    unpaid: int

    @property
    def address(self) -> tuple[int, int]:
        """Names the proposal for the reflection model's cache and for random draws."""
        return self.step, self.index


@dataclass(frozen=True, slots=True)
class StepPlan:
    """A step's proposals, and the rollouts it takes at most."""

    slots: tuple[Slot, ...]
    rollouts: int

    @property
    def fan(self) -> int:
        """Proposals of the step."""
        return len(self.slots)


def plan_step(state: RunState, search: Search) -> StepPlan:
    """The next step. Pure: the same state and rules give the same plan."""
    assert state.started is not None
    step = state.next_step
    front = front_of(state, search)
    row = search.parent_selector(front, stream(search.seed, "parent", step))
    parent = state.pool[front.members[row]]
    slots = []
    for index in range(search.fan):
        ids = epoch_minibatch(state.started.train_ids, search.minibatch, step * search.fan + index, search.seed)
        sample = 0 if search.reuse else 1 + step * search.fan + index
        unpaid = sum((parent.candidate.id, example) not in state.paid_rollouts for example in ids) if search.reuse else len(ids)
        slots.append(Slot(step, index, parent, _rotation(state, parent, index), ids, sample, unpaid))
    rollouts = sum(slot.unpaid + len(slot.example_ids) for slot in slots) + len(state.started.validation_ids)
    return StepPlan(tuple(slots), rollouts)


def _rotation(state: RunState, parent: Member, index: int) -> tuple[str, ...]:
    start = (state.pointers[parent.index] + index) % len(state.rotation)
    return state.rotation[start:] + state.rotation[:start]
