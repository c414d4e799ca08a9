"""How an optimizer that brings a loop of its own reaches rollouts, reflections and the record.

It is started anew on a resume and takes the same course again, since what it was given before is on disk: rollouts and replies then cost nothing, and candidates that are in the
record already are not recorded twice.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gepa_lite.baselines.steps import begin
from gepa_lite.core.budget import Spend
from gepa_lite.core.call import Message
from gepa_lite.core.candidate import Candidate
from gepa_lite.core.events import Event, ProposalStatus, Proposed, StepEnded, Stopped, Validated
from gepa_lite.core.rollout import Rollout
from gepa_lite.errors import BudgetSpentError, RunError
from gepa_lite.lm.protocol import Completion
from gepa_lite.search.loop import commit
from gepa_lite.search.plan import StepPlan
from gepa_lite.search.state import RunState
from gepa_lite.search.step import Course
from gepa_lite.search.stop import no_room
from gepa_lite.search.trail import Trail
from gepa_lite.search.trial import Trial, spend_of
from gepa_lite.search.winner import own_objectives

_IDLE = 100
"""Evaluations in a row that bring no new rollout after which an optimizer is ended: its own budget may count what ours does not."""

_TALK = 1_000
"""Replies in a row without a new rollout after which an optimizer is ended."""

_ENDING = "not_validated"
"""Marks what was spent after the last candidate of a session."""


class EndedError(RunError):
    """An optimizer is ended, though its budget is not spent.

    Args:
        code: as of ``Stopped``.
        reason: in words.
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


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
        self._talk = 0
        self._pending = Spend()
        assert self.state.started is not None
        self.train_ids = self.state.started.train_ids
        self.validation_ids = self.state.started.validation_ids
        self._charged = {(self.seed.id, example) for example in self.validation_ids}
        self._recorded = {self.seed.id}
        self._endings = {proposal.step: proposal.spend for proposal in self.state.proposals if proposal.code == _ENDING}

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
            EndedError: nothing new was asked for in a long time, a stop rule holds, or a person asked for the end.
            RunError: the run can't go on.
        """
        candidate = self.seed.replace(texts)
        new = [example for example in dict.fromkeys(example_ids) if (candidate.id, example) not in self._charged]
        self._admit(len(new), 0)
        self._idle = 0 if new else self._idle + 1
        if new:
            self._talk = 0
        if self._idle >= _IDLE:
            raise EndedError("rule", f"{_IDLE} requests in a row brought no new rollout")
        rollouts = list(self._course.ports.evaluate(candidate, example_ids, samples=(0,), priority=(0, self._step))[0])
        self._charged.update((candidate.id, example) for example in new)
        trial = Trial((tuple(rollouts),))
        self._charge(spend_of({rollout.key: rollout for rollout in rollouts if rollout.key.example_id in new}.values()))
        if tuple(example_ids) == self.validation_ids and candidate.id not in self._recorded:
            self._recorded.add(candidate.id)
            self._record(candidate, trial)
        return rollouts

    def reflect(self, messages: tuple[Message, ...]) -> Completion:
        """A reply of a reflection model, the same one on a resume.

        Raises:
            BudgetSpentError: it does not fit beside what is kept for after the search.
            EndedError: a great many were asked for without a new rollout, a stop rule holds, or a person asked for the end.
            ModelError: no reply after retries.
            RunError: the run can't go on.
        """
        self._admit(0, 1)
        self._talk += 1
        if self._talk > _TALK:
            raise EndedError("rule", f"{_TALK:,} replies in a row led to no new rollout")
        model = next(iter(self._course.ports.models))
        address, self._reflections = (self._reflections,), self._reflections + 1
        reply = self._course.ports.reflect(messages, model=model, address=address)
        self._charge(Spend(proposals=1, reflection=reply.usage))
        return reply

    def close(self, code: str, reason: str) -> RunState:
        """End the search; what was spent since the last candidate is recorded."""
        if self.state.stopped is not None:
            return self.state
        events: list[Event] = []
        if self._step >= self.state.next_step and self._pending != Spend():
            events = [
                self._proposed({}, 0, "rejected", _ENDING, "tried, but never on the whole validation set"),
                StepEnded(self._step),
            ]
        self._trail = commit(self._trail, [*events, Stopped(code, reason)], self._course.ports)
        return self.state

    def _charge(self, spend: Spend) -> None:
        self._pending = self._pending + spend
        ending = self._endings.get(self._step)
        if ending is not None and (ending.rollouts, ending.proposals) == (self._pending.rollouts, self._pending.proposals):
            # an earlier session ended here, and charged it
            self._step, self._pending = self._step + 1, Spend()

    def _admit(self, rollouts: int, proposals: int) -> None:
        if self._step < self.state.next_step:
            return  # on the record already: what was admitted then is admitted now
        state, search, around = (
            replace(self.state, spend=self.state.spend + self._pending),
            self._course.search,
            self._course.ports.surroundings(),
        )
        if around.asked:
            raise EndedError("asked", around.asked)
        for rule in search.stop:
            if reason := rule(state, search.objective, around):
                raise EndedError("rule", reason)
        plan = StepPlan(self._step, (), None, rollouts, proposals)
        stop = no_room(state, [plan], search, around) if rollouts or proposals else None
        if stop is not None:
            raise BudgetSpentError(stop.reason)

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
