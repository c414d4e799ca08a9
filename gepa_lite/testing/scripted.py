"""A model that answers from a script: no network, no weights, no randomness of its own."""

from __future__ import annotations

import copy
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gepa_lite.core.call import Usage
from gepa_lite.errors import ModelError, UsageError
from gepa_lite.lm.protocol import Completion, LMInfo, Request

Answer = str | Completion | ModelError
"""What one scripted call gives: a reply's text, a whole completion, or an error to raise."""

Script = str | Mapping[str, Answer] | Sequence[Answer] | Callable[[Request], Answer]
"""Where the answers come from; see ``ScriptedLM``."""


def count_words(text: str) -> int:
    """The token count of scripted models: words between white space.

    >>> count_words("two  words")
    2
    """
    return len(text.split())


class ScriptedLM:
    """An LM that answers from a script.

    The script is one of:

    * a text: the reply to every request;
    * a mapping: the reply is the value of the first key, in the mapping's order, that occurs in the request's messages;
    * a sequence: one answer per call, in the order in which the calls arrive;
    * a function of the request.

    An answer is a text, a ``Completion`` (returned as it is) or a ``ModelError`` (a fresh copy is raised).

    Token rule: one token per word, input and output, by ``count_words``. A text answer longer than ``Params.max_tokens`` is cut there,
    with ``finish_reason="length"``, as an endpoint would do. Safe to call from many threads. A deep copy is the object itself, so that
    its counts stay in one place; a pickled copy starts its own. It never retries and never reads ``json_schema`` or ``choices``.

    >>> from gepa_lite.lm.protocol import Request
    >>> lm = ScriptedLM({"capital of France": "Paris"})
    >>> lm.complete(Request(messages=({"role": "user", "content": "What is the capital of France?"},))).text
    'Paris'
    >>> lm.calls
    1

    Args:
        script: see above.
        name: the name that ``describe`` gives.
        seconds: how long each call takes, or a function of the request that says so.
        usd_per_token: price of input and output tokens alike; None means unknown.
        deterministic: what ``describe`` says; by default True unless the script is a sequence, whose answers depend on the order of calls.
        max_in_flight: what ``describe`` says; it is not enforced.

    Raises:
        UsageError: the script is none of the above; or, from ``complete``, it has no answer to a request.
    """

    def __init__(
        self,
        script: Script,
        *,
        name: str = "scripted",
        seconds: float | Callable[[Request], float] = 0.0,
        usd_per_token: float | None = 0.0,
        deterministic: bool | None = None,
        max_in_flight: int | None = None,
    ) -> None:
        if not (callable(script) or isinstance(script, str | Mapping | Sequence)):
            raise UsageError(f"ScriptedLM needs a text, a mapping, a sequence or a function, but got {type(script).__name__}.")
        self._script = script
        self._seconds = seconds
        is_sequence = isinstance(script, Sequence) and not isinstance(script, str)
        self._info = LMInfo(
            name=name,
            usd_per_input_token=usd_per_token,
            usd_per_output_token=usd_per_token,
            deterministic=not is_sequence if deterministic is None else deterministic,
            max_in_flight=max_in_flight,
        )
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._in_flight = 0
        self._peak = 0

    @property
    def requests(self) -> list[Request]:
        """A copy of the requests so far, in order of arrival."""
        with self._lock:
            return list(self._requests)

    @property
    def calls(self) -> int:
        """How many requests arrived, failed ones included."""
        with self._lock:
            return len(self._requests)

    @property
    def in_flight_peak(self) -> int:
        """The most requests that were being answered at one moment."""
        with self._lock:
            return self._peak

    def describe(self) -> LMInfo:
        """What the constructor was told."""
        return self._info

    def complete(self, request: Request) -> Completion:
        """Answer from the script.

        Raises:
            ModelError: the script says so.
            UsageError: the script has no answer to this request.
        """
        with self._lock:
            index = len(self._requests)
            self._requests.append(request)
            self._in_flight += 1
            self._peak = max(self._peak, self._in_flight)
        try:
            seconds = self._seconds(request) if callable(self._seconds) else self._seconds
            if seconds > 0:
                time.sleep(seconds)
            return self._completion(request, self._answer(request, index))
        finally:
            with self._lock:
                self._in_flight -= 1

    def _answer(self, request: Request, index: int) -> Answer:
        script = self._script
        if isinstance(script, str):
            return script
        if isinstance(script, Mapping):
            text = "\n".join(message["content"] for message in request.messages)
            for key, answer in script.items():
                if key in text:
                    return answer
            raise UsageError(
                f"{self._info.name}: none of the script's {len(script)} keys occurs in the messages; they start: {text[:200]!r}"
            )
        if isinstance(script, Sequence):
            if index < len(script):
                return script[index]
            raise UsageError(f"{self._info.name}: the script has {len(script)} answers, and this is call {index + 1}.")
        return script(request)

    def _completion(self, request: Request, answer: Answer) -> Completion:
        if isinstance(answer, Completion):
            return answer
        if isinstance(answer, ModelError):
            # one object raised from two threads would mix their tracebacks
            raise copy.copy(answer)
        if not isinstance(answer, str):
            raise UsageError(
                f"{self._info.name}: an answer is a str, a Completion or a ModelError, but the script gave {type(answer).__name__}."
            )
        text, finish_reason = _cut(answer, request.params.max_tokens)
        tokens_in = sum(count_words(message["content"]) for message in request.messages)
        tokens_out = count_words(text)
        price = self._info.usd_per_input_token
        usd = None if price is None else price * (tokens_in + tokens_out)
        return Completion(text, finish_reason, Usage(1, tokens_in, tokens_out, usd), self._info.name)

    def __deepcopy__(self, memo: dict[int, Any]) -> ScriptedLM:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {"_script": self._script, "_seconds": self._seconds, "_info": self._info}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()


def _cut(text: str, max_words: int) -> tuple[str, str]:
    """The text up to its ``max_words``-th word, white space kept, and the finish reason."""
    for index, word in enumerate(re.finditer(r"\S+", text), start=1):
        if index > max_words:
            return text[: word.start()].rstrip(), "length"
    return text, "stop"
