"""The run's way to its models: cached, joined, reserved, and never fooled by an outage."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite.core.call import Usage
from gepa_lite.errors import AuthError, BudgetSpentError, ModelsDownError, RateLimitError, ServerError
from gepa_lite.lm.breaker import Breaker
from gepa_lite.lm.client import ModelClient, call_key
from gepa_lite.lm.meter import Meter, call_bound
from gepa_lite.store.memory import MemoryStore
from gepa_lite.testing import ScriptedLM


def request(text: str = "hello", **params: Any) -> gl.Request:
    return gl.Request(({"role": "user", "content": text},), gl.Params(**params))


def client(store: MemoryStore | None = None, budget: gl.Budget | None = None) -> ModelClient:
    return ModelClient(store or MemoryStore(), Meter(budget or gl.Budget(), Usage()), Breaker(), lambda: None)


def test_a_reply_is_paid_for_once_and_a_new_sample_is_drawn_anew() -> None:
    lm, way = ScriptedLM("hi"), client()
    for _ in range(3):
        assert way.call(lm, request(), role="task", sample=0, address=(0,)).text == "hi"
    assert lm.calls == 1
    way.call(lm, request(), role="task", sample=1, address=(0,))
    way.call(lm, request(), role="task", sample=0, address=(1,))
    way.call(lm, request(temperature=0.5), role="task", sample=0, address=(0,))
    assert lm.calls == 4, "another sample, another occurrence in the rollout and other parameters are other calls"


def test_the_key_tells_endpoints_apart() -> None:
    class Elsewhere(ScriptedLM):
        def describe(self) -> gl.LMInfo:
            return gl.LMInfo("scripted", endpoint="http://elsewhere")

    assert call_key(ScriptedLM("x"), request(), 0, ()) != call_key(Elsewhere("x"), request(), 0, ())


def test_equal_calls_in_flight_are_joined() -> None:
    lm, way = ScriptedLM("hi", seconds=0.2), client()
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: way.call(lm, request(), role="task", sample=0, address=()).text, range(8)))
    assert replies == ["hi"] * 8
    assert lm.calls == 1


def test_a_failure_is_not_cached_and_its_call_is_settled() -> None:
    store = MemoryStore()
    lm = ScriptedLM([RateLimitError("429"), "hi"])
    way = client(store)
    with pytest.raises(RateLimitError):
        way.call(lm, request(), role="task", sample=0, address=())
    assert way.call(lm, request(), role="task", sample=0, address=()).text == "hi"
    assert store.paid().settled["task"].calls == 2


def test_faults_that_waiting_cannot_cure_open_the_breaker_at_once() -> None:
    lm, way = ScriptedLM(lambda r: AuthError("wrong key")), client()
    with pytest.raises(ModelsDownError, match="wrong key"):
        way.call(lm, request(), role="task", sample=0, address=())
    with pytest.raises(ModelsDownError):
        way.call(lm, request("other"), role="task", sample=0, address=())
    assert lm.calls == 1


def test_passing_faults_open_it_after_five_in_a_row_and_by_role() -> None:
    lm, way = ScriptedLM(lambda r: ServerError("500")), client()
    for number in range(4):
        with pytest.raises(ServerError):
            way.call(lm, request(str(number)), role="reflection", sample=0, address=())
    assert way.call(ScriptedLM("fine"), request(), role="task", sample=0, address=()).text == "fine"
    with pytest.raises(ModelsDownError, match="5 calls in a row"):
        way.call(lm, request("4"), role="reflection", sample=0, address=())
    assert way.call(ScriptedLM("fine"), request("more"), role="task", sample=0, address=()).text == "fine"


def test_a_call_that_may_not_fit_waits_for_what_others_give_back() -> None:
    bound = call_bound(gl.LMInfo("x"), request(max_tokens=100)).tokens
    meter = Meter(gl.Budget(tokens=bound + 10), Usage())
    first = Usage(1, bound - 100, 100)
    meter.reserve(first)
    waiting = threading.Thread(target=meter.reserve, args=(first,))
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    meter.settle(first, Usage(1, 3, 2))
    waiting.join(5)
    assert not waiting.is_alive()


def test_a_call_that_can_never_fit_is_refused_and_says_how_much_is_left() -> None:
    way = client(budget=gl.Budget(tokens=50))
    with pytest.raises(BudgetSpentError, match="50 of 50 tokens are left"):
        way.call(ScriptedLM("hi"), request(max_tokens=100), role="task", sample=0, address=())


def test_dollars_are_reserved_by_the_price_of_the_bound() -> None:
    info = gl.LMInfo("x", usd_per_input_token=1e-6, usd_per_output_token=4e-6)
    bound = call_bound(info, request("ü" * 10, max_tokens=100))
    assert bound.input_tokens == 20 + 16, "bytes, and room for the template"
    assert bound.usd == pytest.approx(36e-6 + 400e-6)
