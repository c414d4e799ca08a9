"""``record="litellm"``: what code asks of litellm itself is in the trace and on the ledger, whichever of litellm's ways it takes."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite.core.rollout import Rollout
from gepa_lite.errors import ModelsDownError
from gepa_lite.lm.providers import load_litellm
from gepa_lite.program.recorder import call_directly
from gepa_lite.store.run_store import RunStore
from gepa_lite.testing import OpenAIServer, Reply, fault
from tests.triage import answer, reflector, rows
from tests.wrapped_task import PROMPTS, feedback, said

MODEL = "openai/gpt-4.1-mini"
PRICE = (0.4e-6, 1.6e-6)
"""Dollars for a token in and out, by litellm's map."""


def script(messages: list[dict[str, Any]]) -> str:
    return answer(gl.Request(tuple({"role": m["role"], "content": m["content"]} for m in messages)))


def asked(base: str, name: str, text: str, **options: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": said(gl.prompt(name), text), "api_base": base, "api_key": "k", "max_retries": 0, **options}


def text_of(response: Any) -> str:
    return str(response.choices[0].message.content)


def streamed(base: str, name: str, text: str) -> str:
    chunks = load_litellm().completion(**asked(base, name, text, stream=True))
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


async def streamed_async(base: str, name: str, text: str) -> str:
    chunks = await load_litellm().acompletion(**asked(base, name, text, stream=True))
    return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])


def whole(base: str, name: str, text: str) -> str:
    return text_of(load_litellm().completion(**asked(base, name, text)))


def own_loop(base: str, name: str, text: str) -> str:
    return text_of(asyncio.run(load_litellm().acompletion(**asked(base, name, text))))


def other_thread(base: str, name: str, text: str) -> str:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(gl.carry(whole), base, name, text).result()


WAYS = {
    "completion": whole,
    "stream": streamed,
    "acompletion in a loop that ends with it": own_loop,
    "async stream": lambda *given: asyncio.run(streamed_async(*given)),
    "in another thread": other_thread,
}


def run_once(fn: Any, prompts: Any = PROMPTS) -> Any:
    return gl.wrap(fn, prompts, record="litellm").run({"message": "x"}, call_directly)


@pytest.mark.parametrize("way", WAYS)
def test_each_way_of_calling_is_recorded_once_with_tokens_and_dollars(way: str) -> None:
    def triage(message: str) -> str:
        gist = WAYS[way](server.base_url, "gist", message)
        return WAYS[way](server.base_url, "route", gist)

    with OpenAIServer([Reply("a gist of it", usage=(20, 4)), Reply("high", usage=(30, 2))]) as server:
        execution = run_once(triage)
    assert (execution.output, execution.error, execution.outage) == ("high", None, None)
    gist, route = execution.trace.calls
    assert (gist.module, gist.reply, dict(gist.inputs)) == ("gist", "a gist of it", {"user": "x"})
    assert (route.module, route.reply, dict(route.inputs)) == ("route", "high", {"user": "a gist of it"})
    assert gist.usage.tokens > 0
    if "stream" not in way:
        assert (gist.usage.input_tokens, gist.usage.output_tokens) == (20, 4)
    for call in (gist, route):
        assert call.usage.calls == 1
        assert call.usage.usd == pytest.approx(call.usage.input_tokens * PRICE[0] + call.usage.output_tokens * PRICE[1])


async def replied(base: str, name: str, text: str) -> str:
    return text_of(await load_litellm().acompletion(**asked(base, name, text)))


@pytest.mark.parametrize("way", [replied, streamed_async])
def test_coroutines_at_once_are_each_recorded_once_with_their_own_reply_in_the_order_they_began(way: Any) -> None:
    async def triage(message: str) -> str:
        return " ".join(await asyncio.gather(*(way(server.base_url, "gist", f"part {number}") for number in range(8))))

    with OpenAIServer(lambda messages: messages[-1]["content"]) as server:
        for _ in range(5):
            execution = run_once(triage)
            # litellm begins calls at once in threads of its own, in any order
            assert [call.reply for call in execution.trace.calls] == [f"part {number}" for number in range(8)]
            assert all(call.messages[-1]["content"] == call.reply for call in execution.trace.calls)
            assert execution.output == " ".join(f"part {number}" for number in range(8))


def test_gathered_calls_through_a_router_keep_their_order_too() -> None:
    async def triage(message: str) -> str:
        litellm = load_litellm()
        served = {"model": MODEL, "api_base": server.base_url, "api_key": "k"}
        router = litellm.Router(model_list=[{"model_name": "m", "litellm_params": served}], num_retries=0)
        texts = [said(gl.prompt("gist"), f"part {number}") for number in range(6)]
        made = await asyncio.gather(*(router.acompletion(model="m", messages=text) for text in texts))
        return " ".join(map(text_of, made))

    with OpenAIServer(lambda messages: messages[-1]["content"]) as server:
        for _ in range(3):
            assert [call.reply for call in run_once(triage).trace.calls] == [f"part {number}" for number in range(6)]


TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]


def test_the_tools_that_a_reply_calls_are_seen() -> None:
    tool = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    body = {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": None, "tool_calls": [tool]}}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }

    def triage(message: str) -> str:
        return str(load_litellm().completion(**asked(server.base_url, "route", message, tools=TOOLS)).choices[0].finish_reason)

    with OpenAIServer(Reply(body=json.dumps(body).encode())) as server:
        [call] = run_once(triage).trace.calls
    assert json.loads(call.reply) == [{"arguments": "{}", "name": "look"}]
    assert (call.module, call.finish_reason, call.usage.tokens) == ("route", "tool_calls", 10)


def test_a_stream_that_is_left_is_recorded_as_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gepa_lite.adapters.function.wrapped._SETTLING", 0.5)

    def triage(message: str) -> str:
        return str(next(iter(load_litellm().completion(**asked(server.base_url, "route", message, stream=True)))).choices[0].delta.content)

    with OpenAIServer("one two three four") as server:
        [call] = run_once(triage).trace.calls
    assert (call.module, call.finish_reason, call.reply) == ("route", "abandoned", "")
    assert call.usage.input_tokens > 0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("swallows", [False, True])
def test_a_failure_is_an_outage_also_where_the_code_swallows_it(way: str, swallows: bool) -> None:
    def triage(message: str) -> str:
        try:
            return WAYS[way](server.base_url, "route", message)
        except Exception:
            if swallows:
                return "low"
            raise

    with OpenAIServer(fault("rate_limit")) as server:
        execution = run_once(triage)
    assert execution.outage is not None
    assert execution.outage.kind == "rate_limit"
    [call] = execution.trace.of("route")
    assert call.error_kind == "rate_limit"


def test_an_attempt_that_is_made_good_is_no_outage() -> None:
    def triage(message: str) -> str:
        return text_of(load_litellm().completion(**asked(server.base_url, "route", message, num_retries=2)))

    with OpenAIServer([fault("server"), "high"]) as server:
        execution = run_once(triage)
    assert (execution.output, execution.outage) == ("high", None)


def test_our_own_models_are_counted_once() -> None:
    def triage(message: str) -> str:
        return gl.ChatModel(gl.LiteLLM(MODEL, api_base=server.base_url, api_key="k"))(said(gl.prompt("route"), message))

    with OpenAIServer("high") as server:
        assert len(run_once(triage).trace.calls) == 1


def test_outside_of_a_rollout_nothing_is_recorded_nor_where_a_program_did_not_ask_for_it() -> None:
    with OpenAIServer("high") as server:
        unseen = gl.wrap(lambda message: whole(server.base_url, "route", message), PROMPTS)
        program = gl.wrap(lambda message: whole(server.base_url, "route", message), PROMPTS, record="litellm")
        program.run({"message": "x"}, call_directly)
        assert program("x") == "high"
        assert unseen.run({"message": "x"}, call_directly).trace.usage.calls == 0


def rollouts(folder: Path) -> list[Rollout]:
    with RunStore.read(folder) as store:
        return list(store.rollouts())


def pipeline(base: str) -> Any:
    def triage(message: str) -> str:
        gist = whole(base, "gist", message)
        return whole(base, "route", f"{message}\n{gist}")

    return triage


@pytest.mark.parametrize("workers", [8, "processes:2"])
def test_a_run_sees_every_call_and_counts_its_dollars(tmp_path: Path, workers: Any) -> None:
    with OpenAIServer(script) as server:
        program = gl.wrap(pipeline(server.base_url), PROMPTS, record="litellm")
        result = gl.optimize(
            program,
            rows(6, 1),
            rows(4, 2),
            feedback=feedback,
            run=tmp_path,
            reflection_lm=reflector(),
            budget=gl.Budget(rollouts=24, usd=1.0),
            search=gl.Search(fan=1),
            workers=workers,
        )
    assert result.validation.after >= result.validation.before
    kept = rollouts(tmp_path)
    assert {rollout.trace.modules for rollout in kept} == {("gist", "route")}
    task = result.costs.roles["task"]
    assert task.calls == server.calls
    assert task.usd == pytest.approx(task.input_tokens * PRICE[0] + task.output_tokens * PRICE[1])


def test_a_dead_endpoint_stops_the_run(tmp_path: Path) -> None:
    def careless(message: str) -> str:
        try:
            return whole(server.base_url, "route", message)
        except Exception:
            return "low"

    with OpenAIServer(fault("unauthorized")) as server, pytest.raises(ModelsDownError):
        gl.optimize(
            gl.wrap(careless, PROMPTS, record="litellm"),
            rows(12, 1),
            rows(8, 2),
            feedback=feedback,
            run=tmp_path,
            reflection_lm=reflector(),
            budget=gl.Budget(rollouts=50),
        )
    assert rollouts(tmp_path) == []
