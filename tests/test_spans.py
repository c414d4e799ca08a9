"""``gl.spans``: spans with GenAI attributes that code emits in a rollout are calls of its trace, in each form that instrumentations write."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite.adapters.recording.spans import _taken
from gepa_lite.program.recorder import call_directly
from gepa_lite.store.run_store import RunStore
from tests.triage import answer, reflector, rows
from tests.wrapped_task import PROMPTS, feedback

sdk: Any = pytest.importorskip("opentelemetry.sdk.trace")

SYSTEM, USER = "Decide how urgent it is.", "a refund"
SENT = [{"role": "system", "parts": [{"type": "text", "content": SYSTEM}]}, {"role": "user", "parts": [{"type": "text", "content": USER}]}]
CAME = [{"role": "assistant", "parts": [{"type": "text", "content": "high"}], "finish_reason": "stop"}]
BASE = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4.1-mini", "gen_ai.provider.name": "openai"}
USED = {"gen_ai.usage.input_tokens": 20, "gen_ai.usage.output_tokens": 2}

Form = tuple[dict[str, Any], list[tuple[str, dict[str, Any]]]]

FORMS: dict[str, Form] = {
    "attributes": ({"gen_ai.input.messages": json.dumps(SENT), "gen_ai.output.messages": json.dumps(CAME), **USED}, []),
    "system instructions": (
        {
            "gen_ai.system_instructions": json.dumps([{"type": "text", "content": SYSTEM}]),
            "gen_ai.input.messages": json.dumps(SENT[1:]),
            "gen_ai.output.messages": json.dumps(CAME),
            **USED,
        },
        [],
    ),
    "one event": (
        USED,
        [
            (
                "gen_ai.client.inference.operation.details",
                {"gen_ai.input.messages": json.dumps(SENT), "gen_ai.output.messages": json.dumps(CAME)},
            )
        ],
    ),
    "indexed": (
        {
            "gen_ai.prompt.0.role": "system",
            "gen_ai.prompt.0.content": SYSTEM,
            "gen_ai.prompt.1.role": "user",
            "gen_ai.prompt.1.content": USER,
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.content": "high",
            "gen_ai.completion.0.finish_reason": "stop",
            "gen_ai.usage.prompt_tokens": 20,
            "gen_ai.usage.completion_tokens": 2,
        },
        [],
    ),
    "events": (
        USED,
        [
            ("gen_ai.system.message", {"content": SYSTEM}),
            ("gen_ai.user.message", {"content": USER}),
            ("gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": json.dumps({"role": "assistant", "content": "high"})}),
        ],
    ),
    "the first events": (
        USED,
        [
            (
                "gen_ai.content.prompt",
                {"gen_ai.prompt": json.dumps([{"role": "system", "content": SYSTEM}, {"role": "user", "content": USER}])},
            ),
            ("gen_ai.content.completion", {"gen_ai.completion": json.dumps([{"role": "assistant", "content": "high"}])}),
        ],
    ),
}


@pytest.fixture
def provider() -> Any:
    return sdk.TracerProvider()


def emit(provider: Any, attributes: dict[str, Any], events: Any = (), *, at_start: dict[str, Any] = BASE) -> None:
    with provider.get_tracer("code").start_as_current_span("chat", attributes=at_start) as span:
        for name, values in events:
            span.add_event(name, values)
        span.set_attributes(attributes)


def run_once(fn: Any, spans: gl.Spans, prompts: Any = PROMPTS) -> Any:
    return gl.wrap(fn, prompts, record=spans).run({"message": USER}, call_directly)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("late", [False, True], ids=["told at once", "told at the end"])
def test_each_form_of_span_is_a_call_with_tokens_and_dollars(form: str, late: bool, provider: Any) -> None:
    attributes, events = FORMS[form]

    def triage(message: str) -> str:
        gl.prompt("route")
        emit(provider, {**attributes, **(BASE if late else {})}, events, at_start={} if late else BASE)
        return "high"

    [call] = run_once(triage, gl.spans(provider)).trace.calls
    assert (call.module, call.reply, dict(call.inputs), call.finish_reason) == ("route", "high", {"user": USER}, "stop")
    assert (call.usage.calls, call.usage.input_tokens, call.usage.output_tokens) == (1, 20, 2)
    assert call.usage.usd == pytest.approx(20 * 0.4e-6 + 2 * 1.6e-6)


def test_tools_are_shown_and_spans_around_calls_are_none() -> None:
    provider = sdk.TracerProvider()
    tool = [
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "look", "arguments": {}}], "finish_reason": "tool_call"}
    ]

    def triage(message: str) -> str:
        tracer = provider.get_tracer("code")
        with tracer.start_as_current_span("invoke_agent", attributes={**BASE, "gen_ai.operation.name": "invoke_agent"}):
            # a framework's span, and the SDK's own within it
            with tracer.start_as_current_span("chat", attributes={**BASE, "gen_ai.input.messages": json.dumps(SENT)}) as outer:
                emit(provider, FORMS["attributes"][0])
                outer.set_attribute("gen_ai.output.messages", json.dumps(tool))
            emit(provider, {}, at_start={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"})
            emit(provider, {}, at_start={"http.request.method": "POST"})
        return "high"

    [call] = run_once(triage, gl.spans(provider)).trace.calls
    assert json.loads(call.reply)["name"] == "look"
    assert (call.module, call.finish_reason) == ("route", "tool_call")


@pytest.mark.parametrize(
    ("said", "attributes", "kind"),
    [
        ("Error code: 429 - {'error': 'slow down'}", {}, "rate_limit"),
        ("no key", {"http.response.status_code": 401}, "auth"),
        ("gone", {"error.type": "503"}, "server"),
        ("Error code: 400 - maximum context length is 10 tokens", {}, "context_window"),
    ],
)
def test_a_failed_span_is_an_outage_or_the_candidates_fault(said: str, attributes: dict[str, Any], kind: str, provider: Any) -> None:
    def triage(message: str) -> str:
        try:
            with provider.get_tracer("code").start_as_current_span(
                "chat", attributes={**BASE, "gen_ai.input.messages": json.dumps(SENT)}
            ) as span:
                span.set_attributes(attributes)
                raise RuntimeError(said)
        except RuntimeError:
            return "low"

    execution = run_once(triage, gl.spans(provider))
    [call] = execution.trace.calls
    assert (call.module, call.error_kind, execution.outage is None) == ("route", kind, kind == "context_window")


def test_a_span_without_contents_counts_for_the_prompt_read_last_and_several_processors_count_once(provider: Any) -> None:
    spans, earlier = gl.spans(provider), gl.spans(provider)
    run_once(lambda message: gl.prompt("gist"), earlier)
    provider.add_span_processor(spans)

    def triage(message: str) -> str:
        for name in ("gist", "route"):
            gl.prompt(name)
            emit(provider, USED)
        return "high"

    assert [call.module for call in run_once(triage, spans).trace.calls] == ["gist", "route"]
    # a program that did not ask for it is left alone
    unseen = gl.wrap(triage, PROMPTS).run({"message": USER}, call_directly).trace
    assert unseen.usage.calls == 0


def test_a_span_that_another_thread_ends_late_is_waited_for(provider: Any) -> None:
    with ThreadPoolExecutor(1) as pool:

        def triage(message: str) -> str:
            span = provider.get_tracer("code").start_span("chat", attributes={**BASE, **FORMS["attributes"][0]})
            pool.submit(span.end)
            return "high"

        assert len(run_once(triage, gl.spans(provider)).trace.calls) == 1


def test_outside_of_a_rollout_it_takes_nothing_and_without_a_provider_it_says_so(provider: Any) -> None:
    spans = gl.spans(provider)
    program = gl.wrap(lambda message: emit(provider, USED) or "high", PROMPTS, record=spans)
    program.run({"message": "x"}, call_directly)
    assert program("x") == "high"
    assert not _taken.begun
    code = (
        "import gepa_lite as gl\n"
        "try:\n    gl.wrap(lambda m: m, {'p': 'x'}, record=gl.spans()).run({'m': 1})\n"
        "except gl.UsageError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "takes no span processors" in done.stdout
    assert isinstance(pickle.loads(pickle.dumps(spans)), gl.Spans)


def test_a_run_books_the_calls_that_spans_tell(tmp_path: Path, provider: Any) -> None:
    def ask(name: str, text: str) -> str:
        system = gl.prompt(name)
        messages = ({"role": "system", "content": system}, {"role": "user", "content": text})
        reply = answer(gl.Request(messages))
        sent = [{"role": m["role"], "parts": [{"type": "text", "content": m["content"]}]} for m in messages]
        came = [{"role": "assistant", "parts": [{"type": "text", "content": reply}]}]
        emit(provider, {"gen_ai.input.messages": json.dumps(sent), "gen_ai.output.messages": json.dumps(came), **USED})
        return reply

    def triage(message: str) -> str:
        return ask("route", f"{message}\n{ask('gist', message)}")

    result = gl.optimize(
        gl.wrap(triage, PROMPTS, record=gl.spans(provider)),
        rows(12, 1),
        rows(8, 4),
        feedback=feedback,
        run=tmp_path,
        reflection_lm=reflector(),
        budget=gl.Budget(rollouts=80, usd=1.0),
        workers=8,
    )
    assert result.validation.after > result.validation.before
    with RunStore.read(tmp_path) as store:
        kept = list(store.rollouts())
    assert {rollout.trace.modules for rollout in kept} == {("gist", "route")}
    task = result.costs.roles["task"]
    assert (task.input_tokens, task.output_tokens) == (20 * task.calls, 2 * task.calls)
    assert task.usd == pytest.approx(task.calls * (20 * 0.4e-6 + 2 * 1.6e-6))
