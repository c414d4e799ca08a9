"""Ask for new texts of a proposal's modules: reflect, read the reply, check the text, ask once more where it breaks a rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gepa_lite.core.budget import Spend
from gepa_lite.core.call import Message
from gepa_lite.core.finding import Finding
from gepa_lite.core.form import Form
from gepa_lite.core.rollout import Rollout
from gepa_lite.errors import ModelError
from gepa_lite.lm.protocol import Completion
from gepa_lite.search.edit import apply_edits, read_edits
from gepa_lite.search.gate import in_words
from gepa_lite.search.mixing import ProposerName
from gepa_lite.search.plan import Slot
from gepa_lite.search.ports import Ports, ProgramFacts
from gepa_lite.search.reflect import Subject, Template, lessons_of, once_more, reflection_prompt
from gepa_lite.search.reply import UnusableReply, extract_prompt
from gepa_lite.search.search import Search
from gepa_lite.search.state import RunState

_REMEMBERED = 5
"""Rejected edits of a module that an edit prompt shows."""

_ONCE_MORE = 1
"""Ends the address of the one call that names a breach."""


@dataclass(frozen=True, slots=True)
class Rewriting:
    """What became of the modules of a proposal.

    Attributes:
        texts: the usable ones, by module.
        problem: code and reason where there is none; the last module's.
        void: True where the reflection model could not be reached.
        findings: what was found in proposed texts, also in those that were replaced.
        shown: what the reflection prompts were cut to, summed.
        spend: of the reflections.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    problem: tuple[str, str] = ("", "")
    void: bool = False
    findings: tuple[Finding, ...] = ()
    shown: Mapping[str, int] = field(default_factory=dict)
    spend: Spend = field(default_factory=Spend)

    def without(self, code: str, reason: str) -> Rewriting:
        """The same, the last module without a usable text."""
        return replace(self, problem=(code, reason))


@dataclass(frozen=True, slots=True)
class Task:
    """One module to rewrite.

    Attributes:
        slot: the proposal.
        module: its path.
        number: its place among the proposal's modules; it is part of the calls' addresses.
        search: the rules.
        facts: what is known of the program, and what its texts must pass.
        ports: the way to the world.
        heard: what the feedback said of the minibatch, by example id.
    """

    slot: Slot
    module: str
    number: int
    search: Search
    facts: ProgramFacts
    ports: Ports
    heard: tuple[tuple[str, str], ...] = ()

    def check(self, text: str) -> list[Finding]:
        """What a new text of the module breaks."""
        return self.facts.gate.check(self.module, text, self.slot.parent.candidate, self.heard)

    @property
    def subject(self) -> Subject:
        """What the reflection model is told of the module."""
        return Subject(self.module, self.facts.signatures[self.module], self.before, self.facts.purpose, self.form)

    @property
    def form(self) -> Form:
        """What the module's text is."""
        return self.facts.gate.contracts.of(self.module).form

    @property
    def proposer(self) -> ProposerName:
        """How the text is rewritten: code as a whole always, since edits take no care of its indents."""
        return "rewrite" if self.form == "python" else self.slot.proposer

    @property
    def before(self) -> str:
        """The parent's text."""
        return self.slot.parent.candidate.texts[self.module]

    def ask(self, messages: tuple[Message, ...], *more: int) -> Completion:
        """A reflection.

        Raises:
            ModelError: no reply after retries.
        """
        return self.ports.reflect(messages, model=self.slot.model, address=(self.slot.step, self.slot.index, self.number, *more))

    def read(self, reply: Completion) -> str:
        """The new text of a reply.

        Raises:
            UnusableReply: it holds none, or the parent's.
        """
        if self.proposer == "edit":
            text = apply_edits(self.before, read_edits(reply.text, reply.finish_reason), self.search.edit_words)
        else:
            text = extract_prompt(reply.text, reply.finish_reason)
        if text == self.before:
            raise UnusableReply("unchanged", "the proposed prompt is the parent's")
        return text


def rewrite(
    slot: Slot, modules: Sequence[str], rollouts: Sequence[Rollout], state: RunState, search: Search, facts: ProgramFacts, ports: Ports
) -> Rewriting:
    """New texts of the modules, each from a reflection of its own.

    Raises:
        RunError: the run can't go on.
    """
    # the worst first, so that what is cut to fit is what went well
    rollouts = sorted(rollouts, key=lambda rollout: rollout.value if rollout.value is not None else 0.0)
    heard = tuple((r.key.example_id, " \n ".join((r.feedback.text, *r.feedback.modules.values()))) for r in rollouts if r.feedback)
    done = Rewriting()
    for number, module in enumerate(modules):
        task = Task(slot, module, number, search, facts, ports, heard)
        lessons = lessons_of(module, rollouts, slot.horizon, search.seed, (slot.step, slot.index))
        prompt = reflection_prompt(_template(task, state), task.subject, lessons, search.reflection_limits)
        done = replace(done, shown=_summed(done.shown, prompt.shown))
        done = _rewrite_one(task, prompt.messages, done)
        if done.void:
            return done
    together = slot.parent.candidate.replace(done.texts).texts
    if len(done.texts) > 1 and (breach := facts.gate.program_breach(together)):
        return replace(done, texts={}, problem=("contract", breach))
    return done


def _rewrite_one(task: Task, messages: tuple[Message, ...], done: Rewriting) -> Rewriting:
    try:
        reply = task.ask(messages)
        done = replace(done, spend=done.spend + Spend(proposals=1, reflection=reply.usage))
        text = task.read(reply)
        found = task.check(text)
        done = replace(done, findings=(*done.findings, *found))
        if blocking := [finding for finding in found if finding.blocks]:
            reply = task.ask(once_more(task.subject, task.proposer, text, blocking, task.search.edit_words), _ONCE_MORE)
            done = replace(done, spend=done.spend + Spend(reflection=reply.usage))
            text = task.read(reply)
            found = [replace(finding, attempt=1) for finding in task.check(text)]
            done = replace(done, findings=(*done.findings, *found))
            if blocking := [finding for finding in found if finding.blocks]:
                return done.without(_code(blocking), in_words(blocking) or "")
    except ModelError as error:
        problem = f"the reflection model failed: {error}"
        return (
            replace(done, void=True, problem=("reflection_failed", problem))
            if error.fault == "world"
            else done.without(error.kind, problem)
        )
    except UnusableReply as unusable:
        return done.without(unusable.code, str(unusable))
    return replace(done, texts={**done.texts, task.module: text})


def _code(blocking: Sequence[Finding]) -> str:
    return "contract" if any(finding.rule.startswith("contract:") for finding in blocking) else "leak"


def _template(task: Task, state: RunState) -> Template:
    slot, module = task.slot, task.module
    if task.proposer == "rewrite":
        return Template("reflect.j2", task.search.reflection_template)
    rejected = []
    for proposal in reversed(state.proposals):
        if proposal.code == "not_better" and module in proposal.texts and proposal.parent == slot.parent.index:
            added = _added_words(task.before, proposal.texts[module])
            if added and added not in rejected:
                rejected.append(added)
        if len(rejected) == _REMEMBERED:
            break
    return Template("edit.j2", None, {"max_words": task.search.edit_words, "rejected": rejected})


def _added_words(before: str, after: str) -> str:
    """The lines and sentences of a text that the other lacks, cut to 200 characters."""
    known = set(before.replace("\n", ". ").split(". "))
    added = ". ".join(piece for piece in after.replace("\n", ". ").split(". ") if piece not in known)
    return added[:200]


def _summed(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    return {name: a.get(name, 0) + b.get(name, 0) for name in {**a, **b}}
