"""One proposal, in a straight line: run the parent, reflect, check the text, run the child, judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gepa_lite.core.budget import Spend
from gepa_lite.core.events import ProposalStatus, Proposed
from gepa_lite.core.finding import Finding
from gepa_lite.search.charges import Uncharged
from gepa_lite.search.components import choose_modules
from gepa_lite.search.plan import Slot
from gepa_lite.search.ports import Ports, ProgramFacts
from gepa_lite.search.rewrite import rewrite
from gepa_lite.search.search import Search
from gepa_lite.search.state import RunState
from gepa_lite.search.trial import Trial, run_trial

MINIBATCH_FIRST = 0
"""Priority of minibatch rollouts: a proposal waits for them, validation waits for proposals."""


@dataclass(frozen=True, slots=True)
class _Draft:
    """A proposal in the making."""

    slot: Slot
    modules: tuple[str, ...]
    before: tuple[float | None, ...]
    trials: tuple[Trial, ...]
    spend: Spend = field(default_factory=Spend)
    texts: Mapping[str, str] = field(default_factory=dict)
    shown: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    def end(self, status: ProposalStatus, code: str, reason: str, after: Sequence[float | None] = ()) -> Uncharged:
        """The event."""
        slot = self.slot
        proposed = Proposed(
            step=slot.step,
            slot=slot.index,
            parent=slot.parent.index,
            modules=self.modules,
            example_ids=slot.example_ids,
            before=self.before,
            status=status,
            code=code,
            reason=reason,
            texts=self.texts,
            after=tuple(after),
            model=slot.model,
            proposer=slot.proposer,
            shown=self.shown,
            spend=self.spend,
            findings=self.findings,
        )
        return Uncharged(proposed, self.trials)


def take_slot(slot: Slot, state: RunState, search: Search, facts: ProgramFacts, ports: Ports) -> Uncharged:
    """Make one proposal and judge it on its minibatch.

    Raises:
        RunError: the run can't go on.
    """
    parent = slot.parent.candidate
    priority = (MINIBATCH_FIRST, slot.step, slot.index)
    trial = run_trial(ports, parent, slot.example_ids, repeats=search.repeats, sample=slot.sample, priority=priority)
    modules = choose_modules(search.modules, slot.rotation, trial.lessons, search.objective)
    draft = _Draft(slot, modules, trial.values, (trial,))
    if trial.missing:
        return draft.end("void", "missing", trial.missing)
    before = [value for value in trial.values if value is not None]
    if not modules:
        return draft.end("skipped", "no_lessons", "no module ran in the minibatch")
    if search.skip_perfect and all(value >= search.objective.best for value in before):
        return draft.end("skipped", "perfect", "the parent has the best possible score on the whole minibatch")

    written = rewrite(slot, modules, trial.lessons, state, search, facts, ports)
    draft = replace(draft, spend=written.spend, shown=written.shown, findings=written.findings)
    if written.void or not written.texts:
        return draft.end("void" if written.void else "rejected", *written.problem)
    draft = replace(draft, texts=written.texts)
    child = parent.replace(draft.texts)
    if child.id in state.seen:
        return draft.end("rejected", "known", "the proposed candidate is in the pool already")
    # what it scored on an example before answers for it: only examples that are new to it are run
    tried = search.reuse and all((child.id, example) in state.paid_rollouts for example in slot.example_ids)
    judged = run_trial(ports, child, slot.example_ids, repeats=search.repeats, sample=slot.sample, priority=priority)
    draft = replace(draft, trials=(trial, judged))
    if judged.missing:
        return draft.end("void", "missing", judged.missing, judged.values)
    after = [value for value in judged.values if value is not None]
    gain = f"{sum(before):g} to {sum(after):g} on {len(after)} examples"
    if search.acceptance(before, after):
        return draft.end("accepted", "improved", gain, judged.values)
    if tried:
        return draft.end("rejected", "tried", f"{gain}, by its scores from before", judged.values)
    return draft.end("rejected", "not_better", gain, judged.values)
