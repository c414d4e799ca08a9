"""The litellm client over a real socket: every fault of an endpoint, on 127.0.0.1 alone."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from gepa_lite import errors
from gepa_lite.core.call import Message
from gepa_lite.lm.faults import QuotaSpentError, read_retry_after, scrub, secrets_in, shown_url
from gepa_lite.lm.litellm_client import LiteLLM
from gepa_lite.lm.protocol import LM, Params, Request
from gepa_lite.lm.providers import load_litellm, missing_key
from gepa_lite.testing import OpenAIServer, Reply, fault
from gepa_lite.testing.openai_server import FaultName, Script

MESSAGES: tuple[Message, ...] = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Two words here"})
REQUEST = Request(messages=MESSAGES)
KEY = "sk-unit-0123456789abcdef"


# litellm's own models warn in pydantic, on import and on malformed replies
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pydantic")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key, endpoint or proxy of the machine reaches these tests."""
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def client(server: OpenAIServer, model: str = "openai/unit-model", **options: Any) -> LiteLLM:
    """A client of the server that loses no time between attempts."""
    return LiteLLM(model, **{"api_base": server.base_url, "api_key": KEY, "timeout": 10.0, "max_wait": 0.01, "max_attempts": 3, **options})


def fails(script: Script, **options: Any) -> tuple[errors.ModelError, int]:
    """The error of one call, and how many requests it took."""
    with OpenAIServer(script) as server:
        with pytest.raises(errors.ModelError) as caught:
            client(server, **options).complete(REQUEST)
        return caught.value, server.calls


def test_a_reply_comes_with_its_tokens_and_what_was_asked_is_sent() -> None:
    params = Params(max_tokens=7, temperature=0.0, top_p=0.5, stop=("END",), seed=3, extra={"presence_penalty": 0.25})
    with OpenAIServer(Reply("fine thanks", reasoning="let me think")) as server:
        lm = client(server, extra={"top_k": 4, "temperature": 1.0})
        done = lm.complete(Request(messages=MESSAGES, params=params))
        (sent,), keys = server.requests, server.keys
    assert (done.text, done.reasoning, done.finish_reason, done.model, done.attempts) == (
        "fine thanks",
        "let me think",
        "stop",
        "unit-model",
        1,
    )
    assert (done.usage.calls, done.usage.input_tokens, done.usage.output_tokens, done.usage.usd) == (1, 5, 5, None)
    assert sent == {
        "model": "unit-model",
        "messages": [dict(message) for message in MESSAGES],
        "max_tokens": 7,
        "temperature": 0.0,
        "top_p": 0.5,
        "stop": ["END"],
        "seed": 3,
        "presence_penalty": 0.25,
        "top_k": 4,
    }
    assert keys == [KEY]
    assert isinstance(lm, LM)


@pytest.mark.parametrize(
    ("name", "kind", "status"),
    [
        ("unauthorized", errors.AuthError, 401),
        ("forbidden", errors.AuthError, 403),
        ("not_found", errors.ModelNotFoundError, 404),
        ("bad_request", errors.BadRequestError, 400),
        ("context_window", errors.ContextWindowError, 400),
        ("content_policy", errors.RefusedError, 400),
        ("quota", QuotaSpentError, 429),
    ],
)
def test_a_fault_that_waiting_cannot_cure_is_typed_and_not_retried(name: FaultName, kind: type[errors.ModelError], status: int) -> None:
    error, calls = fails(fault(name))
    assert type(error) is kind
    assert (error.status, error.retryable, calls) == (status, False, 1)
    assert "openai/unit-model at http://127.0.0.1:" in str(error)


@pytest.mark.parametrize(
    ("name", "kind", "status"),
    [
        ("rate_limit", errors.RateLimitError, 429),
        ("server", errors.ServerError, 500),
        ("cut", errors.ModelConnectionError, None),
        ("empty", errors.ModelConnectionError, None),
        ("bad_utf8", errors.ModelConnectionError, None),
        ("wrong_types", errors.ModelConnectionError, None),
        ("no_choices", errors.ModelConnectionError, None),
        ("html", errors.ModelConnectionError, None),
    ],
)
def test_a_passing_fault_is_typed_and_retried_to_the_bound(name: FaultName, kind: type[errors.ModelError], status: int | None) -> None:
    error, calls = fails(fault(name))
    assert type(error) is kind
    assert (error.status, error.retryable, calls) == (status, True, 3)
    assert "attempt 3 of 3" in str(error)


@pytest.mark.parametrize(
    ("reply", "kind", "calls"),
    [
        (Reply(status=402, body=b'{"error": {"message": "pay"}}'), QuotaSpentError, 1),
        (Reply(status=422, body=b'{"error": {"message": "bad"}}'), errors.BadRequestError, 1),
        (Reply(status=408, body=b"{}"), errors.ModelTimeoutError, 2),
        (Reply(status=502, body=b"<html>bad gateway</html>", content_type="text/html"), errors.ServerError, 2),
        (Reply(status=503, body=b"{}"), errors.ServerError, 2),
        (Reply(status=529, body=b"{}"), errors.ServerError, 2),
        (
            Reply(body=b'{"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": []}'),
            errors.ModelConnectionError,
            2,
        ),
        (Reply(body=b"[1]"), errors.ModelConnectionError, 2),
        (Reply("part of a", finish_reason="error"), errors.ServerError, 2),
        (Reply(refusal="I can't help with that."), errors.RefusedError, 1),
        (Reply("x", finish_reason="content_filter"), errors.RefusedError, 1),
    ],
)
def test_statuses_and_replies_by_kind(reply: Reply, kind: type[errors.ModelError], calls: int) -> None:
    error, seen = fails(reply, max_attempts=2)
    assert (type(error), seen) == (kind, calls)


def test_a_hanging_endpoint_times_out_on_each_attempt() -> None:
    error, calls = fails(fault("hang"), timeout=1.0, max_attempts=2)
    assert (type(error), calls, error.fault) == (errors.ModelTimeoutError, 2, "world")


def test_a_refused_connection() -> None:
    with OpenAIServer() as server:
        lm = client(server)
    with pytest.raises(errors.ModelConnectionError, match=r"attempt 3 of 3.*api_base"):
        lm.complete(REQUEST)


def test_a_burst_of_faults_is_survived_and_counted() -> None:
    with OpenAIServer([fault("server"), fault("rate_limit"), fault("cut"), "made it"]) as server:
        done = client(server, max_attempts=4).complete(REQUEST)
        assert server.calls == 4
    assert (done.text, done.attempts, done.usage.calls) == ("made it", 4, 1)


def waited(retry_after: str, **options: Any) -> float:
    """Seconds between the first request and the end of a call that was told to wait once."""
    with OpenAIServer([fault("rate_limit", retry_after=retry_after), "ok"]) as server:
        lm = client(server, **options)
        lm.describe()
        started = time.monotonic()
        assert lm.complete(REQUEST).attempts == 2
        return time.monotonic() - started


def test_retry_after_in_seconds_is_waited_for() -> None:
    assert waited("0.5", max_wait=30.0) >= 0.5


def test_retry_after_as_a_date_is_waited_for() -> None:
    # dates have whole seconds, and some may pass before the reply is read
    assert waited(format_datetime(datetime.now(UTC) + timedelta(seconds=3), usegmt=True), max_wait=30.0) >= 0.9


def test_retry_after_is_capped_and_kept_in_the_error() -> None:
    error, calls = fails(fault("rate_limit", retry_after="86400"), max_wait=0.01)
    assert (error.retry_after, calls) == (86400.0, 3)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-3"}, None),
        ({"retry-after": " 12 "}, 12.0),
        ({"Retry-After-Ms": "250", "Retry-After": "9"}, 0.25),
        ({"Retry-After": "Tue, 01 Jan 2030 00:00:30 GMT"}, 30.0),
        ({"Retry-After": "Mon, 31 Dec 2029 00:00:00 GMT"}, 0.0),
    ],
)
def test_forms_of_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert read_retry_after(headers, now=datetime(2030, 1, 1, tzinfo=UTC)) == seconds


def test_no_hidden_retries_whatever_litellms_global_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_litellm(), "num_retries", 2)
    assert fails(fault("server"), max_attempts=1)[1] == 1


def test_litellms_own_cache_is_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    litellm = load_litellm()
    # its constructor adds itself to these lists
    for name in ("input_callback", "success_callback", "_async_success_callback"):
        monkeypatch.setattr(litellm, name, list(getattr(litellm, name)))
    monkeypatch.setattr(litellm, "cache", litellm.Cache(type="local"))
    with OpenAIServer() as server:
        lm = client(server)
        lm.complete(REQUEST)
        lm.complete(REQUEST)
        assert server.calls == 2


def test_calls_in_flight_are_capped() -> None:
    with OpenAIServer("ok", seconds=0.1) as server:
        lm = copy.deepcopy(client(server, max_in_flight=3))
        threads = [threading.Thread(target=lm.complete, args=(REQUEST,)) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert server.calls == 12
        assert 2 <= server.busy_peak <= 3
    assert lm.describe().max_in_flight == 3


def test_a_deep_copy_is_the_client_and_a_pickled_one_works() -> None:
    with OpenAIServer("hello") as server:
        lm = client(server)
        assert copy.deepcopy(lm) is lm
        twin = pickle.loads(pickle.dumps(lm))
        assert twin.complete(REQUEST).text == "hello"
        assert twin.describe() == lm.describe()


@pytest.mark.parametrize("key", [KEY, "own-key", "plain words"])
def test_the_key_is_in_no_message(key: str) -> None:
    with OpenAIServer(api_key="another") as server:
        lm = client(server, api_key=key)
        with pytest.raises(errors.AuthError) as caught:
            lm.complete(REQUEST)
        assert server.keys == [key]
    shown = "".join(traceback.format_exception(caught.value)) + repr(lm) + repr(lm.describe())
    assert "Incorrect API key provided: ***" in shown
    assert key not in shown


def test_keys_in_the_environment_and_in_headers_are_scrubbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "env-secret-1")
    secrets = secrets_in({"extra_headers": {"X-Auth": "Token head-secret"}, "extra_body": {"my_token": "body-secret"}, "user": "u"})
    text = scrub(f"env-secret-1 head-secret body-secret {KEY} https://me:pw@host", secrets)
    assert text == "*** *** *** *** https://***@host"


def test_credentials_in_the_endpoint_are_not_shown() -> None:
    with OpenAIServer(fault("server")) as server:
        lm = client(server, api_base=server.base_url.replace("127", "me:hidden-pw@127"), max_attempts=1)
        with pytest.raises(errors.ServerError) as caught:
            lm.complete(REQUEST)
        assert lm.describe().endpoint == server.base_url
    assert "hidden-pw" not in str(caught.value) + repr(lm)
    assert shown_url("http://h/v1?key=abc#x") == "http://h/v1"


def test_a_known_price_is_charged_and_an_unknown_one_is_none() -> None:
    with OpenAIServer(Reply("ok", usage=(1000, 100))) as server:
        priced, unpriced = client(server, "openai/gpt-4.1-mini"), client(server)
        info = priced.describe()
        assert info.usd_per_input_token is not None
        assert info.usd_per_output_token is not None
        assert info.context_window is not None
        usd = priced.complete(REQUEST).usage.usd
        assert usd == pytest.approx(1000 * info.usd_per_input_token + 100 * info.usd_per_output_token)
        assert unpriced.complete(REQUEST).usage.usd is None
    assert (info.priced, unpriced.describe().priced, unpriced.describe().context_window) == (True, False, None)


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("twelve chars", 3)])
def test_an_empty_reply_is_a_reply_and_missing_counts_are_estimated(text: str, tokens: int) -> None:
    with OpenAIServer(Reply(text, usage="none")) as server:
        done = client(server, "openai/gpt-4.1-mini").complete(REQUEST)
    assert (done.text, done.finish_reason) == (text, "stop")
    assert (done.usage.input_tokens, done.usage.output_tokens) == (3 + 4, tokens)
    assert done.usage.usd is not None
    assert done.usage.usd > 0


def test_a_cut_off_reply_says_so() -> None:
    with OpenAIServer(Reply("half a", finish_reason="length")) as server:
        assert client(server).complete(REQUEST).finish_reason == "length"


def test_a_huge_reply_arrives_whole() -> None:
    with OpenAIServer(fault("huge")) as server:
        assert len(client(server).complete(REQUEST).text) == 10_000_000


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
OPEN_SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize(("schema", "strict"), [(SCHEMA, True), (OPEN_SCHEMA, False)])
def test_a_schema_goes_where_the_model_takes_one(schema: dict[str, Any], strict: bool) -> None:
    request = Request(messages=MESSAGES, json_schema=schema, choices=("a", "b"))
    with OpenAIServer('{"choice": "a"}') as server:
        able, unable = client(server, "openai/gpt-4.1-mini"), client(server)
        assert (able.describe().structured, unable.describe().structured) == ("json_schema", "none")
        assert able.complete(request).text == '{"choice": "a"}'
        unable.complete(request)
        first, second = server.requests
    assert first["response_format"] == {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema, "strict": strict}}
    assert "response_format" not in second


@pytest.mark.parametrize(
    ("text", "reply"), [('{"choice": "low"}', "low"), ("low", "low"), ('{"choice": "lo', '{"choice": "lo'), ("[1]", "[1]")]
)
def test_choices_become_an_enum_and_come_back_bare(text: str, reply: str) -> None:
    with OpenAIServer(text) as server:
        assert client(server, "openai/gpt-4.1-mini").complete(Request(messages=MESSAGES, choices=("low", "high"))).text == reply
        (sent,) = server.requests
    assert sent["response_format"]["json_schema"]["schema"]["properties"]["choice"]["enum"] == ["low", "high"]


@pytest.fixture
def restored() -> Iterator[Any]:
    """litellm, with its noise switch put back afterwards."""
    litellm = load_litellm()
    before = litellm.suppress_debug_info
    yield litellm
    litellm.suppress_debug_info = before


def test_stdout_stays_clean(capfd: pytest.CaptureFixture[str]) -> None:
    fails(fault("bad_request"))
    with OpenAIServer() as server:
        client(server).complete(REQUEST)
    with pytest.raises(errors.UsageError):
        LiteLLM("nobody/model").check_ready()
    assert capfd.readouterr().out == ""


def test_what_a_user_sets_in_litellm_stays(restored: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restored, "drop_params", True)
    restored.suppress_debug_info = False
    with OpenAIServer() as server:
        client(server).complete(REQUEST)
    assert (restored.drop_params, restored.suppress_debug_info) == (True, False)


@pytest.mark.parametrize(
    "options",
    [
        {"model": ""},
        {"model": " openai/m"},
        {"timeout": 0},
        {"max_wait": -1},
        {"max_attempts": 0},
        {"max_in_flight": 0},
        {"extra": {"num_retries": 3}},
        {"extra": {"max_tokens": 3}},
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(errors.UsageError):
        LiteLLM(**{"model": "openai/m", **options})


def test_a_request_cannot_undo_the_clients_promises() -> None:
    with OpenAIServer() as server:
        with pytest.raises(errors.UsageError, match="stream"):
            client(server).complete(Request(messages=MESSAGES, params=Params(extra={"stream": True})))
        assert server.calls == 0


@pytest.mark.parametrize(
    ("model", "api_base", "missing"),
    [
        ("openai/gpt-4.1-mini", None, "OPENAI_API_KEY"),
        ("gpt-4.1-mini", None, "OPENAI_API_KEY"),
        ("anthropic/claude-sonnet-4-5", None, "ANTHROPIC_API_KEY"),
        ("openai/m", "https://models.example.com/v1", "OPENAI_API_KEY"),
        ("openai/m", "http://127.0.0.1:8000/v1", None),
        ("openai/m", "http://10.0.0.7:8000/v1", None),
        ("openai/m", "http://localhost:8000/v1", None),
        ("ollama/llama3", None, None),
        ("nobody/model", None, None),
    ],
)
def test_the_missing_key_is_named(model: str, api_base: str | None, missing: str | None) -> None:
    assert missing_key(model, api_base) == missing


def test_a_key_that_is_there_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k-123456")
    assert missing_key("openai/gpt-4.1-mini") is None
    monkeypatch.setenv("OPENAI_API_KEY", "")
    assert missing_key("openai/gpt-4.1-mini") == "OPENAI_API_KEY"


def test_a_server_of_ones_own_needs_no_key() -> None:
    with OpenAIServer("hi") as server:
        lm = client(server, api_key=None)
        lm.check_ready()
        assert lm.complete(REQUEST).text == "hi"


def test_the_endpoint_in_the_environment_is_part_of_the_description(monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenAIServer("from there") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        lm = LiteLLM("openai/m", timeout=10.0)
        assert lm.describe().endpoint == server.base_url
        assert lm.complete(REQUEST).text == "from there"


def test_import_is_lazy_and_description_needs_no_network() -> None:
    script = """
import sys
from gepa_lite.lm.litellm_client import LiteLLM
lm = LiteLLM("openai/gpt-4.1-mini", api_key="k")
assert "litellm" not in sys.modules
import socket
def refuse(*args): raise AssertionError("network")
socket.socket.connect = socket.getaddrinfo = refuse
lm.check_ready()
assert lm.describe().priced
assert LiteLLM("ollama/some-model").describe().structured == "none"
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
