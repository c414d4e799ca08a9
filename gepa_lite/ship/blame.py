"""Blame: where each sentence of a prompt comes from, by the event log alone."""

from __future__ import annotations

from dataclasses import dataclass

from gepa_lite.core.candidate import Candidate
from gepa_lite.core.events import Proposed
from gepa_lite.core.sentences import same_sentence, sentences_of
from gepa_lite.search.merge import ancestors
from gepa_lite.search.state import Member, RunState


@dataclass(frozen=True, slots=True)
class Blame:
    """A sentence and its origin.

    Attributes:
        module: the module whose prompt it is in.
        sentence: as it stands.
        member: the first candidate in the lineage that had it; 0 for the seed's own sentences, and then there is nothing more to say.
        step: the step that made this candidate; -1 for another start, which a person wrote or an earlier run.
        model: the reflection model that wrote it.
        example_ids: the training examples that it was written from.
        minibatch_gain: the sum of values on them, after less before.
        validation_gain: this candidate's mean on the validation set less its parent's; None where one of them has no mean. A candidate may bring several sentences, and the gain is of all
            of them together.
        together: how many sentences it brought.
    """

    module: str
    sentence: str
    member: int
    step: int | None = None
    model: str = ""
    example_ids: tuple[str, ...] = ()
    minibatch_gain: float | None = None
    validation_gain: float | None = None
    together: int = 1

    def __str__(self) -> str:
        if self.member == 0:
            return f"{self.module}  seed  {self.sentence.strip()}"
        gain = "no mean" if self.validation_gain is None else f"validation {self.validation_gain:+.3f}"
        others = f" with {self.together - 1} more" if self.together > 1 else ""
        if self.step is not None and self.step < 0:
            return f"{self.module}  #{self.member} start ({gain}{others})  {self.sentence.strip()}"
        batch = "" if self.minibatch_gain is None else f", minibatch {self.minibatch_gain:+g} on {len(self.example_ids)}"
        return f"{self.module}  #{self.member} step {self.step} ({gain}{others}{batch})  {self.sentence.strip()}"


def blame_of(state: RunState, index: int) -> list[Blame]:
    """For each sentence of a candidate: the proposal, the examples and the gain it came with.

    A sentence belongs to the earliest candidate of the lineage, merges included, that had it in this module.

    Args:
        state: of the run.
        index: the candidate's place in the pool.
    """
    line = [state.pool[member] for member in sorted({*ancestors(state.pool, index), index})]
    found = []
    for module, text in state.pool[index].candidate.texts.items():
        for sentence in sentences_of(text):
            if not sentence.strip():
                continue
            first = next(member for member in line if _has(member, module, sentence))
            found.append(_blame(state, module, sentence, first))
    return found


def _has(member: Member, module: str, sentence: str) -> bool:
    return same_sentence(sentence) in {same_sentence(other) for other in sentences_of(member.candidate.texts[module])}


def _blame(state: RunState, module: str, sentence: str, member: Member) -> Blame:
    if not member.parents:
        return Blame(module, sentence, 0)
    parent = state.pool[member.parents[0]]
    gain = None if member.mean is None or parent.mean is None else member.mean - parent.mean
    proposal = _proposal(state, module, member)
    together = _news(parent.candidate, member.candidate)
    if proposal is None:
        return Blame(module, sentence, member.index, member.step, validation_gain=gain, together=together)
    return Blame(module, sentence, member.index, member.step, proposal.model, proposal.example_ids, proposal.gain, gain, together)


def _proposal(state: RunState, module: str, member: Member) -> Proposed | None:
    """The accepted proposal whose text of the module the candidate took."""
    for proposal in state.proposals:
        if proposal.step == member.step and proposal.status == "accepted" and proposal.texts.get(module) == member.candidate.texts[module]:
            return proposal
    return None


def _news(before: Candidate, after: Candidate) -> int:
    """Sentences that a candidate has and its parent lacks, over all modules."""
    count = 0
    for module, text in after.texts.items():
        known = {same_sentence(sentence) for sentence in sentences_of(before.texts[module])}
        count += sum(same_sentence(sentence) not in known for sentence in sentences_of(text) if sentence.strip())
    return count
