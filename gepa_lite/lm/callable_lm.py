"""Any function that takes messages, as an LM."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from gepa_lite.core.call import Usage
from gepa_lite.core.code_id import code_id
from gepa_lite.errors import GepaLiteError, ModelError, UsageError
from gepa_lite.lm.faults import scrub
from gepa_lite.lm.protocol import Completion, LMInfo, Request
from gepa_lite.lm.wire import estimate_input, estimate_tokens, read_reply

ChatFunction = Callable[[list[dict[str, str]]], str | Completion | Mapping[str, Any]]


class CallableLM:
    """Wraps ``fn(messages) -> reply``.

    ``messages`` is a fresh list of ``{"role", "content"}`` dicts, which the function may change. The reply is a text, a ``Completion``,
    or a dict in the form of OpenAI's chat completions.

    The function sees neither the parameters nor the schema of a request, so a token limit is not held here: a budget can be passed by the
    calls in flight. Where the reply brings no token counts they are estimated at four characters a token; dollars are unknown (None)
    unless a ``Completion`` says them. A ``ModelError`` or another error of this package passes through; any other exception becomes a
    ``ModelError``, which is the world's fault, never the candidate's. No retries, no time-out: those are the function's own.

    >>> from gepa_lite.lm.protocol import Request
    >>> lm = CallableLM(lambda messages: messages[-1]["content"].upper(), name="shout")
    >>> lm.complete(Request(messages=({"role": "user", "content": "hi"},))).text
    'HI'

    Args:
        fn: a synchronous function, safe to call from many threads at once.
        name: the model's name; by default the function's, and then a changed function is another model, to which saved replies do not belong.

    Raises:
        UsageError: ``fn`` is not a synchronous callable.
    """

    def __init__(self, fn: ChatFunction, name: str | None = None) -> None:
        if not callable(fn):
            raise UsageError(f"CallableLM needs a function that takes messages, but got {type(fn).__name__}.")
        if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__):
            raise UsageError(
                "CallableLM needs a synchronous function, but got an async one. Wrap it: lambda messages: asyncio.run(fn(messages))."
            )
        self._fn = fn
        own_name = getattr(fn, "__qualname__", type(fn).__qualname__)
        self._info = LMInfo(name=name or f"callable/{own_name}", settings="" if name else code_id(fn))

    def __repr__(self) -> str:
        return f"CallableLM({self._info.name!r})"

    def describe(self) -> LMInfo:
        """Its name; everything else is unknown."""
        return self._info

    def same_function(self, other: CallableLM) -> bool:
        """Whether both call the same function."""
        return self._fn is other._fn

    def complete(self, request: Request) -> Completion:
        """Call the function.

        Raises:
            ModelError: the function failed, or returned what is not a reply.
        """
        where = self._info.name
        try:
            reply = self._fn([dict(message) for message in request.messages])
        except GepaLiteError:
            raise
        except Exception as error:
            raise ModelError(scrub(f"{where}: the function raised {type(error).__name__}: {error}")) from error
        if isinstance(reply, Completion):
            return reply
        if isinstance(reply, str):
            usage = Usage(1, estimate_input(request.messages), estimate_tokens(reply), None)
            return Completion(reply, usage=usage, model=where)
        if not isinstance(reply, Mapping):
            raise ModelError(
                f"{where}: the function must return a str, a Completion or a chat-completion dict, but returned {type(reply).__name__}."
            )
        wire = read_reply(reply, where)
        tokens_in = estimate_input(request.messages) if wire.input_tokens is None else wire.input_tokens
        tokens_out = estimate_tokens(wire.text + wire.reasoning) if wire.output_tokens is None else wire.output_tokens
        return Completion(wire.text, wire.finish_reason, Usage(1, tokens_in, tokens_out, None), wire.model or where, wire.reasoning)
