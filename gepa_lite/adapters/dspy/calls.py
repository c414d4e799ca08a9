"""dspy's LMs on our terms: copies whose calls go through the run, and the ``LM`` that reflects with one.

A user's LM object is never changed: a copy of it, of a subclass made for its class, stands in its place in the program's copies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol

from gepa_lite.adapters.dspy import is_dspy_lm, load_dspy
from gepa_lite.adapters.dspy.faults import read_dspy_fault
from gepa_lite.adapters.dspy.replies import finish_reason_of, request_of, shown_outputs, text_of_outputs, usage_of
from gepa_lite.errors import UsageError
from gepa_lite.lm.faults import secrets_in, shown_url
from gepa_lite.lm.protocol import Completion, LMInfo, Request
from gepa_lite.lm.providers import find_provider, look_up, missing_key
from gepa_lite.program.bridge import run_coroutine

RECORDER = "gepa_lite_recorder"
"""The key of dspy's settings that holds a rollout's recorder: dspy carries its settings into the threads that it starts."""

_HISTORY = 100_000
_BASES = ("api_base", "base_url")


class Sink:
    """Stands among dspy's caller modules, so that each call's history entry (messages, usage, cost) is written to it, also in failed rollouts."""

    def __init__(self) -> None:
        self.history: list[dict[str, Any]] = []


class TakesCalls(Protocol):
    """A rollout's recorder, as far as an LM knows it."""

    def call(self, lm: RoutedCalls, prompt: Any, messages: Any, options: Mapping[str, Any], ask: Callable[[], Any]) -> list[Any]:
        """Answer a call by ``ask``, or by what was paid for before."""
        ...


class RoutedCalls:
    """The part of a routed LM that is not dspy's: each call goes to the rollout's recorder."""

    kwargs: dict[str, Any]
    gepa_lite_lm: DspyLM

    def __call__(self, prompt: Any = None, *, messages: Any = None, **options: Any) -> Any:
        """Answer through the rollout."""
        options.pop("cache", None)
        return _recorder().call(self, prompt, messages, options, lambda: self.ask_plainly(prompt, messages, options))

    async def acall(self, prompt: Any = None, *, messages: Any = None, **options: Any) -> Any:
        """The same from a coroutine, without holding up its loop."""
        options.pop("cache", None)

        def ask() -> Any:
            return run_coroutine(super(RoutedCalls, self).acall(prompt, messages=messages, **options))  # type: ignore[misc]

        return await asyncio.to_thread(_recorder().call, self, prompt, messages, options, ask)

    def ask_plainly(self, prompt: Any, messages: Any, options: Mapping[str, Any]) -> Any:
        """Dspy's own call, past the rollout."""
        return super().__call__(prompt, messages=messages, **options)  # type: ignore[misc]

    def update_history(self, entry: dict[str, Any]) -> None:
        """Only the call's own sink hears of it; the user's histories stay as they were."""
        for owner in load_dspy().settings.caller_modules or []:
            owner.history.append(entry)


def _recorder() -> TakesCalls:
    recorder: TakesCalls | None = load_dspy().settings.get(RECORDER)
    if recorder is None:
        raise UsageError(
            "an LM of the program was called in a thread that dspy knows nothing of: wrap the function first, executor.submit(gl.carry(fn), ...), "
            "or use dspy.Parallel, since dspy's settings do not travel into other threads."
        )
    return recorder


@cache
def _routed_class(cls: Any) -> Any:
    return type(f"Routed{cls.__name__}", (RoutedCalls, cls), {"__module__": __name__, "__doc__": cls.__doc__})


def routed(lm: Any, known: DspyLM) -> Any:
    """A copy of a dspy LM whose calls go through the rollout that is running. dspy's own cache is off for it: the run keeps replies itself, and by sample.

    Args:
        lm: the user's.
        known: the same as an ``LM``.
    """
    copy = lm.copy(cache=False)
    copy.kwargs.pop("cache", None)
    cls: Any = type(lm)
    copy.__class__ = _routed_class(cls)
    copy.gepa_lite_lm = known
    return copy


@contextmanager
def asking() -> Iterator[Sink]:
    """Within the block, history entries go to the sink alone, and our recorders hear of no call."""
    dspy = load_dspy()
    sink = Sink()
    callbacks = [callback for callback in dspy.settings.get("callbacks") or [] if not hasattr(callback, "is_gepa_lite_recorder")]
    with dspy.context(caller_modules=[sink], callbacks=callbacks, disable_history=False, max_history_size=_HISTORY):
        yield sink


class DspyLM:
    """A dspy LM as an ``LM``: what is known of it, and reflection by it.

    Args:
        lm: an instance of ``dspy.BaseLM``; never changed.
    """

    def __init__(self, lm: Any) -> None:
        self.lm = lm
        self._info: LMInfo | None = None
        self._routed: Any = None

    def describe(self) -> LMInfo:
        """Prices and window by litellm's map for a plain ``dspy.LM``; the name alone for any other class or engine."""
        if self._info is None:
            base = next((self.lm.kwargs[name] for name in _BASES if self.lm.kwargs.get(name)), None)
            if self._is_plain:
                self._info = look_up(self.lm.model, base, 16)
            else:
                self._info = LMInfo(str(getattr(self.lm, "model", type(self.lm).__name__)), shown_url(base) if base else "")
        return self._info

    @property
    def _is_plain(self) -> bool:
        """Whether it is dspy's own client of a model that litellm knows by provider."""
        engine = getattr(self.lm, "_engine_spec", "auto")
        return type(self.lm).__name__ == "LM" and isinstance(engine, str) and "/" in str(self.lm.model)

    @property
    def where(self) -> str:
        """The model and its endpoint, in words."""
        info = self.describe()
        return f"{info.name} at {info.endpoint}" if info.endpoint else info.name

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that no message may show."""
        return secrets_in(self.lm.kwargs)

    def check_ready(self) -> None:
        """Refuse a model without a key.

        Raises:
            UsageError: by the name of its variable.
        """
        base = next((self.lm.kwargs[name] for name in _BASES if self.lm.kwargs.get(name)), None)
        if not self._is_plain or self.lm.kwargs.get("api_key") or find_provider(self.lm.model, base) is None:
            return
        missing = missing_key(self.lm.model, base)
        if missing:
            raise UsageError(
                f"{self.lm.model} needs a key: set {missing} in the environment, or pass dspy.LM({self.lm.model!r}, api_key=...)."
            )

    def complete(self, request: Request) -> Completion:
        """Send one request of our own (a reflection prompt).

        Raises:
            ModelError: by kind.
        """
        if self._routed is None:
            self._routed = routed(self.lm, self)
        bound = "max_completion_tokens" if "max_completion_tokens" in self.lm.kwargs else "max_tokens"
        options: dict[str, Any] = {bound: request.params.max_tokens}
        # models that fix their temperature have none of their own
        if request.params.temperature is not None and bound == "max_tokens":
            options["temperature"] = request.params.temperature
        messages = [dict(message) for message in request.messages]
        alone = len(messages) == 1 and messages[0]["role"] == "user"
        prompt, rest = (messages[0]["content"], None) if alone else (None, messages)
        pending = Pending(self, request_of(prompt, rest, options), lambda: self._routed.ask_plainly(prompt, rest, options))
        completion = pending.complete(request)
        return Completion(shown_outputs(pending.outputs), completion.finish_reason, completion.usage, completion.model)


class Pending:
    """One call that a program is about to make, as an ``LM`` that can make exactly this call.

    Attributes:
        raised: what dspy raised where it failed: the program gets that very error.
        outputs: what dspy returned.

    Args:
        lm: who is asked.
        request: the call in our terms.
        ask: makes it.
    """

    def __init__(self, lm: DspyLM, request: Request, ask: Callable[[], Any]) -> None:
        self._lm = lm
        self._request = request
        self._ask = ask
        self.raised: Exception | None = None
        self.outputs: Sequence[Any] = ()

    def describe(self) -> LMInfo:
        """The LM's own."""
        return self._lm.describe()

    def complete(self, request: Request) -> Completion:
        """Make the call.

        Raises:
            ModelError: by kind.
        """
        with asking() as sink:
            try:
                outputs = self._ask()
            except Exception as error:
                self.raised = error
            else:
                if not isinstance(outputs, list):
                    raise UsageError(
                        "the program calls an LM with a dspy.lm15.Request of its own, which can't be kept: call it through a predictor or with a prompt."
                    )
                self.outputs = outputs
                entry = sink.history[-1] if sink.history else {}
                return completion_of(entry, outputs, self._request, self.describe())
        raise read_dspy_fault(self.raised, self._lm.where, self._lm.secrets) from self.raised


class Made:
    """A call that was made already, past the run: an ``LM`` that returns or raises what came of it, so that it is booked.

    Args:
        lm: who was asked.
        outcome: the reply, or the exception.
    """

    def __init__(self, lm: DspyLM, outcome: Completion | Exception) -> None:
        self._lm = lm
        self._outcome = outcome

    def describe(self) -> LMInfo:
        """The LM's own."""
        return self._lm.describe()

    def complete(self, request: Request) -> Completion:
        """What came of the call."""
        if isinstance(self._outcome, Completion):
            return self._outcome
        raise read_dspy_fault(self._outcome, self._lm.where, self._lm.secrets) from self._outcome


def completion_of(entry: Mapping[str, Any], outputs: Sequence[Any], request: Request, info: LMInfo) -> Completion:
    """A completion from dspy's outputs and history entry."""
    usage = usage_of(entry, request, shown_outputs(outputs), info)
    return Completion(text_of_outputs(outputs), finish_reason_of(entry), usage, str(entry.get("response_model") or info.name))


def is_routed(lm: Any) -> bool:
    """Whether an LM is one of ours."""
    return isinstance(lm, RoutedCalls)


def as_lm(spec: Any) -> DspyLM | None:
    """A dspy LM object as an ``LM``; None for anything else."""
    return DspyLM(spec) if is_dspy_lm(spec) else None
