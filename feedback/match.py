"""Compare one output field with a label: to the letter, or up to case, punctuation and articles."""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from typing import Any

from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)

FieldFeedback = Callable[[Example, Any], Feedback]
"""A feedback function that needs no trace."""


def normalized(text: str) -> str:
    """Lower case, without punctuation, articles and repeated white space: the usual normalization of question answering (SQuAD).

    >>> normalized("The  Eiffel Tower!")
    'eiffel tower'
    >>> normalized("(A)")
    'a'
    """
    plain = text.lower().translate(_PUNCTUATION)
    # what is an article alone is an answer: option (A)
    return " ".join((_ARTICLES.sub(" ", plain).strip() or plain).split())


def exact_match(field: str, label: str | None = None, *, why: str | None = None) -> FieldFeedback:
    """A feedback function: 1 where the output field equals the label to the letter, else 0, with both named.

    Args:
        field: the output field.
        label: the example's label; the field's own name where it is None. A list is a set of accepted answers.
        why: a label that holds the reason in words; it is quoted.

    Example:
        >>> judge = exact_match("answer")
        >>> judge(Example("id", {}, {"answer": "Paris"}), {"answer": "paris"}).score
        0.0
    """
    return _compare(field, label or field, why, str, "to the letter")


def normalized_match(field: str, label: str | None = None, *, why: str | None = None) -> FieldFeedback:
    """A feedback function: as ``exact_match``, up to case, punctuation, articles and white space.

    Example:
        >>> judge = normalized_match("answer")
        >>> judge(Example("id", {}, {"answer": "Paris"}), {"answer": "paris."})
        Feedback(score=1.0, text="Right: the answer is 'Paris'.", modules={}, objectives={}, scores={})
    """
    return _compare(field, label or field, why, lambda value: normalized(str(value)), "")


def accepted(gold: Any) -> list[Any]:
    """The answers that a label accepts: the items of a list, or the label itself.

    >>> accepted("Paris"), accepted(["Paris", "City of Paris"])
    (['Paris'], ['Paris', 'City of Paris'])
    """
    return list(gold) if isinstance(gold, (list, tuple)) and gold else [gold]


def shown(value: Any, limit: int = 300) -> str:
    """A value as diagnoses quote it: its ``repr``, cut in the middle where it is longer than ``limit`` characters.

    >>> shown("x" * 50, 20)
    "'xxxxxxxxx […] xxxxx'"
    """
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit // 2]} […] {text[-(limit - limit // 2 - 4) :]}"


def _compare(field: str, label: str, why: str | None, form: Callable[[Any], str], strict: str) -> FieldFeedback:
    def feedback(example: Example, output: Any) -> Feedback:
        golds, answer = accepted(example[label]), output[field]
        reason = f" {example[why]}" if why else ""
        gold = " or ".join(map(repr, golds))
        if any(form(one) == form(answer) for one in golds):
            return Feedback(1.0, f"Right: the {field} is {gold}.{reason}")
        return Feedback(0.0, f"Wrong: the {field} should be {gold}, but it was {shown(answer)}.{_near_miss(golds, answer, strict)}{reason}")

    return feedback


def _near_miss(golds: list[Any], answer: Any, strict: str) -> str:
    """What a wrong answer has in common with a right one, where it is nearly right: the form is at fault then, not the knowledge."""
    plain = normalized(str(answer))
    for gold in golds:
        wanted = normalized(str(gold))
        if strict and wanted == plain:
            return " They differ only in case, punctuation, articles or spaces: the answer must match to the letter."
        if wanted and f" {wanted} " in f" {plain} ":
            return " It holds the right answer among other words: give the answer alone."
    if not plain:
        return " It was empty."
    return ""
