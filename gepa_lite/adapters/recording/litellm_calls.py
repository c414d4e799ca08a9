"""``record="litellm"``: the calls that a user's code makes through litellm, told by litellm's own callbacks."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from gepa_lite.adapters.recording.scope import Scope, attributed, current_scope
from gepa_lite.adapters.recording.wire import Answer, completion_of, read_request, shown_answer
from gepa_lite.core.call import Usage
from gepa_lite.errors import ModelError
from gepa_lite.lm.faults import read_fault, secrets_in
from gepa_lite.lm.made import MadeCall
from gepa_lite.lm.protocol import Completion, LMInfo, Request
from gepa_lite.lm.providers import load_litellm, look_up
from gepa_lite.lm.wire import estimate_input
from gepa_lite.prompting import last_read

_PLACE = "gepa_lite_place"


@dataclass(frozen=True, slots=True)
class LiteLLMCalls:
    """Implements ``CallSource``: adds callbacks to ``litellm.callbacks``, which do nothing outside of rollouts."""

    @property
    def holds(self) -> bool:
        return False

    def listen(self) -> None:
        litellm = load_litellm()
        for logger in _loggers():
            # looked up each time, since code may set the list anew
            if logger not in litellm.callbacks:
                litellm.callbacks.append(logger)


@dataclass(slots=True)
class _Open:
    """A call that began in a rollout."""

    scope: Scope
    place: int
    module: str | None
    read: str | None
    started: float
    kwargs: Mapping[str, Any]


class _Calls:
    """Which calls are open, by litellm's id of them. litellm tells their ends in threads of its own, each perhaps twice."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        self._lock = threading.Lock()

    def coming(self, call: Any) -> None:
        """A coroutine is about to make a call, told in its own context: coroutines that are gathered come here in their order, and litellm then begins their calls in threads, in any."""
        scope = current_scope(LiteLLMCalls)
        if scope is not None and hasattr(call, "model_call_details"):
            call.model_call_details.setdefault(_PLACE, scope.next_place())

    def begun(self, kwargs: Mapping[str, Any]) -> None:
        """A call goes out, told in its own context. Our own models' calls are no rollout's here, see ``Scope.pay``."""
        scope = current_scope(LiteLLMCalls)
        if scope is None or _through_proxy(kwargs, scope):
            return
        name = str(kwargs.get("litellm_call_id"))
        with self._lock:
            if name in self._open:
                # the next attempt of the same call
                return
            began = _Open(scope, 0, attributed(), last_read(), time.perf_counter(), kwargs)
            began.place = scope.opened(lambda: self.abandoned(name), kwargs.get(_PLACE))
            self._open[name] = began

    def ended(self, kwargs: Mapping[str, Any], response: Any) -> None:
        """A call has its reply, whole."""
        began = self._taken(kwargs)
        if began is not None:
            _book(began, kwargs, lambda request, info: _completion(kwargs, response, request, info))

    def failed(self, kwargs: Mapping[str, Any]) -> None:
        """A call failed."""
        began = self._taken(kwargs)
        error = kwargs.get("exception")
        if began is not None and isinstance(error, Exception):
            secrets = secrets_in({"litellm_params": kwargs.get("litellm_params") or {}})
            _book(began, kwargs, lambda request, info: read_fault(error, f"{info.name} by litellm", secrets))

    def abandoned(self, name: str) -> None:
        """The rollout is over, and the end was never told: a stream that was not read to its end. What it cost is estimated, at its input."""
        with self._lock:
            began = self._open.pop(name, None)
        if began is not None:
            _book(began, began.kwargs, _cut_short)

    def _taken(self, kwargs: Mapping[str, Any]) -> _Open | None:
        with self._lock:
            return self._open.pop(str(kwargs.get("litellm_call_id")), None)


_calls = _Calls()


def _through_proxy(kwargs: Mapping[str, Any], scope: Scope) -> bool:
    params = kwargs.get("litellm_params") or {}
    return f"/r/{scope.token}/" in str(params.get("api_base") or "")


def _book(began: _Open, kwargs: Mapping[str, Any], outcome: Any) -> None:
    try:
        request, info = _request(kwargs), _info(kwargs)
        made = MadeCall(info, outcome(request, info), time.perf_counter() - began.started)
        began.scope.book(made, request, module=began.module, read=began.read, place=began.place)
    finally:
        began.scope.closed(began.place)


def _request(kwargs: Mapping[str, Any]) -> Request:
    given = {**(kwargs.get("optional_params") or {}), "model": kwargs.get("model")}
    messages = kwargs.get("messages")
    # an embedding's texts come as messages of an odd form; plain completions' as well
    given["messages" if isinstance(messages, list) else "input"] = messages
    return read_request(str(kwargs.get("call_type")), json.dumps(given, default=str, sort_keys=True).encode())


def _info(kwargs: Mapping[str, Any]) -> LMInfo:
    params = kwargs.get("litellm_params") or {}
    model, provider = str(kwargs.get("model") or ""), params.get("custom_llm_provider") or kwargs.get("custom_llm_provider")
    named = model if not provider or model.startswith(f"{provider}/") else f"{provider}/{model}"
    return _look_up(named, params.get("api_base") or None)


@cache
def _look_up(model: str, base: str | None) -> LMInfo:
    return look_up(model, base, 16)


def _completion(kwargs: Mapping[str, Any], response: Any, request: Request, info: LMInfo) -> Completion | ModelError:
    data = response.model_dump() if hasattr(response, "model_dump") else response
    try:
        answer = Answer(200, {"content-type": "application/json"}, json.dumps(data, default=str).encode())
        made = completion_of(answer, request, info)
    except ModelError as error:
        return error
    cost, usage = kwargs.get("response_cost"), made.usage
    if info.priced and isinstance(cost, (int, float)):
        # litellm knows of cached tokens and price steps
        usage = replace(usage, usd=float(cost))
    return replace(made, text=shown_answer(made.text), usage=usage)


def _cut_short(request: Request, info: LMInfo) -> Completion:
    tokens = estimate_input(request.messages)
    usd = None if info.usd_per_input_token is None else tokens * info.usd_per_input_token
    return Completion("", "abandoned", Usage(1, tokens, 0, usd), info.name)


@cache
def _loggers() -> tuple[Any, ...]:
    """Two, since litellm tells each object either by its synchronous methods or by its asynchronous ones, and which of them comes through depends on its version and on who made the call."""
    load_litellm()
    from litellm.integrations.custom_logger import CustomLogger

    class Told(CustomLogger):
        def log_pre_api_call(self, model: Any, messages: Any, kwargs: Any) -> None:
            _calls.begun(kwargs)

        def log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
            _calls.ended(kwargs, response_obj)

        def log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
            _calls.failed(kwargs)

    class ToldInLoops(CustomLogger):
        async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
            _calls.coming(kwargs.get("litellm_logging_obj"))
            return None

        async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
            _calls.ended(kwargs, response_obj)

        async def async_log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
            _calls.failed(kwargs)

    return Told(), ToldInLoops()
