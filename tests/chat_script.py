"""What a scripted endpoint answers in the triage task: as the task model, as an agent that looks things up first, and as the reflection model."""

from __future__ import annotations

import json
from typing import Any

import gepa_lite as gl
from gepa_lite.testing import Reply
from tests.triage import RULES, answer, reflect


def tool_call(name: str, arguments: dict[str, Any]) -> Reply:
    """A reply that calls a tool."""
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    body = {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4.1-mini",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}],
        "usage": {"prompt_tokens": 30, "completion_tokens": 8, "total_tokens": 38},
    }
    return Reply(body=json.dumps(body).encode())


def _request(*messages: dict[str, Any]) -> gl.Request:
    return gl.Request(tuple({"role": message["role"], "content": message["content"]} for message in messages))


def task(messages: list[dict[str, Any]]) -> str:
    """One reply, of the task or of the reflection model."""
    if "<current>" in str(messages[0]["content"]):
        return reflect(_request(messages[0]))
    return answer(_request(messages[0], messages[-1]))


def agent(messages: list[dict[str, Any]]) -> str | Reply:
    """The same for an agent: it looks the sender up before it answers."""
    if "<current>" in str(messages[0]["content"]) or messages[-1]["role"] == "tool":
        return task(messages[:2])
    return tool_call("look_up", {"kind": next(kind for kind in RULES if f" {kind} " in messages[-1]["content"])})
