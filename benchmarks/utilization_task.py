"""What ``python -m benchmarks utilization`` runs: a scripted task behind a real HTTP server in a process of its own, optimized by ours and by upstream ``gepa``.

A prompt says its level. The task model repeats it, and an answer scores by it, so a child is better than its parent exactly where its level is higher. The reflection model raises the level in two of
five replies, in a fixed order, and lowers it in the others.
"""

from __future__ import annotations

import itertools
import multiprocessing
import re
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import gepa_lite as gl
from benchmarks.http_lm import HttpLM
from gepa_lite.core.call import Message
from gepa_lite.lm.protocol import Params, Request
from gepa_lite.testing import OpenAIServer

SLOTS = 32
SECONDS = 0.2
ACCEPTED = (0, 3)
"""Of five reflections in order of arrival, those that improve the prompt."""

_LEVEL = re.compile(r"Level (-?\d+)")


@dataclass(frozen=True)
class Course:
    """One run.

    Attributes:
        side: ``"ours"`` or ``"peer"``.
        rules: name of a search of ours, or of a setting of the peer's, in ``utilization.py``.
        validation: validation examples.
        reflection: seconds that a reflection takes.
        rollouts: the budget.
    """

    side: str
    rules: str
    validation: int
    reflection: float
    rollouts: int

    @property
    def name(self) -> str:
        """For tables and files."""
        return f"{self.side} {self.rules}, {self.validation} examples, reflection {self.reflection:g} s, {self.rollouts} rollouts"


class Level(gl.Program):
    """Answer at the level that the prompt says."""

    answer = gl.Module("question -> answer", "Level 0.")

    def forward(self, question: str) -> gl.Outputs:
        return self.answer(question=question)


def score_of(answer: str) -> float:
    """The score of an answer, in [0, 1]; never perfect, so that no minibatch is skipped."""
    found = _LEVEL.search(answer)
    return min(0.99, max(0.0, 0.3 + int(found[1]) / 1_000)) if found else 0.0


def feedback(example: gl.Example, output: Any) -> gl.Feedback:
    """The score, and words that hold no level."""
    return gl.Feedback(score_of(output.answer), "It can be better.")


class ModelServer:
    """The task model with ``SLOTS`` slots and ``SECONDS`` a reply, and the reflection model, which takes as many requests as come, in a process of their own.

    Args:
        reflection: seconds that a reflection takes.
        seconds: seconds that a task reply takes.
    """

    def __init__(self, reflection: float, seconds: float = SECONDS) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, reflection, seconds), daemon=True)
        self._process.start()
        self.task, self.reflection = self._pipe.recv()

    def busy(self) -> tuple[float, int, int]:
        """Slot-seconds and requests of the task model, and reflections, so far."""
        self._pipe.send("busy")
        found: tuple[float, int, int] = self._pipe.recv()
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._pipe.send("end")
        self._process.join()


def _serve(pipe: Connection, reflection: float, seconds: float) -> None:
    count = itertools.count()

    def rewritten(messages: list[dict[str, Any]]) -> str:
        found = _LEVEL.search(" ".join(message["content"] for message in messages))
        number = next(count)
        level = int(found[1]) if found else 0
        return f"```\nLevel {level + (1 if number % 5 in ACCEPTED else -1)}. Draft {number}.\n```"

    def answered(messages: list[dict[str, Any]]) -> str:
        found = _LEVEL.search(messages[0]["content"])
        return found[0] if found else "no level"

    with OpenAIServer(answered, slots=SLOTS, seconds=seconds) as task, OpenAIServer(rewritten, seconds=reflection) as reflector:
        pipe.send((task.base_url, reflector.base_url))
        while pipe.recv() == "busy":
            pipe.send((task.busy_seconds, task.calls, reflector.calls))


def measure(course: Course, rules: Any, seconds: float = SECONDS) -> dict[str, float]:
    """Run one course from start to end.

    Args:
        course: what is run.
        rules: the ``Search``, or the peer's keywords and its number of threads as ``"threads"``.
        seconds: seconds that a task reply takes.

    Returns:
        Wall seconds, the share of the slots that was busy, rollouts, reflections, and the CPU seconds of this process.
    """
    rows = [{"question": f"question {i}"} for i in range(60 + course.validation)]
    with ModelServer(course.reflection, seconds) as server:
        start, cpu = time.perf_counter(), time.process_time()
        if course.side == "ours":
            with tempfile.TemporaryDirectory() as scratch:
                run_ours(server, rows, rules, course.rollouts, Path(scratch) / "run")
        else:
            run_peer(server, rows, rules, course.rollouts)
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        busy, calls, reflections = server.busy()
    return {"wall": wall, "busy": busy / (SLOTS * wall), "calls": calls, "reflections": reflections, "cpu": cpu}


def run_ours(server: ModelServer, rows: Sequence[dict[str, str]], rules: gl.Search, rollouts: int, folder: Path) -> None:
    """One run of ours, with its store on disk."""
    gl.optimize(
        Level(lm=HttpLM(server.task, "task")),
        rows[:60],
        rows[60:],
        feedback=feedback,
        reflection_lm=HttpLM(server.reflection, "reflection"),
        budget=gl.Budget(rollouts=rollouts),
        search=rules,
        workers=SLOTS,
        run=folder,
    )


def run_peer(server: ModelServer, rows: Sequence[dict[str, str]], settings: dict[str, Any], rollouts: int) -> None:
    """One run of upstream gepa with an adapter that runs whole batches in so many threads."""
    import gepa.api
    from gepa.core.adapter import EvaluationBatch

    task, reflector = HttpLM(server.task, "task"), HttpLM(server.reflection, "reflection")
    options = {name: value for name, value in settings.items() if name != "threads"}
    with ThreadPoolExecutor(settings["threads"]) as pool:

        def answer(messages: tuple[Message, ...]) -> str:
            return task.complete(Request(messages, Params())).text

        class Quiet:
            def log(self, message: str) -> None:
                """Nothing."""

        class Adapter:
            propose_new_texts = None

            def evaluate(self, batch: Sequence[Any], candidate: dict[str, str], capture_traces: bool = False) -> Any:
                return self.batch_evaluate([(candidate, batch)])[0]

            def batch_evaluate(self, items: Sequence[tuple[dict[str, str], Sequence[Any]]]) -> list[Any]:
                asked = [
                    [
                        pool.submit(answer, ({"role": "system", "content": text["answer"]}, {"role": "user", "content": row["question"]}))
                        for row in batch
                    ]
                    for text, batch in items
                ]
                replies = [[future.result() for future in row] for row in asked]
                return [EvaluationBatch(outputs=row, scores=[score_of(reply) for reply in row], trajectories=row) for row in replies]

            def make_reflective_dataset(self, candidate: dict[str, str], eval_batch: Any, components: list[str]) -> Any:
                return {name: [{"Feedback": "It can be better."} for _ in eval_batch.outputs] for name in components}

        class Reflection:
            def __call__(self, prompt: Any) -> str:
                messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
                return reflector.complete(Request(tuple(messages), Params())).text

            def batch_complete(self, messages: Sequence[Any]) -> list[str]:
                return list(pool.map(self, messages))

        gepa.api.optimize(
            {"answer": "Level 0."},
            list(rows[:60]),
            list(rows[60:]),
            adapter=Adapter(),  # type: ignore[arg-type]  # the protocol's docstring allows any object with these methods
            reflection_lm=Reflection(),
            max_metric_calls=rollouts,
            logger=Quiet(),
            seed=0,
            **options,
        )
