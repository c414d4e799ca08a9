"""A program or a feedback function that hangs stops no run for ever, is never mistaken for an outage, and costs nothing afterwards."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite.errors import FeedbackError, ModelsDownError, RunError, UsageError
from gepa_lite.executors import threads
from gepa_lite.executors.workers import Workers, read_workers
from gepa_lite.store.run_store import RunStore
from gepa_lite.testing import ScriptedLM
from tests.triage import program, reflector, rows

pytestmark = pytest.mark.timeout(120)

WORDS = [{"word": word} for word in ("one", "two", "three", "four", "five", "six")]


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Opened at the end, so that no thread outlives its test."""
    event = threading.Event()
    yield event
    event.set()


class Clock:
    """The clock of the worker threads' watch: it stands still, so that however slow the machine is only what hangs is overdue."""

    def __init__(self) -> None:
        self.now, self.goes_since = 0.0, float("inf")

    def monotonic(self) -> float:
        return self.now + max(0.0, time.monotonic() - self.goes_since)

    def go(self) -> None:
        """From here on it goes: nothing but what hangs is left to do."""
        self.goes_since = time.monotonic()

    def pass_the_limit(self) -> None:
        """For whoever hangs, and so knows that every worker does: what they did before is settled."""
        self.now += 10.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(threads, "time", made)
    return made


class Echo(gl.Program):
    """Repeats a word, and hangs after its call where it is told to."""

    say = gl.Module("word -> reply", "Repeat the word.")
    gate: Any = None
    again: Any = ()
    told: Any = SimpleNamespace(hangs=lambda: None, left=lambda: None)

    def forward(self, word: str) -> dict[str, Any]:
        reply = self.say(word=word).reply
        if word in self.again:
            self.told.hangs()
            self.gate.wait()
            try:
                self.say(word=f"{word} once more")
            finally:
                self.told.left()
        return {"reply": reply}


def echo(gate: threading.Event, *words: str, lm: Any = None) -> Echo:
    made = Echo(lm=lm or ScriptedLM("a word", name="task"))
    made.gate, made.again = gate, words
    return made


def test_a_program_that_hangs_is_its_candidate_s_failure_and_makes_no_call_afterwards(gate: threading.Event, clock: Clock) -> None:
    asked, hanging, left = [], [], threading.Semaphore(0)

    def reply(request: gl.Request) -> str:
        asked.append(request.messages[-1]["content"])
        return "a word"

    def hangs() -> None:
        hanging.append(True)
        if len(hanging) == 2:
            clock.pass_the_limit()

    program = echo(gate, "two", "three", lm=ScriptedLM(reply, name="task"))
    program.told = SimpleNamespace(hangs=hangs, left=left.release)
    result = gl.evaluate(program, WORDS, feedback=lambda example, output: 1.0, workers=Workers(2, timeout=0.5))
    found = {rollout.failure.kind if rollout.failure else "" for rollout in result.rollouts}
    assert found == {"", "deadline"}
    scores = [None if rollout.value is None else rollout.value for rollout in result.rollouts]
    assert scores == [1.0, 0.0, 0.0, 1.0, 1.0, 1.0], "both workers hang, and others take their place"
    hung = result.rollouts[1]
    assert hung.feedback is not None
    assert hung.feedback.text == "The program did not end within 0.5 s, and no model call was running."
    assert hung.usage.calls == 1
    gate.set()
    for _ in hanging:
        assert left.acquire(timeout=60), "each goes on, and tries its second call"
    assert not [text for text in asked if "once more" in text]


def test_a_rollout_that_waits_for_its_model_is_missing_never_a_score(gate: threading.Event, clock: Clock) -> None:
    def slow(request: gl.Request) -> str:
        if "six" in request.messages[-1]["content"]:
            clock.go()
            gate.wait()
        return "a word"

    lm = ScriptedLM(slow, name="task")
    # it is tried a second time, which waits for the same call
    result = gl.evaluate(echo(gate, lm=lm), WORDS, feedback=lambda example, output: 1.0, workers=Workers(1, timeout=1))
    (missing,) = [rollout for rollout in result.rollouts if rollout.missing]
    assert missing.failure is not None
    assert (missing.failure.kind, missing.failure.fault) == ("timeout", "world")


def test_a_feedback_function_that_hangs_ends_the_run_and_names_the_example(gate: threading.Event, clock: Clock, tmp_path: Path) -> None:
    data = rows(8, 2)

    def judge(example: gl.Example, output: Any) -> float:
        if example["message"] == data[3]["message"]:
            clock.pass_the_limit()
            gate.wait()
        return 1.0

    with pytest.raises(FeedbackError, match=r"did not return within 0\.5 s \(example ") as caught:
        gl.optimize(
            program(),
            rows(12, 1),
            data,
            feedback=judge,
            reflection_lm=reflector(),
            run=tmp_path / "run",
            budget=gl.Budget(rollouts=60),
            workers=Workers(1, timeout=0.5),
        )
    assert "timeout=" in str(caught.value)
    with RunStore.read(tmp_path / "run") as store:
        kept = list(store.rollouts())
    assert kept
    assert all(rollout.value == 1.0 for rollout in kept)


class Marker(gl.Program):
    """A judge that is a model."""

    mark = gl.Module("reply -> mark: float", "Mark the reply from 0 to 1.")

    def forward(self, reply: str) -> gl.Outputs:
        return self.mark(reply=reply)


def test_a_judge_that_waits_for_its_model_is_an_outage_not_a_broken_feedback_function(gate: threading.Event) -> None:
    def slow(request: gl.Request) -> str:
        gate.wait()
        return "1.0"

    judge = Marker(lm=ScriptedLM(slow, name="judge"))
    with pytest.raises(ModelsDownError, match=r"did not end within 0\.5 s; a model call was still running"):
        gl.evaluate(
            echo(gate),
            WORDS[:2],
            feedback=lambda example, output: float(judge(reply=output["reply"]).mark),
            workers=Workers(2, timeout=0.5),
        )


def test_threads_that_can_t_be_stopped_end_the_run_once_there_are_too_many(gate: threading.Event) -> None:
    many = [{"word": f"word {number}"} for number in range(30)]
    hanging = echo(gate, *(row["word"] for row in many))
    with pytest.raises(RunError, match=r'did not end within 0\.05 s.*workers="processes"'):
        gl.evaluate(hanging, many, feedback=lambda example, output: 1.0, workers=Workers(2, timeout=0.05))


class Sleeper(gl.Program):
    """Hangs on one word, in a process of its own."""

    say = gl.Module("word -> reply", "Repeat the word.")

    def forward(self, word: str) -> gl.Outputs:
        reply = self.say(word=word)
        if word == "two":
            threading.Event().wait()
        return reply


def hangs_on_three(example: gl.Example, output: Any) -> float:
    if example["word"] == "three":
        threading.Event().wait()
    return 1.0


def right(example: gl.Example, output: Any) -> float:
    return 1.0


def test_a_worker_process_whose_program_hangs_is_ended_and_replaced() -> None:
    result = gl.evaluate(Sleeper(lm=ScriptedLM("a word", name="task")), WORDS[:4], feedback=right, workers="processes:1,timeout:4")
    assert [rollout.value for rollout in result.rollouts] == [1.0, 0.0, 1.0, 1.0]
    failure = result.rollouts[1].failure
    assert failure is not None
    assert (failure.kind, failure.fault) == ("deadline", "candidate")
    assert result.rollouts[1].usage.calls == 1


def test_a_worker_process_whose_feedback_hangs_ends_the_run_and_names_the_example() -> None:
    with pytest.raises(FeedbackError, match=r"did not return within 4 s \(example "):
        gl.evaluate(Echo(lm=ScriptedLM("a word", name="task")), WORDS[:4], feedback=hangs_on_three, workers="processes:1,timeout:4")


def test_all_ways_to_say_it() -> None:
    assert read_workers("16,timeout:60") == Workers(16, "threads", 60.0)
    assert read_workers("threads:2,timeout:none") == Workers(2, timeout=None)
    assert read_workers("processes:4,timeout:2.5") == Workers(4, "processes", 2.5)
    for workers in (Workers(3), Workers(4, "processes", 2.5), Workers(1, timeout=None)):
        assert read_workers(str(workers)) == workers


@pytest.mark.parametrize("spec", ["16,timeout:", "16,timeout:-1", "16,timeout:0", "0", "processes:0", "16;timeout:5", "", 0, True])
def test_what_is_no_number_of_workers_is_refused(spec: Any) -> None:
    with pytest.raises(UsageError, match="workers"):
        read_workers(spec)


@pytest.mark.parametrize("wrong", [{"count": 0}, {"count": 2, "engine": "ray"}, {"count": 2, "timeout": 0}, {"count": 2, "timeout": "5"}])
def test_workers_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"{list(wrong)[-1]}="):
        gl.Workers(**wrong)


class Blocking(gl.Program):
    """A coroutine that blocks the event loop that all share, on one word."""

    say = gl.Module("word -> reply", "Repeat the word.")
    gate: Any = None

    async def forward(self, word: str) -> gl.Outputs:
        if word == "two":
            self.gate.wait()
        await asyncio.sleep(0.05)
        return await self.say.acall(word=word)


@pytest.mark.parametrize("workers", [2, 6])
def test_a_coroutine_that_blocks_the_loop_of_all_is_its_own_candidate_s_failure_and_no_other_s(workers: int, gate: threading.Event) -> None:
    blocking = Blocking(lm=ScriptedLM("a word", name="task"))
    blocking.gate = gate
    result = gl.evaluate(blocking, WORDS, feedback=lambda example, output: 1.0, workers=Workers(workers, timeout=1))
    assert [rollout.value for rollout in result.rollouts] == [1.0, 0.0, 1.0, 1.0, 1.0, 1.0]
    failure = result.rollouts[1].failure
    assert failure is not None
    assert (failure.kind, failure.fault) == ("deadline", "candidate")


def test_feedback_that_blocks_the_loop_of_all_is_named_by_its_own_example(gate: threading.Event) -> None:
    async def judge(example: gl.Example, output: Any) -> float:
        if example["word"] == "two":
            gate.wait()
        await asyncio.sleep(0.05)
        return 1.0

    with pytest.raises(FeedbackError, match=r"did not return within 1 s") as caught:
        gl.evaluate(echo(gate), WORDS, feedback=judge, workers=Workers(6, timeout=1))
    assert caught.value.example_id == gl.evaluate(echo(gate), WORDS[1:2], feedback=right).rollouts[0].key.example_id


def test_code_whose_model_calls_are_not_seen_beforehand_is_missing_never_a_score(gate: threading.Event, clock: Clock) -> None:
    def function(word: str, prompts: Any) -> str:
        if word == "two":
            clock.pass_the_limit()
            gate.wait()
        return word

    wrapped = gl.wrap(function, prompts={"style": "Repeat the word."})
    result = gl.evaluate(wrapped, WORDS, feedback=lambda example, output: 1.0, workers=Workers(1, timeout=0.5))
    assert [rollout.value for rollout in result.rollouts] == [1.0, None, 1.0, 1.0, 1.0, 1.0]
    failure = result.rollouts[1].failure
    assert failure is not None
    assert (failure.kind, failure.fault) == ("timeout", "world")
    assert "can't be seen from here" in failure.message


def test_which_wrapped_functions_hang_by_their_own_fault_alone() -> None:
    def held(**options: Any) -> bool:
        return gl.wrap(lambda word, prompts: word, prompts={"style": "Repeat it."}, **options).calls_held

    assert held(lm="openai/gpt-4.1-mini")
    assert held(record=gl.proxy("http://127.0.0.1:9/v1"))
    assert not held()
    assert not held(record="litellm")
    assert not held(record=gl.spans())
    assert not held(lm="openai/gpt-4.1-mini", record=[gl.proxy("http://127.0.0.1:9/v1"), "litellm"])
