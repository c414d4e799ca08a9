"""A real SmolLM2-135M on llama.cpp. The model is fetched once, 98 MB, into the user's cache."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from gepa_lite.errors import BadRequestError, ContextWindowError, ModelTimeoutError
from gepa_lite.lm.local import LocalLM, fetch, open_local
from gepa_lite.lm.protocol import Completion, Params, Request

MODEL = "smollm2-135m"
RULES = "You sort messages. " + "A message about an outage is high, and one about a wish is low. " * 6

pytestmark = [pytest.mark.local_model, pytest.mark.timeout(400)]


@pytest.fixture(scope="module", autouse=True)
def _model() -> None:
    fetch.ensure_model(MODEL, progress=False)


@pytest.fixture(scope="module")
def lm() -> Iterator[LocalLM]:
    opened = open_local(MODEL, slots=3, context=512)
    yield opened
    opened.close()


def ask(
    lm: LocalLM, text: str, *, max_tokens: int = 8, choices: tuple[str, ...] = (), schema: dict[str, object] | None = None
) -> Completion:
    messages = ({"role": "system", "content": RULES}, {"role": "user", "content": text})
    return lm.complete(Request(messages, Params(max_tokens=max_tokens, temperature=0.0), json_schema=schema, choices=choices))


def test_a_reply_comes_with_its_counts_and_nothing_is_printed(lm: LocalLM, capfd: pytest.CaptureFixture[str]) -> None:
    reply = ask(lm, "The site is down for all of us.")
    assert reply.text
    assert reply.model == "local/smollm2-135m"
    assert (reply.usage.calls, reply.usage.usd) == (1, 0.0)
    assert reply.usage.input_tokens > 80
    assert 0 < reply.usage.output_tokens <= 8
    assert capfd.readouterr() == ("", "")


def test_a_reply_that_was_cut_says_so(lm: LocalLM) -> None:
    assert ask(lm, "Tell me a long story.", max_tokens=3).finish_reason == "length"


def test_choices_and_schemas_hold(lm: LocalLM) -> None:
    choices = ("low", "high", 'none of "these"\nreally')
    assert ask(lm, "The site is down.", choices=choices, max_tokens=30).text in choices
    assert ask(lm, "Anything.", choices=(choices[2],), max_tokens=30).text == choices[2]
    schema = {"type": "object", "properties": {"urgent": {"type": "boolean"}}, "required": ["urgent"], "additionalProperties": False}
    reply = json.loads(ask(lm, "The site is down.", schema=schema, max_tokens=40).text)
    assert isinstance(reply["urgent"], bool)


def test_many_threads_get_their_own_replies(lm: LocalLM) -> None:
    words = [f"word{number}" for number in range(24)]
    with ThreadPoolExecutor(12) as threads:
        replies = list(threads.map(lambda word: ask(lm, f"Say {word}.", choices=(word, "other"), max_tokens=12), words))
    assert all(reply.text in (word, "other") for word, reply in zip(words, replies, strict=True))


def test_the_instruction_is_worked_through_once(lm: LocalLM) -> None:
    server = lm._running()
    assert server.slots._snapshots[RULES][1] > 0
    assert not server.slots._led


def test_what_does_not_fit_or_is_not_a_schema_is_a_typed_error(lm: LocalLM) -> None:
    with pytest.raises(ContextWindowError, match="but the context holds 512"):
        ask(lm, "word " * 2000)
    with pytest.raises(BadRequestError, match="does not accept the request"):
        ask(lm, "hello", schema={"type": "nonsense"})


def test_a_slow_reply_times_out_and_leaves_the_server_well() -> None:
    hasty = open_local(MODEL, slots=1, context=4096, timeout=0.01)
    try:
        with pytest.raises(ModelTimeoutError, match="no full reply within"):
            hasty.complete(Request(({"role": "user", "content": "Count to a million."},), Params(max_tokens=4000)))
        assert hasty._running().alive
    finally:
        hasty.close()


def test_a_server_that_dies_is_started_again(lm: LocalLM) -> None:
    before = ask(lm, "The site is down.")
    lm._running()._process.kill()
    assert ask(lm, "The site is down.").text == before.text
    lm.close()
    assert ask(lm, "The site is down.").text == before.text


PARENT = """
import signal
import time
# a shell starts what runs in its background with the signal ignored
signal.signal(signal.SIGINT, signal.default_int_handler)
from gepa_lite.lm.local import open_local
from gepa_lite.lm.protocol import Params, Request
lm = open_local("smollm2-135m", slots=1, context=512)
lm.complete(Request(({"role": "user", "content": "hello"},), Params(max_tokens=2)))
print(lm._server._process.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_child_ends_with_its_parent(how: signal.Signals) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.send_signal(how)
    parent.wait(timeout=20)
    deadline = time.monotonic() + 20
    while _runs(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(child)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # a child whose parent is gone may wait as a zombie for the init process to reap it
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout.strip()
    return bool(state) and not state.startswith("Z")
