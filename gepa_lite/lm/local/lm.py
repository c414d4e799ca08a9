"""``LocalLM``: a model on llama.cpp in a child process, behind the LM protocol."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gepa_lite.core.call import Message, Usage
from gepa_lite.errors import BadRequestError, ContextWindowError, ModelConnectionError, ModelError, ServerError, UsageError
from gepa_lite.lm.local.catalogue import MODELS, find_model
from gepa_lite.lm.local.fetch import ensure_model
from gepa_lite.lm.local.options import DEFAULT_BATCH, DEFAULT_SLOTS, DEFAULT_TIMEOUT, LocalOptions, usable_threads
from gepa_lite.lm.local.server import LlamaServer, require_extra
from gepa_lite.lm.local.slots import Lease
from gepa_lite.lm.protocol import Completion, LMInfo, Request
from gepa_lite.lm.wire import read_reply

_FILE_CONTEXT = 8192
# below this a prefix is worked through faster than it is worth keeping
_MIN_PREFIX_CHARS = 200
_ATTEMPTS = 2


class LocalLM:
    """A language model on this machine. Loads, and fetches where needed, at the first ``complete``; safe to use from many threads.

    One object serves one model with one set of options: get it from ``open_local``, which shares it.
    """

    def __init__(self, name: str, options: LocalOptions) -> None:
        """A model of the catalogue by name, or a ``.gguf`` file by its path. Loads nothing."""
        self._name = name
        self._options = options
        self._info = LMInfo(
            name=f"local/{name}",
            context_window=options.context,
            usd_per_input_token=0.0,
            usd_per_output_token=0.0,
            structured="json_schema",
            max_in_flight=options.slots,
        )
        self._server: LlamaServer | None = None
        self._owner = os.getpid()
        self._lock = threading.Lock()

    def complete(self, request: Request) -> Completion:
        """Send one request and wait for the reply.

        Raises:
            UsageError: the extra isn't installed, or the model's file is gone.
            ContextWindowError: the prompt does not fit in the context of one slot.
            BadRequestError: llama.cpp does not accept the schema or a parameter.
            ModelTimeoutError: no full reply within the time-out.
            ModelError: the model could not be fetched or loaded, or llama.cpp failed.
        """
        body = request_body(request)
        for attempt in range(1, _ATTEMPTS + 1):
            server = self._running()
            try:
                return self._ask(server, request, body, attempt)
            except ModelConnectionError:
                # a server that died is started anew once; a request that kills it twice is an error
                if server.alive or attempt == _ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    def describe(self) -> LMInfo:
        """What is known of the model before it is called. Loads and fetches nothing."""
        return self._info

    def check_ready(self) -> None:
        """Refuse a model that can't be run for want of llama.cpp or its file. Loads and fetches nothing.

        Raises:
            UsageError: the extra isn't installed, or there is no such file.
        """
        require_extra()
        self._given_file()

    def close(self) -> None:
        """End the model's process and free its memory. A later ``complete`` loads it again."""
        with self._lock:
            server, self._server = self._server, None
            if server is not None and self._owner == os.getpid():
                server.stop()

    def __reduce__(self) -> tuple[Any, ...]:
        # another process gets a model of its own
        options = self._options
        return _reopen, (self._name, options)

    def __repr__(self) -> str:
        return f"LocalLM({self._info.name!r})"

    def _given_file(self) -> Path | None:
        """The file that a path names, or None for a model of the catalogue."""
        if self._name in MODELS:
            return None
        return _file_at(self._name)

    def _running(self) -> LlamaServer:
        with self._lock:
            if self._owner != os.getpid():
                # a forked process shares neither sockets nor slots with its parent
                self._server, self._owner = None, os.getpid()
            if self._server is not None and not self._server.alive:
                self._server.stop()
                self._server = None
            if self._server is None:
                require_extra()
                model = self._given_file() or ensure_model(self._name, progress=sys.stderr.isatty())
                self._server = LlamaServer(self._info.name, model, self._options)
            return self._server

    def _ask(self, server: LlamaServer, request: Request, body: dict[str, Any], attempt: int) -> Completion:
        lease = server.slots.acquire(shared_prefix(request.messages), prompt_text(request.messages))
        lost = False
        try:
            body = {**body, "id_slot": lease.slot}
            if lease.restore is not None:
                lost = not server.restore(lease)
            elif lease.save is not None:
                self._save_prefix(server, lease, body)
            status, reply = server.post("/v1/chat/completions", body)
        finally:
            server.slots.release(lease, lost=lost)
        if status != 200:
            raise read_error(status, reply, self._info.name)
        wire = read_reply(reply, self._info.name)
        usage = Usage(1, wire.input_tokens or 0, wire.output_tokens or 0, 0.0)
        return Completion(wire.text, wire.finish_reason, usage, self._info.name, wire.reasoning, attempt)

    def _save_prefix(self, server: LlamaServer, lease: Lease, body: dict[str, Any]) -> None:
        """Work the prompt through without a reply and save it, so that requests that wait for the prefix can start."""
        status, reply = server.post("/v1/chat/completions", {**body, "max_tokens": 0})
        if status != 200:
            raise read_error(status, reply, self._info.name)
        server.drop(server.slots.ready(lease, server.save(lease)))


def shared_prefix(messages: tuple[Message, ...]) -> str | None:
    """What the request likely shares with others: its system message, where that is long enough to be worth a snapshot."""
    first = messages[0] if messages else None
    if first is None or first["role"] != "system" or len(first["content"]) < _MIN_PREFIX_CHARS:
        return None
    return first["content"]


def prompt_text(messages: tuple[Message, ...]) -> str:
    """The whole prompt as one text, for comparing prompts."""
    return "\n".join(f"{message['role']}: {message['content']}" for message in messages)


def request_body(request: Request) -> dict[str, Any]:
    """The request in the server's own form."""
    params = request.params
    body: dict[str, Any] = {"messages": [dict(message) for message in request.messages], "max_tokens": params.max_tokens}
    optional = {"temperature": params.temperature, "top_p": params.top_p, "seed": params.seed, "stop": list(params.stop) or None}
    body |= {name: value for name, value in optional.items() if value is not None}
    if request.choices:
        body["grammar"] = choices_grammar(request.choices)
    elif request.json_schema is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "reply", "schema": dict(request.json_schema)}}
    return body | dict(params.extra)


def choices_grammar(choices: tuple[str, ...]) -> str:
    r"""A GBNF grammar that takes exactly these texts.

    >>> choices_grammar(("low", 'a "b"'))
    'root ::= "low" | "a \\"b\\""'
    """
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"})
    return "root ::= " + " | ".join(f'"{choice.translate(escapes)}"' for choice in choices)


def read_error(status: int, reply: Any, where: str) -> ModelError:
    """The error that a reply of the server means."""
    fault = reply.get("error") if isinstance(reply, Mapping) else None
    fault = fault if isinstance(fault, Mapping) else {}
    said = str(fault.get("message") or reply)[:300]
    if fault.get("type") == "exceed_context_size_error":
        return ContextWindowError(
            f"{where}: the prompt has {fault.get('n_prompt_tokens')} tokens, but the context holds {fault.get('n_ctx')}. "
            "Shorten the prompt, or raise context in open_local.",
            status=status,
        )
    if 400 <= status < 500:
        return BadRequestError(f"{where}: llama.cpp does not accept the request ({status}): {said}", status=status)
    return ServerError(f"{where}: llama.cpp failed ({status}): {said}", status=status)


_OPEN: dict[tuple[str, LocalOptions], LocalLM] = {}
_OPEN_LOCK = threading.Lock()


def open_local(
    name: str,
    *,
    slots: int = DEFAULT_SLOTS,
    context: int | None = None,
    threads: int | None = None,
    batch: int = DEFAULT_BATCH,
    timeout: float = DEFAULT_TIMEOUT,
) -> LocalLM:
    """A model on this machine, shared: the same name and options give the same object, and one loaded model, in this process.

    Nothing is loaded or fetched before the first ``complete``.

    >>> open_local("smollm2-135m")
    LocalLM('local/smollm2-135m')

    Args:
        name: a name of the catalogue, or the path of a ``.gguf`` file.
        slots: requests that are worked on at once.
        context: tokens of prompt and reply together that one request may use; None for the model's default.
        threads: cores to compute on; None for those that this process may use.
        batch: tokens that llama.cpp works through in one pass.
        timeout: seconds until a request that has a slot is given up.

    Raises:
        UsageError: an unknown name, a file that isn't there, or an option out of range.
    """
    name = name.strip()
    if name.endswith(".gguf"):
        _file_at(name)
        default = _FILE_CONTEXT
    else:
        default = find_model(name).context
    options = LocalOptions(slots, default if context is None else context, usable_threads() if threads is None else threads, batch, timeout)
    return _reopen(name, options)


def _file_at(name: str) -> Path:
    path = Path(name).expanduser()
    if not path.is_file():
        raise UsageError(f"There is no model file {path}. A relative path counts from the current folder, {Path.cwd()}.")
    return path


def _reopen(name: str, options: LocalOptions) -> LocalLM:
    with _OPEN_LOCK:
        lm = _OPEN.get((name, options))
        if lm is None:
            lm = _OPEN[name, options] = LocalLM(name, options)
        return lm


@atexit.register
def close_all() -> None:
    """End every local model of this process."""
    with _OPEN_LOCK:
        for lm in _OPEN.values():
            lm.close()
