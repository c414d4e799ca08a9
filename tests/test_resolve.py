"""From what a user writes to an LM."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from gepa_lite.core.call import Usage
from gepa_lite.core.code_id import code_id
from gepa_lite.errors import AuthError, ModelConnectionError, ModelError, RefusedError, UsageError
from gepa_lite.lm.callable_lm import CallableLM
from gepa_lite.lm.litellm_client import LiteLLM
from gepa_lite.lm.protocol import LM, Completion, LMInfo, Request
from gepa_lite.lm.resolve import check_lm, open_lm
from gepa_lite.testing import ScriptedLM

REQUEST = Request(messages=({"role": "user", "content": "hello you"},))


# litellm's own models warn in pydantic, on import
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pydantic")


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def echo(messages: list[dict[str, str]]) -> str:
    """The last message, back."""
    return messages[-1]["content"]


def test_names_objects_and_functions_open() -> None:
    lm = ScriptedLM("x")
    assert open_lm(lm) is lm
    assert repr(open_lm(" openai/gpt-4.1-mini ")) == "LiteLLM('openai/gpt-4.1-mini')"
    assert open_lm("gpt-4.1-mini").describe().name == "gpt-4.1-mini"
    opened = open_lm(echo)
    assert isinstance(opened, CallableLM)
    assert isinstance(opened, LM)
    assert opened.describe() == LMInfo("callable/echo", settings=code_id(echo))


def test_a_local_name_goes_to_the_local_models(monkeypatch: pytest.MonkeyPatch) -> None:
    local = ModuleType("gepa_lite.lm.local")
    vars(local)["open_local"] = lambda name: ScriptedLM("x", name=name)
    monkeypatch.setitem(sys.modules, "gepa_lite.lm.local", local)
    assert open_lm("local/models/some.gguf").describe().name == "models/some.gguf"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("gpt4.1-mini", "Did you mean openai/gpt-4.1-mini"),
        ("gtp4o", "Did you mean .*openai/gpt-4"),
        ("", "needs a model"),
        (ScriptedLM, r"Did you mean ScriptedLM\(\.\.\.\)"),
        (3, "but got int"),
        (None, "but got NoneType"),
    ],
)
def test_what_is_no_model_is_refused(spec: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        open_lm(spec)


def test_an_async_function_is_refused() -> None:
    async def reply(messages: list[dict[str, str]]) -> str:
        return "x"

    with pytest.raises(UsageError, match="synchronous"):
        open_lm(reply)


def test_a_missing_key_and_an_unknown_provider_are_named_before_any_call() -> None:
    with pytest.raises(UsageError, match="OPENAI_API_KEY"):
        check_lm(open_lm("openai/gpt-4.1-mini"))
    with pytest.raises(UsageError, match=r"Did you mean openai/gpt-4\.1-mini"):
        check_lm(open_lm("openay/gpt-4.1-mini"))
    check_lm(LiteLLM("openai/gpt-4.1-mini", api_key="k"))
    check_lm(ScriptedLM("x"))
    check_lm(CallableLM(echo))


def test_a_text_from_a_function_has_estimated_tokens_and_no_price() -> None:
    done = CallableLM(echo).complete(REQUEST)
    assert (done.text, done.usage, done.model) == ("hello you", Usage(1, 3, 3, None), "callable/echo")


def test_a_function_may_return_a_completion_or_a_chat_dict() -> None:
    whole = Completion("x", usage=Usage(1, 2, 3, 0.5))
    assert CallableLM(lambda messages: whole).complete(REQUEST) is whole
    chat = {
        "model": "m",
        "choices": [{"message": {"content": "hi", "reasoning_content": "why"}, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 6},
    }
    done = CallableLM(lambda messages: chat).complete(REQUEST)
    assert (done.text, done.reasoning, done.finish_reason, done.model, done.usage) == ("hi", "why", "length", "m", Usage(1, 5, 6, None))
    del chat["usage"]
    assert CallableLM(lambda messages: chat).complete(REQUEST).usage == Usage(1, 3, 2, None)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (3, ModelError),
        (None, ModelError),
        ({"no": "choices"}, ModelConnectionError),
        ({"choices": [{"message": {"content": None, "refusal": "no"}}]}, RefusedError),
    ],
)
def test_what_is_no_reply_is_an_error(reply: Any, kind: type[ModelError]) -> None:
    with pytest.raises(kind) as caught:
        CallableLM(lambda messages: reply, name="mine").complete(REQUEST)
    assert type(caught.value) is kind
    assert str(caught.value).startswith("mine: ")


def test_errors_of_ours_pass_and_others_become_the_worlds_fault() -> None:
    ours = AuthError("no")

    def raising(error: Exception) -> CallableLM:
        def fn(messages: list[dict[str, str]]) -> str:
            raise error

        return CallableLM(fn, name="mine")

    with pytest.raises(AuthError) as caught:
        raising(ours).complete(REQUEST)
    assert caught.value is ours
    with pytest.raises(ModelError, match="mine: the function raised OSError: disk of sk") as other:
        raising(OSError("disk of sk")).complete(REQUEST)
    assert (other.value.fault, other.value.retryable) == ("world", False)


def test_a_function_may_change_its_messages() -> None:
    def fn(messages: list[dict[str, str]]) -> str:
        messages[0]["content"] = "changed"
        messages.clear()
        return "ok"

    CallableLM(fn).complete(REQUEST)
    assert REQUEST.messages[0]["content"] == "hello you"
