"""Judge contest mathematics: whole-number answers, and the order of a proof's steps (AIME and LiveBench-Math, as in GEPA's artifact)."""

from __future__ import annotations

import re
from typing import Any

from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback

from .match import FieldFeedback, shown


def aime(field: str = "answer", label: str = "answer", solution: str | None = "solution") -> FieldFeedback:
    """A feedback function: 1 where the field is the right whole number, else 0, with the reference solution where the example has one.

    Example:
        >>> aime()(Example("id", {}, {"answer": "33"}), {"answer": "about 33"}).text
        "The answer must be a whole number and nothing else; it was 'about 33'. The right one is 33."
    """

    def feedback(example: Example, output: Any) -> Feedback:
        gold, answer = int(example[label]), str(output[field]).strip()
        text = str(example[solution]) if solution and solution in example else ""
        lesson = f" The solution in full: {text} What can be taken from it for other problems?" if text else ""
        if not re.fullmatch(r"[-+]?\d+", answer):
            return Feedback(
                0.0, f"The answer must be a whole number and nothing else; it was {shown(answer)}. The right one is {gold}.{lesson}"
            )
        if int(answer) == gold:
            return Feedback(1.0, f"Right: the answer is {gold}.{lesson}")
        return Feedback(0.0, f"Wrong: the answer is {gold}, not {answer}.{lesson}")

    return feedback


def proof_order(field: str = "answer", label: str = "answer") -> FieldFeedback:
    """A feedback function for lists of steps ("3, 1, 2"): 1 minus the edit distance over the longer length.

    Example:
        >>> proof_order()(Example("id", {}, {"answer": "1, 2, 3, 4"}), {"answer": "1, 2, 4"}).score
        0.75
    """

    def feedback(example: Example, output: Any) -> Feedback:
        gold, came = re.findall(r"\d+", str(example[label])), re.findall(r"\d+", str(output[field]))
        score = 1 - _edits(gold, came) / max(len(gold), len(came), 1)
        same = next((place for place, (one, other) in enumerate(zip(gold, came, strict=False)) if one != other), min(len(gold), len(came)))
        if score == 1.0:
            return Feedback(1.0, "Right: every step is in its place.")
        return Feedback(
            score,
            f"{score:.0%} right: the first {same} steps are in place. The order should be {', '.join(gold)}; it was {', '.join(came) or 'empty'}.",
        )

    return feedback


def _edits(one: list[str], other: list[str]) -> int:
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]
