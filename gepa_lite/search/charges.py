"""What an event is charged, decided when it is committed: each rollout (candidate, example, sample) is paid for once (invariant 5)."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from gepa_lite.core.events import Merged, Proposed, Twin, Unjoined, Validated, Vetoed
from gepa_lite.core.rollout import Rollout
from gepa_lite.search.state import RunState
from gepa_lite.search.trial import Trial, spend_of

StepEvent = Proposed | Merged | Validated | Vetoed | Unjoined


@dataclass(frozen=True, slots=True)
class Uncharged:
    """An event of a step before its rollouts are charged: steps in flight may need the same ones, and the first that is committed pays.

    Attributes:
        event: with what it costs beside rollouts.
        trials: the rollouts that it took.
    """

    event: StepEvent
    trials: tuple[Trial, ...] = ()


def charged(uncharged: Uncharged, state: RunState, repeats: int) -> StepEvent | Twin:
    """The event as it is committed on a state: charged for the rollouts that no event before it was charged for.

    A child that a step beside it brought first becomes a ``Twin``.

    Args:
        uncharged: from a step.
        state: the newest one.
        repeats: sample numbers below it are shared by all steps; those above belong to one proposal alone (``Search(reuse=False)``).
    """
    event = uncharged.event
    if isinstance(event, Unjoined):
        return event
    twin = _twin(event, state) if isinstance(event, (Validated, Vetoed)) else ""
    known = _ran_by_twin(state, twin) if twin else ()
    new: dict[object, Rollout] = {}
    for trial in uncharged.trials:
        for rollout in trial.rollouts:
            key = rollout.key
            # what is missing was run, and will be again
            shared = key.sample < repeats and not rollout.missing
            if not (shared and (key.example_id in known or (key.candidate_id, key.example_id) in state.paid_rollouts)):
                new.setdefault(key, rollout)
    spend = event.spend + spend_of(new.values())
    if twin and isinstance(event, (Validated, Vetoed)):
        return Twin(event.step, event.parents, event.texts, spend)
    return replace(event, spend=spend)


def _twin(event: Validated | Vetoed, state: RunState) -> str:
    """The id of the child where it is known already, else ""."""
    child = state.pool[event.parents[0]].candidate.replace(event.texts)
    return child.id if child.id in state.seen else ""


def _ran_by_twin(state: RunState, candidate_id: str) -> Collection[str]:
    """Examples on which a candidate of the pool, or one that was vetoed, was run."""
    assert state.started is not None
    ran = set(state.started.pin_ids)
    member = next((member for member in state.pool if member.candidate.id == candidate_id), None)
    if member is not None:
        row = state.table.array[member.index].tolist()
        ran |= {example for example, value in zip(state.started.validation_ids, row, strict=True) if not math.isnan(value)}
    return ran
