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
    """Sort the messages that customers send to Fernpost, a shop that sends house plants by post: name the topic, then the team that handles it.

    message ─► topic ─► team
    """

    topic = Module(
        "message -> topic: Literal['plants', 'delivery', 'payment', 'subscription', 'gift', 'other']",
        "Name the topic of the message.",
        max_tokens=8,
        temperature=0.0,
    )
    team = Module(
        "topic -> team: Literal['fern', 'moss', 'ivy', 'sage', 'palm']", "Choose the team for the topic.", max_tokens=8, temperature=0.0
    )

    def forward(self, message: str) -> Outputs:
        """Name the topic and the team."""
        topic = self.topic(message=message).topic
        return Outputs(topic=topic, team=self.team(topic=topic).team)

    def feedback(self, example: Example, output: Outputs, trace: Trace) -> Feedback:
        """Half a point for each right label; the words name the house rule, to each module its own."""
        rules = house_rules()
        topic_rule = rules["topic_rules"].get(example["rule"]) or rules["plain_topics"][example["topic"]]
        right = {"topic": output.topic == example["topic"], "team": output.team == example["team"]}
        words = {
            "topic": "Right." if right["topic"] else f"Wrong. {topic_rule}",
            "team": "Right." if right["team"] else f"Wrong. {rules['team_rules'][example['team']]}",
        }
        text = " ".join(f"The {label}: {word}" for label, word in words.items())
        return Feedback(sum(right.values()) / 2, text, modules=words)


@cache
def house_rules() -> Mapping[str, Mapping[str, str]]:
    """The written house rules: ``topic_rules`` by rule id, ``plain_topics`` by topic, ``team_rules`` by team."""
    data: dict[str, Any] = json.loads(_read("rules.json"))
    return {name: data[name] for name in ("topic_rules", "plain_topics", "team_rules")}


def load_splits() -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """Messages to learn from (60), to compare on (40) and the sealed test set (100)."""
    train, validation, test = (
        [json.loads(line) for line in _read(f"{name}.jsonl").splitlines()] for name in ("train", "validation", "test")
    )
    return train, validation, test


def demo_settings(seed: int) -> tuple[Budget, Search]:
    """The budget and the rules of the demo: the paper's loop, sized for a small model on two cores.

    Small models repeat a prompt badly and add to it well, so the proposer edits; short replies and a lower temperature keep their reflections to the point.
    """
    rules = Search.paper(seed=seed, proposer="edit", minibatch=4, reflection_tokens=160, reflection_temperature=0.7)
    return Budget(rollouts=560, proposals=20), rules


def _read(name: str) -> str:
    return resources.files("gepa_lite.demo").joinpath("data", name).read_text("utf-8")
