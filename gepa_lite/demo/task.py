"""The demo's program: two modules that sort the post of a plant shop by house rules which a naive prompt cannot know."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from gepa_lite.core.budget import Budget
from gepa_lite.core.call import Trace
from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback
from gepa_lite.program.module import Module
from gepa_lite.program.outputs import Outputs
from gepa_lite.program.program import Program
from gepa_lite.search.search import Search


class Fernpost(Program):
    """Sort one message that customers sent to Fernpost, a shop that sends house plants by post.

    message ─► team ─► urgency
    """

    team = Module(
        "message -> team: Literal['growers', 'parcels', 'billing', 'desk']", "Decide which team handles the message.", max_tokens=8, temperature=0.0
    )
    urgency = Module("message -> urgency: Literal['today', 'soon', 'later']", "Decide how urgent the message is.", max_tokens=8, temperature=0.0)

    def forward(self, message: str) -> Outputs:
        """Name the team and the urgency."""
        return Outputs(team=self.team(message=message).team, urgency=self.urgency(message=message).urgency)

    def feedback(self, example: Example, output: Outputs, trace: Trace) -> Feedback:
        """Half a point for each right label; a wrong one names the house rule that was broken, to the module that broke it."""
        words = {label: _words(label, output[label], example) for label in ("team", "urgency")}
        right = sum(output[label] == example[label] for label in words)
        return Feedback(right / 2, " ".join(words.values()), modules=words)


def _words(label: str, answered: str, example: Example) -> str:
    if answered == example[label]:
        return f"Right: the {label} is {answered}."
    rule = house_rules().get(example[f"{label}_rule"])
    because = f" House rule: {rule}" if rule else " No house rule applies; read the message plainly."
    return f"Wrong: the {label} is {example[label]}, not {answered}.{because}"


@cache
def house_rules() -> Mapping[str, str]:
    """The written house rules by id."""
    data = json.loads(_read("rules.json"))
    return {rule["id"]: rule["text"] for rule in data["rules"]}


def load_splits() -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """Messages to learn from (60), to compare on (40) and the sealed test set (100)."""
    train, validation, test = ([json.loads(line) for line in _read(f"{name}.jsonl").splitlines()] for name in ("train", "validation", "test"))
    return train, validation, test


def demo_settings(seed: int) -> tuple[Budget, Search]:
    """The budget and the rules of the demo: sized for a small model on two cores."""
    return Budget(rollouts=700), Search(seed=seed)


def _read(name: str) -> str:
    return resources.files("gepa_lite.demo").joinpath("data", name).read_text("utf-8")
