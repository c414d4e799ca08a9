"""A stalled step is deferred by an event: those behind it go on, and a resume reads the event."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import pytest

import gepa_lite as gl
from gepa_lite import api
from gepa_lite.core.events import Deferred, Event, Proposed, StepEnded, Stopped
from gepa_lite.search.plan import StepPlan
from gepa_lite.search.ports import Running
from gepa_lite.search.state import RunState, replay
from gepa_lite.search.trail import follow
from gepa_lite.session import Session
from gepa_lite.store.memory import MemoryStore
from gepa_lite.testing import ScriptedLM
from tests.test_windows import bare, boundaries
from tests.triage import program, reflect, reflector, rows

T = TypeVar("T")


class Slow(Generic[T]):
    """A step that does not end when it is waited for, so often."""

    def __init__(self, task: Callable[[], T], step: int, stalls: Counter[int]) -> None:
        self.result, self._step, self._stalls = task, step, stalls

    def ends_within(self, seconds: float) -> bool:
        self._stalls[self._step] -= 1
        return self._stalls[self._step] < 0


class Stalling(Session):
    """A session in which given steps stall so often, those of earlier sessions counted."""

    stalls: Counter[int]

    def start(self, task: Callable[[], T]) -> Running[T]:
        assert isinstance(task, partial)
        (plan,) = (argument for argument in task.args if isinstance(argument, StepPlan))
        return Slow(task, plan.step, self.stalls)


def run(options: Mapping[str, Any], stalls: Mapping[int, int], before: Sequence[Event] = (), budget: int = 200) -> list[Event]:
    prepared = api.prepare(
        program(),
        rows(24, 1),
        rows(16, 2),
        reflection_lm=reflector(),
        workers=4,
        search=gl.Search.paper(patience=1.0, **options),
        budget=gl.Budget(rollouts=budget),
    )
    store = MemoryStore()
    store.commit(list(before))
    session = Stalling(prepared.spec, store)
    session.stalls = Counter(stalls) - Counter(event.step for event in before if isinstance(event, Deferred))
    session.run()
    return store.events()


def committed(events: Sequence[Event]) -> list[int]:
    return [event.step for event in events if isinstance(event, StepEnded)]


@pytest.mark.parametrize(
    ("window", "stalls", "order"),
    [
        (1, {1: 1}, [0, 2, 1, 3, 4, 5, 6]),
        (1, {1: 3}, [0, 2, 3, 4, 1, 5, 6]),
        (2, {0: 1}, [1, 2, 0, 3, 4, 5, 6]),
        (4, {2: 1}, [0, 1, 3, 4, 5, 6, 2]),
        (4, {0: 1, 4: 2}, [1, 2, 3, 0, 5, 6, 7]),
    ],
)
def test_a_stalled_step_commits_behind_those_that_went_on(window: int, stalls: dict[int, int], order: list[int]) -> None:
    events = run({"window": window}, stalls)
    assert committed(events)[: len(order)] == order
    assert Counter(event.step for event in events if isinstance(event, Deferred)) == Counter(stalls)
    assert sorted(committed(events)) == list(range(len(committed(events)))), "no step is lost or taken twice"


@pytest.mark.parametrize("options", [{}, {"fan": 3}, {"merge": "paper"}, {"validation": "staged", "merge": "complementary"}], ids=str)
@pytest.mark.parametrize(("window", "stalls"), [(1, {1: 2, 3: 1}), (4, {0: 1, 2: 3, 5: 1}), (3, {1: 1, 2: 1, 3: 1, 4: 1})])
def test_a_resume_reads_the_deferrals(options: dict[str, Any], window: int, stalls: dict[int, int]) -> None:
    options = {**options, "window": window}
    events = run(options, stalls)
    assert any(isinstance(event, Deferred) for event in events)
    state = replay(events)
    assert state.spend.rollouts <= 200
    assert state.deferred == ()
    for cut in boundaries(events):
        assert run(options, stalls, before=events[:cut]) == events


def test_a_run_with_deferrals_goes_on_with_a_larger_budget() -> None:
    options, stalls = {"window": 4}, {1: 1, 3: 1}
    first = run(options, stalls, budget=130)
    deferrals = sum(isinstance(event, Deferred) for event in first)
    assert deferrals == 2
    assert bare(run(options, stalls, before=first)) == bare(run(options, stalls))


def test_without_patience_nothing_is_deferred() -> None:
    prepared = api.prepare(program(), rows(24, 1), rows(16, 2), reflection_lm=reflector(), search=gl.Search.paper(window=3))
    session = Stalling(prepared.spec, MemoryStore())
    session.stalls = Counter({1: 5})
    session.run()
    assert session.stalls == {1: 5}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("window", [1, 3])
def test_a_reply_that_does_not_come_blocks_no_other_step(window: int) -> None:
    """The first reflection answers only once three other steps are committed: without the deferral, never."""
    later, first, ends = threading.Event(), threading.Event(), []

    def answer(request: gl.Request) -> str:
        if not first.is_set():
            first.set()
            assert later.wait(100)
        return reflect(request)

    def watch(event: Event, state: RunState) -> None:
        if isinstance(event, StepEnded):
            ends.append(event.step)
            if len(ends) == 3:
                later.set()

    class Watching:
        on_event = staticmethod(watch)

        def on_notice(self, text: str) -> None: ...
        def on_rollout(self, rollout: Any, saved: bool) -> None: ...
        def close(self) -> None: ...

    lm = ScriptedLM(answer, name="reflector")
    rules = gl.Search.paper(window=window, patience=0.05, skip_perfect=False)
    prepared = api.prepare(program(), rows(24, 1), rows(16, 2), reflection_lm=lm, search=rules, budget=gl.Budget(rollouts=250))
    store = MemoryStore()
    state = Session(prepared.spec, store, [Watching()]).run().state
    assert isinstance(state.stopped, Stopped)
    assert state.deferred == ()
    stalled = next(event.step for event in store.events() if isinstance(event, Deferred))
    assert ends.index(stalled) >= 3
    assert sorted(ends) == list(range(len(ends)))
    assert any(isinstance(event, Proposed) and event.step == stalled for event in store.events())
    assert follow(store.events(), rules).state.spend == state.spend
