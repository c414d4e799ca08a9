"""What recording and dispatch cost: part of ``python -m benchmarks engine``."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.report import Row
from gepa_lite.core.budget import Spend
from gepa_lite.core.call import Call, Trace, Usage
from gepa_lite.core.candidate import Candidate
from gepa_lite.core.events import Event, Proposed, StepEnded
from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback
from gepa_lite.core.rollout import Rollout, RolloutKey
from gepa_lite.executors.threads import ThreadExecutor
from gepa_lite.executors.workers import DEFAULT_TIMEOUT
from gepa_lite.lm.protocol import Completion
from gepa_lite.rollouts.evaluator import Evaluator
from gepa_lite.store.memory import MemoryStore
from gepa_lite.store.protocol import Store
from gepa_lite.store.run_store import RunStore

WORKERS = 16
BATCH = 300
"""Examples of one validation."""
PASSES = 7


def recording_rows(folder: Path, quick: bool) -> list[Row]:
    """The rows, least first: dispatch alone, with the file, a call's ledger, reading back."""
    count = 1_500 if quick else 6_000
    both, dispatch, calls = [], [], []
    # in turns, so that what else the machine does hits all alike
    for number in range(PASSES):
        dispatch.append(_rollouts(MemoryStore(), count)[0])
        with RunStore.create(folder / f"rollouts-{number}") as store:
            both.append(_rollouts(store, count))
        with RunStore.create(folder / f"calls-{number}") as store:
            calls.append(_in_threads(partial(_call, store), count // 5))
    cpu, wall = (statistics.median(found[clock] for found in both) for clock in (0, 1))
    apart = statistics.median(found[0] - alone for found, alone in zip(both, dispatch, strict=True))
    events = 10_000 if quick else 100_000
    read, size = _reading(folder / "events", events)
    return [
        Row("dispatch of a rollout, CPU µs", statistics.median(dispatch)),
        Row("recording of a rollout, CPU µs", apart),
        Row("dispatch and recording together, CPU µs", cpu, goal="<= 50", met=cpu <= 50),
        Row("dispatch and recording together, fastest pass, CPU µs", min(found[0] for found in both)),
        Row("dispatch and recording together, wall µs", wall),
        Row("ledger and cache of a model call, CPU µs", statistics.median(calls)),
        Row(f"reading {events:,} events, CPU s", read),
        Row("bytes an event on disk", size),
    ]


def _rollouts(store: Store, count: int) -> tuple[float, float]:
    """CPU and wall microseconds a rollout that takes no time itself, from asking for a validation to having all of it on disk."""
    call = Call("a", {"x": "input"}, ({"role": "user", "content": "hello"},), "reply", {"y": "reply"}, usage=Usage(1, 100, 5, 0.0))

    def run(example: Example, key: RolloutKey) -> Rollout:
        return Rollout(key, 1.0, Feedback(1.0, "fine"), {"y": "reply"}, Trace((call,)), usage=call.usage)

    examples = [Example(f"e{number}", {"x": "input"}, {}) for number in range(BATCH)]
    executor = ThreadExecutor(WORKERS, DEFAULT_TIMEOUT)
    evaluator = Evaluator(lambda candidate: run, executor, store, lambda: None, lambda rollout, saved: None)
    evaluator.run(Candidate({"a": "first"}), examples)
    cpu, wall = time.process_time(), time.perf_counter()
    for number in range(count // BATCH):
        evaluator.run(Candidate({"a": f"text {number}"}), examples)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    executor.close()
    return cpu / count * 1e6, wall / count * 1e6


def _call(store: Store, thread: int, number: int) -> None:
    name = f"{thread}-{number}"
    store.begin_call(name, "task", "m", Usage(1, 100, 100, 0.0))
    store.save_completion(name, Completion("reply", usage=Usage(1, 100, 5, 0.0)), "task", 0.1, call_id=name)


def _in_threads(work: Callable[[int, int], None], count: int) -> float:
    """CPU microseconds a piece of work."""

    def serve(thread: int) -> None:
        for number in range(count // WORKERS):
            work(thread, number)

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(WORKERS)]
    cpu = time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.process_time() - cpu) / (count // WORKERS * WORKERS) * 1e6


def _reading(folder: Path, count: int) -> tuple[float, float]:
    """CPU seconds to read events, half of them proposals with a prompt of 600 characters; and their size on disk."""
    usage = Usage(6, 3_000, 200, 0.002)
    texts = {"a": "Say it well. " * 46}
    values = (0.0, 1.0, 0.5)
    with RunStore.create(folder) as store:
        for start in range(0, count, 1_000):
            events: list[Event] = []
            for step in range(start, start + 500):
                proposed = Proposed(
                    step, 0, 0, ("a",), ("t1", "t2", "t3"), values, "rejected", "not_better", "1.5 to 1.5", texts, values, "m"
                )
                events += [
                    proposed,
                    Proposed(step, 1, 0, ("a",), ("t4",), (1.0,), "skipped", "perfect", "", spend=Spend(6, 1, usage, usage)),
                ]
            store.commit([*events[:-1], StepEnded(step)])
        began = time.process_time()
        found = store.events()
        took = time.process_time() - began
    assert len(found) == count, f"{len(found)} of {count} events came back"
    return took, (folder / "run.db").stat().st_size / count
