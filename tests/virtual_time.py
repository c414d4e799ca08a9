"""A simulated landscape in simulated time: rollouts take workers and seconds, reflections seconds, and what runs side by side does so here too, though no clock is waited for."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gepa_lite import Budget, Search
from gepa_lite.core.call import Message
from gepa_lite.core.candidate import Candidate
from gepa_lite.core.rollout import Rollout
from gepa_lite.lm.protocol import Completion
from gepa_lite.search.state import RunState
from gepa_lite.search.stop_rules import Surroundings
from gepa_lite.testing import Landscape
from gepa_lite.testing.landscape_search import LandscapePorts, search_by

T = TypeVar("T")


class Clock:
    """Moves on once every thread that it knows waits for a moment or for another thread; one thread is awake at a time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self.ready: list[threading.Event] = []

    def at(self, moment: float, do: Callable[[], None]) -> None:
        """Call something at a moment."""
        heapq.heappush(self._due, (moment, next(self._count), do))

    def switch(self, mine: threading.Event | None) -> None:
        """Let another thread run, and come back once ``mine`` is set; None for a thread that ends."""
        while not self.ready:
            self.now, _, do = heapq.heappop(self._due)
            do()
        following = self.ready.pop(0)
        if following is not mine:
            following.set()
            if mine is not None:
                mine.wait()
        if mine is not None:
            mine.clear()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        mine = threading.Event()
        self.at(self.now + seconds, lambda: self.ready.append(mine))
        self.switch(mine)


@dataclass
class Thread:
    """A task on a thread of its own that takes turns with the others."""

    clock: Clock
    task: Callable[[], Any]
    value: Any = None
    error: BaseException | None = None
    done: bool = False
    waiting: list[threading.Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        go = threading.Event()
        self.clock.ready.append(go)

        def run() -> None:
            go.wait()
            try:
                self.value = self.task()
            except BaseException as error:
                self.error = error
            self.done = True
            self.clock.ready += self.waiting
            self.clock.switch(None)

        threading.Thread(target=run, daemon=True).start()

    def ends_within(self, seconds: float) -> bool:
        return True

    def result(self) -> Any:
        if not self.done:
            mine = threading.Event()
            self.waiting.append(mine)
            self.clock.switch(mine)
        if self.error is not None:
            raise self.error
        return self.value


class TimedPorts(LandscapePorts):
    """A landscape whose rollouts take a worker for some seconds, minibatches first; what was run before takes none."""

    def __init__(self, land: Landscape, seed: int, workers: int, rollout: float, reflection: float) -> None:
        super().__init__(land, seed)
        self.clock, self._free, self._rollout, self._reflection = Clock(), workers, rollout, reflection
        self._queue: list[tuple[tuple[int, ...], int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._ran: set[Any] = set()

    def evaluate(
        self, candidate: Candidate, example_ids: Sequence[str], *, samples: Sequence[int], priority: tuple[int, ...]
    ) -> Sequence[Sequence[Rollout]]:
        rows = super().evaluate(candidate, example_ids, samples=samples, priority=priority)
        keys = [rollout.key for row in rows for rollout in row]
        new = {key for key in keys if key not in self._ran}
        self._ran |= new
        left, mine = len(new), threading.Event()

        def ended() -> None:
            nonlocal left
            self._free += 1
            left -= 1
            if not left:
                self.clock.ready.append(mine)
            self._serve()

        for _ in new:
            heapq.heappush(self._queue, (priority, next(self._count), ended))
        if new:
            self._serve()
            self.clock.switch(mine)
        return rows

    def _serve(self) -> None:
        while self._free and self._queue:
            self._free -= 1
            _, _, ended = heapq.heappop(self._queue)
            self.clock.at(self.clock.now + self._rollout, ended)

    def reflect(self, messages: tuple[Message, ...], *, model: str, address: tuple[int, ...]) -> Completion:
        self.clock.sleep(self._reflection)
        return super().reflect(messages, model=model, address=address)

    def gather(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        threads = [Thread(self.clock, task) for task in tasks]
        return [thread.result() for thread in threads]

    def start(self, task: Callable[[], T]) -> Any:
        return Thread(self.clock, task)

    def surroundings(self) -> Surroundings:
        return Surroundings(elapsed=self.clock.now)


def timed_search(
    land: Landscape, rules: Search, budget: Budget, *, workers: int = 16, rollout: float = 1.0, reflection: float = 5.0
) -> tuple[RunState, float]:
    """A search, and the seconds that it takes there."""
    ports = TimedPorts(land, rules.seed, workers, rollout, reflection)
    _, state = search_by(ports, land, rules, budget)
    return state, ports.clock.now
