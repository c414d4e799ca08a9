"""A model for code of one's own: a call that joins the run it is made in, and is a plain call outside."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from gepa_lite.errors import UsageError
from gepa_lite.lm.protocol import LM, Params, Request
from gepa_lite.lm.resolve import LMSpec, open_lm
from gepa_lite.program.recorder import way_out


class ChatModel:
    """Asks a model for one reply. Within a run the call is cached, on the ledger and in the trace; outside it is made at once. Safe to use from many threads.

    Args:
        lm: a name such as ``"openai/gpt-4.1-mini"`` or ``"local/<model>"``, an LM, or a function of messages.
        max_tokens: upper bound of a reply's length.
        temperature: 0 is greedy; None leaves it to the endpoint.

    Raises:
        UsageError: it is no model.

    Example:
        >>> import gepa_lite as gl
        >>> from gepa_lite.testing import ScriptedLM
        >>> ask = gl.ChatModel(ScriptedLM("Paris"))
        >>> ask("What is the capital of France?")
        'Paris'
        >>> ask([{"role": "system", "content": "Answer in one word."}, {"role": "user", "content": "Capital of France?"}], max_tokens=5)
        'Paris'
    """

    def __init__(self, lm: LMSpec, *, max_tokens: int = 1024, temperature: float | None = None) -> None:
        self.lm: LM = open_lm(lm)
        self._params = Params(max_tokens=max_tokens, temperature=temperature)

    def __repr__(self) -> str:
        return f"ChatModel({self.lm.describe().name!r})"

    def __call__(
        self, messages: str | Sequence[Mapping[str, str]], *, max_tokens: int | None = None, temperature: float | None = None
    ) -> str:
        """The reply's text.

        Args:
            messages: the user's text, or messages with role and content.
            max_tokens: instead of the model's own.
            temperature: likewise.

        Raises:
            ModelError: the call failed.
            UsageError: messages of another form.
        """
        params = Params(
            max_tokens=self._params.max_tokens if max_tokens is None else max_tokens,
            temperature=self._params.temperature if temperature is None else temperature,
        )
        return way_out()(self.lm, Request(_messages(messages), params), 0).text

    async def acall(self, messages: str | Sequence[Mapping[str, str]], **params: Any) -> str:
        """The same from a coroutine, without holding up its loop."""
        return await asyncio.to_thread(self, messages, **params)


def _messages(messages: str | Sequence[Mapping[str, str]]) -> tuple[Mapping[str, str], ...]:
    if isinstance(messages, str):
        return ({"role": "user", "content": messages},)
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str) or not isinstance(message.get("content"), str):
            raise UsageError(f"messages: {message!r} is no message; {{'role': 'user', 'content': 'text'}} is needed.")
    if not messages:
        raise UsageError("messages: at least one is needed.")
    return tuple({"role": message["role"], "content": message["content"]} for message in messages)
