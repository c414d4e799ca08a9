"""One proposal, in a straight line: run the parent, reflect, check the text, run the child, judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gepa_lite.core.budget import Spend
from gepa_lite.core.events import ProposalStatus, Proposed
from gepa_lite.core.rollout import Rollout
from gepa_lite.errors import ModelError
from gepa_lite.lm.protocol import Completion
from gepa_lite.program.contract import Contract
from gepa_lite.search.components import choose_modules
from gepa_lite.search.edit import apply_edits, read_edits
from gepa_lite.search.plan import Slot
from gepa_lite.search.ports import Ports, ProgramFacts
from gepa_lite.search.reflect import Subject, Template, lessons_of, reflection_prompt
from gepa_lite.search.reply import UnusableReply, extract_prompt
from gepa_lite.search.search import Search
from gepa_lite.search.state import RunState
from gepa_lite.search.trial import run_trial

MINIBATCH_FIRST = 0
"""Priority of minibatch rollouts: a proposal waits for them, validation waits for proposals."""

_REMEMBERED = 5
"""Rejected edits of a module that an edit prompt shows."""


@dataclass(frozen=True, slots=True)
class _Draft:
    """A proposal in the making."""

    slot: Slot
    modules: tuple[str, ...]
    before: tuple[float | None, ...]
    spend: Spend
    texts: Mapping[str, str] = field(default_factory=dict)
    shown: Mapping[str, int] = field(default_factory=dict)

    def end(self, status: ProposalStatus, code: str, reason: str, after: Sequence[float | None] = ()) -> Proposed:
        """The event."""
        slot = self.slot
        return Proposed(
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
        )


def take_slot(slot: Slot, state: RunState, search: Search, facts: ProgramFacts, ports: Ports) -> Proposed:
    """Make one proposal and judge it on its minibatch.

    Raises:
        RunError: the run can't go on.
    """
    parent = slot.parent.candidate
    priority = (MINIBATCH_FIRST, slot.step, slot.index)
    trial = run_trial(ports, parent, slot.example_ids, repeats=search.repeats, sample=slot.sample, priority=priority)
    modules = choose_modules(search.modules, slot.rotation, trial.lessons, search.objective)
    draft = _Draft(slot, modules, trial.values, trial.spend(slot.unpaid))
    if trial.missing:
        return draft.end("void", "missing", trial.missing)
    before = [value for value in trial.values if value is not None]
    if not modules:
        return draft.end("skipped", "no_lessons", "no module ran in the minibatch")
    if search.skip_perfect and all(value >= search.objective.best for value in before):
        return draft.end("skipped", "perfect", "the parent has the best possible score on the whole minibatch")

    outcome = _rewrite(draft, trial.lessons, state, search, facts, ports)
    if isinstance(outcome, Proposed):
        return outcome
    draft = outcome
    child = parent.replace(draft.texts)
    if child.id in state.seen:
        return draft.end("rejected", "known", "the proposed candidate is in the pool already")

    judged = run_trial(ports, child, slot.example_ids, repeats=search.repeats, sample=slot.sample, priority=priority)
    # a text that was proposed before is charged again, so that a model that repeats itself comes to the end of the budget
    draft = replace(draft, spend=draft.spend + judged.spend())
    if judged.missing:
        return draft.end("void", "missing", judged.missing, judged.values)
    after = [value for value in judged.values if value is not None]
    gain = f"{sum(before):g} to {sum(after):g} on {len(after)} examples"
    if search.acceptance(before, after):
        return draft.end("accepted", "improved", gain, judged.values)
    return draft.end("rejected", "not_better", gain, judged.values)


def _rewrite(
    draft: _Draft, rollouts: Sequence[Rollout], state: RunState, search: Search, facts: ProgramFacts, ports: Ports
) -> _Draft | Proposed:
    """Ask for a new text of each module of the draft; the draft with the usable ones, or the proposal's end where there is none."""
    slot, parent = draft.slot, draft.slot.parent.candidate
    # the worst first, so that what is cut to fit is what went well
    rollouts = sorted(rollouts, key=lambda rollout: rollout.value if rollout.value is not None else 0.0)
    problem: tuple[str, str] | None = None
    for number, module in enumerate(draft.modules):
        lessons = lessons_of(module, rollouts, slot.horizon, search.seed, (slot.step, slot.index))
        subject = Subject(module, facts.signatures[module], parent.texts[module], facts.purpose)
        prompt = reflection_prompt(_template(slot, module, state, search), subject, lessons, search.reflection_limits)
        draft = replace(draft, shown=_summed(draft.shown, prompt.shown))
        try:
            reply = ports.reflect(prompt.messages, model=slot.model, address=(slot.step, slot.index, number))
        except ModelError as error:
            if error.fault == "world":
                return draft.end("void", "reflection_failed", f"the reflection model failed: {error}")
            problem = error.kind, f"the reflection model failed: {error}"
            continue
        draft = replace(draft, spend=draft.spend + Spend(proposals=1, reflection=reply.usage))
        try:
            contract = facts.contracts.get(module, Contract()).within(search.max_prompt_tokens)
            text = _read(slot, parent.texts[module], reply, contract, search)
        except UnusableReply as unusable:
            problem = unusable.code, str(unusable)
        else:
            draft = replace(draft, texts={**draft.texts, module: text})
    if draft.texts:
        return draft
    assert problem is not None
    return draft.end("rejected", *problem)


def _read(slot: Slot, before: str, reply: Completion, contract: Contract, search: Search) -> str:
    if slot.proposer == "edit":
        text = apply_edits(before, read_edits(reply.text, reply.finish_reason), search.edit_words)
    else:
        text = extract_prompt(reply.text, reply.finish_reason)
    if text == before:
        raise UnusableReply("unchanged", "the proposed prompt is the parent's")
    if breach := contract.breach(text):
        raise UnusableReply("contract", breach)
    return text


def _template(slot: Slot, module: str, state: RunState, search: Search) -> Template:
    if slot.proposer == "rewrite":
        return Template("reflect.j2", search.reflection_template)
    rejected = []
    for proposal in reversed(state.proposals):
        if proposal.code == "not_better" and module in proposal.texts and proposal.parent == slot.parent.index:
            added = _added_words(slot.parent.candidate.texts[module], proposal.texts[module])
            if added and added not in rejected:
                rejected.append(added)
        if len(rejected) == _REMEMBERED:
            break
    return Template("edit.j2", None, {"max_words": search.edit_words, "rejected": rejected})


def _added_words(before: str, after: str) -> str:
    """The lines and sentences of a text that the other lacks, cut to 200 characters."""
    known = set(before.replace("\n", ". ").split(". "))
    added = ". ".join(piece for piece in after.replace("\n", ". ").split(". ") if piece not in known)
    return added[:200]


def _summed(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    return {name: a.get(name, 0) + b.get(name, 0) for name in {**a, **b}}
