"""What makes a model, a function, a program and a module the same one, and what the world may do to a judge."""

from __future__ import annotations

import asyncio
import functools
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite.core.code_id import code_id
from gepa_lite.errors import FeedbackError, ModelTimeoutError
from gepa_lite.lm.breaker import Breaker
from gepa_lite.lm.client import ModelClient, call_key
from gepa_lite.lm.deadline import DeadlineError, within
from gepa_lite.lm.meter import Meter
from gepa_lite.store.memory import MemoryStore
from gepa_lite.store.run_store import RunStore
from gepa_lite.testing import OpenAIServer, ScriptedLM
from tests.triage import Triage, answer, reflector, rows

ASKED = gl.Request(({"role": "user", "content": "hello"},))


# --- functions ------------------------------------------------------------------------------------------------------


def scaled(by: float, *, collected: list[float] | None = None) -> Callable[[float], float]:
    def scale(value: float) -> float:
        if collected is not None:
            collected.append(value)
        return value * by

    return scale


class Metric:
    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.seen: list[float] = []

    def __call__(self, value: float) -> float:
        self.seen.append(value)
        return value * self.weight

    def method(self, value: float) -> float:
        return value


def wrapped(function: Callable[..., float], by: float) -> Callable[..., float]:
    @functools.wraps(function)
    def call(value: float) -> float:
        return by * function(value)

    return call


def test_a_function_is_known_by_its_code_and_the_fixed_values_it_is_bound_to() -> None:
    pairs = [
        (scaled(2), scaled(3)),
        (functools.partial(pow, 2), functools.partial(pow, 3)),
        (Metric(0.5), Metric(0.6)),
        (Metric(0.5).method, Metric(0.6).method),
        (wrapped(scaled(1), 2), wrapped(scaled(1), 3)),
        (wrapped(scaled(1), 2), wrapped(scaled(4), 2)),
        (lambda x: x + 1, lambda x: x + 2),
        (eval("lambda x: x + 1"), eval("lambda x: x + 2")),
    ]
    for one, other in pairs:
        assert code_id(one) == code_id(one)
        assert code_id(one) != code_id(other)


def test_what_a_function_collects_does_not_change_it() -> None:
    assert code_id(scaled(2, collected=[])) == code_id(scaled(2, collected=[1.0, 2.0]))
    metric = Metric(0.5)
    before = code_id(metric)
    metric(1.0)
    assert code_id(metric) == before


def test_a_function_is_the_same_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def scale(by):\n    return lambda x: x * by if x in {'a', 'b', 'c'} else 0\n")
    words = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import mine; from gepa_lite.core.code_id import code_id; print(code_id(mine.scale(2)))"
    seen = {
        subprocess.run(
            [sys.executable, "-c", words],
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1


# --- models ---------------------------------------------------------------------------------------------------------


def test_two_functions_of_one_name_do_not_share_replies() -> None:
    first, second = (gl.CallableLM(lambda messages, word=word: word) for word in ("yes", "no"))
    assert first.describe().name == second.describe().name
    store = MemoryStore()
    client = ModelClient(store, Meter(gl.Budget(), gl.Usage()), Breaker(), lambda: None)
    replies = [client.call(lm, ASKED, role="task", sample=0, address=(0,)).text for lm in (first, second)]
    assert replies == ["yes", "no"]


def test_two_functions_that_cannot_be_told_apart_are_refused_before_any_call() -> None:
    calls: list[str] = []

    def asking(client: list[str]) -> Callable[[list[dict[str, str]]], str]:
        def ask(messages: list[dict[str, str]]) -> str:
            calls.append("call")
            return str(client)

        return ask

    class Two(gl.Program):
        first = gl.Module("message -> gist", "Say the gist.", lm=asking(["a"]))
        second = gl.Module("gist -> urgency", "Say how urgent it is.", lm=asking(["b"]))

        def forward(self, message: str) -> Any:
            return self.second(gist=self.first(message=message).gist)

    with pytest.raises(gl.UsageError, match=r"two models are both the function .*ask.*CallableLM\(fn, name="):
        gl.optimize(Two(), rows(8, 1), rows(8, 2), feedback=lambda example, output: 1.0)
    assert not calls


def test_a_models_further_parameters_belong_to_its_identity() -> None:
    low, high, plain = (
        gl.LiteLLM("openai/gpt-4.1-mini", extra=extra) for extra in ({"reasoning_effort": "low"}, {"reasoning_effort": "high"}, None)
    )
    assert plain.describe().settings == ""
    assert len({call_key(lm, ASKED, 0, (0,)) for lm in (low, high, plain)}) == 3


def test_a_run_is_not_resumed_on_a_model_with_other_parameters(tmp_path: Path) -> None:
    with OpenAIServer(lambda body: "<prompt>x</prompt>") as server:

        def optimized(effort: str) -> None:
            lm = gl.LiteLLM("openai/gpt-4.1-mini", api_base=server.base_url, api_key="k", extra={"user": effort})
            gl.optimize(
                Triage(lm=ScriptedLM(answer, name="task")),
                rows(8, 1),
                rows(8, 2),
                reflection_lm=lm,
                run=tmp_path / "run",
                budget=gl.Budget(rollouts=40, usd=1.0),
            )

        optimized("low")
        with pytest.raises(gl.UsageError, match="with settings"):
            optimized("high")


@pytest.fixture
def dripping() -> Iterator[str]:
    """A server that sends a byte now and then, and never comes to an end."""
    listener = socket.create_server(("127.0.0.1", 0))
    stopped = threading.Event()

    def drip(connection: socket.socket) -> None:
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{")
            while not stopped.wait(0.05):
                try:
                    connection.sendall(b" ")
                except OSError:
                    return

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=drip, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    stopped.set()
    listener.close()


def test_a_reply_that_never_ends_is_given_up_in_each_attempt_and_charged_at_its_bound(dripping: str) -> None:
    lm = gl.LiteLLM("openai/m", api_base=dripping, api_key="k", timeout=0.5, deadline=0.6, max_attempts=2, max_wait=0.0)
    store = MemoryStore()
    client = ModelClient(store, Meter(gl.Budget(), gl.Usage()), Breaker(), lambda: None)
    with pytest.raises(ModelTimeoutError, match=r"attempt 2 of 2: no full reply within 0.6 seconds") as caught:
        client.call(lm, ASKED, role="task", sample=0, address=(0,))
    assert caught.value.attempts == 2
    # both attempts may have been charged
    assert store.paid().total.output_tokens == 2 * ASKED.params.max_tokens


def test_within_tells_its_own_deadline_from_an_error_of_the_function() -> None:
    def late() -> None:
        raise TimeoutError("the function's own")

    with pytest.raises(TimeoutError, match="own"):
        within(5.0, late)
    forever = threading.Event()
    with pytest.raises(DeadlineError):
        within(0.01, forever.wait)
    forever.set()


# --- programs and modules -------------------------------------------------------------------------------------------


class Hop(gl.Program):
    ask = gl.Module("question -> answer", "Answer.")
    tools = (gl.Module("question -> note", "Note."),)

    def forward(self, question: str) -> Any:
        self.tools[0](question=question)
        return self.ask(question=question)


class TwoHops(gl.Program):
    def __init__(self, lm: Any) -> None:
        super().__init__(lm)
        self.first, self.second = Hop(), Hop()

    def forward(self, question: str) -> Any:
        return self.second(question=self.first(question=question).answer)


def test_two_instances_of_one_class_have_texts_of_their_own() -> None:
    hops = TwoHops(ScriptedLM("x"))
    assert list(hops.prompts) == ["first.ask", "first.tools[0]", "second.ask", "second.tools[0]"]
    changed = hops.with_prompts({"second.ask": "Answer at length."})
    for again in (changed, pickle.loads(pickle.dumps(changed.with_models({})))):
        done = again.run({"question": "why?"})
        assert done.error is None
        assert done.trace.modules == ("first.tools[0]", "first.ask", "second.tools[0]", "second.ask")
        assert [call.messages[0]["content"].splitlines()[0] for call in done.trace.calls] == [
            "Note.",
            "Answer.",
            "Note.",
            "Answer at length.",
        ]


def test_a_module_called_on_its_class_is_the_instances_where_there_is_one() -> None:
    class Direct(gl.Program):
        ask = gl.Module("question -> answer", "Answer.")

        def forward(self, question: str) -> Any:
            return Direct.ask(question=question)

    class Both(gl.Program):
        def __init__(self, lm: Any) -> None:
            super().__init__(lm)
            self.one, self.two = Direct(), Direct()

        def forward(self, question: str) -> Any:
            return self.one(question=question)

    assert Direct(ScriptedLM("x"))(question="q").answer == "x"
    with pytest.raises(gl.UsageError, match="call it on the instance"):
        Both(ScriptedLM("x"))(question="q")


def test_a_module_that_is_set_after_the_first_call_is_seen() -> None:
    hop = Hop(ScriptedLM(lambda request: request.messages[0]["content"].splitlines()[0]))
    assert hop(question="q").answer == "Answer."
    hop.ask = gl.Module("question -> answer", "Answer in one word.")
    assert hop(question="q").answer == "Answer in one word."
    both = TwoHops(ScriptedLM(lambda request: request.messages[0]["content"].splitlines()[0]))
    both(question="q")
    both.second.ask = gl.Module("question -> answer", "Be brief.")
    assert both(question="q").answer == "Be brief."


def test_the_fingerprint_tells_the_code_of_inner_programs_and_other_methods_apart() -> None:
    def outer(number: int, bonus: int) -> gl.Program:
        class Inner(gl.Program):
            ask = gl.Module("question -> answer", "Answer.")

            def forward(self, question: str, number: int = number) -> Any:
                return self.ask(question=question)

        class Outer(gl.Program):
            def __init__(self) -> None:
                super().__init__(ScriptedLM("x"))
                self.inner = Inner()

            def forward(self, question: str) -> Any:
                return self.inner(question=question)

            def more(self, by: int = bonus) -> int:
                return by

            def feedback(self, example: Any, output: Any, by: int = bonus) -> float:
                return float(by)

        return Outer()

    assert len({outer(*pair).fingerprint for pair in ((1, 1), (2, 1), (1, 2), (1, 1))}) == 3


# --- judges ---------------------------------------------------------------------------------------------------------


class Grade(gl.Program):
    grade = gl.Module("reply -> grade: float", "Grade the reply.")

    def forward(self, reply: str) -> Any:
        return self.grade(reply=reply)


class AsyncGrade(Grade):
    async def forward(self, reply: str) -> Any:
        return await self.grade.acall(reply=reply)


def test_a_judges_unreadable_reply_is_a_missing_score_not_the_end_of_the_run() -> None:
    judge = Grade(ScriptedLM(lambda request: "no number" if "green" in str(request.messages) else "1.0"))

    class Echo(gl.Program):
        say = gl.Module("word -> reply", "Repeat the word.")

        def forward(self, word: str) -> Any:
            return self.say(word=word)

    echo = Echo(ScriptedLM(lambda request: request.messages[-1]["content"]))
    found = gl.evaluate(echo, [{"word": "red"}, {"word": "green"}], feedback=lambda example, output: judge(reply=output.reply).grade)
    assert (found.n, found.missing, found.mean) == (1, 1, 1.0)
    failure = found.rollouts[1].failure
    assert failure is not None
    assert (failure.kind, failure.fault) == ("judge", "world")
    assert "could not be read" in failure.message


@pytest.mark.parametrize("judge", [Grade, AsyncGrade])
@pytest.mark.parametrize("awaited", [True, False])
def test_an_async_feedback_may_ask_any_program(judge: type[Grade], awaited: bool) -> None:
    asked = judge(ScriptedLM("0.5"))

    async def feedback(example: Any, output: Any) -> float:
        await asyncio.sleep(0)
        reply = await asked.acall(reply=output.reply) if awaited else asked(reply=output.reply)
        return float(reply.grade)

    class Echo(gl.Program):
        say = gl.Module("word -> reply", "Repeat the word.")

        async def forward(self, word: str) -> Any:
            return await self.say.acall(word=word)

    found = gl.evaluate(Echo(ScriptedLM("x")), [{"word": str(i)} for i in range(12)], feedback=feedback)
    assert (found.n, found.mean) == (12, 0.5)


def test_async_rollouts_wait_for_as_many_calls_at_once_as_there_are_workers() -> None:
    together = threading.Barrier(24, timeout=30)

    def reply(request: gl.Request) -> str:
        together.wait()
        return "x"

    class Echo(gl.Program):
        say = gl.Module("word -> reply", "Repeat the word.")

        async def forward(self, word: str) -> Any:
            return await self.say.acall(word=word)

    found = gl.evaluate(Echo(ScriptedLM(reply)), [{"word": str(i)} for i in range(24)], feedback=lambda example, output: 1.0, workers=24)
    assert (found.n, found.missing) == (24, 0)


# --- starting again with a changed feedback -------------------------------------------------------------------------


def test_a_mended_feedback_starts_again_at_no_cost_for_the_replies_that_were_paid(tmp_path: Path) -> None:
    data = rows(16, 1), rows(12, 2)
    budget = gl.Budget(rollouts=60)

    def run(name: str, broken: bool, task: ScriptedLM, replies_from: Path | None = None) -> Any:
        seen: list[str] = []
        triage = Triage(lm=task)

        def feedback(example: Any, output: Any, trace: Any) -> Any:
            seen.append(example.id)
            if broken and len(seen) == 30:
                raise KeyError("urgency")
            return triage.feedback(example, output, trace)

        return gl.optimize(
            triage,
            *data,
            feedback=feedback,
            reflection_lm=reflector(),
            run=tmp_path / name,
            budget=budget,
            workers=1,
            replies_from=replies_from,
        )

    task = ScriptedLM(answer, name="task")
    with pytest.raises(FeedbackError, match="replies_from="):
        run("first", True, task)
    paid = task.calls
    with pytest.raises(gl.UsageError, match=r"the feedback function has changed.*replies_from="):
        run("first", False, ScriptedLM(answer, name="task"))
    unbroken = ScriptedLM(answer, name="task")
    expected = run("whole", False, unbroken)
    again = ScriptedLM(answer, name="task")
    result = run("second", False, again, tmp_path / "first")
    assert result.prompts == expected.prompts
    assert again.calls == unbroken.calls - paid
    with RunStore.read(tmp_path / "second") as store, RunStore.read(tmp_path / "first") as first:
        assert store.paid().total.calls + first.paid().total.calls == RunStore.read(tmp_path / "whole").paid().total.calls
