"""The public test doubles: the scripted model and the OpenAI-like server."""

from __future__ import annotations

import copy
import json
import pickle
import threading
import urllib.error
import urllib.request
from typing import Any

import pytest

import gepa_lite.testing
from gepa_lite.core.call import Usage
from gepa_lite.errors import RateLimitError, UsageError
from gepa_lite.lm.protocol import LM, Completion, Params, Request
from gepa_lite.testing import OpenAIServer, Reply, ScriptedLM, fault


def ask(text: str, **params: Any) -> Request:
    """A request of one user message."""
    return Request(messages=({"role": "system", "content": "Be brief."}, {"role": "user", "content": text}), params=Params(**params))


def test_public_names_are_sorted_and_there() -> None:
    names = gepa_lite.testing.__all__
    assert names == sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name)), "constants, classes, functions"
    assert all(hasattr(gepa_lite.testing, name) for name in gepa_lite.testing.__all__)
    assert not hasattr(gepa_lite.testing, "nothing")


@pytest.mark.parametrize(
    "script",
    ["Paris", {"Spain": "Madrid", "France": "Paris"}, ["Paris"], lambda request: "Paris", [Completion("Paris")]],
    ids=["text", "mapping", "sequence", "function", "completion"],
)
def test_each_form_of_script_answers(script: Any) -> None:
    lm = ScriptedLM(script)
    assert lm.complete(ask("The capital of France?")).text == "Paris"
    assert [request.messages[-1]["content"] for request in lm.requests] == ["The capital of France?"]
    assert isinstance(lm, LM)


def test_tokens_are_words_and_dollars_follow_the_price() -> None:
    done = ScriptedLM("one two three", usd_per_token=0.5).complete(ask("four words in here"))
    assert done.usage == Usage(1, 6, 3, 4.5)
    assert ScriptedLM("x", usd_per_token=None).complete(ask("y")).usage.usd is None
    assert not ScriptedLM("x", usd_per_token=None).describe().priced


def test_a_text_is_cut_at_max_tokens_and_keeps_its_white_space() -> None:
    lm = ScriptedLM("one\n  two three")
    done = lm.complete(ask("x", max_tokens=2))
    assert (done.text, done.finish_reason, done.usage.output_tokens) == ("one\n  two", "length", 2)
    assert lm.complete(ask("x", max_tokens=3)).finish_reason == "stop"


def test_an_error_is_raised_as_a_fresh_copy() -> None:
    error = RateLimitError("slow down", retry_after=2.0, status=429)
    lm = ScriptedLM(lambda request: error)
    for _ in range(2):
        with pytest.raises(RateLimitError, match="slow down") as caught:
            lm.complete(ask("x"))
        assert caught.value is not error
        assert (caught.value.retry_after, caught.value.status) == (2.0, 429)
    assert error.__traceback__ is None
    assert lm.calls == 2


@pytest.mark.parametrize(
    ("script", "words"), [({"a key": "x"}, "none of the script's 1 keys"), ([], "this is call 1"), (lambda request: 3, "gave int")]
)
def test_a_script_without_an_answer_says_so(script: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ScriptedLM(script).complete(ask("x"))


def test_a_script_of_a_wrong_type_is_refused() -> None:
    with pytest.raises(UsageError, match="got int"):
        ScriptedLM(3)  # type: ignore[arg-type]


def test_what_describe_says() -> None:
    info = ScriptedLM("x", name="unit", max_in_flight=4).describe()
    assert (info.name, info.deterministic, info.max_in_flight, info.usd_per_input_token) == ("unit", True, 4, 0.0)
    assert not ScriptedLM(["x"]).describe().deterministic
    assert not ScriptedLM("x", deterministic=False).describe().deterministic


def test_threads_are_counted() -> None:
    gate = threading.Barrier(4)

    def answer(request: Request) -> str:
        gate.wait(timeout=30)
        return "ok"

    lm = ScriptedLM(answer, seconds=lambda request: 0.01)
    threads = [threading.Thread(target=lm.complete, args=(ask("x"),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lm.calls == 8
    assert 4 <= lm.in_flight_peak <= 8


def test_a_deep_copy_shares_its_counts_and_a_pickled_one_does_not() -> None:
    lm = ScriptedLM({"x": "y"}, name="unit")
    assert copy.deepcopy({"lm": lm})["lm"] is lm
    lm.complete(ask("x"))
    twin = pickle.loads(pickle.dumps(lm))
    assert (twin.calls, lm.calls, twin.describe()) == (0, 1, lm.describe())
    assert twin.complete(ask("x")).text == "y"


def post(server: OpenAIServer, **body: Any) -> tuple[int, bytes]:
    """One chat request, and the status and body of its reply."""
    data = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello there"}], **body}).encode()
    request = urllib.request.Request(server.base_url + "/chat/completions", data, {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=30) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_the_server_answers_by_a_function_of_the_messages() -> None:
    with OpenAIServer(lambda messages: messages[-1]["content"].upper()) as server:
        status, body = post(server)
        assert (status, server.calls, server.requests[0]["model"]) == (200, 1, "m")
    reply = json.loads(body)
    assert reply["choices"][0]["message"]["content"] == "HELLO THERE"
    assert reply["usage"] == {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4}


def test_the_servers_stream_joins_to_the_reply() -> None:
    with OpenAIServer(Reply("one two  three", reasoning="hm")) as server:
        _, body = post(server, stream=True, stream_options={"include_usage": True})
    lines = [line.removeprefix("data: ") for line in body.decode().split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    chunks = [json.loads(line) for line in lines]
    assert chunks[-1]["usage"]["completion_tokens"] == 4
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert "".join(delta.get("content", "") for delta in deltas) == "one two  three"
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "hm"
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"


def test_requests_queue_for_slots_and_busy_time_is_kept() -> None:
    with OpenAIServer("ok", slots=2, seconds=lambda messages: 0.05) as server:
        threads = [threading.Thread(target=post, args=(server,)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (server.calls, server.busy_peak) == (6, 2)
        assert server.busy_seconds >= 6 * 0.05


def test_the_server_knows_its_models_and_its_key() -> None:
    with OpenAIServer(models=["known"]) as server:
        assert post(server)[0] == 404
        assert post(server, model="known")[0] == 200
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(server.base_url + "/models", timeout=30) as reply:
            assert [model["id"] for model in json.load(reply)["data"]] == ["known"]
    with OpenAIServer(api_key="k") as server:
        assert post(server)[0] == 401


def test_the_last_answer_repeats_and_a_script_that_raises_is_a_500() -> None:
    with OpenAIServer([fault("server"), "ok"]) as server:
        assert [post(server)[0] for _ in range(3)] == [500, 200, 200]

    def broken(messages: list[dict[str, Any]]) -> str:
        raise KeyError("nothing")

    with OpenAIServer(broken) as server:
        status, body = post(server)
    assert (status, b"KeyError" in body) == (500, True)


@pytest.mark.parametrize(("options", "words"), [({"script": []}, "at least one answer"), ({"slots": 0}, "slots=0")])
def test_a_server_that_could_not_answer_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        OpenAIServer(**options)


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(UsageError, match="rate_limit"):
        fault("typo")  # type: ignore[arg-type]
