"""``gl.check``: a few rollouts that tell whether a run could work at all. Read ``_findings`` from top to bottom."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gepa_lite.api import Prepared, ReflectionSpec, open_store, prepare
from gepa_lite.budgeting import costs_dollars
from gepa_lite.core.budget import Budget
from gepa_lite.core.call import Usage
from gepa_lite.core.money import dollars
from gepa_lite.doctor.bench import Bench
from gepa_lite.doctor.checkup import Checkup, Diagnosis, Level
from gepa_lite.doctor.data import check_data
from gepa_lite.doctor.models import check_context, check_models
from gepa_lite.doctor.noise import check_noise
from gepa_lite.doctor.program import check_feedback, check_prompts, check_samples
from gepa_lite.doctor.reflection import check_reflection
from gepa_lite.errors import BudgetSpentError, FeedbackError, ModelsDownError, RunError, StoreError, UsageError
from gepa_lite.executors.workers import WorkersSpec
from gepa_lite.forecast.samples import spread_examples
from gepa_lite.lm.prices import PriceSpec
from gepa_lite.program.contracts import ContractSpec
from gepa_lite.rollouts.judge import FeedbackFunction
from gepa_lite.run_spec import RunSpec, record_samples
from gepa_lite.search.search import Search
from gepa_lite.store.folders import run_folder
from gepa_lite.store.memory import MemoryStore
from gepa_lite.store.protocol import Store

MOST_USD = 0.5
"""What a check may cost where models have a price; the run's own bound, if it is lower."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is tried.

    Attributes:
        examples: validation examples that the seed is run on.
        repeats: runs of each.
        proposals: texts asked of the reflection model.
    """

    examples: int = 4
    repeats: int = 3
    proposals: int = 2

    def __post_init__(self) -> None:
        for name, value, least in (("examples", self.examples, 1), ("repeats", self.repeats, 2), ("proposals", self.proposals, 1)):
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= 10:
                raise UsageError(f"{name}={value!r}: a whole number from {least} to 10 is needed.")

    def words(self, spec: RunSpec) -> str:
        """What it costs at most."""
        minibatch = min(spec.search.least_minibatch, len(spec.train)) * spec.search.repeats
        rollouts = min(self.examples, len(spec.validation)) * self.repeats + 2 + minibatch * (1 + self.proposals)
        usd = f", and {dollars(_most_usd(spec.budget))} USD" if costs_dollars(spec) else ""
        return f"at most {rollouts} rollouts and {2 * self.proposals} reflections{usd}"


def check(
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
    effort: Effort | None = None,
) -> Checkup:
    """Look, with a few rollouts, whether a run by the same arguments could work at all.

    Whether each module's prompt really reaches the model; whether the feedback has words, keeps to its range and falls when the output is wrecked; how much scores vary by themselves, and so the
    smallest gain that the sets can show; whether labels stand in the inputs and splits share twins; whether the reflection model answers in the asked form; keys, prices, context windows.
    What it may cost is said on standard error before (unless ``GEPA_LITE_PROGRESS=0``), what it did cost is in the result. A wrong argument is a finding here, and raises nothing.

    Args:
        program: as for ``optimize``, like all that follow but the last.
        trainset: examples to learn from.
        valset: examples that candidates are compared on.
        testset: sealed examples, or a share; none of them is run.
        curveset: examples that the search never sees, or a share.
        feedback: the feedback function.
        reflection_lm: who rewrites.
        budget: of the run to come; the check keeps to it, and to 0.50 USD.
        search: the rules.
        contract: what the prompts must keep to.
        prices: USD per million tokens.
        run: a name or folder of a run to come: it does not pay again for what the check did. Without it nothing is kept.
        workers: rollouts at once.
        effort: how much is tried.

    Example:
        >>> import gepa_lite as gl
        >>> from gepa_lite.testing import ScriptedLM
        >>> class Echo(gl.Program):
        ...     say = gl.Module("word -> reply", "Repeat the word.")
        ...     def forward(self, word):
        ...         return self.say(word=word)
        >>> words = [{"word": w} for w in "red green blue white black brown pink gold".split()]
        >>> checkup = gl.check(Echo(lm=ScriptedLM("red")), words[:4], words[4:], feedback=lambda example, output: (0.5, "Always the same."))
        >>> checkup.failed, checkup.of("feedback_moves")[0].what
        (True, 'The score does not change when every field of the output is wrecked.')
    """

    def prepared() -> Prepared:
        return prepare(
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

    tell = _silent if os.environ.get("GEPA_LITE_PROGRESS", "1") == "0" else _to_standard_error
    return check_run(prepared, run, effort or Effort(), tell)


def check_run(prepare_it: Callable[[], Prepared], run: str | Path | None, effort: Effort, tell: Callable[[str], None]) -> Checkup:
    """Check a run.

    Args:
        prepare_it: makes the checked run; what it refuses is a finding.
        run: where what is paid for is kept; None for nowhere.
        effort: how much is tried.
        tell: gets what it may cost, in words, before it does.
    """
    try:
        spec = prepare_it().spec
    except UsageError as error:
        refused = Diagnosis("fail", "setup", "The run would be refused.", str(error), "Mend what the message names, and check again.")
        return Checkup("the run", [refused], 0, Usage(), "nothing")
    planned = effort.words(spec)
    tell(f"Checking {spec.program.name}: {planned}.")
    usd = _most_usd(spec.budget) if costs_dollars(spec) else spec.budget.usd
    bounded = spec.with_budget(replace(spec.budget, usd=usd))
    found = [*check_models(spec), *check_data(spec)]
    with ExitStack() as opened:
        store: Store = MemoryStore() if run is None else opened.enter_context(open_store(run_folder(run, spec.program.name), spec))
        if store.events():
            raise UsageError(f"The run {str(run)!r} has begun: a check needs the name of a run to come.")
        record_samples(store, spec)
        bench = Bench(bounded, store)
        opened.callback(bench.close)
        found.extend(_careful(_findings(bench, effort)))
        return Checkup(spec.program.name, tuple(found), bench.rollouts, bench.cost, planned)


def _findings(bench: Bench, effort: Effort) -> Iterator[Diagnosis]:
    """Everything that needs a rollout, what costs least first."""
    spec = bench.spec
    examples = spread_examples(spec.validation, effort.examples)
    first = bench.run_seed(examples)
    if missing := [rollout for rollout in first if rollout.missing]:
        message = missing[0].failure.message if missing[0].failure is not None else ""
        yield Diagnosis(
            "fail",
            "models",
            f"{len(missing)} of {len(first)} sample rollouts have no score, for reasons outside the program.",
            message,
            "Mend what the message names, or wait until it has passed.",
        )
        return
    yield check_samples(first)
    yield from check_context(spec, examples, first)
    yield from check_prompts(bench, examples)
    yield from check_feedback(bench, examples, first)
    again = [bench.run_seed(examples, sample) for sample in range(1, effort.repeats)]
    yield from check_noise(spec, [first, *again])
    ran = {module for rollout in first for module in rollout.trace.modules}
    yield from check_reflection(bench, effort.proposals, tuple(path for path in spec.program.parts if path not in ran))


_CAUSES: tuple[tuple[type[Exception], str, str], ...] = (
    (FeedbackError, "feedback", "The feedback function broke."),
    (ModelsDownError, "models", "A model can't be reached."),
    (BudgetSpentError, "budget", "The check came to its bound before all was looked at."),
    (StoreError, "store", "What was paid for can't be kept."),
    (UsageError, "setup", "The run would be refused."),
    (RunError, "run", "A run could not go on."),
)


def _careful(findings: Iterator[Diagnosis]) -> Iterator[Diagnosis]:
    """The findings, and what ends them as the last one."""
    try:
        yield from findings
    except (UsageError, RunError) as error:
        code, what = next((code, what) for kind, code, what in _CAUSES if isinstance(error, kind))
        level: Level = "warn" if isinstance(error, BudgetSpentError) else "fail"
        yield Diagnosis(level, code, what, str(error), "Mend what the message names; what comes after it was not looked at.")


def _most_usd(budget: Budget) -> float:
    return MOST_USD if budget.usd is None else min(budget.usd, MOST_USD)


def _to_standard_error(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _silent(text: str) -> None:
    """A caller who wants no progress wants no announcement either."""
