"""The triage task as plain functions that read their prompts, for the tests of wrapped functions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import gepa_lite as gl
from gepa_lite.testing import ScriptedLM
from tests.triage import answer

PROMPTS = {"gist": "Say in one sentence what the sender wants.", "route": "Decide how urgent it is."}
ASK = gl.ChatModel(ScriptedLM(answer, name="task"))


def said(system: str, user: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def triage(message: str) -> str:
    """Route one support message."""
    gist = ASK(said(gl.prompt("gist"), message))
    return ASK(said(gl.prompt("route"), f"{message}\n{gist}"))


def triage_by_parameter(example: Mapping[str, Any], prompts: Mapping[str, str]) -> str:
    message = example["message"]
    gist = ASK(said(prompts["gist"], message))
    return ASK(said(prompts["route"], f"{message}\n{gist}"))


async def triage_async(message: str) -> str:
    async def ask(name: str, text: str) -> str:
        return await ASK.acall(said(gl.prompt(name), text))

    gist, _ = await asyncio.gather(ask("gist", message), asyncio.sleep(0))
    return (await asyncio.gather(ask("route", f"{message}\n{gist}")))[0]


def feedback(example: gl.Example, output: str, trace: gl.Trace) -> gl.Feedback:
    right = output == example["urgency"]
    return gl.Feedback(float(right), "right" if right else f"RULE:{example['kind']}")


def wrapped(fn: Any = triage, **options: Any) -> gl.Wrapped:
    return gl.wrap(fn, PROMPTS, **{"lm": ASK, **options})
