"""What a judge says of one rollout: a score, and a diagnosis in words."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Feedback:
    """A score and a diagnosis.

    Attributes:
        score: one finite number; higher is better unless the objective says otherwise.
        text: what was wrong or right, in words: the reflection model learns from it.
        modules: words for one module alone, by module path; a module without an entry gets ``text``.
        objectives: further finite scores by name; higher is better.
        scores: a score for one module's part alone, by module path, in the range of ``score``: a step reward. Modules with low ones are blamed.
    """

    score: float
    text: str = ""
    modules: Mapping[str, str] = field(default_factory=dict)
    objectives: Mapping[str, float] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)

    def for_module(self, module: str) -> str:
        """The words for one module."""
        return self.modules.get(module, self.text)


def as_feedback(value: Any) -> Feedback:
    """Take what feedback functions return: a Feedback, a number, a bool, ``(score, text)``, a dict, or an object with ``score`` and ``feedback``.

    Raises:
        ValueError: not one of these, or a score that is not finite. The message says what came.
    """
    if isinstance(value, Feedback):
        return _checked(value)
    if isinstance(value, Mapping):
        return _from_mapping(value)
    if isinstance(value, tuple):
        if len(value) != 2:
            raise ValueError(f"a tuple must be (score, text); it has {len(value)} items")
        return _checked(Feedback(_number(value[0]), _text(value[1])))
    if hasattr(value, "score") and not isinstance(value, (str, bytes)):
        return _checked(Feedback(_number(value.score), _text(getattr(value, "feedback", None) or "")))
    return _checked(Feedback(_number(value)))


def _from_mapping(value: Mapping[Any, Any]) -> Feedback:
    known = {"score", "text", "feedback", "modules", "objectives", "scores"}
    unknown = [str(key) for key in value if key not in known]
    if "score" not in value or unknown:
        problem = f"it has the unknown key {unknown[0]!r}" if unknown else "it has no 'score'"
        raise ValueError(f"a dict must have 'score' and may have 'text' (or 'feedback'), 'modules', 'objectives' and 'scores'; {problem}")
    text = value.get("text", value.get("feedback")) or ""
    objectives, scores = ({str(k): _number(v) for k, v in (value.get(name) or {}).items()} for name in ("objectives", "scores"))
    return _checked(Feedback(_number(value["score"]), _text(text), dict(value.get("modules") or {}), objectives, scores))


def _checked(feedback: Feedback) -> Feedback:
    score = _number(feedback.score)
    _text(feedback.text)
    for name, number in {"score": score, **feedback.objectives, **feedback.scores}.items():
        if not math.isfinite(_number(number)):
            raise ValueError(f"{name} is {number!r}; a finite number is needed")
    return feedback if type(feedback.score) is float else dataclasses.replace(feedback, score=score)


def _number(value: Any) -> float:
    if isinstance(value, (str, bytes)) or value is None:
        raise ValueError(f"the score is {value!r} ({type(value).__name__}); a number is needed")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"the score is of type {type(value).__name__}; a number is needed") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"the feedback's text is of type {type(value).__name__}; a str is needed")
    return value


@dataclass(frozen=True, slots=True)
class Objective:
    """What a score means.

    Attributes:
        direction: ``"maximize"`` or ``"minimize"``.
        range: lowest and highest possible score. A score outside it stops the run at the first rollout that shows it; a
            minibatch whose scores are all the best of the range teaches nothing and is skipped; a failed rollout gets the worst of the range.
    """

    direction: Literal["maximize", "minimize"] = "maximize"
    range: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        low, high = self.range
        if self.direction not in ("maximize", "minimize"):
            raise ValueError(f"Objective(direction={self.direction!r}): 'maximize' or 'minimize' is needed")
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"Objective(range={self.range!r}): two finite numbers, the lower first, are needed")

    def value(self, score: float) -> float:
        """The score turned so that higher is better."""
        return score if self.direction == "maximize" else -score

    def score(self, value: float) -> float:
        """The inverse of ``value``."""
        return value if self.direction == "maximize" else -value

    @property
    def best(self) -> float:
        """The best possible value (higher is better)."""
        return self.range[1] if self.direction == "maximize" else -self.range[0]

    @property
    def worst(self) -> float:
        """The worst possible value (higher is better): what a failed rollout gets."""
        return self.range[0] if self.direction == "maximize" else -self.range[1]

    def contains(self, score: float) -> bool:
        """Whether a score lies in the range, with a tolerance of 1e-9 for rounding."""
        return self.range[0] - 1e-9 <= score <= self.range[1] + 1e-9
