"""How an optimizer that brings a loop of its own reaches rollouts, reflections and the record.

It is started anew on a resume and takes the same course again, since what it was given before is on disk: rollouts and replies then cost nothing, and candidates that are in the
record already are not recorded twice.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from gepa_lite.baselines.steps import begin
from gepa_lite.core.budget import Spend
from gepa_lite.core.call import Message
from gepa_lite.core.candidate import Candidate
from gepa_lite.core.events import Event, ProposalStatus, Proposed, StepEnded, Stopped, Validated
from gepa_lite.core.rollout import Rollout
from gepa_lite.errors import BudgetSpentError, RunError
from gepa_lite.lm.protocol import Completion
from gepa_lite.search.loop import commit
from gepa_lite.search.reserve import reserved_rollouts
from gepa_lite.search.state import RunState
from gepa_lite.search.step import Course
from gepa_lite.search.trail import Trail
from gepa_lite.search.trial import Trial, spend_of
from gepa_lite.search.winner import own_objectives

_IDLE = 100
"""Requests in a row that bring no new rollout after which an optimizer is ended: its own budget may count what ours does not."""


class NothingNewError(RunError):
    """An optimizer keeps asking for what it has."""


class Desk:
    """Hands out rollouts and replies within the budget and records full validations as candidates.

    Every rollout of a candidate on an example is charged once, as in our own search, whatever the optimizer's own count says.

    Args:
        trail: where the run stands.
        course: rules, facts and ports.
        name: of the optimizer, for the record.
    """

    def __init__(self, trail: Trail, course: Course, name: str) -> None:
        self._trail = begin(trail, course)
        self._course = course
        self._name = name
        self._step = 0
        self._reflections = 0
        self._idle = 0
        self._pending = Spend()
        assert self.state.started is not None
        self.train_ids = self.state.started.train_ids
        self.validation_ids = self.state.started.validation_ids
        self._charged = {(self.seed.id, example) for example in self.validation_ids}
        self._rollouts = len(self.validation_ids)

    @property
    def state(self) -> RunState:
        """The newest one."""
        return self._trail.state

    @property
    def seed(self) -> Candidate:
        """The candidate to start from."""
        return self.state.pool[0].candidate

    def evaluate(self, texts: Mapping[str, str], example_ids: Sequence[str]) -> list[Rollout]:
        """Rollouts of a candidate, in the order of the examples.

        All of the validation set at once makes it a candidate of the record, unless it breaks its contract.

        Raises:
            BudgetSpentError: they do not fit beside what is kept for after the search.
            NothingNewError: nothing new was asked for in a long time.
            RunError: the run can't go on.
        """
        candidate = self.seed.replace(texts)
        new = [example for example in dict.fromkeys(example_ids) if (candidate.id, example) not in self._charged]
        self._admit(len(new))
        self._note(new)
        rollouts = list(self._course.ports.evaluate(candidate, example_ids, samples=(0,), priority=(0, self._step))[0])
        self._charged.update((candidate.id, example) for example in new)
        self._rollouts += len(new)
        trial = Trial((tuple(rollouts),))
        self._pending = self._pending + spend_of(rollout for rollout in rollouts if rollout.key.example_id in new)
        if tuple(example_ids) == self.validation_ids and candidate.id != self.seed.id and new:
            self._record(candidate, trial)
        return rollouts

    def reflect(self, messages: tuple[Message, ...]) -> Completion:
        """A reply of a reflection model, the same one on a resume.

        Raises:
            ModelError: no reply after retries.
            RunError: the run can't go on.
        """
        self._note(())
        model = next(iter(self._course.ports.models))
        limit = self.state.budget.proposals
        if limit is not None and self._reflections >= limit:
            raise BudgetSpentError(f"{self._reflections:,} of {limit:,} proposals are made")
        reply = self._course.ports.reflect(messages, model=model, address=(self._reflections,))
        self._reflections += 1
        self._pending = self._pending + Spend(proposals=1, reflection=reply.usage)
        return reply

    def close(self, code: str, reason: str) -> RunState:
        """End the search; what was spent since the last candidate is recorded."""
        if self.state.stopped is not None:
            return self.state
        events: list[Event] = []
        if self._step >= self.state.next_step and self._pending != Spend():
            events = [
                self._proposed({}, 0, "rejected", "not_validated", "tried, but never on the whole validation set"),
                StepEnded(self._step),
            ]
        self._trail = commit(self._trail, [*events, Stopped(code, reason)], self._course.ports)
        return self.state

    def _note(self, new: Sequence[str]) -> None:
        self._idle = 0 if new else self._idle + 1
        if self._idle >= _IDLE:
            raise NothingNewError(f"{_IDLE} requests in a row brought no new rollout")

    def _admit(self, rollouts: int) -> None:
        budget, kept = self.state.budget.rollouts, reserved_rollouts(self.state, self._course.search)
        if budget is not None and self._rollouts + rollouts + kept > budget:
            left = max(0, budget - self._rollouts)
            raise BudgetSpentError(
                f"{left:,} of {budget:,} rollouts are left; {rollouts:,} more were asked for, and {kept:,} are kept for after the search"
            )

    def _record(self, candidate: Candidate, trial: Trial) -> None:
        if self._step >= self.state.next_step:
            parent = self._parent(candidate)
            old = self.state.pool[parent].candidate.texts
            texts = {module: text for module, text in candidate.texts.items() if old[module] != text}
            values = trial.values
            objectives = {**trial.objectives, **own_objectives(self._course.search, candidate.texts, trial.calls, values)}
            breach = next((words for module in texts if (words := self._course.facts.gate.breach(module, candidate.texts))), None)
            if breach is not None:
                events: list[Event] = [self._proposed(texts, parent, "rejected", "contract", breach)]
            else:
                events = [self._proposed(texts, parent, "accepted", "candidate", f"validated by {self._name}")]
                events.append(Validated(self._step, (parent,), texts, values, Spend(), objectives))
            self._trail = commit(self._trail, [*events, StepEnded(self._step)], self._course.ports)
        self._step += 1
        self._pending = Spend()

    def _proposed(self, texts: Mapping[str, str], parent: int, status: ProposalStatus, code: str, reason: str) -> Proposed:
        return Proposed(
            step=self._step,
            slot=0,
            parent=parent,
            modules=tuple(texts),
            example_ids=(),
            before=(),
            status=status,
            code=code,
            reason=reason,
            texts=texts,
            model=next(iter(self._course.ports.models)),
            proposer=self._name,
            spend=self._pending,
        )

    def _parent(self, candidate: Candidate) -> int:
        """The member most like it, the newest of equal ones: optimizers of others don't say whom they changed."""

        def likeness(index: int) -> float:
            texts = self.state.pool[index].candidate.texts
            return sum(difflib.SequenceMatcher(None, texts[module], text).quick_ratio() for module, text in candidate.texts.items())

        return max(range(len(self.state.pool)), key=lambda index: (likeness(index), index))
