"""Judge LiveBench-Math: contests, proofs in disorder and computer algebra, each by its own rules (as in GEPA's artifact)."""

from __future__ import annotations

import re
from typing import Any

from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback
from gepa_lite.errors import UsageError

from .equivalence import Equivalence
from .match import FieldFeedback, shown
from .mathematics import proof_order

_THINKING = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_AT_THE_END = 50
"""Characters at the end of a reply among which a number of the AIME must stand."""


def livebench_math(
    field: str = "answer",
    label: str = "answer",
    *,
    task: str = "task",
    subtask: str = "subtask",
    question: str = "question",
    seconds: float = 8.0,
) -> FieldFeedback:
    r"""A feedback function for all of LiveBench-Math, by the example's task; reasoning between ``<think>`` tags is left out.

    * ``math_comp``, AMC and SMC: 1 where the right letter is given in one of five ways: in a solution tag, four times in a row, boxed, by its value at the end, or on the last line.
    * ``math_comp``, AIME: 1 where the right number stands within the last 50 characters.
    * ``olympiad`` (the order of a proof's formulas): 1 minus the edit distance over the longer length.
    * ``AMPS_Hard``: 1 where the formula is equal to the right one, by ``math-verify``; indefinite integrals may differ by a constant.

    Args:
        field: the output field.
        label: the label with the answer.
        task: the label with the task.
        subtask: the label with the subtask, e.g. ``"amc_12a_2023"``.
        question: the field with the question, which names the options.
        seconds: for one comparison of formulas; after that they count as different.

    Raises:
        UsageError: ``math-verify`` is not installed (the extra ``math``); or, from the function, an unknown task.

    Example:
        >>> row = Example("id", {"question": "Which? (A) 1 (B) 2"}, {"task": "math_comp", "subtask": "smc", "answer": "B"})
        >>> livebench_math()(row, {"answer": "It is BBBBB"}).score
        1.0
    """
    formulas, order = Equivalence(seconds), proof_order("answer", label)

    def feedback(example: Example, output: Any) -> Feedback:
        reply, gold, kind = _THINKING.sub("", str(output[field])).strip(), str(example[label]), str(example[task]).lower()
        if kind == "math_comp" and str(example[subtask]).startswith("aime"):
            return _aime(reply, gold)
        if kind == "math_comp":
            return _choice(reply, gold, str(example[question]))
        if kind == "olympiad":
            # the list is what follows the last "Answer:"
            return order(example, {"answer": re.split(r"answer\s*:", reply, flags=re.IGNORECASE)[-1]})
        if kind == "amps_hard":
            return _formula(reply, gold, formulas, up_to_constant="integral" in str(example[subtask]))
        raise UsageError(f"livebench_math: the task {example[task]!r} is not known; known are math_comp, olympiad and AMPS_Hard.")

    return feedback


def boxed(text: str) -> str | None:
    r"""What the last ``\boxed{...}`` holds, braces within kept, or None.

    >>> boxed(r"so \boxed{\frac{1}{2}}.")
    '\\frac{1}{2}'
    """
    places = [match.end() for match in re.finditer(r"\\(?:boxed|fbox)\s*\{", text)]
    if not places:
        return None
    depth = 1
    for place in range(places[-1], len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[places[-1] : place].strip()
    return None


def _aime(reply: str, gold: str) -> Feedback:
    if re.search(rf"(?<!\d){re.escape(gold)}(?!\d)", reply[-_AT_THE_END:]):
        return Feedback(1.0, f"Right: {gold} stands at the end.")
    early = f" It stands earlier in the reply: end with the three digits and nothing after them, in the last {_AT_THE_END} characters."
    return Feedback(
        0.0, f"Wrong: the reply should end with {gold}; it ends with {shown(reply[-_AT_THE_END:])}.{early if gold in reply else ''}"
    )


def _choice(reply: str, gold: str, question: str) -> Feedback:
    last = reply.rsplit("\n", 1)[-1].strip()
    tagged, inside, value = (
        re.findall(r"<solution>\s*(.*?)\s*</solution>", reply, re.DOTALL | re.IGNORECASE),
        boxed(reply),
        _value(question, gold),
    )
    runs = re.findall(r"([A-Z])\1{3,}", reply)
    ways = {
        "in a <solution> tag": bool(tagged) and _letter(tagged[-1]) == gold,
        "four times in a row": bool(runs) and runs[-1] == gold,
        "boxed": inside is not None and _in_box(inside, gold, value),
        "by its value at the end": _ends_with(_bare(last), value),
        "on the last line": _letter(last) == gold,
    }
    found = [way for way, holds in ways.items() if holds]
    if found:
        return Feedback(1.0, f"Right: {gold} is given {', '.join(found)}.")
    given = f" It gives {runs[-1]}." if runs else " It gives no letter in the form that was asked for."
    return Feedback(
        0.0,
        f"Wrong: the right option is {gold}{f' ({value})' if value else ''}.{given} It was looked for {', '.join(ways)}. Work the problem out, then end with the letter five times in a row, e.g. {gold * 5}.",
    )


def _letter(text: str) -> str:
    """The only letter that a text gives, alone, repeated, or as an option in brackets; "" where there is none."""
    plain = re.sub(r"\\(?:textbf|text|mathrm|boxed)|[{}$().*:\s]|answer|the|is|option", "", text, flags=re.IGNORECASE)
    return plain[0].upper() if plain and len(set(plain.upper())) == 1 and plain.isalpha() else ""


def _in_box(inside: str, gold: str, value: str) -> bool:
    """Whether a box holds the letter, the letter with what it stands for, or that alone."""
    bare = _bare(inside)
    return _letter(inside) == gold or bare.startswith(f"({gold})") or bare == value != ""


def _value(question: str, letter: str) -> str:
    """The text of an option in a question, bare."""
    found = re.search(rf"\(\s*{letter}\s*\)\s*\}}?(.*?)(?:\\qquad|\\quad|\(\s*[A-Z]\s*\)|\$\s|\$$|\n|$)", question)
    return _bare(found.group(1)) if found else ""


def _ends_with(text: str, value: str) -> bool:
    """Whether a value is the end, and no part of a longer number."""
    return bool(value) and text.endswith(value) and not re.search(r"[\d.^/-]$", text.removesuffix(value))


def _bare(text: str) -> str:
    """A formula without its form. The point of a number is kept, and what parts two arguments: 1.5 is not 15, nor 1/23 12/3."""
    text = re.sub(r"\}\s*\{", "|", text)
    return re.sub(r"\\(?:textbf|text|mathrm|qquad|quad|left|right)|[~$\s{}]|\.(?!\d)|\\[ ,;!]", "", text)


def _formula(reply: str, gold: str, formulas: Equivalence, *, up_to_constant: bool) -> Feedback:
    inside = boxed(reply)
    told = re.findall(r"\$([^$]+)\$", reply)
    answer = inside if inside is not None else told[-1] if told else reply.rsplit("\n", 1)[-1].strip()
    form = "" if inside is not None else r" Put the final answer in a \boxed{}."
    if answer.strip() == gold.strip():
        return Feedback(1.0, f"Right: it is {gold}.")
    right, problem = formulas.check(gold, answer, up_to_constant=up_to_constant)
    if right:
        return Feedback(1.0, f"Right: {answer} equals {gold}.")
    why = f" ({problem})" if problem else ""
    return Feedback(0.0, f"Wrong: it should be {gold}, but it was {shown(answer)}{why}.{form}")
