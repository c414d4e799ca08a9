"""The engine's own work for one accepted proposal (selection, state, bookkeeping) beside upstream ``gepa`` at the same pool, and what recording costs.

``python -m benchmarks engine [--quick] [-- FOLDER]``. Both sides run in this process on made-up scores, with a model that takes no time; every proposal is accepted and validated. One run of each
side grows its pool to 1,000 candidates, and is read at 200, 400 and 1,000. CPU time decides, since a busy machine stretches wall time; both are shown. Our commits to the run's SQLite file are
on and reported apart and together; the peer keeps nothing on disk here.

A whole run takes about 25 minutes, nearly all of it the peer: with a FOLDER each case is kept there once it is done, and the next call goes on with the others.
"""

from __future__ import annotations

import json
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.engine_recording import recording_rows
from benchmarks.report import Options, Report, Row
from gepa_lite import Budget, Search
from gepa_lite.core.budget import Spend
from gepa_lite.core.events import Event, Proposed, RunStarted, SeedValidated, StepEnded, Validated
from gepa_lite.search.plan import plan_step
from gepa_lite.search.state import RunState
from gepa_lite.store.run_store import RunStore

MODULES = ("a", "b", "c")
LAST = 30
"""Proposals before a pool's size is reached whose median counts."""
SIZES = (200, 400, 1_000)
LARGE = 10_000

Scores = Callable[[random.Random, int], tuple[float, ...]]


def _binary(draw: random.Random, width: int) -> tuple[float, ...]:
    return tuple(float(draw.random() < 0.5) for _ in range(width))


def _continuous(draw: random.Random, width: int) -> tuple[float, ...]:
    return tuple(draw.random() for _ in range(width))


Clock = tuple[float, float]
"""CPU and wall seconds."""


def now() -> Clock:
    """Both clocks. CPU time is the whole process's: the store's writer thread is part of what a proposal costs."""
    return time.process_time(), time.perf_counter()


def medians(marks: Sequence[Clock], sizes: Sequence[int]) -> dict[str, Clock]:
    """For each size of the pool, in milliseconds, the median of the last proposals before it."""
    return {
        str(size): (
            statistics.median(cpu for cpu, _ in marks[: size - 1][-LAST:]) * 1e3,
            statistics.median(wall for _, wall in marks[: size - 1][-LAST:]) * 1e3,
        )
        for size in sizes
    }


CASES: Mapping[str, tuple[int, Scores]] = {
    "300 binary": (300, _binary),
    "1,000 binary": (1_000, _binary),
    "3,000 continuous": (3_000, _continuous),
}


def ours(width: int, scores: Scores, sizes: Sequence[int], rules: Search, store: RunStore | None) -> dict[str, dict[str, Clock]]:
    """Milliseconds a proposal at each size of the pool: the engine's own work, and the commit."""
    draw = random.Random(0)
    train = tuple(f"t{i}" for i in range(60))
    state = RunState().apply(
        RunStarted({}, dict.fromkeys(MODULES, "seed"), train, tuple(f"v{i}" for i in range(width)), (), Budget(proposals=10**9))
    )
    state = state.apply(SeedValidated(scores(draw, width)))
    work: list[Clock] = []
    commits: list[Clock] = []
    for step in range(max(sizes) - 1):
        row = scores(draw, width)
        started = now()
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
        done = now()
        if store is not None:
            store.commit(events)
        ended = now()
        work.append((done[0] - started[0], done[1] - started[1]))
        commits.append((ended[0] - done[0], ended[1] - done[1]))
    return {"work": medians(work, sizes), "commit": medians(commits, sizes)}


def peer(width: int, scores: Scores, sizes: Sequence[int]) -> dict[str, Clock]:
    """Milliseconds an iteration of upstream gepa outside its adapter, at each size of the pool."""
    import gepa.api
    from gepa.core.adapter import EvaluationBatch

    class Quiet:
        def log(self, message: str) -> None:
            """Nothing."""

    class Adapter:
        def __init__(self) -> None:
            self.draw, self.inside, self.asked = random.Random(0), (0.0, 0.0), 0
            self.marks: list[Clock] = []

        def evaluate(self, batch: Sequence[Any], candidate: dict[str, str], capture_traces: bool = False) -> Any:
            started = now()
            if len(batch) == width:
                self.marks.append((started[0] - self.inside[0], started[1] - self.inside[1]))
                values = list(scores(self.draw, width))
            else:
                # every child is a little better than its parent, so every proposal is accepted
                newest = max((int(text.split()[1]) for text in candidate.values() if " " in text), default=0)
                values = [newest / 1e6] * len(batch)
            outcome = EvaluationBatch(
                outputs=[None] * len(batch), scores=values, trajectories=[None] * len(batch) if capture_traces else None
            )
            ended = now()
            self.inside = (self.inside[0] + ended[0] - started[0], self.inside[1] + ended[1] - started[1])
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
        max_metric_calls=width + (max(sizes) - 1) * (width + 6),
        seed=0,
        logger=Quiet(),
        track_best_outputs=False,
    )
    gaps = [(b[0] - a[0], b[1] - a[1]) for a, b in zip(adapter.marks, adapter.marks[1:], strict=False)]
    return medians(gaps, sizes)


def measure_case(name: str, sizes: Sequence[int], folder: Path) -> dict[str, Any]:
    """One case: ours with the paper's rules and the store on, ours with the defaults, the peer."""
    width, scores = CASES[name]
    with RunStore.create(folder / f"{width}-{name[-6:]}") as store:
        paper = ours(width, scores, sizes, Search.paper(), store)
    defaults = ours(width, scores, sizes, Search(), None)
    return {**paper, "defaults": defaults["work"], "peer": peer(width, scores, sizes)}


def case_rows(name: str, found: Mapping[str, Any], sizes: Sequence[int]) -> list[Row]:
    """The table of one case."""
    rows = []
    for size in map(str, sizes):
        work, commit, defaults, theirs = (found[part][size] for part in ("work", "commit", "defaults", "peer"))
        label, ratio = f"{name}, {int(size):,} candidates", theirs[0] / work[0]
        both = (work[0] + commit[0], work[1] + commit[1])
        rows += [
            Row(f"{label}: own CPU ms", work[0], theirs[0], ratio, "ratio >= 100", ratio >= 100),
            Row(f"{label}: own CPU ms, commit included", both[0], theirs[0], theirs[0] / both[0]),
            Row(f"{label}: own wall ms", work[1], theirs[1], theirs[1] / work[1]),
            Row(f"{label}: own wall ms, commit included", both[1], theirs[1], theirs[1] / both[1]),
            Row(f"{label}: own CPU ms, our defaults", defaults[0], theirs[0], theirs[0] / defaults[0]),
        ]
    if len(sizes) > 1:
        first, last = str(sizes[0]), str(sizes[-1])
        growth, most = found["work"][last][0] / found["work"][first][0], sizes[-1] / sizes[0]
        peers = found["peer"][last][0] / found["peer"][first][0]
        rows.append(Row(f"{name}: growth {first} to {last}", growth, peers, goal=f"<= {most:g} (linear)", met=growth <= most))
    return rows


def large_rows() -> list[Row]:
    """A pool of 10,000, first of all: the process's peak memory is then ours."""
    rows = []
    for label, rules in (("paper's rules", Search.paper()), ("our defaults", Search())):
        cpu, wall = ours(1_000, _binary, (LARGE,), rules, None)["work"][str(LARGE)]
        rows.append(Row(f"1,000 binary, {LARGE:,} candidates, {label}: own wall ms", wall, goal="<= 50 ms", met=wall <= 50))
        rows.append(Row(f"1,000 binary, {LARGE:,} candidates, {label}: own CPU ms", cpu))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return [*rows, Row(f"1,000 binary, {LARGE:,} candidates: peak memory, GB", memory, goal="<= 1", met=memory <= 1)]


def kept(folder: Path | None, name: str, measure: Callable[[], Any]) -> Any:
    """What was measured before, from the folder, or measure it now and keep it."""
    path = None if folder is None else folder / f"{name.replace(' ', '-').replace(',', '')}.json"
    if path is not None and path.exists():
        return json.loads(path.read_text())
    found = measure()
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found))
    return found


def run(options: Options) -> Report:
    """All cases, ours and the peer's in turns."""
    pieces = Path(options.rest[0]) if options.rest else None
    sizes = SIZES[:1] if options.quick else SIZES
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        if not options.quick:
            rows += [Row(**row) for row in kept(pieces, "large", lambda: [vars(row) for row in large_rows()])]
        # before the peer fills the heap, which every garbage collection then walks
        recorded = kept(pieces, "recording", lambda: [vars(row) for row in recording_rows(Path(scratch), options.quick)])
        for name in list(CASES)[: 1 if options.quick else None]:
            rows += case_rows(name, kept(pieces, name, partial(measure_case, name, sizes, Path(scratch))), sizes)
        rows += [Row(**row) for row in recorded]
    return Report("engine", rows, n=LAST, extra={"peer": f"gepa {version('gepa')}", "sizes": list(sizes)})
