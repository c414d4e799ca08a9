"""The LM behind "provider/model": litellm with our own time-outs, retries, typed errors and prices.

litellm is imported on first use, since that takes seconds.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import tenacity

from gepa_lite.core.call import Usage
from gepa_lite.core.ids import content_hash
from gepa_lite.errors import ModelError, ModelNotFoundError, ModelTimeoutError, UsageError
from gepa_lite.lm.deadline import DeadlineError, within
from gepa_lite.lm.faults import read_fault, scrub, secrets_in, shown_url
from gepa_lite.lm.protocol import Completion, LMInfo, Request
from gepa_lite.lm.providers import absent_keys, find_provider, is_private, load_litellm, look_up, missing_key, near_models, set_base
from gepa_lite.lm.wire import WireReply, estimate_input, estimate_tokens, read_reply

_FIRST_WAIT = 0.5
"""Seconds before the second attempt, if the server does not say; doubles with each further one."""

_OURS = frozenset({"api_base", "api_key", "base_url", "client", "max_completion_tokens", "max_tokens", "messages", "model", "timeout"})
_OURS |= {"acompletion", "caching", "fallbacks", "max_retries", "mock_response", "n", "num_retries", "retry_policy", "stream"}
"""What ``extra`` may not set: it would undo a promise of this class."""


class LiteLLM:
    """A model of any provider that litellm knows, e.g. ``"openai/gpt-4.1-mini"`` or, with ``api_base``, a server of your own.

    Each request is sent up to ``max_attempts`` times: rate limits, time-outs, cut connections, replies that are not of the protocol and
    5xx are tried again after a jittered, doubling wait, or after what ``Retry-After`` asks; nothing else is. litellm's and the SDK's own
    retries and caches are off. Of this client's requests at most ``max_in_flight`` are on the wire at once; a waiting retry holds no
    slot. A deep copy is the client itself, so that the cap stays one; a pickled copy has a cap of its own and carries the key. ``seed``
    and ``Request.choices`` are dropped where the model can't take them.

    Dollars are None, never 0, where litellm's map does not know both prices. Where an endpoint does not count tokens, they are estimated
    at four characters a token. No error message holds a key.

    >>> LiteLLM("openai/gpt-4.1-mini", timeout=30.0)
    LiteLLM('openai/gpt-4.1-mini')

    Args:
        model: ``"provider/model"``.
        api_base: the endpoint's base URL; None for the provider's own.
        api_key: the key; None takes it from the environment, as litellm does. It is shown nowhere.
        timeout: seconds that one attempt may wait to connect, and for the next bytes of the reply.
        deadline: seconds that one attempt may take in all, for a server that keeps sending without coming to an end.
        max_attempts: 1 for no retries.
        max_wait: upper bound of the seconds between two attempts, whatever the server asks.
        max_in_flight: requests on the wire at once.
        extra: further parameters of every call, passed to litellm, e.g. ``{"reasoning_effort": "low"}``; a request's own parameters go
            before these.

    Raises:
        UsageError: a value out of range, or an ``extra`` that would undo what this class promises.
    """

    def __init__(  # noqa: PLR0913, a declaration reads best with its options by name
        self,
        model: str,
        *,
        api_base: str | None = None,
        api_key: str | None = None,
        timeout: float = 60.0,
        deadline: float = 600.0,
        max_attempts: int = 5,
        max_wait: float = 60.0,
        max_in_flight: int = 16,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        if not model or model != model.strip():
            raise UsageError(f"LiteLLM needs a model such as 'openai/gpt-4.1-mini', but got {model!r}.")
        if timeout <= 0 or deadline < timeout or max_wait < 0:
            raise UsageError(
                f"timeout must be above 0, deadline not below it and max_wait not below 0 seconds, "
                f"but got timeout={timeout}, deadline={deadline}, max_wait={max_wait}."
            )
        if max_attempts < 1 or max_in_flight < 1:
            raise UsageError(f"max_attempts and max_in_flight must be at least 1, but got {max_attempts} and {max_in_flight}.")
        self._model = model
        self._api_base = api_base
        self._api_key = api_key
        self._timeout = timeout
        self._deadline = deadline
        self._max_attempts = max_attempts
        self._max_wait = max_wait
        self._max_in_flight = max_in_flight
        self._extra = dict(_checked(extra or {}))
        self._slots = threading.BoundedSemaphore(max_in_flight)

    def __repr__(self) -> str:
        base = f", api_base={shown_url(self._api_base)!r}" if self._api_base else ""
        return f"LiteLLM({self._model!r}{base})"

    def __deepcopy__(self, memo: dict[int, Any]) -> LiteLLM:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_slots", "_info", "_provider")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._slots = threading.BoundedSemaphore(self._max_in_flight)

    def describe(self) -> LMInfo:
        """Window, prices and abilities from litellm's own map, without the network; imports litellm on first use."""
        return self._info

    def check_ready(self) -> None:
        """Raise before any call is paid for.

        Raises:
            UsageError: no such provider, or no key for it, by name.
        """
        if find_provider(self._model, self._api_base) is None:
            raise UsageError(
                f"Unknown model {self._model!r}: litellm knows no such provider. Write 'provider/model', e.g. 'openai/gpt-4.1-mini'."
            )
        missing = None if self._api_key else missing_key(self._model, self._api_base)
        if missing:
            raise UsageError(f"{self._model} needs a key: set {missing} in the environment, or pass LiteLLM({self._model!r}, api_key=...).")

    def complete(self, request: Request) -> Completion:
        """Send one request; retry what may pass.

        Raises:
            ModelError: by kind; see ``errors``. The last attempt's error where all failed.
            UsageError: ``Params.extra`` would undo what this class promises.
        """
        options = self._options(request)
        where = self._where()
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(self._max_attempts),
            wait=self._wait,
            retry=tenacity.retry_if_exception(lambda error: isinstance(error, ModelError) and error.retryable),
            reraise=True,
        )
        for attempt in retrying:
            number = attempt.retry_state.attempt_number
            with attempt:
                try:
                    sent = self._send(options, f"{where}, attempt {number} of {self._max_attempts}" if number > 1 else where)
                except ModelError as error:
                    error.attempts = number
                    raise
                return self._completion(sent, request, "response_format" in options, number)
        raise AssertionError("tenacity ends in a return or an error")

    def _send(self, options: dict[str, Any], where: str) -> _Sent:
        """One attempt."""
        litellm = load_litellm()
        secrets = (*secrets_in(options), self._api_key or "")
        fault: ModelError | None = None
        with self._slots:
            try:
                response = within(self._deadline, litellm.completion, **options)
                data = response.model_dump()
            except DeadlineError:
                fault = ModelTimeoutError(f"{where}: no full reply within {self._deadline:g} seconds, though bytes kept coming.")
            except Exception as error:  # litellm raises far more than its own classes
                fault = read_fault(error, where, secrets)
        if isinstance(fault, ModelNotFoundError) and not self._info.endpoint and (near := near_models(self._model)):
            fault = ModelNotFoundError(f"{fault} Did you mean {' or '.join(near)}?", status=fault.status)
        if fault is not None:
            # out of the except block, so that the original, which may hold the key, is not its context
            raise fault
        try:
            return _Sent(read_reply(data, where), self._cost(response))
        except ModelError as error:
            raise type(error)(scrub(str(error), secrets)) from None

    def _options(self, request: Request) -> dict[str, Any]:
        """What litellm is called with."""
        params = request.params
        sampling = {
            "temperature": params.temperature,
            "top_p": params.top_p,
            "stop": list(params.stop) or None,
            "seed": self._seed(params.seed),
        }
        schema = _schema(request) if self.describe().structured == "json_schema" else None
        return {
            **self._extra,
            **{name: value for name, value in sampling.items() if value is not None},
            **({} if schema is None else {"response_format": _response_format(schema)}),
            **_checked(params.extra),
            "model": self._model,
            "messages": [dict(message) for message in request.messages],
            "max_tokens": params.max_tokens,
            "api_base": self._api_base,
            "api_key": self._key(),
            "timeout": self._timeout,
            "num_retries": 0,
            "max_retries": 0,
            # without a policy of its own, a call falls back on the global litellm.num_retries
            "retry_policy": import_module("litellm.types.router").RetryPolicy(),
            "caching": False,
        }

    def _seed(self, seed: int | None) -> int | None:
        if seed is None or self._provider is None:
            return seed
        provider, name = self._provider
        known = load_litellm().get_supported_openai_params(model=name, custom_llm_provider=provider)
        return seed if known is None or "seed" in known else None

    def _key(self) -> str | None:
        """The key to send; servers of one's own often need none, but the SDK insists on one."""
        if self._api_key is not None or self._provider is None or not is_private(self._api_base or set_base(self._provider[0])):
            return self._api_key
        return "no-key-needed" if absent_keys(self._model, self._provider[0]) else None

    def _where(self) -> str:
        endpoint = self.describe().endpoint
        return f"{self._model} at {endpoint}" if endpoint else self._model

    def _wait(self, state: tenacity.RetryCallState) -> float:
        """Seconds until the next attempt.

        Jitter spreads clients that failed together; it never undercuts what the server asked, only the cap does.
        """
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, ModelError) and error.retry_after is not None:
            wait = error.retry_after * random.uniform(1.0, 1.1)
        else:
            wait = _FIRST_WAIT * 2 ** (state.attempt_number - 1) * random.uniform(0.5, 1.5)
        return min(wait, self._max_wait)

    def _completion(self, sent: _Sent, request: Request, constrained: bool, attempts: int) -> Completion:
        wire, usd = sent.reply, sent.usd
        tokens_in, tokens_out = wire.input_tokens, wire.output_tokens
        if not tokens_in or tokens_out is None:
            # litellm writes zeros where the endpoint did not count
            tokens_in, tokens_out = estimate_input(request.messages), estimate_tokens(wire.text + wire.reasoning)
            usd = None
        info = self._info
        if usd is None and info.usd_per_input_token is not None and info.usd_per_output_token is not None:
            usd = tokens_in * info.usd_per_input_token + tokens_out * info.usd_per_output_token
        text = _unwrapped(wire.text) if constrained and request.choices and request.json_schema is None else wire.text
        return Completion(
            text, wire.finish_reason, Usage(1, tokens_in, tokens_out, usd), wire.model or self._model, wire.reasoning, attempts
        )

    def _cost(self, response: Any) -> float | None:
        """Dollars by litellm, which knows of cached tokens and price steps; None where a price is unknown, for which litellm says 0."""
        if not self._info.priced:
            return None
        try:
            return float(load_litellm().completion_cost(completion_response=response, model=self._model))
        except Exception:  # a price it can't work out must not lose a paid reply
            return None

    @cached_property
    def _info(self) -> LMInfo:
        return look_up(self._model, self._api_base, self._max_in_flight, content_hash(self._extra) if self._extra else "")

    @cached_property
    def _provider(self) -> tuple[str, str] | None:
        return find_provider(self._model, self._api_base)


@dataclass(frozen=True, slots=True)
class _Sent:
    reply: WireReply
    usd: float | None


def _checked(extra: Mapping[str, Any]) -> Mapping[str, Any]:
    ours = sorted(_OURS & extra.keys())
    if ours:
        raise UsageError(f"extra may not set {', '.join(ours)}: use the arguments of LiteLLM and Params for these.")
    return extra


def _schema(request: Request) -> dict[str, Any] | None:
    """The request's schema; choices alone become an object with one field, since endpoints take objects only."""
    if request.json_schema is not None:
        return dict(request.json_schema)
    if not request.choices:
        return None
    field = {"type": "string", "enum": list(request.choices)}
    return {"type": "object", "properties": {"choice": field}, "required": ["choice"], "additionalProperties": False}


def _response_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema, "strict": _is_strict(schema)}}


def _is_strict(node: Any) -> bool:
    """Whether a schema fits OpenAI's strict mode: every object closed, every property required. Otherwise strict mode is a 400."""
    if isinstance(node, list):
        return all(_is_strict(part) for part in node)
    if not isinstance(node, Mapping):
        return True
    properties = node.get("properties")
    is_object = node.get("type") == "object" or isinstance(properties, Mapping)
    if is_object and (node.get("additionalProperties") is not False or set(node.get("required", ())) != set(properties or ())):
        return False
    return all(_is_strict(part) for part in node.values())


def _unwrapped(text: str) -> str:
    """The choice inside ``{"choice": ...}``; the text itself where the endpoint ignored the schema."""
    try:
        data = json.loads(text)
    except ValueError:
        return text
    choice = data.get("choice") if isinstance(data, dict) else None
    return choice if isinstance(choice, str) else text
