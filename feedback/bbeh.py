"""Judge answers to BIG-Bench Extra Hard (arXiv 2502.19187), as the study of learning loops does (arXiv 2603.23994, section 4)."""

from __future__ import annotations

import re
from typing import Any

from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback

from .match import FieldFeedback, shown

_OPTION = re.compile(r"\(([A-Za-z])\)")


def bbeh(field: str = "answer", label: str = "target") -> FieldFeedback:
    """A feedback function: 1 where the answer is right, else 0, with the right one and what to look at.

    Where the label is an option such as ``(B)``, the last option that the answer names must be it; otherwise the two must be equal but for spaces around them.

    Example:
        >>> bbeh()(Example("id", {}, {"target": "(B)"}), {"answer": "not (A) but (B)"}).score
        1.0
    """

    def feedback(example: Example, output: Any) -> Feedback:
        gold, answer = str(example[label]).strip(), str(output[field]).strip()
        wanted, named = _OPTION.fullmatch(gold), _OPTION.findall(answer)
        right = bool(named) and named[-1].upper() == wanted[1].upper() if wanted else gold == answer
        if right:
            return Feedback(1.0, f"Right: the answer is {gold!r}. Nothing needs to change for this one.")
        slip = _slip(gold, answer) if not wanted else "" if named else " It names no option such as (A)."
        return Feedback(
            0.0,
            f"Wrong: the answer should be {gold!r}, but it was {shown(answer)}.{slip} Change the prompt if the reasoning went wrong, or the extraction if the reply held the right answer.",
        )

    return feedback


def _slip(gold: str, answer: str) -> str:
    if not answer:
        return " It was empty."
    if gold.casefold() == answer.casefold().strip(" .*\"'"):
        return " They differ only in case, or in signs around: the answer must match to the letter."
    return " It holds the right answer among other words: give the answer alone." if gold.casefold() in answer.casefold() else ""
