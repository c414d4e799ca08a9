"""One stretch of training within a run: its rollouts, its candidates and its price enter the run's record."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gepa_lite.baselines.grpo.backend import Course as TrainingCourse
from gepa_lite.baselines.grpo.backend import RLBackend, Update
from gepa_lite.baselines.grpo.rows import Row, trained_tokens
from gepa_lite.baselines.grpo.samples import SampleBook, drawn
from gepa_lite.baselines.grpo.settings import Training
from gepa_lite.baselines.grpo.signal import FLAT_IN_A_ROW, Signal, signal_of, stall_words, unreadable_words, worst_alone
from gepa_lite.baselines.grpo.trainable import SAMPLED, WEIGHTS, Trainable
from gepa_lite.core.budget import Spend
from gepa_lite.core.call import Usage
from gepa_lite.core.events import Proposed, StepEnded, Stopped
from gepa_lite.core.seeds import stream
from gepa_lite.lm.policy.engine import BASE, is_adapter
from gepa_lite.search.loop import commit
from gepa_lite.search.plan import StepPlan
from gepa_lite.search.state import Member
from gepa_lite.search.step import Course
from gepa_lite.search.stop import no_room, why_stop
from gepa_lite.search.trail import Trail
from gepa_lite.search.trial import spend_of
from gepa_lite.search.validate import validate
from gepa_lite.ship.atomic import write_atomically

FIGURES = ("updates", "rows", "masked", "dropped", "groups", "flat_groups", "flat_updates")
"""What the record of a step says of its updates. ``flat``: without a gradient."""


class _NoRoom(Exception):  # an internal signal
    """One more update does not fit in what is left of the budget."""

    def __init__(self, stop: Stopped) -> None:
        super().__init__(stop.reason)
        self.stop = stop


class Phase:
    """Trains the weights of one candidate. Every ``validate_every`` updates are one step of the run: a proposal, validated in full.

    On a resume the updates after the newest checkpoint are made again, from the rollouts and samples on disk, so that they are the same; steps that are in the record are not recorded twice.

    Args:
        trail: where the run stands.
        course: rules, facts and ports.
        program: the seed, as the run knows it.
        settings: of the training.
        backend: computes the updates.
        book: of the samples.
        place: the folder of the run's adapters, and the training's own for checkpoints.
        start: the member whose prompts and weights it starts from, and the index of its first step in the run.
    """

    def __init__(
        self,
        trail: Trail,
        course: Course,
        program: Trainable,
        settings: Training,
        backend: RLBackend,
        book: SampleBook,
        place: tuple[Path, Path],
        start: tuple[Member, int],
    ) -> None:
        self.trail = trail
        self.ending: Stopped | None = None
        self._course, self._program, self._settings, self._backend, self._book = course, program, settings, backend, book
        self._adapters, self._folder = place
        self._parent, self._first = start
        self.step = self._first
        """Index of the run's step that comes next."""
        self._pending = Spend()
        self._ids: list[str] = []
        self._figures = dict.fromkeys(FIGURES, 0)
        self._flat: list[Signal] = []
        self._told = False
        self._unmoved = ""
        self._tokens = self._contexts = 0
        self._losses: list[float] = []

    def run(self) -> Trail:
        """Train until the settings, the budget or a stop rule end it; ``ending`` says why where the whole run ends."""
        state, search, settings = self.trail.state, self._course.search, self._settings
        assert state.started is not None
        done = self._folder / "done.json"
        if done.exists():
            self.step = int(json.loads(done.read_text())["step"])
            return self.trail
        self._warn()
        self._book.load()
        self._prepare()
        training = TrainingCourse(
            self._program.engine, settings, state.started.train_ids, search.seed, self._folder, self._rows, self._ended
        )
        try:
            self._backend.train(training)
        except _NoRoom as error:
            self.ending = error.stop
        if self._figures["updates"] and self.ending is not None:
            self._validate()
        self.step = max(self.step, min(self.trail.state.next_step, self._first + self._length))
        if self.ending is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(done, json.dumps({"step": self.step}) + "\n")
            self._book.clear()
        return self.trail

    def _warn(self) -> None:
        """Say so, before the first update, where no validation rollout of the parent gave an answer. Its rollouts are on disk and cost nothing."""
        state, search, parent = self.trail.state, self._course.search, self._parent
        assert state.started is not None
        row = state.table.array[parent.index]
        scored = [example for example, value in zip(state.started.validation_ids, row, strict=True) if not math.isnan(value)]
        if state.next_step > self._first or not worst_alone((value for value in row if not math.isnan(value)), search.objective):
            return
        found = self._course.ports.evaluate(parent.candidate, scored, samples=range(search.repeats), priority=(0, self._first))
        name = f"candidate #{parent.index}" if parent.index else "the seed"
        rollouts = [rollout for sample in found for rollout in sample]
        words = unreadable_words(name, rollouts, self._settings.group, self._settings.temperature)
        if words is not None:
            self._course.ports.notice(words)

    def _prepare(self) -> None:
        """The adapter to train: the parent's own, or a new one that changes nothing yet."""
        engine, adapter = self._program.engine, self._parent.candidate.texts[WEIGHTS]
        engine.shape(self._settings.lora, self._course.search.seed)
        if adapter != BASE:
            engine.use(adapter, self._adapters / adapter)
        # a new adapter has a name of its own and does what the base does
        self._unmoved = engine.now()

    def _rows(self, step: int, example_ids: Sequence[str]) -> list[Row]:
        settings, state, search = self._settings, self.trail.state, self._course.search
        assert state.started is not None
        self.step = self._first + step // settings.validate_every
        new = settings.group * len(example_ids)
        later = len(state.started.validation_ids) + len(state.started.extra_pin_ids)
        plan = StepPlan(self.step, (), None, self._pending.rollouts + new + later, 0)
        stop = no_room(state, [plan], search, self._course.ports.surroundings())
        if stop is not None and self.step >= state.next_step:
            raise _NoRoom(stop)
        self._book.begin(step, step - 2 * settings.validate_every)
        candidate = self._parent.candidate.replace({WEIGHTS: self._program.engine.adapter + SAMPLED})
        # a later cycle may train the same candidate: it samples anew, since what an earlier one sampled is dropped
        update = self._first * settings.validate_every + step
        samples = range(update * settings.group, (update + 1) * settings.group)
        found = self._course.ports.evaluate(candidate, example_ids, samples=samples, priority=(0, self.step))
        rollouts = [rollout for row in found for rollout in row]
        episodes = [self._book.episode(rollout) for rollout in rollouts]
        if settings.shuffled:
            rewards = [episode.reward for episode in episodes]
            stream(search.seed, "shuffled rewards", step).shuffle(rewards)
            episodes = [replace(episode, reward=reward) for episode, reward in zip(episodes, rewards, strict=True)]
        rows = settings.builder.rows(episodes)
        most = new * calls_of(self._program, settings)
        order = list(range(len(rows)))
        stream(search.seed, "rows", step).shuffle(order)
        # a masked row takes no place from one that is trained
        order.sort(key=lambda index: not rows[index].trained)
        kept = [rows[index] for index in drawn(len(rows), most, order)]
        self._pending = self._pending + spend_of(rollouts)
        self._ids += [example for example in example_ids if example not in self._ids]
        self._figures["rows"] += len(kept)
        self._figures["masked"] += sum(not row.trained for row in kept)
        self._figures["dropped"] += len(rows) - len(kept)
        self._see(signal_of(episodes, kept))
        self._tokens = trained_tokens(kept)
        self._contexts = sum(len(row.prompt_ids) for row in kept if row.trained)
        return kept

    def _see(self, signal: Signal) -> None:
        """Count what an update has to go on, and tell once where many in a row have nothing."""
        self._figures["groups"] += signal.groups
        self._figures["flat_groups"] += signal.flat
        self._figures["flat_updates"] += signal.still
        self._flat = [*self._flat, signal] if signal.still else []
        if len(self._flat) >= FLAT_IN_A_ROW and not self._told:
            self._told = True
            settings, objective = self._settings, self._course.search.objective
            self._course.ports.notice(stall_words(self._flat, objective, settings.group, settings.temperature))

    def _ended(self, update: Update) -> bool:
        self._figures["updates"] += 1
        self._losses.append(update.loss)
        usage = Usage(1, self._contexts, self._tokens, 0.0)
        self._pending = self._pending + Spend(training=usage)
        self._course.ports.book(f"training/{self._folder.name}", usage, update.seconds, (self._folder.name, update.step))
        if (update.step + 1) % self._settings.validate_every and update.step + 1 < self._settings.steps:
            return True
        return self._validate()

    def _validate(self) -> bool:
        """Record the weights as they are; whether to go on."""
        engine, search, course = self._program.engine, self._course.search, self._course
        adapter = engine.now()
        if not is_adapter(self._adapters / adapter):
            engine.save(self._adapters / adapter)
        if self.step >= self.trail.state.next_step:
            self._commit(adapter)
        self.step += 1
        self._pending, self._ids, self._losses = Spend(), [], []
        self._figures = dict.fromkeys(self._figures, 0)
        self.ending = self.ending or why_stop(self.trail.state, search, course.ports.surroundings())
        return self.ending is None and not self._tired()

    @property
    def _length(self) -> int:
        """Steps of the run that the training takes at most."""
        return -(-self._settings.steps // self._settings.validate_every)

    def _tired(self) -> bool:
        """Whether so many validations in a row brought nothing better, by the record up to this step."""
        patience = self._settings.patience
        made = [member for member in self.trail.state.pool if self._first <= member.step < self.step]
        best = max([self._parent, *made], key=value_of)
        return patience is not None and self.step - max(self._first, best.step + 1) >= patience

    def _commit(self, adapter: str) -> None:
        state, search, ports = self.trail.state, self._course.search, self._course.ports
        texts = {WEIGHTS: adapter}
        child = self._parent.candidate.replace(texts)
        known = child.id in state.seen or adapter == self._unmoved
        losses = ", ".join(f"{loss:.4g}" for loss in (self._losses[0], self._losses[-1]))
        made, flat = self._figures["updates"], self._figures["flat_updates"]
        moved = f"{made} updates{f', {flat} without a gradient' if flat else ''}, loss first and last {losses}"
        unmoved = f"the weights did not change{f': {flat} of {made} times no gradient, scores all equal or missing' if flat else ''}"
        proposed = Proposed(
            step=self.step,
            slot=0,
            parent=self._parent.index,
            modules=(WEIGHTS,),
            example_ids=tuple(self._ids),
            before=(),
            status="skipped" if known else "accepted",
            code="unmoved" if known else "candidate",
            reason=unmoved if known else moved,
            texts={} if known else texts,
            proposer="grpo",
            shown=dict(self._figures),
            spend=self._pending,
        )
        events = [] if known else [validate(child, self.step, (self._parent.index,), texts, state, search, ports)]
        self.trail = commit(self.trail, [proposed, *events, StepEnded(self.step)], ports, search.repeats)


def value_of(member: Member) -> float:
    """The mean of a member; of one whose validation has a gap less than any."""
    return -math.inf if member.mean is None else member.mean


def calls_of(program: Trainable, settings: Training) -> int:
    """Rows kept for each rollout."""
    return settings.calls or len(program.trained)
