"""``gl.estimate``: what a run will take, from the data, the program and at most three sample rollouts that the run does not pay for again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gepa_lite.api import Prepared, ReflectionSpec, open_store, prepare
from gepa_lite.core.budget import Budget
from gepa_lite.core.call import Usage
from gepa_lite.errors import ModelsDownError, UsageError
from gepa_lite.executors.workers import WorkersSpec
from gepa_lite.forecast.advice import Caution, advise
from gepa_lite.forecast.course import Case, Cost, Tally, follow, seed_alone, shape_of
from gepa_lite.forecast.samples import Samples, take_samples
from gepa_lite.forecast.units import measure
from gepa_lite.lm.prices import PriceSpec
from gepa_lite.program.contracts import ContractSpec
from gepa_lite.rollouts.judge import FeedbackFunction
from gepa_lite.run_spec import RunSpec
from gepa_lite.search.search import Search
from gepa_lite.store.folders import run_folder

MOST_SAMPLES = 3
_WORTH_A_THOUGHT = 0.1
"""A chance that the ranges take in."""


@dataclass(frozen=True, slots=True)
class Range:
    """Where a figure is expected: ``low`` to ``high``, and what is likely."""

    low: float
    likely: float
    high: float


@dataclass(frozen=True, slots=True)
class RoleEstimate:
    """The calls of one role. ``usd`` is None where a price is unknown."""

    calls: Range
    tokens: Range
    usd: Range | None


@dataclass(frozen=True)
class Estimate:
    """What a run will take; ``print`` it.

    The ranges hold for a run that goes on to a bound of its budget; one that ends before, since a candidate is perfect or a stop rule of yours holds, takes less.

    Attributes:
        program: its name.
        budget: the bounds.
        default_budget: whether nobody gave one, so that these are the default's.
        proposals: texts asked of the reflection model.
        rollouts: runs of the program on one example.
        minutes: wall time.
        usd: dollars of all roles; None where a price is unknown.
        tokens: input and output tokens of all roles.
        roles: by role: ``task``, ``judge`` where the feedback function calls a model, ``reflection``.
        ended_by: the bound of the budget that is likely reached first; "" where none is within sight.
        shares: of the likely rollouts, for ``seed``, ``minibatches``, ``children`` (their validation) and ``after`` (test set, curve, shortening).
        samples: sample rollouts that were taken, those found on disk included.
        sample_scores: their scores, None where missing.
        sample_cost: what the samples of this call took; nothing for those found on disk.
        warnings: what to change, and to what.
        assumed: what was not measured.
        notices: what was decided for the caller.
        run: the folder that keeps the samples: the run goes on from there.
    """

    program: str
    budget: Budget
    default_budget: bool
    proposals: Range
    rollouts: Range
    minutes: Range
    usd: Range | None
    tokens: Range
    roles: Mapping[str, RoleEstimate]
    ended_by: str
    shares: Mapping[str, float]
    samples: int
    sample_scores: Sequence[float | None]
    sample_cost: Usage
    warnings: Sequence[Caution]
    assumed: Sequence[str]
    notices: Sequence[str]
    run: Path

    def __str__(self) -> str:
        from gepa_lite.forecast.text import estimate_text

        return estimate_text(self)

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """As JSON types."""
        from gepa_lite.forecast.text import estimate_data

        return estimate_data(self)


def estimate(
    program: Any,
    trainset: Any,
    valset: Any = None,
    *,
    testset: Any = None,
    curveset: Any = None,
    feedback: FeedbackFunction | None = None,
    reflection_lm: ReflectionSpec | None = None,
    budget: Budget | None = None,
    search: Search | None = None,
    contract: ContractSpec | None = None,
    prices: PriceSpec | None = None,
    run: str | Path | None = None,
    workers: WorkersSpec = 16,
    samples: int = MOST_SAMPLES,
) -> Estimate:
    """What ``optimize`` with the same arguments will take, before it is paid for.

    Up to three rollouts of the seed are run and kept in the run's folder; ``optimize(..., run=)`` with that folder finds them there. Nothing else is paid for.

    Args:
        program: as for ``optimize``, like all that follow but the last.
        trainset: examples to learn from.
        valset: examples that candidates are compared on.
        testset: sealed examples, or a share.
        curveset: examples that the search never sees, or a share.
        feedback: the feedback function.
        reflection_lm: who rewrites.
        budget: upper bounds; without it the estimate says what the default ones buy.
        search: the rules.
        contract: what the prompts must keep to.
        prices: USD per million tokens.
        run: a name under ``gepa_runs/`` or a folder for the samples and the run to come; without it a name is made, and the estimate says it.
        workers: rollouts at once.
        samples: sample rollouts, 1 to 3.

    Raises:
        UsageError: an argument is wrong, or the run has begun already.
        FeedbackError: the feedback function raised or returned no score.
        ModelsDownError: no sample rollout has a score.

    Example:
        >>> import gepa_lite as gl
        >>> from gepa_lite.testing import ScriptedLM
        >>> class Echo(gl.Program):
        ...     say = gl.Module("word -> reply", "Repeat the word.")
        ...     def forward(self, word):
        ...         return self.say(word=word)
        >>> words = [{"word": w} for w in "red green blue white black brown pink gold".split()]
        >>> judge = lambda example, output: (float(output.reply == example["word"]), "Repeat the word as it is.")
        >>> estimate = gl.estimate(Echo(lm=ScriptedLM("red")), words[:4], words[4:], feedback=judge, budget=gl.Budget(rollouts=120))
        >>> estimate.samples, estimate.ended_by, estimate.rollouts.high <= 120
        (3, 'rollouts', True)
    """
    if not isinstance(samples, int) or isinstance(samples, bool) or not 1 <= samples <= MOST_SAMPLES:
        raise UsageError(f"samples={samples!r}: a number from 1 to {MOST_SAMPLES} is needed.")
    prepared = prepare(
        program,
        trainset,
        valset,
        testset=testset,
        curveset=curveset,
        feedback=feedback,
        reflection_lm=reflection_lm,
        budget=budget,
        search=search,
        contract=contract,
        prices=prices,
        workers=workers,
    )
    return estimate_run(prepared, run_folder(run, prepared.spec.program.name), samples)


def estimate_run(prepared: Prepared, folder: Path, samples: int = MOST_SAMPLES) -> Estimate:
    """Estimate a prepared run; its samples are kept in its folder.

    Raises:
        UsageError: the run has begun already.
        RunError: the samples can't be taken.
    """
    spec = prepared.spec
    with open_store(folder, prepared.spec) as store:
        if store.events():
            raise UsageError(f"The run in {folder} has begun: see `gepa-lite show {folder}`. An estimate needs the name of a run to come.")
        paid = store.paid().total
        taken = take_samples(spec, store, samples)
        cost = _difference(store.paid().total, paid)
    if not taken.scored:
        failure = taken.rollouts[0].failure
        raise ModelsDownError(f"no sample rollout has a score: {failure.message if failure else 'unknown'}")
    return _estimate(prepared, folder, taken, cost)


def _estimate(prepared: Prepared, folder: Path, samples: Samples, cost: Usage) -> Estimate:
    spec = prepared.spec
    shape, units = shape_of(spec), measure(spec, samples)
    cases = list(units.cases)
    tallies = [follow(shape, case) for case in cases]
    likely = tallies[1]
    slack = _slack(spec.budget, tallies)
    if _chance_of_a_perfect_seed(spec, samples) > _WORTH_A_THOUGHT:
        cases.append(cases[0])
        tallies.append(seed_alone(shape, cases[0]))
    judged = any(rollout.judge_usage.calls for rollout in samples.scored)
    roles = {"task": _role([tally.task for tally in tallies], slack)}
    if judged:
        roles["judge"] = _role([tally.judge for tally in tallies], slack)
    roles["reflection"] = _reflection(cases, tallies)
    objective = spec.search.objective
    usd = _usd([tally.total for tally in tallies], slack)
    minutes = _minutes(spec.budget, tallies, cases)
    proposals = _range([tally.proposals for tally in tallies])
    return Estimate(
        program=spec.program.name,
        budget=spec.budget,
        default_budget=prepared.default_budget,
        proposals=Range(math.floor(proposals.low), round(proposals.likely), math.ceil(proposals.high)),
        rollouts=_range([tally.rollouts for tally in tallies], slack),
        minutes=minutes,
        usd=usd,
        tokens=_range([tally.total.tokens for tally in tallies], slack),
        roles=roles,
        ended_by=likely.ended_by,
        shares=_shares(likely),
        samples=len(samples.rollouts),
        sample_scores=[None if rollout.value is None else objective.score(rollout.value) for rollout in samples.rollouts],
        sample_cost=cost,
        warnings=advise(spec, shape, units.cases[1], likely, samples, units.unpriced if usd is None else ()),
        assumed=_assumed(spec, units.timed),
        notices=prepared.notices,
        run=folder,
    )


def _chance_of_a_perfect_seed(spec: RunSpec, samples: Samples) -> float:
    """The chance that the seed is perfect on every validation example, from the samples under a uniform prior of its rate; 0 unless all of them are."""
    best = spec.search.objective.best
    if any(rollout.missing or rollout.value is None or rollout.value < best - 1e-12 for rollout in samples.rollouts):
        return 0.0
    known = len(samples.rollouts) + 1
    return known / (known + len(spec.validation))


def _slack(budget: Budget, tallies: Sequence[Tally]) -> float:
    """What a course in expectation leaves of a bound on rollouts may be taken by luckier steps."""
    if budget.rollouts is None or not all(tally.ended_by == "rollouts" for tally in tallies):
        return 1.0
    return budget.rollouts / max(tally.rollouts for tally in tallies)


def _minutes(budget: Budget, tallies: Sequence[Tally], cases: Sequence[Case]) -> Range:
    """Wall time. Where seconds are bounded, a run ends at about that time: no later than the calls in flight then take."""
    if budget.seconds is None:
        return _range([tally.seconds / 60 for tally in tallies])
    late = [budget.seconds + case.rollout_seconds + case.reflection_seconds for case in cases]
    found = _range([min(tally.seconds, bound) / 60 for tally, bound in zip(tallies, late, strict=True)])
    return Range(min(found.low, budget.seconds / 60), found.likely, found.high)


def _range(values: Sequence[float], slack: float = 1.0) -> Range:
    return Range(min(values), values[1], max(values) * slack)


def _usd(costs: Sequence[Cost], slack: float = 1.0) -> Range | None:
    known = [cost.usd for cost in costs if cost.usd is not None]
    return _range(known, slack) if len(known) == len(costs) else None


def _role(costs: Sequence[Cost], slack: float) -> RoleEstimate:
    return RoleEstimate(_range([cost.calls for cost in costs], slack), _range([cost.tokens for cost in costs], slack), _usd(costs, slack))


def _reflection(cases: Sequence[Case], tallies: Sequence[Tally]) -> RoleEstimate:
    """Many proposals may come with long replies, and few with short ones: each case's count with the length of that case and the next."""
    crossed = [
        case.reflection.times(tally.reflection.calls / case.reflection.calls)
        for place, tally in enumerate(tallies)
        for case in (cases[place], cases[max(0, place - 1)], cases[min(2, place + 1)])
    ]
    return _role([crossed[0], tallies[1].reflection, *crossed[1:]], 1.0)


def _shares(tally: Tally) -> dict[str, float]:
    parts = {"seed": tally.seed, "minibatches": tally.minibatches, "children": tally.children, "after": tally.after}
    return {name: count / tally.rollouts for name, count in parts.items()}


def _difference(after: Usage, before: Usage) -> Usage:
    usd = None if after.usd is None or before.usd is None else after.usd - before.usd
    return Usage(after.calls - before.calls, after.input_tokens - before.input_tokens, after.output_tokens - before.output_tokens, usd)


def _assumed(spec: RunSpec, timed: bool) -> list[str]:
    words = [
        "how often a proposal is accepted (3 % to 65 %), how much prompts grow, and how long the reflection model's replies are",
    ]
    if not timed:
        words.append("how fast rollouts are side by side")
    if any(not lm.describe().name.startswith("local/") for lm, _ in spec.reflectors.values()):
        words.append("how fast the reflection model writes (25 to 120 tokens a second)")
    return words
