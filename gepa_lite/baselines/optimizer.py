"""One protocol for every optimizer: a program and data go in, a ``Result`` with a verdict comes out."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from gepa_lite.api import Prepared, ReflectionSpec, execute, prepare
from gepa_lite.baselines.demonstrations import FewShot
from gepa_lite.baselines.grpo.procedure import GRPO
from gepa_lite.baselines.grpo.settings import Training
from gepa_lite.baselines.guest import KINDS, Guest
from gepa_lite.baselines.rewriting import BestOfN, RandomRewrite
from gepa_lite.baselines.upstream import UpstreamGepa
from gepa_lite.core.budget import Budget
from gepa_lite.core.events import Event
from gepa_lite.errors import UsageError
from gepa_lite.insight.progress import CallbackObserver, Progress
from gepa_lite.rollouts.judge import FeedbackFunction
from gepa_lite.run_spec import RunSpec
from gepa_lite.search.procedure import Procedure
from gepa_lite.search.search import Search
from gepa_lite.session import Observer
from gepa_lite.ship.result import Result
from gepa_lite.store.folders import run_folder


@runtime_checkable
class Fitting(Protocol):
    """A procedure that must know the run beside its course, or changes more than prompts: it takes a run before it starts."""

    def fit(self, spec: RunSpec, folder: Path) -> RunSpec:
        """The run as this procedure takes it, in the folder where it is kept; itself or what stands for it is its procedure.

        Raises:
            UsageError: it can't take it.
        """
        ...


@dataclass(frozen=True)
class Optimizer:
    """A way to improve prompts, by name: called as ``gl.optimize`` is, with a seed in place of search rules.

    The baselines run within our own run: the same ledger and cache, budget, store, events, sealed test set, verdict and report; a call with the same ``run`` goes on where it stopped.

    >>> from gepa_lite.baselines import optimizer
    >>> optimizer("best_of_n").name
    'best_of_n'

    Attributes:
        name: how it is named in tables.
        search: the rules, but for the seed; of a baseline those that its rollouts and its ending keep to.
        procedure: in place of our search; None for that.
    """

    name: str
    search: Search = field(default_factory=Search)
    procedure: Procedure | None = None

    def __call__(
        self,
        program: Any,
        trainset: Any,
        valset: Any = None,
        *,
        testset: Any = None,
        feedback: FeedbackFunction | None = None,
        reflection_lm: ReflectionSpec | None = None,
        budget: Budget | None = None,
        seed: int = 0,
        **options: Any,
    ) -> Result[Any]:
        """Optimize a program.

        Args:
            program: as in ``gl.optimize``, like all arguments that are not named here.
            trainset: likewise.
            valset: likewise.
            testset: likewise.
            feedback: likewise.
            reflection_lm: likewise; baselines ask the first of several.
            budget: likewise.
            seed: of every random draw.
            options: ``objective`` (direction and range of the scores), ``run``, ``workers``, ``contract``, ``prices``, ``curveset`` and ``on_event``, as in ``gl.optimize``.

        Raises:
            UsageError: an argument is wrong.
            RunError: the run can't go on; what was paid is kept.
        """
        run, on_event, objective = (options.pop(name, None) for name in ("run", "on_event", "objective"))
        search = dataclasses.replace(self.search, seed=seed, objective=objective or self.search.objective)
        given = {"testset": testset, "feedback": feedback, "reflection_lm": reflection_lm, "budget": budget}
        prepared = prepare(program, trainset, valset, search=search, **given, **options)
        if prepared.spec.starts:
            raise UsageError("a comparison has one start for all optimizers: give one program, and no Search(start=).")
        return self.run(prepared, run, on_event)

    def run(self, prepared: Prepared, run: str | Path | None = None, on_event: Callable[[Event], None] | None = None) -> Result[Any]:
        """Run or resume what ``prepare`` checked."""
        self.check()
        folder = run_folder(run, f"{prepared.spec.program.name}-{self.name}")
        spec = dataclasses.replace(prepared.spec, procedure=self.procedure)
        prepared = dataclasses.replace(prepared, spec=self.procedure.fit(spec, folder) if isinstance(self.procedure, Fitting) else spec)
        observers: list[Observer] = [] if on_event is None else [CallbackObserver(on_event)]
        if os.environ.get("GEPA_LITE_PROGRESS", "1") != "0":
            observers.append(Progress(prepared.spec.search.objective))
        return execute(prepared, folder, observers, {"optimizer": self.name})

    def check(self) -> None:
        """Find out whether it can run here, before anything is paid for.

        Raises:
            UsageError: a package is not installed; says how to install it.
        """
        if self.procedure is not None:
            self.procedure.settings()


def fitted(each: Optimizer, prepared: Prepared, seed: int) -> Prepared:
    """A checked run as an optimizer takes it: our own search keeps the rules it was checked with, others take the objective alone."""
    rules = prepared.spec.search if each.name == "gepa_lite" else dataclasses.replace(each.search, objective=prepared.spec.search.objective)
    return dataclasses.replace(prepared, spec=dataclasses.replace(prepared.spec, search=dataclasses.replace(rules, seed=seed)))


def _of_search(**rules: Any) -> Callable[..., Optimizer]:
    def make(name: str, **changes: Any) -> Optimizer:
        return Optimizer(name, Search(**{**rules, **changes}))

    return make


def _of_paper(name: str, **changes: Any) -> Optimizer:
    return Optimizer(name, Search.paper(**changes))


def _of_guest(kind: str) -> Callable[..., Optimizer]:
    def make(name: str, *, python: str | Path | None = None, **options: Any) -> Optimizer:
        return Optimizer(name, Search.paper(guard="off"), Guest(kind, options, python))

    return make


def _of_procedure(kind: Callable[..., Procedure], **rules: Any) -> Callable[..., Optimizer]:
    def make(name: str, **settings: Any) -> Optimizer:
        return Optimizer(name, Search.paper(**rules), kind(**settings))

    return make


def _of_training(prompt_steps: int, cycles: int, preset: Callable[..., Training] = Training) -> Callable[..., Optimizer]:
    def make(name: str, **settings: Any) -> Optimizer:
        own = {key: settings.pop(key, default) for key, default in (("prompt_steps", prompt_steps), ("cycles", cycles))}
        return Optimizer(name, Search.paper(guard="reject" if own["prompt_steps"] else "off"), GRPO(preset(**settings), **own))

    return make


_CATALOGUE: Mapping[str, Callable[..., Optimizer]] = {
    "gepa_lite": _of_search(),
    "gepa_lite_paper": _of_paper,
    "best_of_n": _of_procedure(BestOfN),
    "random_rewrite": _of_procedure(RandomRewrite),
    "few_shot": _of_procedure(FewShot, guard="off"),
    "grpo": _of_training(0, 1),
    "grpo_paper": _of_training(0, 1, Training.paper),
    "prompts_then_grpo": _of_training(10, 1),
    "prompts_and_grpo": _of_training(5, 3),
    "gepa": _of_procedure(UpstreamGepa, guard="off"),
    **{kind: _of_guest(kind) for kind in KINDS},
}
OPTIMIZERS = tuple(_CATALOGUE)
"""Names that ``optimizer`` knows."""


def optimizer(name: str, label: str | None = None, **settings: Any) -> Optimizer:
    """An optimizer by name.

    Args:
        name: one of ``OPTIMIZERS``: ``"gepa_lite"`` (our defaults) and ``"gepa_lite_paper"`` (the paper's rules), ``"best_of_n"``, ``"random_rewrite"``, ``"few_shot"``, those that
            train weights: ``"grpo"``, ``"grpo_paper"``, ``"prompts_then_grpo"``, ``"prompts_and_grpo"``, and those of other packages: ``"gepa"``, ``"dspy_gepa"``, ``"dspy_miprov2"``, ``"textgrad"``, ``"trace"``.
        label: its name in tables, where two of one kind are compared.
        settings: fields of ``gl.Search`` for the first two; ``n`` for the rewriting ones; ``demonstrations``, ``candidates`` and ``bootstrap`` for ``few_shot``; ``options`` for ``gepa``; ``python``
            (an interpreter that has the package) and the package's own arguments for those of other packages; fields of ``baselines.grpo.settings.Training`` for those that train, with
            ``prompt_steps`` and ``cycles``.

    Raises:
        UsageError: an unknown name, with near matches, or an unknown setting.
    """
    import difflib

    if name not in _CATALOGUE:
        near = difflib.get_close_matches(name, OPTIMIZERS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UsageError(f"there is no optimizer {name!r}; there are {', '.join(OPTIMIZERS)}.{hint}")
    try:
        return _CATALOGUE[name](label or name, **settings)
    except TypeError as error:
        raise UsageError(f"the optimizer {name!r} takes no such setting: {error}") from error
