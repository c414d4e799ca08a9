"""A small two-module task with scripted models, for the tests of the search: prompts that hold a rule answer by it."""

from __future__ import annotations

import random
import re
from typing import Any

import gepa_lite as gl
from gepa_lite.testing import ScriptedLM

RULES = {"refund": "high", "praise": "low", "question": "medium", "leak": "high", "invoice": "medium", "typo": "low"}


class Triage(gl.Program):
    """Route one support message."""

    gist = gl.Module("message -> gist", "Say in one sentence what the sender wants.")
    route = gl.Module("message, gist -> urgency: Literal['low', 'medium', 'high']", "Decide how urgent it is.", retries=0)

    def forward(self, message: str) -> gl.Outputs:
        return self.route(message=message, gist=self.gist(message=message).gist)

    def feedback(self, example: gl.Example, output: gl.Outputs, trace: gl.Trace) -> gl.Feedback:
        right = output.urgency == example["urgency"]
        return gl.Feedback(float(right), "right" if right else f"RULE:{example['kind']}")


def answer(request: gl.Request) -> str:
    """The task model: it knows only the rules that its prompt holds."""
    system, user = request.messages[0]["content"], request.messages[-1]["content"]
    if "urgent" not in system:
        return "the gist"
    kind = next(kind for kind in RULES if f" {kind} " in user)
    return RULES[kind] if f"rule {kind}" in system else ("low", "medium")[len(user) % 2]


def reflect(request: gl.Request) -> str:
    """The reflection model: it adds the first rule that the reviews name and the prompt lacks."""
    text = request.messages[0]["content"]
    current = text.split("<current>")[1].split("</current>")[0].strip()
    for kind in re.findall(r"RULE:(\w+)", text):
        if f"rule {kind}" not in current:
            return f"<prompt>\n{current} rule {kind}.\n</prompt>"
    return f"<prompt>{current}</prompt>"


def rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Messages of random kinds; a seed of its own for each split keeps them apart."""
    draw = random.Random(seed)
    kinds = [draw.choice(sorted(RULES)) for _ in range(count)]
    return [{"message": f"a {kind} number {i} of {seed}", "urgency": RULES[kind], "kind": kind} for i, kind in enumerate(kinds)]


def program(**options: Any) -> Triage:
    """The program on its scripted task model."""
    return Triage(lm=ScriptedLM(answer, name="task", **options))


def reflector(**options: Any) -> ScriptedLM:
    """The scripted reflection model."""
    return ScriptedLM(reflect, name="reflector", **options)
