"""Compare numbers: found in prose, within a tolerance, in any unit of the same dimension."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback
from gepa_lite.errors import UsageError

from .match import FieldFeedback, accepted, shown

_NUMBER = re.compile(r"(?<![\w.])[-+\u2212]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?(?:\s*/\s*\d+)?")
_UNIT = re.compile(r"\s*(%|[a-zA-Zµ°Ω][\w°µΩ/*^²³·-]*)")
_SIGNS = str.maketrans({"\u2212": "-", ",": ""})


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number and the unit written after it; "" for none."""

    value: float
    unit: str = ""


def quantities(text: str) -> list[Quantity]:
    """The numbers of a text in order, each with the word that follows it. Fractions, thousands separators and exponents are read.

    >>> quantities("from 1,200 m to 3/4 km")
    [Quantity(value=1200.0, unit='m'), Quantity(value=0.75, unit='km')]
    """
    found = []
    for match in _NUMBER.finditer(text):
        top, _, bottom = match.group().translate(_SIGNS).partition("/")
        if bottom and float(bottom) == 0:
            continue
        unit = _UNIT.match(text, match.end())
        found.append(Quantity(float(top) / float(bottom or 1), unit.group(1).rstrip("-·*/^") if unit else ""))
    return found


def numeric(field: str, label: str | None = None, *, tolerance: float = 1e-6, units: bool = False) -> FieldFeedback:
    """A feedback function: 1 where the last number of the output field equals the label's, else 0, with what kind of slip it looks like.

    Args:
        field: the output field; a number or a text that ends with the answer.
        label: the example's label; the field's own name where it is None. A list is a set of accepted answers.
        tolerance: accepted relative difference; of a label that is 0, the accepted absolute one.
        units: whether units count. ``3500 m`` equals ``3.5 km``; an answer without a unit, or one of another dimension, is wrong. Needs the extra ``units``.

    Raises:
        UsageError: a negative tolerance, or a label without a number.

    Example:
        >>> judge = numeric("answer")
        >>> judge(Example("id", {}, {"answer": 0.25}), {"answer": "So it is 25 %."}).text
        "Wrong: the answer should be 0.25, but it was 25. It is 100 times the right one: a share is wanted, not a percentage. The field was 'So it is 25 %.'."
    """
    if tolerance < 0:
        raise UsageError(f"numeric(tolerance={tolerance!r}): 0 or more is needed.")
    name = label or field

    def feedback(example: Example, output: Any) -> Feedback:
        golds = [_gold(one, name) for one in accepted(example[name])]
        came = quantities(str(output[field]))
        wanted = " or ".join(_text(gold, units) for gold in golds)
        if not came:
            return Feedback(0.0, f"Wrong: the {field} should be {wanted}, but it holds no number: {shown(output[field])}.")
        answer = came[-1]
        problems = [_problem(gold, answer, tolerance, units) for gold in golds]
        if "" in problems:
            return Feedback(1.0, f"Right: the {field} is {wanted}.")
        words = f"Wrong: the {field} should be {wanted}, but it was {_text(answer, units)}. {problems[0]}"
        if any(not _problem(gold, other, tolerance, units) for gold in golds for other in came[:-1]):
            words += " The right number occurs earlier in it: end with the answer."
        return Feedback(0.0, words if isinstance(output[field], (int, float)) else f"{words} The field was {shown(output[field])}.")

    return feedback


def _gold(label: Any, name: str) -> Quantity:
    found = quantities(str(label))
    if not found:
        raise UsageError(f"numeric: the label {name!r} is {label!r}; a number, or a text with one, is needed.")
    return found[-1]


def _text(quantity: Quantity, units: bool) -> str:
    return f"{quantity.value:.12g}" + (f" {quantity.unit}" if units and quantity.unit else "")


def _problem(gold: Quantity, answer: Quantity, tolerance: float, units: bool) -> str:
    """What is wrong, in words; "" where nothing is."""
    value = answer.value
    if units and gold.unit:
        if not answer.unit:
            return f"The unit is missing: {gold.unit} is wanted."
        if answer.unit != gold.unit:
            converted = _converted(answer, gold.unit)
            if isinstance(converted, str):
                return converted
            value = converted
    if _close(gold.value, value, tolerance):
        return ""
    return _slip(gold.value, value)


def _close(gold: float, value: float, tolerance: float) -> bool:
    return abs(gold - value) <= tolerance * (abs(gold) or 1.0)


def _slip(gold: float, value: float) -> str:
    if _close(gold, -value, 1e-9):
        return "The sign is wrong."
    if gold and value:
        ratio = value / gold
        if _close(100, ratio, 1e-9):
            return "It is 100 times the right one: a share is wanted, not a percentage."
        if _close(0.01, ratio, 1e-9):
            return "It is a hundredth of the right one: a percentage is wanted, not a share."
        power = math.log10(abs(ratio))
        if ratio > 0 and abs(power) > 0.5 and abs(power - round(power)) < 1e-9:
            return f"It is off by a factor of 10^{round(power)}: a slip of the decimal point, or of the unit."
        if _close(1.0, value * gold, 1e-9):
            return "It is the inverse of the right one."
    if round(value) == round(gold) or (gold and abs(value - gold) / abs(gold) < 0.02):
        return f"It is close: off by {value - gold:+.6g}, perhaps by rounding on the way or at the end."
    return f"It is off by {value - gold:+.6g}."


def _converted(answer: Quantity, unit: str) -> float | str:
    """The answer's value in another unit, or why it has none."""
    registry = _units()
    try:
        return float(registry.Quantity(answer.value, answer.unit).to(unit).magnitude)
    except Exception as error:  # pint raises its own, and tokenizer errors for units that are no units
        if type(error).__name__ == "DimensionalityError":
            return f"The unit {answer.unit} is of another kind than {unit}."
        return f"The unit {answer.unit!r} is not known; {unit} is wanted."


@cache
def _units() -> Any:
    try:
        import pint
    except ImportError:
        raise UsageError("numeric(units=True) needs the package pint: pip install 'gepa-lite[units]'.") from None
    return pint.UnitRegistry(autoconvert_offset_to_baseunit=True)
