"""The course of a probe: rounds in which every variant rewrites the same module of the same parent after the same minibatch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gepa_lite.core.events import ProposalStatus, Proposed, StepEnded, Stopped
from gepa_lite.core.seeds import stream
from gepa_lite.errors import BudgetSpentError
from gepa_lite.probing.variants import Variant
from gepa_lite.search.charges import Uncharged
from gepa_lite.search.components import choose_modules
from gepa_lite.search.loop import check_outage, commit
from gepa_lite.search.plan import Slot, StepPlan, plan_step
from gepa_lite.search.propose import MINIBATCH_FIRST
from gepa_lite.search.rewrite import Rewriting, rewrite
from gepa_lite.search.state import RunState
from gepa_lite.search.step import Course
from gepa_lite.search.stop import no_room, why_stop
from gepa_lite.search.trail import Trail
from gepa_lite.search.trial import Trial, run_trial
from gepa_lite.search.validate import validate, validate_seed

_PATIENCE = 4
"""Steps at most, for each round that is asked for: minibatches with nothing to learn from are passed over."""

JUDGED = 6
"""Training examples on which a round's children are judged: none of those that the reflection was shown, where there are others, since a text that only fits what was shown would count as a refinement."""


@dataclass(frozen=True)
class Rounds:
    """A procedure in place of the search. Each round's best child joins the pool, so that later parents are such as a search would have; who made it is the same to all.

    Attributes:
        variants: compared, in order: their place is the proposals' ``slot``.
        rounds: to take.
    """

    variants: Sequence[Variant]
    rounds: int

    def settings(self) -> Mapping[str, Any]:
        """See ``Procedure``."""
        return {"name": "probe", "rounds": self.rounds, "variants": [variant.to_data() for variant in self.variants]}

    def __call__(self, trail: Trail, course: Course) -> RunState:
        """See ``Procedure``."""
        search, ports = course.search, course.ports
        if not trail.state.seed_validated:
            trail = commit(trail, validate_seed(trail.state, search, ports), ports)
        if trail.state.stopped is None and not trail.state.rotation:
            return commit(
                trail, [Stopped("no_modules", "no module ran in the seed's validation: there is no prompt to improve")], ports
            ).state
        while (state := trail.state).stopped is None:
            plan = plan_step(state, search, ports.models, state.next_step)
            stop = self._stop(state, course, plan)
            if stop is None:
                try:
                    # by the round: the pointers of a state turn with each proposal, and a round has many
                    turn = plan.step % len(state.rotation)
                    slot = replace(plan.slots[0], rotation=state.rotation[turn:] + state.rotation[:turn])
                    made = self._round(slot, state, course)
                except BudgetSpentError as error:
                    stop = Stopped("budget", str(error))
            if stop is not None:
                return commit(trail, [stop], ports).state
            trail = commit(trail, [*made, StepEnded(plan.step)], ports, search.repeats)
            # a model that is down has dropped out, and the others go on
            if all(item.event.status == "void" for item in made if isinstance(item.event, Proposed)):
                check_outage(trail.state, made)
        return trail.state

    def _stop(self, state: RunState, course: Course, plan: StepPlan) -> Stopped | None:
        # the last one's turn: a step in which the parent could not be run has none, and is no round
        taken = sum(proposal.slot == len(self.variants) - 1 for proposal in state.proposals)
        if taken >= self.rounds:
            return Stopped("rule", f"{taken} rounds were made")
        if state.next_step >= _PATIENCE * self.rounds:
            return Stopped("nothing_to_learn", f"only {taken} of {state.next_step} minibatches had anything to learn from")
        around = course.ports.surroundings()
        children = (1 + len(self.variants)) * len(_judged_ids(plan.slots[0], state, course.search.seed)) * course.search.repeats
        whole = replace(plan, rollouts=plan.rollouts + children, proposals=plan.proposals * len(self.variants))
        return why_stop(state, course.search, around) or no_room(state, [whole], course.search, around)

    def _round(self, slot: Slot, state: RunState, course: Course) -> list[Uncharged]:
        search, parent = course.search, slot.parent
        priority = (MINIBATCH_FIRST, slot.step)
        trial = run_trial(course.ports, parent.candidate, slot.example_ids, repeats=search.repeats, sample=slot.sample, priority=priority)
        modules = choose_modules(search.modules, slot.rotation, trial.lessons, search.objective)
        if trial.missing or not modules or all(value is not None and value >= search.objective.best for value in trial.values):
            words: tuple[ProposalStatus, str, str] = (
                ("void", "missing", trial.missing) if trial.missing else ("skipped", "perfect", "there is nothing to learn from")
            )
            return [_event(slot, modules, (trial,), *words)]
        ids = _judged_ids(slot, state, search.seed)
        held = run_trial(course.ports, parent.candidate, ids, repeats=search.repeats, sample=slot.sample, priority=priority)
        if held.missing:
            return [_event(slot, modules, (trial, held), "void", "missing", held.missing)]
        judged = replace(slot, example_ids=ids)
        turns = [partial(self._turn, place, judged, modules, (trial, held), state, course) for place in range(len(self.variants))]
        made = course.ports.gather(turns)
        accepted = [item.event for item in made if isinstance(item.event, Proposed) and item.event.status == "accepted"]
        if accepted:
            best = max(accepted, key=lambda proposal: proposal.gain)
            child = parent.candidate.replace(best.texts)
            made.append(validate(child, slot.step, (parent.index,), best.texts, state, search, course.ports))
        return made

    def _turn(
        self, place: int, slot: Slot, modules: tuple[str, ...], parents: tuple[Trial, Trial], state: RunState, course: Course
    ) -> Uncharged:
        """One variant's proposal: shown the first of the minibatch, the first of the parent's two trials; judged on the examples of the second."""
        trial, held = parents
        variant, rules = self.variants[place], course.search
        search = replace(rules, proposer=variant.proposer, reflection_template=None if variant.proposer == "edit" else variant.template)
        horizon = None if variant.horizon == "episode" else variant.horizon
        mine = replace(slot, index=place, model=variant.name, proposer=variant.proposer, horizon=horizon)
        written = rewrite(mine, modules, trial.lessons[: variant.minibatch], state, search, course.facts, course.ports)
        event = partial(_event, mine, modules, (trial, held), written=written)
        if written.void or not written.texts:
            return event("void" if written.void else "rejected", *written.problem)
        child = slot.parent.candidate.replace(written.texts)
        if child.id in state.seen:
            return event("rejected", "known", "the proposed candidate is in the pool already")
        priority = (MINIBATCH_FIRST, slot.step, place)
        judged = run_trial(course.ports, child, slot.example_ids, repeats=rules.repeats, sample=slot.sample, priority=priority)
        if judged.missing:
            return event("void", "missing", judged.missing, judged=judged)
        before, after = (sum(value for value in each.values if value is not None) for each in (held, judged))
        words = f"{before:g} to {after:g} on {len(slot.example_ids)} examples"
        return (
            event("accepted", "improved", words, judged=judged) if after > before else event("rejected", "not_better", words, judged=judged)
        )


def _event(
    slot: Slot,
    modules: tuple[str, ...],
    parents: tuple[Trial, ...],
    status: ProposalStatus,
    code: str,
    reason: str | None,
    written: Rewriting | None = None,
    judged: Trial | None = None,
) -> Uncharged:
    """The event: what the child is compared with is the last of its parent's trials."""
    written = written or Rewriting()
    made = Proposed(
        step=slot.step,
        slot=slot.index,
        parent=slot.parent.index,
        modules=modules,
        example_ids=slot.example_ids,
        before=parents[-1].values,
        status=status,
        code=code,
        reason=reason or "",
        texts={} if written.void else written.texts,
        after=() if judged is None else judged.values,
        model=slot.model,
        proposer=slot.proposer,
        shown=written.shown,
        spend=written.spend,
        findings=written.findings,
    )
    return Uncharged(made, parents if judged is None else (*parents, judged))


def _judged_ids(slot: Slot, state: RunState, seed: int) -> tuple[str, ...]:
    """The examples that a round's children are judged on."""
    assert state.started is not None
    others = [example for example in state.started.train_ids if example not in slot.example_ids]
    return tuple(stream(seed, "judged", slot.step).sample(others, min(JUDGED, len(others)))) or slot.example_ids
