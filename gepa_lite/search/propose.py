"""One proposal, in a straight line: run the parent, reflect, check the text, run the child, judge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gepa_lite.core.budget import Spend
from gepa_lite.core.events import ProposalStatus, Proposed
from gepa_lite.core.rollout import Rollout
from gepa_lite.errors import ModelError
from gepa_lite.program.contract import Contract
from gepa_lite.search.accept import ACCEPTANCE
from gepa_lite.search.plan import Slot
from gepa_lite.search.ports import Ports, ProgramFacts
from gepa_lite.search.reflect import Subject, lessons_of, reflection_prompt
from gepa_lite.search.reply import UnusableReply, extract_prompt
from gepa_lite.search.search import Search
from gepa_lite.search.state import RunState

MINIBATCH_FIRST = 0
"""Priority of minibatch rollouts: a proposal waits for them, validation waits for proposals."""


def values_of(rollouts: Sequence[Rollout]) -> tuple[float | None, ...]:
    """The values in order; None is missing."""
    return tuple(rollout.value for rollout in rollouts)


def objectives_of(rollouts: Sequence[Rollout]) -> dict[str, tuple[float | None, ...]]:
    """The feedback's further scores by name, in order; None where a rollout has none of that name."""
    named = [rollout.feedback.objectives if rollout.feedback is not None else {} for rollout in rollouts]
    return {name: tuple(row.get(name) for row in named) for name in sorted({name for row in named for name in row})}


def spend_of(rollouts: Iterable[Rollout]) -> Spend:
    """Logical cost of rollouts. A missing one counts as a rollout too: it was run."""
    spend = Spend()
    for rollout in rollouts:
        spend = spend + Spend(rollouts=1, task=rollout.usage, judge=rollout.judge_usage)
    return spend


@dataclass(frozen=True, slots=True)
class _Draft:
    """A proposal in the making."""

    slot: Slot
    module: str
    before: tuple[float | None, ...]
    spend: Spend
    model: str = ""
    shown: Mapping[str, int] = field(default_factory=dict)

    def end(self, status: ProposalStatus, code: str, reason: str, text: str | None = None, after: Sequence[float | None] = ()) -> Proposed:
        """The event."""
        slot = self.slot
        return Proposed(
            slot.step,
            slot.index,
            slot.parent.index,
            self.module,
            slot.example_ids,
            self.before,
            status,
            code,
            reason,
            text,
            tuple(after),
            self.model,
            self.shown,
            self.spend,
        )


def take_slot(slot: Slot, state: RunState, search: Search, facts: ProgramFacts, ports: Ports) -> Proposed:
    """Make one proposal and judge it on its minibatch.

    Raises:
        RunError: the run can't go on.
    """
    parent = slot.parent.candidate
    priority = (MINIBATCH_FIRST, slot.step, slot.index)
    rollouts = ports.evaluate(parent, slot.example_ids, sample=slot.sample, priority=priority)
    new = [r for r in rollouts if not search.reuse or (parent.id, r.key.example_id) not in state.paid_rollouts]
    module = _module_that_ran(slot, rollouts)
    draft = _Draft(slot, module, values_of(rollouts), spend_of(new))
    if missing := _missing(rollouts):
        return draft.end("void", "missing", missing)
    before = [value for value in draft.before if value is not None]
    if search.skip_perfect and all(value >= search.objective.best for value in before):
        return draft.end("skipped", "perfect", "the parent has the best possible score on the whole minibatch")
    lessons = lessons_of(module, rollouts, search.seed, slot.address)
    if not lessons:
        return draft.end("skipped", "no_lessons", "no module ran in the minibatch")

    subject = Subject(module, facts.signatures[module], parent.texts[module], facts.purpose)
    prompt = reflection_prompt(search.reflection_template, subject, lessons, search.reflection_limits)
    try:
        reply = ports.reflect(prompt.messages, address=slot.address)
    except ModelError as error:
        draft = replace(draft, shown=prompt.shown)
        if error.fault == "world":
            return draft.end("void", "reflection_failed", f"the reflection model failed: {error}")
        return draft.end("rejected", error.kind, f"the reflection model failed: {error}")
    spend = draft.spend + Spend(proposals=1, reflection=reply.usage)
    draft = replace(draft, shown=prompt.shown, model=reply.model, spend=spend)

    try:
        text = extract_prompt(reply.text, reply.finish_reason)
    except UnusableReply as problem:
        return draft.end("rejected", problem.code, str(problem))
    child = parent.replace({module: text})
    if text == parent.texts[module]:
        return draft.end("rejected", "unchanged", "the proposed prompt is the parent's", text)
    if child.id in state.seen:
        return draft.end("rejected", "known", "the proposed candidate is in the pool already", text)
    if breach := Contract(search.max_prompt_tokens).breach(text):
        return draft.end("rejected", "contract", breach, text)

    judged = ports.evaluate(child, slot.example_ids, sample=slot.sample, priority=priority)
    draft = replace(draft, spend=draft.spend + spend_of(judged))
    values = values_of(judged)
    if missing := _missing(judged):
        return draft.end("void", "missing", missing, text, values)
    after = [value for value in values if value is not None]
    gain = f"{sum(before):g} to {sum(after):g} on {len(after)} examples"
    if ACCEPTANCE[search.accept](before, after):
        return draft.end("accepted", "improved", gain, text, values)
    return draft.end("rejected", "not_better", gain, text, values)


def _module_that_ran(slot: Slot, rollouts: Sequence[Rollout]) -> str:
    """The first module in rotation that ran in the minibatch; the first in rotation where none did."""
    ran = {module for rollout in rollouts for module in rollout.trace.modules}
    return next((module for module in slot.modules if module in ran), slot.modules[0])


def _missing(rollouts: Sequence[Rollout]) -> str | None:
    failures = [rollout.failure for rollout in rollouts if rollout.missing and rollout.failure is not None]
    if not failures:
        return None
    return f"{len(failures)} of {len(rollouts)} rollouts are missing: {failures[0].message}"
