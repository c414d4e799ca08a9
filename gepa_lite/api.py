"""The calls: ``optimize`` and ``evaluate``. Thin: they check, build a session, and hand back what it found."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from gepa_lite.adapters.adapt import adapt
from gepa_lite.budgeting import after_words, check_budget, default_budget
from gepa_lite.core.budget import Budget
from gepa_lite.core.events import Event
from gepa_lite.core.example import check_splits
from gepa_lite.core.feedback import Objective
from gepa_lite.core.rollout import Rollout
from gepa_lite.errors import ModelsDownError, UsageError
from gepa_lite.examples import run_examples
from gepa_lite.executors.workers import WorkersSpec, read_workers
from gepa_lite.insight.progress import CallbackObserver, Progress
from gepa_lite.lm.prices import PriceSpec, read_prices
from gepa_lite.lm.protocol import LM
from gepa_lite.lm.resolve import LMSpec, check_distinct, check_lm
from gepa_lite.origin import ORIGIN_KEY, python_origin
from gepa_lite.program.contracts import ContractSpec, run_contracts
from gepa_lite.program.optimizable import Optimizable
from gepa_lite.rollouts.judge import FeedbackFunction, Judge
from gepa_lite.run_spec import RunSpec
from gepa_lite.search.search import Search
from gepa_lite.search.verdict import mean_interval
from gepa_lite.session import InterruptedRunError, Observer, Outcome, Session, evaluate_once
from gepa_lite.ship.result import Costs, Result, make_result
from gepa_lite.starting import PromptSet, first_of, read_starts
from gepa_lite.store.asks import Asks
from gepa_lite.store.folders import find_run, run_folder
from gepa_lite.store.looks import looks_beside
from gepa_lite.store.private_store import PrivateStore, was_purged
from gepa_lite.store.run_store import RunStore
from gepa_lite.store.schema import FILE_NAME
from gepa_lite.trackers.opening import observers_of
from gepa_lite.trackers.protocol import Tracker

P = TypeVar("P")

ReflectionSpec = LMSpec | Mapping[Any, float]
"""A model, or several, by name or as objects, with their weights."""


def optimize(
    program: P | Sequence[P | PromptSet],
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
    replies_from: str | Path | None = None,
    workers: WorkersSpec = 16,
    on_event: Callable[[Event], None] | None = None,
    trackers: Sequence[str | Tracker] = (),
) -> Result[P]:
    """Improve the prompts of a program.

    Runs the program, reads what went wrong in words, rewrites one module's prompt at a time, keeps the candidates that win somewhere, and hands back prompts with
    the evidence that they are better (GEPA, arXiv 2507.19457). Everything paid for is on disk as it happens; the same call with the same ``run`` goes on where it stopped.

    Args:
        program: with the prompts to start from; it is never changed. Or a list, ``[program, other, ...]``: further starts are the same program with other prompts, texts by module path, or paths of
            bundles, registries, runs, exported Markdown folders or prompt files.
            All are run on the validation set and compete from there (``result.starts``); before and after, the test set included, compare with the first.
        trainset: examples to learn from: a list of dicts, dataclasses or pydantic models, a path to .jsonl, .json, .csv or .parquet, a data frame, a Hugging Face data set. The keys that
            ``forward`` names are inputs, the rest are labels.
        valset: examples that candidates are compared on; without it the train set is split in half, and the call says so.
        testset: sealed examples, scored once for seed and winner; without it no gain can be claimed, only ``validated only``. A share such as ``0.3`` seals that share of the valset, or of the
            trainset where there is no valset.
        curveset: examples, or a share as for ``testset``, that the search never sees: once it has ended, candidates that led in its course are scored on them (``result.curve``).
        feedback: ``feedback(example, output, trace)`` or ``feedback(example, output)``, called once per rollout; returns ``gl.Feedback(score, text)``, a number, a bool or ``(score, text)``. Without it,
            the program's own ``feedback`` method.
        reflection_lm: who rewrites; without it the program's first model. ``{"a": 0.7, "b": 0.3}`` mixes several by weight (or by ``Search(mixing="bandit")``).
        budget: upper bounds; without it rollouts for the seed's validation and 20 proposals of which 6 are accepted, and 2 USD where models have a price.
        search: the rules.
        contract: what the prompts together must keep to; or contracts by module path, in place of those of ``gl.Module(..., contract=)``, with ``"*"`` for the program's.
        prices: USD per million input and output tokens of models whose price is not known, or of your own terms: ``{"openai/my-model": (0.15, 0.60)}``.
        run: a name under ``gepa_runs/`` or a folder; an existing run is resumed. Without it a name is made.
        replies_from: another run, by name or folder: a model's reply to a request that it paid for already is taken from there, at no cost. For a run that starts again with a changed feedback
            function or other settings.
        workers: rollouts at once, in threads; ``"processes"`` or ``"processes:4"`` for programs and feedback that compute; ``gl.Workers`` also says when one that hangs is given up.
        on_event: called with every committed event; see ``gepa_lite.core.events``.
        trackers: ``"mlflow"``, ``"wandb"``, ``"opentelemetry"``, or tracker objects (``docs/trackers.md``); one that fails is left behind, and the run goes on.

    Returns:
        The result; ``print`` it. After Ctrl-C it holds the best so far and ``finished`` is False.

    Raises:
        UsageError: an argument is wrong; raised before any call is paid for.
        FeedbackError: the feedback function raised or returned no score; names the example.
        ModelsDownError: the models can't be reached; the run can be resumed.
        RunLockedError: another process works on this run.

    Example:
        >>> import gepa_lite as gl
        >>> from gepa_lite.testing import ScriptedLM
        >>> class Shout(gl.Program):
        ...     answer = gl.Module("word -> reply", "Repeat the word.")
        ...     def forward(self, word):
        ...         return self.answer(word=word)
        >>> def feedback(example, output):
        ...     return gl.Feedback(float(output.reply.isupper()), "Answer in capital letters.")
        >>> task = ScriptedLM(lambda request: "HI" if "capital" in request.messages[0]["content"] else "hi")
        >>> reflection = ScriptedLM("<prompt>Repeat the word in capital letters.</prompt>")
        >>> words = [{"word": w} for w in "red green blue white black brown pink gold".split()]
        >>> result = gl.optimize(Shout(lm=task), words[:4], words[4:], feedback=feedback, reflection_lm=reflection, run=getfixture("tmp_path"))
        >>> result.prompts["answer"], result.validation.after
        ('Repeat the word in capital letters.', 1.0)
    """
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
    observers: list[Observer] = [] if on_event is None else [CallbackObserver(on_event)]
    if os.environ.get("GEPA_LITE_PROGRESS", "1") != "0":
        observers.append(Progress(prepared.spec.search.objective))
    origin = python_origin(first_of(program)[0], feedback, reflection_lm, prepared.spec.search, workers)
    origin["starts"] = [dict(start.texts) for start in prepared.spec.starts]
    origin["contract"] = prepared.spec.contracts.by_path()
    origin["prices"] = prepared.spec.prices.prices
    donor = None if replies_from is None else find_run(replies_from)
    folder = run_folder(run, prepared.spec.program.name)
    observers += observers_of(trackers, folder, prepared.spec.search.objective)
    return execute(prepared, folder, observers, {ORIGIN_KEY: origin}, donor)


@dataclass(frozen=True)
class Prepared:
    """A checked run that has cost nothing yet.

    Attributes:
        spec: what is run.
        notices: what the call decided for the caller.
        default_budget: True where the caller gave no budget: a resumed run then keeps its own.
    """

    spec: RunSpec
    notices: tuple[str, ...]
    default_budget: bool


def prepare(
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
    workers: WorkersSpec = 16,
) -> Prepared:
    """Check everything that can be checked for free; the arguments are ``optimize``'s.

    Raises:
        UsageError: an argument is wrong.
    """
    _check_types(budget, search)
    search = search or Search()
    program, others = first_of(program)
    program = adapt(program)
    judge = Judge(program.judged_by(feedback), search.objective)
    contracts = run_contracts(program, contract, search.max_prompt_tokens)
    starts, words = read_starts(program, others, search.start, contracts)
    notices: list[str] = [*program.notices, *words]
    examples = run_examples(program, trainset, valset, testset, curveset, search, notices)
    reflectors = _reflectors(program, reflection_lm)
    spec = RunSpec(
        program,
        examples.train,
        examples.validation,
        examples.test,
        judge,
        reflectors,
        Budget() if budget is None else budget,
        search,
        read_workers(workers),
        examples.curve,
        examples.pins,
        examples.pin_ids,
        contracts,
        read_prices(prices),
        starts=starts,
    )
    check_distinct(spec.models)
    for lm in spec.models:
        check_lm(lm)
    spec.prices.check_names([lm.describe().name for lm in spec.models])
    if budget is None:
        spec = spec.with_budget(default_budget(spec))
    if spec.curve or search.shorten:
        notices.append(f"Of the budget {spec.rollouts_after} rollouts are kept for after the search: {after_words(spec)}.")
    check_budget(spec)
    return Prepared(spec, tuple(notices), budget is None)


def execute(
    prepared: Prepared, folder: Path, observers: Sequence[Observer], meta: Mapping[str, Any] | None = None, donor: Path | None = None
) -> Result[Any]:
    """Run or resume a prepared run in a folder.

    Args:
        prepared: from ``prepare``.
        folder: of the run, new or not.
        observers: who listens; they are closed at the end.
        meta: kept in the run by name, but for what an earlier session put there.
        donor: the folder of a run whose paid replies are taken where they answer a call of this one.

    Raises:
        UsageError: the folder holds a run of other settings.
        RunError: the run can't go on; what was paid is kept. ``InterruptedRunError`` after Ctrl-C before there is any result.
    """
    try:
        with ExitStack() as opened:
            replies = None if donor is None else opened.enter_context(RunStore.read(donor)).completion
            store = opened.enter_context(open_store(folder, prepared.spec))
            for key, value in (meta or {}).items():
                if store.meta(key) is None:
                    store.put_meta(key, value)
            looks = partial(looks_beside, folder, [example.id for example in prepared.spec.test])
            session = Session(prepared.spec, store, observers, prepared.default_budget, looks, replies, Asks(folder))
            for notice in prepared.notices:
                session.notice(notice)
            outcome = session.run()
    finally:
        for observer in observers:
            observer.close()
    return result_of(prepared.spec, outcome, folder)


def open_store(folder: Path, spec: RunSpec) -> RunStore:
    """The run in a folder, as its one writer; a new one where there is none. What was said is kept unless ``Search(store_messages=False)``."""
    there, withhold = (folder / FILE_NAME).exists(), not spec.search.store_messages
    kind = PrivateStore if withhold or (there and was_purged(folder)) else RunStore
    store = kind.open(folder) if there else kind.create(folder)
    if isinstance(store, PrivateStore):
        try:
            store.read_by({example.id for example in spec.train}, withhold)
        except BaseException:
            store.close()
            raise
    return store


def result_of(spec: RunSpec, outcome: Outcome, folder: Path | None) -> Result[Any]:
    """The result of a session's outcome."""
    if outcome.interrupted and not outcome.state.seed_validated:
        raise InterruptedRunError(
            "stopped before the seed's validation was complete: there is no result yet. What was paid is kept; resume it."
        )
    costs = Costs(outcome.state.spend, outcome.paid, outcome.seconds, outcome.seconds_by_role)
    return make_result(
        spec.program,
        outcome.state,
        spec.search,
        costs,
        interrupted=outcome.interrupted,
        run=folder,
        notices=outcome.notices,
    )


@dataclass(frozen=True)
class Evaluation:
    """A program's scores on a set.

    Attributes:
        mean: mean score of the examples that have one.
        low: lower end of its 95 % bootstrap interval.
        high: upper end.
        n: examples scored.
        missing: examples without a score, for reasons outside the program.
        rollouts: in the order of the examples, with output, feedback and trace.
    """

    mean: float
    low: float
    high: float
    n: int
    missing: int
    rollouts: Sequence[Rollout]

    def __str__(self) -> str:
        missing = f", {self.missing} missing" if self.missing else ""
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}] (n={self.n}{missing})"


def evaluate(
    program: Any, examples: Any, *, feedback: FeedbackFunction | None = None, objective: Objective | None = None, workers: WorkersSpec = 16
) -> Evaluation:
    """Score a program on examples, once, without a search and without a run on disk.

    Args:
        program: what to run.
        examples: as ``trainset`` of ``optimize``.
        feedback: as in ``optimize``.
        objective: direction and range of the scores.
        workers: rollouts at once, in threads; ``"processes"`` or ``"processes:4"`` for programs and feedback that compute; ``gl.Workers`` also says when one that hangs is given up.

    Raises:
        UsageError: an argument is wrong.
        FeedbackError: the feedback function raised or returned no score.
        ModelsDownError: the models can't be reached.

    Example:
        >>> import gepa_lite as gl
        >>> from gepa_lite.testing import ScriptedLM
        >>> class Echo(gl.Program):
        ...     say = gl.Module("word -> reply", "Repeat the word.")
        ...     def forward(self, word):
        ...         return self.say(word=word)
        >>> print(gl.evaluate(Echo(lm=ScriptedLM("hi")), [{"word": "hi"}, {"word": "ho"}], feedback=lambda example, output: output.reply == example["word"]))
        0.500 [0.000, 1.000] (n=2)
    """
    objective = objective or Objective()
    program = adapt(program)
    judge = Judge(program.judged_by(feedback), objective)
    rows = program.examples(examples, "examples")
    check_splits({"examples": rows})
    for lm in program.models.values():
        check_lm(lm)
    rollouts = evaluate_once(program, rows, judge, objective, read_workers(workers))
    mean, low, high, n = mean_interval([None if r.value is None else objective.score(r.value) for r in rollouts])
    if n == 0:
        failure = rollouts[0].failure
        raise ModelsDownError(f"no example could be scored: {failure.message if failure else 'unknown'}")
    return Evaluation(mean, low, high, n, len(rollouts) - n, rollouts)


def _check_types(budget: Budget | None, search: Search | None) -> None:
    for name, value, kind in (("budget", budget, Budget), ("search", search, Search)):
        if value is not None and not isinstance(value, kind):
            raise UsageError(f"{name}={value!r}: a gl.{kind.__name__}(...) is needed.")


def _reflectors(program: Optimizable, spec: ReflectionSpec | None) -> dict[str, tuple[LM, float]]:
    """The reflection models by name, with their weights."""
    if spec is None:
        lm = next(iter(program.models.values()), None)
        if lm is None:
            raise UsageError(
                f"no reflection_lm: which models {program.name} asks is its own affair, so say who rewrites: reflection_lm='openai/gpt-5'."
            )
        return {lm.describe().name: (lm, 1.0)}
    if not isinstance(spec, Mapping):
        lm = program.open(spec)
        return {lm.describe().name: (lm, 1.0)}
    weights = {
        name: weight for name, weight in spec.items() if isinstance(weight, (int, float)) and not isinstance(weight, bool) and weight > 0
    }
    if not weights or len(weights) < len(spec):
        raise UsageError(
            f"reflection_lm={dict(spec)!r}: model names with positive weights are needed, e.g. {{'openai/gpt-5': 0.3, 'openai/gpt-4.1-mini': 0.7}}."
        )
    opened = [(program.open(given), float(weight)) for given, weight in weights.items()]
    reflectors = {lm.describe().name: (lm, weight) for lm, weight in opened}
    if len(reflectors) < len(opened):
        raise UsageError(
            f"reflection_lm mixes two models of one name, among {sorted(lm.describe().name for lm, _ in opened)}: give each a name of its own."
        )
    return reflectors
