"""``gl.recheck``: a shipped bundle beside its seed on new data, a new model or a changed judge, and what to do about it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gepa_lite.adapters.adapt import adapt
from gepa_lite.bundle import Prompts, load_prompts
from gepa_lite.core.call import Usage, total_usage
from gepa_lite.core.example import check_splits
from gepa_lite.core.feedback import Objective
from gepa_lite.errors import ModelsDownError, UsageError
from gepa_lite.executors.workers import WorkersSpec, read_workers
from gepa_lite.lm.resolve import LMSpec, check_lm
from gepa_lite.program.program import Program
from gepa_lite.rollouts.judge import FeedbackFunction, Judge
from gepa_lite.search.verdict import Comparison, Verdict, compare, mean_interval, verdict_of
from gepa_lite.session import evaluate_once
from gepa_lite.ship.bundle import objective_of

Decision = Literal["keep", "roll back", "optimize again", "undecided"]


@dataclass(frozen=True)
class Recheck:
    """What a re-check found; scores in the user's own direction. ``print`` it.

    Attributes:
        decision: ``"roll back"``: the bundle scores below its seed, beyond chance. ``"optimize again"``: it scores below what it was shipped with, or the gain that it was shipped with is gone.
            ``"undecided"``: more than a tenth of the examples have no score. ``"keep"``: none of these.
        reason: in words.
        verdict: of bundle against seed on this data, as of a test set.
        comparison: seed and bundle on this data; higher is better there whatever the direction.
        seed: mean of the seed and the ends of its 95 % interval.
        bundle: likewise of the bundle.
        shipped: what the bundle was shipped with: the same of its test set, or of its validation set where it has none; None where it says neither.
        shipped_on: ``"test"``, ``"validation"`` or ``""``.
        usage: what the task models took.
    """

    decision: Decision
    reason: str
    verdict: Verdict
    comparison: Comparison
    seed: tuple[float, float, float]
    bundle: tuple[float, float, float]
    shipped: tuple[float, float, float] | None
    shipped_on: str
    usage: Usage

    def to_data(self) -> dict[str, Any]:
        """JSON types."""
        return asdict(self)

    def __str__(self) -> str:
        row = self.comparison
        rows = [
            ("seed", self.seed),
            ("bundle", self.bundle),
            *([] if self.shipped is None else [(f"shipped ({self.shipped_on})", self.shipped)]),
        ]
        lines = [f"{self.decision.upper()}: {self.reason}", ""]
        lines += [f"{name:<22}{mean:>8.3f}  [{low:.3f}, {high:.3f}]" for name, (mean, low, high) in rows]
        usd = "" if self.usage.usd is None else f", {self.usage.usd:.4f} USD"
        lines += [
            "",
            f"{row.won} won, {row.lost} lost of {row.n} examples ({row.missing} missing), p={row.p:.4f}; {self.usage.calls:,} calls{usd}",
        ]
        return "\n".join(lines)


def recheck(
    bundle: Prompts | str | os.PathLike[str],
    program: Any,
    data: Any,
    *,
    feedback: FeedbackFunction | None = None,
    lm: LMSpec | None = None,
    workers: WorkersSpec = 16,
) -> Recheck:
    """Score shipped prompts beside the seed's on examples, and say whether to keep them.

    Give it examples that the run never saw: labelled traffic of last week, say. Twice as many rollouts as examples are paid for.

    Args:
        bundle: a path, a registry's folder, or what ``gl.load_prompts`` read.
        program: the program that the prompts are for.
        data: examples, as ``trainset`` of ``optimize``.
        feedback: as in ``optimize``; a changed one is told from that of the run.
        lm: another model for all modules that name none; for a ``gl.Program``.
        workers: as in ``optimize``.

    Raises:
        UsageError: an argument is wrong, or the bundle does not fit the program.
        FeedbackError: the feedback function raised or returned no score.
        ModelsDownError: the models can't be reached.

    Example:
        >>> found = recheck("triage.prompts.json", Triage(lm="openai/gpt-4.1-mini"), "last_week.jsonl", lm="openai/gpt-5-mini")  # doctest: +SKIP
        >>> found.decision  # doctest: +SKIP
        'keep'
    """
    prompts = bundle if isinstance(bundle, Prompts) else load_prompts(bundle)
    if lm is not None:
        if not isinstance(program, Program):
            raise UsageError("recheck(lm=...) is for a gl.Program; give any other program with its new model.")
        program = program.with_lm(lm)
    adapted = adapt(program)
    prompts.check_modules({path: part.fingerprint for path, part in adapted.parts.items()})
    seed = {path: entry.get("seed", adapted.prompts[path]) for path, entry in prompts.data["modules"].items()}
    objective = objective_of(prompts.data)
    judge = Judge(adapted.judged_by(feedback), objective)
    rows = adapted.examples(data, "data")
    check_splits({"data": rows})
    for model in adapted.models.values():
        check_lm(model)
    sides = [evaluate_once(adapted.with_prompts(texts), rows, judge, objective, read_workers(workers)) for texts in (seed, dict(prompts))]
    values = [[rollout.value for rollout in side] for side in sides]
    try:
        comparison = compare(values[0], values[1])
    except ValueError:
        failure = next((rollout.failure for side in sides for rollout in side if rollout.failure), None)
        raise ModelsDownError(f"no example could be scored for both seed and bundle: {failure.message if failure else 'unknown'}") from None
    paired = [[mine for mine, other in zip(row, beside, strict=True) if other is not None] for row, beside in (values, values[::-1])]
    shipped_on, shipped = _shipped(prompts.data)
    decision, reason = decide(comparison, _gain(prompts.data, shipped_on), _mean(paired[1], objective), shipped, objective)
    if prompts.data.get("feedback") not in (None, judge.fingerprint):
        reason += " The feedback function is another one than that of the run."
    usage = total_usage(rollout.usage + rollout.judge_usage for side in sides for rollout in side)
    return Recheck(
        decision,
        reason,
        verdict_of(comparison),
        comparison,
        _mean(paired[0], objective),
        _mean(paired[1], objective),
        shipped,
        shipped_on,
        usage,
    )


def decide(
    row: Comparison,
    shipped_gain: float | None,
    bundle: tuple[float, float, float],
    shipped: tuple[float, float, float] | None,
    objective: Objective,
) -> tuple[Decision, str]:
    """What to do, and why; each claim is held to 95 %.

    Args:
        row: seed and bundle on the new data.
        shipped_gain: the gain that the bundle was shipped with, higher is better; None where it is not known, or the bundle is the seed.
        bundle: its mean on the new data and the ends of its interval, in the user's own direction.
        shipped: the same as it was shipped.
        objective: the direction.

    Example:
        >>> from gepa_lite.search.verdict import compare
        >>> row = compare([0.0] * 20 + [1.0] * 20, [1.0] * 30 + [0.0] * 10)
        >>> decide(row, 0.3, (0.75, 0.6, 0.88), (0.8, 0.7, 0.9), Objective())[0]
        'keep'
    """
    verdict = verdict_of(row)
    if verdict == "indecisive":
        return "undecided", f"{row.missing} of {row.n + row.missing} examples have no score, for reasons outside the program."
    if verdict == "worse":
        return "roll back", f"the bundle scores below its seed on these {row.n} examples, beyond chance."
    if shipped is not None and _clearly_below(bundle, shipped, objective):
        return (
            "optimize again",
            f"the bundle scores {bundle[0]:.3f} here and was shipped with {shipped[0]:.3f}; their 95 % intervals do not meet.",
        )
    if verdict != "improved" and shipped_gain is not None and row.high < shipped_gain:
        return (
            "optimize again",
            f"of the gain that the bundle was shipped with ({shipped_gain:+.3f}) at most {row.high:+.3f} is left on these {row.n} examples.",
        )
    if verdict == "improved":
        return "keep", f"the bundle is better than its seed on these {row.n} examples, beyond chance."
    return (
        "keep",
        f"nothing on these {row.n} examples speaks against the bundle; they are too few, or too alike, to show its gain once more.",
    )


def _clearly_below(now: tuple[float, float, float], then: tuple[float, float, float], objective: Objective) -> bool:
    return now[2] < then[1] if objective.direction == "maximize" else now[1] > then[2]


def _mean(values: list[float | None], objective: Objective) -> tuple[float, float, float]:
    mean, low, high, _ = mean_interval([None if value is None else objective.score(value) for value in values])
    return mean, low, high


def _shipped(data: Mapping[str, Any]) -> tuple[str, tuple[float, float, float] | None]:
    """The bundle's own scores. Those of a text that was edited by hand since are not its own."""
    if data.get("edited"):
        return "", None
    own = "seed" if data["candidate"]["is_seed"] else "winner"
    for split in ("test", "validation"):
        row = data["scores"].get(split)
        if row and row.get(f"{own}_interval"):
            low, high = row[f"{own}_interval"]
            return split, (row[own], low, high)
    return "", None


def _gain(data: Mapping[str, Any], split: str) -> float | None:
    """Of a test set alone: the winner was chosen on the validation set, which flatters it."""
    if split != "test" or data["candidate"]["is_seed"]:
        return None
    sign = 1 if data["scores"]["direction"] == "maximize" else -1
    return float(sign * data["scores"]["test"]["gain"])
