"""The recording proxy: bytes pass as they are, calls belong to their rollout and prompt, budgets hold, keys stay out of the record."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite.adapters.recording.proxy import Proxy
from gepa_lite.adapters.recording.wire import Answer, answer_of, completion_of, read_request, shown_answer
from gepa_lite.errors import ModelConnectionError, ModelsDownError
from gepa_lite.lm.protocol import LMInfo
from gepa_lite.program.recorder import call_directly
from gepa_lite.store.run_store import RunStore
from gepa_lite.testing import OpenAIServer, Reply, fault
from tests.triage import answer, reflector, rows
from tests.wrapped_task import PROMPTS, feedback, said

httpx: Any = pytest.importorskip("httpx")
openai: Any = pytest.importorskip("openai")
pytest.importorskip("uvicorn")

HTTP = openai.DefaultHttpxClient()
"""For all clients: each of their own would read the certificates again."""

KEY = "sk-a-very-secret-key-of-mine-0123456789"
MODEL = "gpt-4.1-mini"


def script(messages: list[dict[str, Any]]) -> str:
    return answer(gl.Request(tuple({"role": m["role"], "content": m["content"]} for m in messages)))


def client_of(base_url: str, key: str = KEY, retries: int = 0) -> Any:
    return openai.OpenAI(base_url=base_url, api_key=key, max_retries=retries, http_client=HTTP)


def chat(client: Any, name: str, text: str, **options: Any) -> str:
    completion = client.chat.completions.create(model=MODEL, messages=said(gl.prompt(name), text), max_tokens=50, **options)
    return str(completion.choices[0].message.content)


def pipeline(proxy: Proxy) -> Any:
    """As an openai-SDK script does it."""

    def triage(message: str) -> str:
        client = client_of(proxy.base_url)
        gist = chat(client, "gist", message)
        return chat(client, "route", f"{message}\n{gist}")

    return triage


def run(folder: Path, fn: Any, proxy: Proxy, **options: Any) -> gl.Result[gl.Wrapped]:
    values: dict[str, Any] = {"reflection_lm": reflector(), "budget": gl.Budget(rollouts=80), "workers": 8, **options}
    return gl.optimize(
        gl.wrap(fn, PROMPTS, record=proxy), rows(12, 1), rows(8, 2), testset=rows(4, 3), feedback=feedback, run=folder, **values
    )


def rollouts(folder: Path) -> list[Any]:
    with RunStore.read(folder) as store:
        return list(store.rollouts())


def test_an_openai_script_is_optimized_with_traces_usage_and_dollars_and_resumes_for_nothing(tmp_path: Path) -> None:
    with OpenAIServer(script, api_key=KEY) as server, gl.proxy(server.base_url) as proxy:
        result = run(tmp_path, pipeline(proxy), proxy)
        assert result.validation.after > result.validation.before
        for rollout in rollouts(tmp_path):
            assert rollout.trace.modules == ("gist", "route")
            assert all(rollout.trace.calls[0].inputs["user"] in call.inputs["user"] for call in rollout.trace.calls)
            assert rollout.usage.calls == 2
            assert rollout.usage.usd > 0
        task = result.costs.roles["task"]
        assert task.usd == pytest.approx(task.input_tokens * 0.4e-6 + task.output_tokens * 1.6e-6)
        assert server.calls + result.costs.logical.proposals == result.costs.paid.calls
        sent = server.calls
        run(tmp_path, pipeline(proxy), proxy)
        assert server.calls == sent
        assert set(server.keys) == {KEY}
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert KEY not in repr(proxy)


def test_worker_processes_give_the_log_of_threads(tmp_path: Path) -> None:
    with OpenAIServer(script) as server, gl.proxy(server.base_url, api_key=KEY) as proxy:
        logs = []
        for workers in (4, "processes:2"):
            run(tmp_path / str(workers), pipeline(proxy), proxy, workers=workers, budget=gl.Budget(rollouts=50))
            with RunStore.read(tmp_path / str(workers)) as store:
                logs.append((store.events(), store.paid().total.tokens, round(store.paid().total.usd or 0, 9)))
    assert logs[0] == logs[1]


def test_the_budget_in_dollars_holds_at_any_concurrency(tmp_path: Path) -> None:
    with OpenAIServer(script) as server, gl.proxy(server.base_url) as proxy:
        result = run(tmp_path, pipeline(proxy), proxy, budget=gl.Budget(usd=0.008), workers=16)
        prices = {"my-model": (0.0, 0.0)}
        with pytest.raises(gl.UsageError, match="no known price"):
            run(tmp_path / "unknown", unpriced(proxy), proxy, budget=gl.Budget(usd=1.0))
        run(tmp_path / "by-hand", unpriced(proxy), proxy, budget=gl.Budget(usd=1.0, rollouts=50), prices=prices)
    assert 0 < (result.costs.paid.usd or 0) <= 0.008
    assert "budget" in str(result)


def unpriced(proxy: Proxy) -> Any:
    def triage(message: str) -> str:
        client = client_of(proxy.base_url)
        reply = client.chat.completions.create(model="my-model", messages=said(gl.prompt("route"), f"{message} {gl.prompt('gist')}"))
        return str(reply.choices[0].message.content)

    return triage


# --- what passes


TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
TOOL_REPLY = json.dumps(
    {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
                },
            }
        ],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }
).encode()

REPLIES = {
    "text": (Reply("hello there"), {}),
    "stream": (Reply("one two three"), {"stream": True}),
    "stream with usage": (Reply("one two three", usage=(11, 5)), {"stream": True, "stream_options": {"include_usage": True}}),
    "tools": (Reply(body=TOOL_REPLY), {"tools": TOOLS}),
    "bad request": (fault("bad_request"), {}),
    "rate limit": (fault("rate_limit", retry_after="1"), {}),
    "server error": (fault("server"), {"stream": True}),
    "html": (fault("html"), {}),
    "not utf-8": (fault("bad_utf8"), {}),
}


@pytest.mark.parametrize("name", REPLIES)
def test_requests_and_answers_pass_byte_for_byte(name: str) -> None:
    reply, options = REPLIES[name]
    body = json.dumps({"model": MODEL, "messages": said("A.", "é ü"), "odd_field": [1, None], **options}).encode()
    seen: list[Any] = []

    def call(message: str) -> None:
        base = proxy.base_url
        gl.prompt("p")
        response = httpx.post(
            f"{base}/chat/completions", content=body, headers={"authorization": f"Bearer {KEY}", "content-type": "application/json"}
        )
        seen.append((response.status_code, response.headers["content-type"], response.headers.get("retry-after"), response.content))

    with OpenAIServer(reply) as server, gl.proxy(server.base_url) as proxy:
        direct = httpx.post(f"{server.base_url}/chat/completions", content=body, headers={"authorization": f"Bearer {KEY}"})
        execution = gl.wrap(call, {"p": "A."}, record=proxy).run({"message": "x"}, call_directly)
        assert seen == [(direct.status_code, direct.headers["content-type"], direct.headers.get("retry-after"), direct.content)]
        assert server.requests[0] == server.requests[1]
        assert server.keys == [KEY, KEY]
    [made] = execution.trace.calls
    assert made.module == "p"
    assert (execution.outage is not None) == (name in ("bad request", "rate limit", "server error", "html", "not utf-8"))
    if name == "stream with usage":
        assert (made.reply, made.usage.input_tokens, made.usage.output_tokens) == ("one two three", 11, 5)
    if name == "stream":
        assert (made.reply, made.usage.output_tokens) == ("one two three", 4)
    if name == "tools":
        assert json.loads(made.reply) == [{"arguments": "{}", "name": "look"}]
        assert (made.finish_reason, made.usage.tokens) == ("tool_calls", 10)
    assert KEY not in str(execution.outage)


def test_a_stream_is_passed_on_while_it_comes() -> None:
    """The upstream sends its second half only after the client has got the first: a proxy that waited for the whole would never end."""
    import socket
    import threading

    got_first = threading.Event()
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(4)

    def serve() -> None:
        connection, _ = listening.accept()
        # all of the request: a socket that is closed with something unread in it resets the connection
        received = b""
        while not received.endswith(b"}"):
            received += connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        connection.sendall(b'data: {"choices": [{"delta": {"content": "one"}}]}\n\n')
        connection.sendall(b'data: {"choices": [{"delta": {"content": " two"}}]}\n\ndata: [DONE]\n\n' if got_first.wait(20) else b"")
        connection.close()

    threading.Thread(target=serve, daemon=True).start()

    def call(message: str) -> str:
        client = client_of(proxy.base_url)
        text = ""
        for chunk in client.chat.completions.create(model=MODEL, messages=said(gl.prompt("p"), "x"), stream=True):
            text += chunk.choices[0].delta.content
            got_first.set()
        return text

    with gl.proxy(f"http://127.0.0.1:{listening.getsockname()[1]}/v1") as proxy:
        execution = gl.wrap(call, {"p": "A."}, record=proxy).run({"message": "x"}, call_directly)
    assert (execution.output, execution.error) == ("one two", None)
    assert [call.reply for call in execution.trace.calls] == ["one two"]


# --- failures


def test_a_client_that_tries_again_and_gets_its_answer_has_had_no_outage(tmp_path: Path) -> None:
    def patient(message: str) -> str:
        return chat(client_of(proxy.base_url, retries=2), "route", message)

    with OpenAIServer([fault("rate_limit", retry_after="0.01"), "high"]) as server, gl.proxy(server.base_url) as proxy:
        execution = gl.wrap(patient, PROMPTS, record=proxy).run({"message": "x"}, call_directly)
    assert (execution.output, execution.outage) == ("high", None)
    assert [call.error_kind for call in execution.trace.of("route")] == ["rate_limit", None]


@pytest.mark.parametrize("reply", [fault("unauthorized"), fault("cut")], ids=["key", "cut"])
def test_an_outage_stops_the_run_also_where_the_code_swallows_it(tmp_path: Path, reply: Reply) -> None:
    def careless(message: str) -> str:
        try:
            return chat(client_of(proxy.base_url), "route", message)
        except openai.OpenAIError:
            return "low"

    with OpenAIServer(reply) as server, gl.proxy(server.base_url) as proxy, pytest.raises(ModelsDownError) as caught:
        run(tmp_path, careless, proxy)
    assert KEY not in str(caught.value)
    assert rollouts(tmp_path) == []


def test_an_overlong_prompt_is_the_candidates_own_fault() -> None:
    with OpenAIServer(fault("context_window")) as server, gl.proxy(server.base_url) as proxy:
        execution = gl.wrap(pipeline(proxy), PROMPTS, record=proxy).run({"message": "x"}, call_directly)
    assert execution.outage is None
    assert type(execution.error).__name__ == "ContextWindowError"


# --- whose call it is


def test_outside_of_a_rollout_the_same_code_asks_the_upstream_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenAIServer("high") as server:
        proxy = gl.proxy(server.base_url)
        assert proxy.base_url == server.base_url
        assert gl.wrap(pipeline(proxy), PROMPTS, record=proxy)("x") == "high"
        with pytest.raises(gl.UsageError, match="has no key"):
            _ = proxy.api_key
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        assert proxy.api_key == KEY


def test_a_caller_without_a_key_is_lent_none() -> None:
    with OpenAIServer("high") as server, gl.proxy(server.base_url, api_key=KEY) as proxy:
        asked = {"model": MODEL, "messages": said("x", "y")}
        assert httpx.post(f"{proxy.shared_url}/chat/completions", json=asked).status_code == 200
        assert server.keys == [""]


def test_a_client_made_once_is_told_apart_by_its_hook_and_an_undecidable_call_stops_the_run(tmp_path: Path) -> None:
    httpx2: Any = pytest.importorskip("httpx2")
    with OpenAIServer(script) as server, gl.proxy(server.base_url, api_key=KEY) as proxy:
        hooked = openai.OpenAI(base_url=proxy.shared_url, api_key="x", http_client=httpx2.Client(event_hooks={"request": [proxy.stamp]}))
        plain = client_of(proxy.shared_url, "x")

        def triage(client: Any) -> Any:
            return lambda message: chat(client, "route", f"{message}\n{chat(client, 'gist', message)}")

        run(tmp_path / "hooked", triage(hooked), proxy, workers=8)
        for rollout in rollouts(tmp_path / "hooked"):
            assert rollout.trace.modules == ("gist", "route")
        run(tmp_path / "one", triage(plain), proxy, workers=1, budget=gl.Budget(rollouts=50))
        assert {rollout.trace.modules for rollout in rollouts(tmp_path / "one")} == {("gist", "route")}
        with pytest.raises(gl.UsageError, match="could belong to several rollouts"):
            run(tmp_path / "several", triage(plain), proxy, workers=8)
        # outside of a run it goes straight on
        assert plain.chat.completions.create(model=MODEL, messages=said("x urgent", "a refund ")).choices[0].message.content
        assert set(server.keys) == {KEY}


@pytest.mark.parametrize("url", ["base_url", "shared_url"])
def test_gathered_calls_of_a_client_with_the_hook_are_in_the_order_they_were_made(url: str) -> None:
    with OpenAIServer(lambda messages: messages[-1]["content"]) as server, gl.proxy(server.base_url, api_key=KEY) as proxy:

        async def triage(message: str) -> str:
            http = openai.DefaultAsyncHttpxClient(event_hooks={"request": [proxy.astamp]})

            async def one(client: Any, number: int) -> str:
                made = await client.chat.completions.create(model=MODEL, messages=said(gl.prompt("gist"), f"part {number}"))
                return str(made.choices[0].message.content)

            async with openai.AsyncOpenAI(base_url=getattr(proxy, url), api_key="x", http_client=http) as client:
                # a new client asks threads for the platform's name before it sends its first requests, in whatever order they answer
                first = await one(client, 0)
                return " ".join([first, *await asyncio.gather(*(one(client, number) for number in range(1, 8)))])

        program = gl.wrap(triage, PROMPTS, record=proxy)
        for _ in range(6):
            trace = program.run({"message": "x"}, call_directly).trace
            assert [call.reply for call in trace.calls] == [f"part {number}" for number in range(8)]


def test_a_place_that_is_none_is_no_harm() -> None:
    with OpenAIServer("high") as server, gl.proxy(server.base_url, api_key=KEY) as proxy:

        def triage(message: str) -> str:
            for place in ("0", "0", "-1", "x", "9" * 40, "²"):
                body = {"model": MODEL, "messages": said(gl.prompt("route"), f"{message} {len(place)}")}
                headers = {"x-gepa-lite-place": place.encode("utf-8")}
                assert httpx.post(f"{proxy.base_url}/chat/completions", json=body, headers=headers).status_code == 200
            return "high"

        execution = gl.wrap(triage, PROMPTS, record=proxy).run({"message": "x"}, call_directly)
        assert (execution.error, len(execution.trace.calls)) == (None, 6)


def test_the_key_and_the_url_can_name_the_rollout_and_the_prompt() -> None:
    with OpenAIServer("high") as server, gl.proxy(server.base_url, api_key=KEY) as proxy:

        def triage(message: str) -> str:
            client = client_of(proxy.shared_url, proxy.api_key)
            client.chat.completions.create(model=MODEL, messages=said("unknown words", message))
            client = client_of(proxy.url("route"), "x")
            return str(client.chat.completions.create(model=MODEL, messages=said("unknown words", message)).choices[0].message.content)

        program = gl.wrap(triage, PROMPTS, record=proxy)
        trace = program.run({"message": "x"}, call_directly).trace
        assert [call.module for call in trace.calls] == ["(other calls)", "route"]
        assert server.keys == [KEY, KEY]
        stale = proxy.shared_url.replace("/v1", "/r/0123/v1")
        assert httpx.post(f"{stale}/chat/completions", json={}).status_code == 400


@pytest.mark.parametrize(
    ("arguments", "words"), [({"upstream": "localhost:1"}, "a base URL is needed"), ({"timeout": 0}, "seconds above 0")]
)
def test_a_wrong_proxy_is_refused(arguments: Any, words: str) -> None:
    with pytest.raises(gl.UsageError, match=words):
        gl.proxy(**arguments)


# --- reading the wire


INFO = LMInfo(MODEL, "http://x", usd_per_input_token=1e-6, usd_per_output_token=2e-6)


@pytest.mark.parametrize(
    ("path", "sent", "came", "read"),
    [
        (
            "responses",
            {"instructions": "A.", "input": "hi", "max_output_tokens": 9},
            {
                "model": "m",
                "output": [{"type": "message", "content": [{"type": "output_text", "text": "yes"}]}],
                "usage": {"input_tokens": 4, "output_tokens": 2},
            },
            ("yes", 4, 2, 9),
        ),
        ("completions", {"prompt": "hi"}, {"choices": [{"text": "ho", "finish_reason": "length"}]}, ("ho", 1, 1, 4096)),
        ("embeddings", {"input": ["a", "b"]}, {"data": [], "usage": {"prompt_tokens": 2, "total_tokens": 2}}, ("", 2, 0, 4096)),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "max_tokens": 5, "n": 3},
            {"choices": [{"message": {"content": "a"}}, {"message": {"content": "b"}}]},
            ("ab", 1, 1, 15),
        ),
    ],
)
def test_each_api_is_read(path: str, sent: Any, came: Any, read: Any) -> None:
    request = read_request(path, json.dumps(sent).encode())
    answer = Answer(200, {"content-type": "application/json"}, json.dumps(came).encode())
    completion = completion_of(answer, request, INFO)
    assert answer_of(completion.text) == answer
    usage = completion.usage
    assert (shown_answer(completion.text), usage.input_tokens, usage.output_tokens, request.params.max_tokens) == read
    assert usage.usd == pytest.approx(usage.input_tokens * 1e-6 + usage.output_tokens * 2e-6)


def test_a_stream_of_the_responses_api_is_read_and_what_is_no_answer_is_refused() -> None:
    events = [
        {"type": "response.output_text.delta", "delta": "ye"},
        {
            "type": "response.completed",
            "response": {"output": [{"type": "message", "content": [{"text": "yes"}]}], "usage": {"input_tokens": 3, "output_tokens": 1}},
        },
    ]
    body = b"".join(b"event: x\ndata: " + json.dumps(event).encode() + b"\n\n" for event in events)
    request = read_request("responses", b'{"input": "hi"}')
    completion = completion_of(Answer(200, {"content-type": "text/event-stream"}, body), request, INFO)
    assert (shown_answer(completion.text), completion.usage.tokens) == ("yes", 4)
    for wrong in (b"<html>", b"[]", b'{"choices": [3]}', b'{"choices": 3}'):
        with pytest.raises(ModelConnectionError, match="not of the protocol"):
            completion_of(Answer(200, {"content-type": "text/html"}, wrong), request, INFO)
