"""The engine's own work for one accepted proposal (selection, state, bookkeeping) beside upstream ``gepa`` at the same pool, and what recording costs.

``python -m benchmarks engine [--quick]``. Both sides run in this process on made-up scores, with a model that takes no time; every proposal is accepted and validated. Recording
(one commit to the run's SQLite file a step, one durable rollout) is reported apart.
"""

from __future__ import annotations

import random
import resource
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import Options, Report, Row
from gepa_lite import Budget, Search
from gepa_lite.core.budget import Spend
from gepa_lite.core.call import Call, Trace, Usage
from gepa_lite.core.events import Event, Proposed, RunStarted, SeedValidated, StepEnded, Validated
from gepa_lite.core.feedback import Feedback
from gepa_lite.core.rollout import Rollout, RolloutKey
from gepa_lite.search.plan import plan_step
from gepa_lite.search.state import RunState
from gepa_lite.store.run_store import RunStore

MODULES = ("a", "b", "c")
LAST = 30
"""Proposals at the end of the pool's growth whose median counts."""

Scores = Callable[[random.Random, int], tuple[float, ...]]


def _binary(draw: random.Random, width: int) -> tuple[float, ...]:
    return tuple(float(draw.random() < 0.5) for _ in range(width))


def _continuous(draw: random.Random, width: int) -> tuple[float, ...]:
    return tuple(draw.random() for _ in range(width))


CASES: Mapping[str, tuple[int, Scores]] = {
    "300 binary": (300, _binary),
    "1,000 binary": (1_000, _binary),
    "3,000 continuous": (3_000, _continuous),
}


def ours(width: int, scores: Scores, candidates: int, rules: Search, store: RunStore | None) -> tuple[float, float]:
    """Median seconds of the last proposals: the engine's own work, and the commit."""
    draw = random.Random(0)
    train = tuple(f"t{i}" for i in range(60))
    state = RunState().apply(
        RunStarted({}, dict.fromkeys(MODULES, "seed"), train, tuple(f"v{i}" for i in range(width)), (), Budget(proposals=10**9))
    )
    state = state.apply(SeedValidated(scores(draw, width)))
    work, commits = [], []
    for step in range(candidates - 1):
        row = scores(draw, width)
        started = time.perf_counter()
        plan = plan_step(state, rules, {"m": 1.0}, step)
        parent = 0 if plan.merge is not None else plan.slots[0].parent.index
        module = MODULES[step % len(MODULES)]
        texts = {module: f"text {step}"}
        events: list[Event] = [
            Proposed(
                step,
                0,
                parent,
                (module,),
                train[:3],
                (0.0, 0.0, 0.0),
                "accepted",
                "improved",
                "",
                texts,
                (1.0, 1.0, 1.0),
                "m",
                spend=Spend(6),
            ),
            Validated(step, (parent,), texts, row, Spend(width)),
            StepEnded(step),
        ]
        for event in events:
            state = state.apply(event)
        done = time.perf_counter()
        if store is not None:
            store.commit(events)
        work.append(done - started)
        commits.append(time.perf_counter() - done)
    return statistics.median(work[-LAST:]), statistics.median(commits[-LAST:])


def peer(width: int, scores: Scores, candidates: int) -> float:
    """Median seconds of the last iterations of upstream gepa outside its adapter."""
    import gepa.api
    from gepa.core.adapter import EvaluationBatch

    class Quiet:
        def log(self, message: str) -> None:
            """Nothing."""

    class Adapter:
        def __init__(self) -> None:
            self.draw, self.inside, self.asked = random.Random(0), 0.0, 0
            self.marks: list[float] = []

        def evaluate(self, batch: Sequence[Any], candidate: dict[str, str], capture_traces: bool = False) -> Any:
            started = time.perf_counter()
            if len(batch) == width:
                self.marks.append(started - self.inside)
                values = list(scores(self.draw, width))
            else:
                # every child is a little better than its parent, so every proposal is accepted
                newest = max((int(text.split()[1]) for text in candidate.values() if " " in text), default=0)
                values = [newest / 1e6] * len(batch)
            outcome = EvaluationBatch(
                outputs=[None] * len(batch), scores=values, trajectories=[None] * len(batch) if capture_traces else None
            )
            self.inside += time.perf_counter() - started
            return outcome

        def make_reflective_dataset(
            self, candidate: dict[str, str], eval_batch: Any, components: list[str]
        ) -> dict[str, list[dict[str, str]]]:
            return {name: [{"Feedback": "x"}] for name in components}

        def propose_new_texts(self, candidate: dict[str, str], dataset: Any, components: list[str]) -> dict[str, str]:
            self.asked += 1
            return dict.fromkeys(components, f"text {self.asked}")

    adapter = Adapter()
    gepa.api.optimize(
        dict.fromkeys(MODULES, "seed"),
        [f"t{i}" for i in range(60)],
        [f"v{i}" for i in range(width)],
        adapter=adapter,  # type: ignore[arg-type]  # the protocol's docstring allows any object with these methods
        max_metric_calls=width + (candidates - 1) * (width + 6),
        seed=0,
        logger=Quiet(),
        track_best_outputs=False,
    )
    gaps = [b - a for a, b in zip(adapter.marks, adapter.marks[1:], strict=False)]
    return float(statistics.median(gaps[-LAST:]))


def recording(folder: Path, rollouts: int) -> tuple[float, float]:
    """CPU and wall microseconds a durable rollout, from 16 threads."""
    with RunStore.create(folder) as store:
        call = Call("a", {"x": "input"}, ({"role": "user", "content": "hello"},), "reply", {"y": "reply"}, usage=Usage(1, 100, 5, 0.0))

        def save(thread: int) -> None:
            for number in range(rollouts // 16):
                key = RolloutKey("candidate", f"{thread}-{number}")
                store.save_rollout(Rollout(key, 1.0, Feedback(1.0, "fine"), {"y": "reply"}, Trace((call,)), usage=call.usage))

        threads = [threading.Thread(target=save, args=(number,)) for number in range(16)]
        cpu, wall = time.process_time(), time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        count = rollouts // 16 * 16
        return (time.process_time() - cpu) / count * 1e6, (time.perf_counter() - wall) / count * 1e6


def run(options: Options) -> Report:
    """All cases, ours and the peer's in turns."""
    rows = []
    sizes = (200,) if options.quick else (200, 400)
    cases = dict(list(CASES.items())[:1]) if options.quick else CASES
    with tempfile.TemporaryDirectory() as folder:
        for name, (width, scores) in cases.items():
            for candidates in sizes:
                with RunStore.create(Path(folder) / f"{width}-{candidates}") as store:
                    mine, commit = ours(width, scores, candidates, Search.paper(), store)
                theirs = peer(width, scores, candidates)
                measure = f"{name}, {candidates} candidates"
                rows.append(
                    Row(f"{measure}: own ms a proposal", mine * 1e3, theirs * 1e3, theirs / mine, "ratio >= 100", theirs / mine >= 100)
                )
                defaults, _ = ours(width, scores, candidates, Search(), None)
                rows.append(Row(f"{measure}: own ms, our defaults", defaults * 1e3, theirs * 1e3, theirs / defaults))
                rows.append(Row(f"{measure}: commit ms", commit * 1e3))
        if not options.quick:
            large, _ = ours(1_000, _binary, 10_000, Search.paper(), None)
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
            rows.append(Row("1,000 binary, 10,000 candidates: own ms", large * 1e3, goal="<= 50 ms", met=large <= 0.05))
            rows.append(Row("peak memory of this process, GB", memory, goal="<= 1 GB", met=memory <= 1))
        cpu, wall = recording(Path(folder) / "recording", 2_000 if options.quick else 20_000)
    rows.append(Row("recording a rollout, CPU microseconds", cpu, goal="<= 50", met=cpu <= 50))
    rows.append(Row("recording a rollout, wall microseconds (16 threads)", wall))
    return Report("engine", rows, n=LAST)
