"""Judge a choice among labels, or a set of them, by the meaning of the labels that were confused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback

from .match import FieldFeedback, shown


def choice(field: str, label: str | None = None, *, meanings: Mapping[str, str] | None = None, why: str | None = None) -> FieldFeedback:
    """A feedback function: 1 for the right label, up to case and surrounding space, else 0, with what the two confused labels mean.

    Args:
        field: the output field.
        label: the example's label; the field's own name where it is None.
        meanings: what each label means, in words.
        why: a label of the example that says why its label is right; it is quoted.

    Example:
        >>> judge = choice("team", meanings={"fern": "plants", "ivy": "money"})
        >>> judge(Example("id", {}, {"team": "ivy"}), {"team": "fern"}).text
        "Wrong: the team is 'ivy' (money), not 'fern' (plants)."
    """
    name, words = label or field, meanings or {}

    def feedback(example: Example, output: Any) -> Feedback:
        gold, answer = example[name], output[field]
        reason = f" {example[why]}" if why else ""
        if _same(gold, answer):
            return Feedback(1.0, f"Right: the {field} is {_named(gold, words)}.{reason}")
        unknown = " That is none of the labels." if words and not any(_same(answer, one) for one in words) else ""
        return Feedback(0.0, f"Wrong: the {field} is {_named(gold, words)}, not {_named(answer, words)}.{unknown}{reason}")

    return feedback


def label_set(
    field: str, label: str | None = None, *, labels: Sequence[str] = (), meanings: Mapping[str, str] | None = None
) -> FieldFeedback:
    """A feedback function for several labels at once: which are missing, which are one too many.

    Args:
        field: the output field, a list of labels or a text with commas.
        label: the example's label, likewise; the field's own name where it is None.
        labels: all labels: then the score is the share of them that were rightly given or left out. Without them it is the F1 of the set.
        meanings: what each label means, in words.

    Example:
        >>> judge = label_set("topics")
        >>> judge(Example("id", {}, {"topics": ["a", "b"]}), {"topics": ["b", "c"]})
        Feedback(score=0.5, text="Missing: 'a'. Too many: 'c'. Right: 'b'.", modules={}, objectives={}, scores={})
    """
    name, words = label or field, meanings or {}

    def feedback(example: Example, output: Any) -> Feedback:
        gold, answer = _labels(example[name]), _labels(output[field])
        right = [one for one in gold if one in answer]
        missing = [one for one in gold if one not in answer]
        surplus = [one for one in answer if one not in gold]
        if labels:
            score = 1.0 - len({*missing, *surplus} & {_form(one) for one in labels}) / len(labels)
        else:
            score = 2 * len(right) / (len(gold) + len(answer)) if gold or answer else 1.0
        parts = [("Missing", missing), ("Too many", surplus), ("Right", right)]
        text = " ".join(f"{head}: {', '.join(_named(one, words) for one in some)}." for head, some in parts if some)
        return Feedback(score, text or "Right: there is no label, and none was given.")

    return feedback


def _form(value: Any) -> str:
    return str(value).strip().lower()


def _same(one: Any, other: Any) -> bool:
    return _form(one) == _form(other)


def _labels(value: Any) -> list[str]:
    items = value.split(",") if isinstance(value, str) else list(value or ())
    return list(dict.fromkeys(_form(item) for item in items if _form(item)))


def _named(value: Any, meanings: Mapping[str, str]) -> str:
    meaning = next((words for label, words in meanings.items() if _same(label, value)), "")
    return shown(value) + (f" ({meaning})" if meaning else "")
