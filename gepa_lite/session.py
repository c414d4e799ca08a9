"""The wiring: builds the parts of a run from options, and gives the loop its ports. The only place that knows them all."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from gepa_lite.briefing import fitted, gate_of, program_facts
from gepa_lite.core.budget import Budget, Role
from gepa_lite.core.call import Message, Usage
from gepa_lite.core.candidate import Candidate
from gepa_lite.core.events import BudgetChanged, Event
from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Objective
from gepa_lite.core.money import dollars
from gepa_lite.core.rollout import Rollout
from gepa_lite.engine import Engine
from gepa_lite.errors import BudgetSpentError, RunError
from gepa_lite.executors.daemons import DaemonThreads
from gepa_lite.executors.workers import Workers
from gepa_lite.lm.client import call_key
from gepa_lite.lm.made import MadeCall
from gepa_lite.lm.protocol import Completion, LMInfo, Params, Request
from gepa_lite.program.optimizable import Optimizable
from gepa_lite.rollouts.judge import Judge
from gepa_lite.run_spec import DEFAULT_PROPOSALS, RunSpec, check_same_run, check_samples
from gepa_lite.search.finish import Ending, finish
from gepa_lite.search.loop import commit, search_loop
from gepa_lite.search.ports import Running, WhenAsked
from gepa_lite.search.reserve import reserved_rollouts
from gepa_lite.search.search import Search
from gepa_lite.search.state import RunState, replay
from gepa_lite.search.step import Course
from gepa_lite.search.stop_rules import Surroundings, stop_files_of
from gepa_lite.search.trail import Trail, follow
from gepa_lite.store.asks import Asks
from gepa_lite.store.memory import MemoryStore
from gepa_lite.store.protocol import Store
from gepa_lite.store.stop_files import StopFiles

T = TypeVar("T")


class InterruptedRunError(RunError):
    """Ctrl-C: no new work is taken; what was running is finished and kept."""


class Observer(Protocol):
    """Who listens to a run. Called on the run's threads; an exception in it ends the run."""

    def on_event(self, event: Event, state: RunState) -> None:
        """An event was committed; ``state`` is the state after its step."""
        ...

    def on_rollout(self, rollout: Rollout, saved: bool) -> None:
        """A rollout ended; ``saved`` if it came from disk at no cost. Called from worker threads."""
        ...

    def on_notice(self, text: str) -> None:
        """Something a person should know."""
        ...

    def close(self) -> None:
        """The session is over, also by an error; may be called twice."""
        ...


@dataclass(frozen=True)
class Outcome:
    """How a session of a run ended.

    Attributes:
        state: all committed events, folded.
        interrupted: True after Ctrl-C.
        paid: consumed by model calls that were really sent, over all sessions, crash losses included.
        seconds: wall time over all sessions.
        seconds_by_role: time within model calls.
        notices: what a person should know.
    """

    state: RunState
    interrupted: bool
    paid: Usage
    seconds: float
    seconds_by_role: Mapping[Role, float]
    notices: tuple[str, ...] = ()


class Interrupt:
    """Ctrl-C once: no new work. Twice: stop now."""

    def __init__(self) -> None:
        self._flag = threading.Event()

    def set(self) -> None:
        """Take no more work."""
        self._flag.set()

    def check(self) -> None:
        """Raise if work may not be taken any more."""
        if self._flag.is_set():
            raise InterruptedRunError("interrupted")

    @contextmanager
    def on_signal(self, notice: Callable[[str], None]) -> Iterator[None]:
        """Catch SIGINT within the block, where this is the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle(signum: int, frame: Any) -> None:
            if self._flag.is_set():
                raise KeyboardInterrupt
            self._flag.set()
            # a handler interrupts whatever its thread is doing, which may hold the display's lock: another thread tells
            words = "Ctrl-C: finishing the calls in flight, then stopping. Press it again to stop now."
            threading.Thread(target=notice, args=(words,), daemon=True).start()

        before = signal.signal(signal.SIGINT, handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


@dataclass
class Session:
    """One session of a run: from opening its store to its end. It implements the loop's ports.

    Args:
        spec: what is run.
        store: where it is kept; the caller closes it.
        observers: who listens.
        keep_budget: a resumed run keeps its own budget, since the caller gave none.
        looks_elsewhere: how often other runs looked at the same test examples for other candidates than the one of this id.
        replies: a model's reply that another run paid for, by its key, or None.
        asks: what a person asks of the run from outside.
    """

    spec: RunSpec
    store: Store
    observers: Sequence[Observer] = ()
    keep_budget: bool = False
    looks_elsewhere: Callable[[str], int] = lambda _: 0
    replies: Callable[[str], Completion | None] | None = None
    asks: Asks = field(default_factory=Asks)
    notices: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._started_at = time.monotonic()
        self._earlier = self.store.seconds()
        self._interrupt = Interrupt()
        self._examples = {example.id: example for example in self.spec.examples}
        self._search = fitted(self.spec.search, [lm for lm, _ in self.spec.reflectors.values()])
        self._gate = gate_of(self.spec)
        self._stop_files = StopFiles(stop_files_of(self.spec.search.stop))
        self._threads = DaemonThreads("gepa-lite-step")

    def run(self) -> Outcome:
        """Start or resume the run, search until it stops, score the test set.

        Raises:
            UsageError: the store holds a run of other settings.
            RunError: the run can't go on; what was paid is kept.
        """
        trail = self._begin()
        state = trail.state
        interrupted = False
        reason = "error"
        wait = True
        self._state = state
        self._engine = Engine(self.spec, self.store, state.budget, self._allowed, self._on_rollout, self.replies)
        try:
            with self._interrupt.on_signal(self.notice):
                try:
                    state = (self.spec.procedure or search_loop)(trail, Course(self._search, program_facts(self.spec, self._gate), self))
                    state = self._finish(state)
                    reason = state.stopped.code if state.stopped else "error"
                except InterruptedRunError:
                    interrupted, reason = True, "interrupted"
                    state = replay(self.store.events())
        except KeyboardInterrupt:
            wait = False
            raise
        finally:
            # steps and proposals still in flight end at their next call or rollout
            self._interrupt.set()
            self._engine.close(wait)
            self._threads.close(wait)
            self.store.end_session(self.elapsed() - self._earlier, reason)
        paid = self.store.paid()
        if passed := overshoot(state.budget, paid.total):
            self.notice(passed)
        return Outcome(state, interrupted, paid.total, self.elapsed(), paid.seconds, tuple(self.notices))

    def notice(self, text: str) -> None:
        """Tell who listens something a person should know, and keep it for the result."""
        self.notices.append(text)
        for observer in self.observers:
            observer.on_notice(text)

    def evaluate(
        self, candidate: Candidate, example_ids: Sequence[str], *, samples: Sequence[int], priority: tuple[int, ...]
    ) -> Sequence[Sequence[Rollout]]:
        """See ``search.ports.Ports``."""
        return self._engine.evaluate(candidate, [self._examples[i] for i in example_ids], samples=samples, priority=priority)

    @property
    def models(self) -> Mapping[str, float]:
        """See ``search.ports.Ports``."""
        return {name: weight for name, (_, weight) in self.spec.reflectors.items()}

    def reflect(self, messages: tuple[Message, ...], *, model: str, address: tuple[int, ...]) -> Completion:
        """See ``search.ports.Ports``."""
        params = Params(max_tokens=self._search.reflection_tokens, temperature=self._search.reflection_temperature)
        request, lm = Request(messages, params), self.spec.reflectors[model][0]
        place: tuple[int | str, ...] = ("reflection", *address)
        self.store.note_reflection(address, model, call_key(lm, request, 0, place), messages)
        return self._engine.client.call(lm, request, role="reflection", sample=0, address=place)

    def book(self, name: str, usage: Usage, seconds: float, address: tuple[int | str, ...]) -> None:
        """See ``search.ports.Ports``."""
        made = MadeCall(LMInfo(name), Completion("", usage=usage), seconds)
        self._engine.client.call(made, Request(()), role="training", sample=0, address=("training", *address))

    def gather(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """See ``search.ports.Ports``."""
        if len(tasks) == 1:
            return [tasks[0]()]
        started = [self._threads.start(task).future for task in tasks]
        errors = [error for future in started if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        return [future.result() for future in started]

    def start(self, task: Callable[[], T]) -> Running[T]:
        """See ``search.ports.Ports``."""
        alone = self._search.window == 1 and self._search.patience is None and not self._search.overlaps
        return WhenAsked(task) if alone else self._threads.start(task)

    def commit(self, events: Sequence[Event], state: RunState) -> None:
        """See ``search.ports.Ports``."""
        self.store.commit(events)
        self._state = state
        for event in events:
            for observer in self.observers:
                observer.on_event(event, state)

    def surroundings(self) -> Surroundings:
        """See ``search.ports.Ports``."""
        asked = self.asks.now()
        if asked.budget is not None:
            self._engine.meter.rebound(asked.budget)
        words = "a person asked to finish now" if asked.stop == "finish" else ""
        return Surroundings(self.elapsed(), self._stop_files.now(), self._kept_seconds(), words, asked.budget)

    def elapsed(self) -> float:
        """Seconds of this run so far, over all its sessions."""
        return self._earlier + time.monotonic() - self._started_at

    def _begin(self) -> Trail:
        spec = self.spec
        for path in self._stop_files.left_over:
            self.notice(f"The stop file {path} was there before this session began and is ignored: touch it again to stop, or delete it.")
        trail = follow(self.store.events(), spec.search)
        state = trail.state
        if state.started is None:
            check_samples(self.store, spec)
            for split, examples in spec.splits.items():
                self.store.save_examples(split, examples)
            self._open_session()
            if self.keep_budget:
                self.notice(f"No budget was given: {spec.budget.describe()}, which pays for about {DEFAULT_PROPOSALS} proposals.")
            return commit(trail, [spec.started()], self)
        check_same_run(state.started, spec.started().without(state.set_aside.example_ids if state.set_aside else ()))
        self._open_session()
        if spec.budget != state.budget and not self.keep_budget:
            return commit(trail, [BudgetChanged(spec.budget)], self)
        if self.keep_budget:
            self.notice(f"No budget was given: the run goes on with its own, {state.budget.describe()}.")
        return trail

    def _open_session(self) -> None:
        self.store.begin_session({"workers": self.spec.workers.count, "engine": self.spec.workers.engine})

    def _allowed(self) -> None:
        """Refuse new work after Ctrl-C and when the time is up."""
        if self.asks.now().stop == "pause":
            self._interrupt.set()
        self._interrupt.check()
        seconds, elapsed = self._state.budget.seconds, self.elapsed()
        if seconds is not None and elapsed >= seconds - self._kept_seconds():
            raise BudgetSpentError(f"{elapsed:,.0f} of {seconds:,.0f} seconds are over")

    def _kept_seconds(self) -> float:
        """Seconds that the search leaves for what comes after it, by the pace so far."""
        state = self._state
        if state.stopped is not None or not state.spend.rollouts:
            return 0.0
        return reserved_rollouts(state, self._search) * self.elapsed() / state.spend.rollouts

    def _finish(self, state: RunState) -> RunState:
        return finish(state, Ending(self._search, self, self._gate.breach, self.looks_elsewhere, self.notice))

    def _on_rollout(self, rollout: Rollout, saved: bool) -> None:
        for observer in self.observers:
            observer.on_rollout(rollout, saved)


def evaluate_once(program: Optimizable, examples: Sequence[Example], judge: Judge, objective: Objective, workers: Workers) -> list[Rollout]:
    """Rollouts of a program as it stands, in the order of the examples; kept nowhere."""
    spec = RunSpec(program, (), examples, (), judge, {}, Budget(), Search(objective=objective), workers)
    engine = Engine(spec, MemoryStore(), spec.budget, _never, lambda rollout, saved: None)
    try:
        return engine.evaluate(Candidate(program.prompts), examples)[0]
    finally:
        engine.close()


def overshoot(budget: Budget, paid: Usage) -> str | None:
    """By how much what was paid is above the budget, in words, or None. It happens only where a model of the user's own keeps to no token limit."""
    parts = []
    if budget.tokens is not None and paid.tokens > budget.tokens:
        parts.append(f"{paid.tokens - budget.tokens:,} of {budget.tokens:,} tokens")
    if budget.usd is not None and paid.usd is not None and paid.usd > budget.usd + 1e-9:
        parts.append(f"{dollars(paid.usd - budget.usd, 4)} of {dollars(budget.usd)} USD")
    if not parts:
        return None
    return f"The budget was passed by {' and by '.join(parts)}: calls in flight took more than the token limit that was sent with them."


def _never() -> None:
    """Nothing interrupts an evaluation but KeyboardInterrupt itself."""
