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


def normalized(text: str) -> str:
    """Lower case, without punctuation, articles and repeated white space: the usual normalization of question answering (SQuAD).

    >>> normalized("The  Eiffel Tower!")
    'eiffel tower'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(field: str, label: str | None = None) -> FieldFeedback:
    """A feedback function: 1 where the output field equals the label to the letter, else 0, with both named.

    Args:
        field: the output field.
        label: the example's label; the field's own name where it is None.

    Example:
        >>> judge = exact_match("answer")
        >>> judge(Example("id", {}, {"answer": "Paris"}), {"answer": "paris"}).score
        0.0
    """
    return _compare(field, label or field, str)


def normalized_match(field: str, label: str | None = None) -> FieldFeedback:
    """A feedback function: as ``exact_match``, up to case, punctuation, articles and white space.

    Example:
        >>> judge = normalized_match("answer")
        >>> judge(Example("id", {}, {"answer": "Paris"}), {"answer": "paris."})
        Feedback(score=1.0, text="Right: the answer is 'Paris'.", modules={}, objectives={}, scores={})
    """
    return _compare(field, label or field, lambda value: normalized(str(value)))


def _compare(field: str, label: str, form: Callable[[Any], str]) -> FieldFeedback:
    def feedback(example: Example, output: Any) -> Feedback:
        gold, answer = example[label], output[field]
        if form(gold) == form(answer):
            return Feedback(1.0, f"Right: the {field} is {gold!r}.")
        return Feedback(0.0, f"Wrong: the {field} should be {gold!r}, but it was {answer!r}.")

    return feedback
