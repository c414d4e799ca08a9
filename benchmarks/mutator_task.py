"""Tasks that differ in their rules alone, with a simulated task model and a simulated teacher: what a small model is trained on and tried on as a reflection model."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gepa_lite as gl
from gepa_lite.testing import ScriptedLM

_TOPICS = re.findall(
    r"\w+",
    "parcels bicycles invoices gardens kettles violins tickets ladders candles batteries curtains helmets novels cameras mirrors blankets engines pianos "
    "carpets lanterns saddles tractors umbrellas windows anchors baskets compasses drums easels fountains gloves hammers",
)
ACTIONS = ("forward", "archive", "refund", "escalate", "inspect", "replace", "postpone", "translate")
RULES = 8
"""Rules of a task."""
SEED = "Answer each message with one action."
_CURRENT = re.compile(r"<current>\s*(.*?)\s*</current>", re.DOTALL)
_RULE = re.compile(r"Messages about \w+ must be answered: \w+\.")


@dataclass(frozen=True)
class RuleTask:
    """A task: which action each topic asks for.

    Attributes:
        number: of the task; topics, actions and messages follow from it.
    """

    number: int

    @property
    def rules(self) -> dict[str, str]:
        """Action by topic."""
        draw = random.Random(f"rules/{self.number}")
        return {topic: draw.choice(ACTIONS) for topic in draw.sample(_TOPICS, RULES)}

    def rows(self, split: str, count: int) -> list[dict[str, str]]:
        """Messages, each about one topic, topics in turn."""
        draw = random.Random(f"{split}/{self.number}")
        topics = list(self.rules)
        messages = [(topics[place % RULES], number) for place, number in enumerate(draw.sample(range(10_000), count))]
        return [
            {"message": f"{split} note {number} about {topic}", "topic": topic, "action": self.rules[topic]} for topic, number in messages
        ]

    def program(self) -> Rules:
        """The program on its simulated task model."""
        return Rules(lm=ScriptedLM(_reply, name="task"))


class Rules(gl.Program):
    """Answer a message with an action."""

    answer = gl.Module("message -> action", SEED, retries=0)

    def forward(self, message: str) -> gl.Outputs:
        return self.answer(message=message)

    def feedback(self, example: gl.Example, output: gl.Outputs) -> gl.Feedback:
        right = output.action == example["action"]
        return gl.Feedback(float(right), "Right." if right else f"Messages about {example['topic']} must be answered: {example['action']}.")


def act(prompt: str, message: str) -> str:
    """What the task model answers: the action of the first sentence of its prompt that names the message's topic, else ``none``."""
    topic = message.rpartition(" ")[2]
    for sentence in re.split(r"(?<=[.\n])\s+", prompt):
        words = re.findall(r"\w+", sentence.lower())
        named = [action for word in words for action in ACTIONS if word == action]
        if topic in words and named:
            return named[0]
    return "none"


def score(prompt: str, examples: Sequence[gl.Example]) -> float:
    """Share of messages that the task model answers rightly by a prompt."""
    right: list[bool] = [act(prompt, example["message"]) == example["action"] for example in examples]
    return right.count(True) / len(right)


def _reply(request: gl.Request) -> str:
    found = re.search(r"about \w+", request.messages[-1]["content"])
    return act(request.messages[0]["content"], found[0] if found else "")


def teacher(seed: int) -> ScriptedLM:
    """The simulated reflection model that the training's runs ask: in two replies of three it adds the first rule that the reviews name and the prompt lacks."""
    return ScriptedLM(lambda request: _teach(request, seed), name="teacher")


def _teach(request: gl.Request, seed: int) -> str:
    asked = request.messages[0]["content"]
    found = _CURRENT.search(asked)
    current = found[1] if found else SEED
    chance = int(hashlib.sha256(f"{seed}/{asked}".encode()).hexdigest()[:8], 16) / 16**8
    if chance < 0.1:
        return "The prompt could say more."
    if chance < 0.35:
        return f"<prompt>\n{current} Read with care.\n</prompt>"
    lacking = [rule for rule in _RULE.findall(asked) if rule not in current]
    return f"<prompt>\n{' '.join([current, *lacking[:1]])}\n</prompt>"


def run_task(task: RuleTask, reflection_lm: Any, folder: Any, seed: int, proposals: int) -> gl.Result[Any]:
    """One run of our search, gone on with where the folder has one."""
    return gl.optimize(
        task.program(),
        task.rows("train", 3 * RULES),
        task.rows("validation", 2 * RULES),
        testset=task.rows("test", 4 * RULES),
        reflection_lm=reflection_lm,
        budget=gl.Budget(proposals=proposals),
        search=gl.Search(seed=seed, reflection_tokens=200, reflection_temperature=0.7, proposer="rewrite"),
        run=folder,
    )
