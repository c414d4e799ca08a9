"""The demo's data: sizes, labels that follow the house rules, strata, and no near-duplicates within or across splits."""

from __future__ import annotations

import json
import re
from collections import Counter
from importlib.resources import files
from itertools import combinations

import pytest

import gepa_lite as gl
from gepa_lite.core.example import make_example
from gepa_lite.demo.task import Fernpost

DATA = files("gepa_lite.demo") / "data"
SIZES = {"train": 60, "validation": 40, "test": 100}
RULES = json.loads((DATA / "rules.json").read_text(encoding="utf-8"))
SPLITS = {name: [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()] for name in SIZES}


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9']+", text.lower())


def grams(text: str, n: int = 5) -> set[tuple[str, ...]]:
    tokens = words(text)
    return {tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)}


@pytest.mark.parametrize("split", SIZES)
def test_a_split_has_its_size_and_keys(split: str) -> None:
    rows = SPLITS[split]
    assert len(rows) == SIZES[split]
    for row in rows:
        assert set(row) == {"message", "topic", "team", "rule"}
        assert 15 <= len(row["message"].split()) <= 60, row["message"]


@pytest.mark.parametrize("split", SIZES)
def test_the_labels_follow_the_house_rules(split: str) -> None:
    topic_of = {"damaged": "plants", "address": "delivery", "pause": "subscription", "gift": "gift"}
    assert set(topic_of) == set(RULES["topic_rules"])
    assert {row["topic"] for row in SPLITS[split] if row["rule"] == "plain"} <= set(RULES["plain_topics"])
    for row in SPLITS[split]:
        assert row["topic"] == topic_of.get(row["rule"], row["topic"]), row
        assert (row["rule"] == "plain") is (row["rule"] not in topic_of)
        assert row["topic"] in RULES["labels"]["topic"]
        assert row["topic"] in RULES["team_rules"][row["team"]].lower(), row


def test_the_splits_have_the_same_mix_of_rules() -> None:
    every = Counter(row["rule"] for rows in SPLITS.values() for row in rows)
    for name, rows in SPLITS.items():
        here = Counter(row["rule"] for row in rows)
        for rule, n in every.items():
            assert abs(here[rule] - n * SIZES[name] / 200) <= 2, (name, rule)


def test_no_two_messages_are_near_duplicates() -> None:
    rows = [row["message"] for rows in SPLITS.values() for row in rows]
    sets = [grams(text) for text in rows]
    for i, j in combinations(range(len(rows)), 2):
        shared = sets[i] & sets[j]
        assert not shared, (rows[i], rows[j], shared)


def test_the_feedback_names_the_rule_that_was_broken() -> None:
    row = next(row for row in SPLITS["train"] if row["rule"] == "address")
    example = make_example(row, ("message",), (), "train")
    wrong = Fernpost().feedback(example, gl.Outputs(topic="payment", team="ivy"), gl.Trace())
    assert wrong.score == 0
    assert wrong.modules == {"topic": "Wrong. A new or corrected address counts as delivery.", "team": "Wrong. Delivery goes to team moss."}
    half = Fernpost().feedback(example, gl.Outputs(topic="delivery", team="ivy"), gl.Trace())
    assert half.score == 0.5
    assert half.modules["topic"] == "Right."
    right = Fernpost().feedback(example, gl.Outputs(topic="delivery", team="moss"), gl.Trace())
    assert right.score == 1


def test_messages_hold_no_contact_data() -> None:
    for rows in SPLITS.values():
        for row in rows:
            assert not re.search(r"@|https?:|\d{6,}", row["message"]), row["message"]
