"""A rollout: one run of a candidate on one example, with its judgement or its failure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from gepa_lite.core.call import Trace, Usage
from gepa_lite.core.feedback import Feedback


@dataclass(frozen=True, slots=True)
class RolloutKey:
    """What makes a rollout the same rollout: it is paid for once."""

    candidate_id: str
    example_id: str
    sample: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a rollout failed.

    Attributes:
        kind: a short stable word, e.g. ``"parse"``, ``"exception"``, ``"rate_limit"``.
        fault: ``"candidate"`` is scored with the message as its diagnosis; ``"world"`` is missing.
        message: what happened, in words.
    """

    kind: str
    fault: Literal["candidate", "world"]
    message: str


@dataclass(frozen=True, slots=True)
class Rollout:
    """One run of a candidate on one example.

    Attributes:
        key: candidate, example and sample.
        value: the score turned so that higher is better; None where it is missing (the world's fault: never a zero).
        feedback: the judgement; for a candidate's failure its score is the worst of the range and its text names the failure.
        output: what the program returned, as JSON types; None where it failed.
        trace: the calls, also of a failed run.
        failure: why it failed, or None.
        usage: logical task usage: the same whether calls came from the cache or not.
        judge_usage: usage of model calls made by the feedback function.
        seconds: wall time; an observation.
    """

    key: RolloutKey
    value: float | None
    feedback: Feedback | None
    output: Any = None
    trace: Trace = field(default_factory=Trace)
    failure: Failure | None = None
    usage: Usage = field(default_factory=Usage)
    judge_usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0

    @property
    def missing(self) -> bool:
        """Whether the world failed, so that there is no score."""
        return self.value is None
