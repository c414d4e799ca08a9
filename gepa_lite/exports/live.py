"""``live``: the program with the exported prompts on its real models, its scores beside those inside the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gepa_lite.adapters.adapt import adapt
from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Objective
from gepa_lite.core.rollout import Rollout
from gepa_lite.errors import ModelsDownError, UsageError
from gepa_lite.executors.workers import read_workers
from gepa_lite.exports.source import Reading, Source
from gepa_lite.lm.resolve import check_lm
from gepa_lite.rollouts.judge import Judge
from gepa_lite.search.verdict import Comparison, compare, verdict_of
from gepa_lite.session import evaluate_once
from gepa_lite.ship.bundle import objective_of


@dataclass(frozen=True, slots=True)
class Live:
    """Scores outside beside those inside, in the user's own direction.

    Attributes:
        inside: mean in the run.
        outside: mean now.
        interval: 95 % of the difference.
        n: examples.
    """

    inside: float
    outside: float
    interval: tuple[float, float]
    n: int

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"live: {self.outside:.3f} outside, {self.inside:.3f} inside, difference [{low:+.3f}, {high:+.3f}] (n={self.n}): within noise"
        )


def score_live(source: Source, reading: Reading, cases: Sequence[tuple[Example, Rollout]], feedback: Callable[..., Any] | None) -> Live:
    """Run and judge the program on the recorded examples.

    Raises:
        UsageError: it scores less than inside, beyond chance.
        ModelsDownError: no example could be scored.
    """
    objective = objective_of(source.prompts.data)
    outside = adapt(adapt(source.program).with_prompts(reading.prompts).deliverable)
    for lm in outside.models.values():
        check_lm(lm)
    rollouts = evaluate_once(
        outside, [example for example, _ in cases], Judge(outside.judged_by(feedback), objective), objective, read_workers(16)
    )
    try:
        comparison = compare([rollout.value for _, rollout in cases], [rollout.value for rollout in rollouts])
    except ValueError:
        raise ModelsDownError("live: no example could be scored, for reasons outside the program.") from None
    live = _live(comparison, objective)
    if verdict_of(comparison) == "worse":
        raise UsageError(
            f"live: the exported prompts score {live.outside:.3f} outside and {live.inside:.3f} inside the run (n={live.n}), which is beyond chance. Nothing was exported."
        )
    return live


def _live(row: Comparison, objective: Objective) -> Live:
    sign = 1 if objective.direction == "maximize" else -1
    low, high = sorted((sign * row.low, sign * row.high))
    return Live(objective.score(row.before), objective.score(row.after), (low, high), row.n)
