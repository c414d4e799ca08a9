"""A run as it was asked for, and whether another call asks for the same one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gepa_lite.core.budget import Budget
from gepa_lite.core.candidate import Start
from gepa_lite.core.contract import Contracts
from gepa_lite.core.events import RunStarted
from gepa_lite.core.example import Example
from gepa_lite.core.ids import jsonable
from gepa_lite.errors import UsageError
from gepa_lite.executors.workers import Workers
from gepa_lite.lm.callable_lm import CallableLM
from gepa_lite.lm.prices import PriceTable
from gepa_lite.lm.protocol import LM, LMInfo
from gepa_lite.program.optimizable import Optimizable
from gepa_lite.rollouts.judge import Judge
from gepa_lite.search.fans import fan_at
from gepa_lite.search.procedure import Procedure
from gepa_lite.search.search import Search
from gepa_lite.store.protocol import Store

DEFAULT_PROPOSALS = 20
"""What the default budget pays for."""

_SAMPLED_KEY = "sampled"
"""The meta entry of a store that holds rollouts taken before its run."""


@dataclass(frozen=True)
class RunSpec:
    """What is run.

    Attributes:
        program: with the seed prompts.
        train: examples to learn from.
        validation: examples that candidates are compared on.
        test: sealed examples, scored once for seed and winner; may be empty.
        judge: the feedback function.
        reflectors: who rewrites: models and their weights, by name.
        budget: the bounds.
        search: the rules.
        workers: rollouts at once, and their engine.
        curve: examples that the search never sees, scored at milestones once it has ended; may be empty.
        pins: examples that are in no other split and on which no candidate may score less than the seed.
        pin_ids: all such examples, those of the validation set included.
        contracts: what new texts must keep to.
        prices: of models, given by hand.
        starts: texts to start from beside the program's own.
        drop_reflectors: whether a reflection model that is down is left out, so that the others go on; otherwise the run ends.
        procedure: takes the place of our own search; None for that.
    """

    program: Optimizable
    train: Sequence[Example]
    validation: Sequence[Example]
    test: Sequence[Example]
    judge: Judge
    reflectors: Mapping[str, tuple[LM, float]]
    budget: Budget
    search: Search
    workers: Workers
    curve: Sequence[Example] = ()
    pins: Sequence[Example] = ()
    pin_ids: tuple[str, ...] = ()
    contracts: Contracts = field(default_factory=Contracts)
    prices: PriceTable = field(default_factory=PriceTable)
    procedure: Procedure | None = None
    starts: tuple[Start, ...] = ()
    drop_reflectors: bool = False

    @property
    def splits(self) -> Mapping[str, Sequence[Example]]:
        """The examples by what they are for."""
        return {"train": self.train, "validation": self.validation, "test": self.test, "curve": self.curve, "pins": self.pins}

    @property
    def examples(self) -> list[Example]:
        """All examples."""
        return [example for examples in self.splits.values() for example in examples]

    @property
    def models(self) -> list[LM]:
        """The models that the program and the reflection call, each once; those that the feedback calls are not known beforehand."""
        return list({id(lm): lm for lm in (*self.program.models.values(), *(lm for lm, _ in self.reflectors.values()))}.values())

    def describe(self, lm: LM) -> LMInfo:
        """What is known of a model, prices by hand included."""
        return self.prices.describe(lm)

    def settings(self) -> Mapping[str, Any]:
        """What fixes the run's course, as JSON types; a resume must agree on it."""
        return {
            "search": self.search.fingerprint(),
            "contract": self.contracts.to_data(),
            "program": self.program.fingerprint,
            "feedback": self.judge.fingerprint,
            "task_models": {path: _model_name(lm) for path, lm in self.program.models.items()},
            "reflection_models": {name: [_model_name(lm), weight] for name, (lm, weight) in self.reflectors.items()},
            **({} if self.procedure is None else {"optimizer": dict(self.procedure.settings())}),
        }

    def conditions(self) -> Mapping[str, Any]:
        """What a rollout of given texts on a given example depends on, as JSON types."""
        settings = self.settings()
        return {**{key: settings[key] for key in ("program", "feedback", "task_models")}, "objective": jsonable(self.search.objective)}

    def with_budget(self, budget: Budget) -> RunSpec:
        """The same run under another budget."""
        return dataclasses.replace(self, budget=budget)

    def least_rollouts(self) -> int:
        """Rollouts of the smallest run that can do anything: the validation of the seed and of other starts, one accepted step, and what is kept for after the search."""
        scored = len(self.validation) + len(self.pins)
        return self.search.repeats * ((2 + len(self.starts)) * scored + self.minibatch_rollouts(self.first_fan)) + self.rollouts_after

    @property
    def first_fan(self) -> int:
        """Proposals of the first step."""
        return fan_at(self.search.fan, 0, len(self.program.parts))

    def minibatch_rollouts(self, proposals: int) -> int:
        """Rollouts on minibatches, by parent and child, of the first so many proposals."""
        return sum(2 * min(size, len(self.train)) for size in self.search.minibatch_sizes(proposals))

    @property
    def rollouts_after(self) -> int:
        """Rollouts kept for after the search: the test set for seed and winner, the curve's milestones, the shortening pass."""
        return 2 * len(self.test) + self.search.milestones * len(self.curve) + self.search.shorten

    def started(self) -> RunStarted:
        """The run's first event."""
        return RunStarted(
            self.settings(),
            self.program.prompts,
            tuple(example.id for example in self.train),
            tuple(example.id for example in self.validation),
            tuple(example.id for example in self.test),
            self.budget,
            self.pin_ids,
            tuple(example.id for example in self.curve),
            self.starts,
        )


def _model_name(lm: LM) -> str:
    info = lm.describe()
    name = f"{info.name} at {info.endpoint}" if info.endpoint else info.name
    # a function that was mended after it failed may go on with its run: saved replies are told apart by its code
    return f"{name} with settings {info.settings}" if info.settings and not isinstance(lm, CallableLM) else name


def record_samples(store: Store, spec: RunSpec) -> None:
    """Note under which conditions rollouts are taken before their run.

    Raises:
        UsageError: the store holds some of other conditions.
    """
    check_samples(store, spec)
    store.put_meta(_SAMPLED_KEY, spec.conditions())


def check_samples(store: Store, spec: RunSpec) -> None:
    """Refuse to use rollouts that were taken before the run under other conditions.

    Raises:
        UsageError: names each condition that differs.
    """
    before, now = store.meta(_SAMPLED_KEY), jsonable(spec.conditions())
    problems = [f"{key} was {_short(before.get(key))} and is {_short(now[key])}" for key in now if before and before.get(key) != now[key]]
    if problems:
        raise UsageError(f"the sample rollouts in this run's folder were taken with others: {'; '.join(problems)}. Use another run name.")


def check_same_run(before: RunStarted, now: RunStarted) -> None:
    """Refuse to resume a run under other settings.

    Raises:
        UsageError: names each setting that differs.
    """
    problems = [
        "the feedback function has changed" if key == "feedback" else f"{name} was {_short(was)} and is {_short(value)}"
        for key in now.settings
        for name, was, value in _differences(key, before.settings.get(key), now.settings.get(key))
    ]
    problems += [f"the seed prompt of {path!r} has changed" for path in now.texts if before.texts.get(path) != now.texts[path]]
    if [dict(start.texts) for start in before.starts] != [dict(start.texts) for start in now.starts]:
        problems.append(f"the starts beside the first program have changed ({len(before.starts)} then, {len(now.starts)} now)")
    for name in ("train_ids", "validation_ids", "test_ids", "pin_ids", "curve_ids"):
        if getattr(before, name) != getattr(now, name):
            problems.append(
                f"the {name.removesuffix('_ids')} set has changed ({len(getattr(before, name))} examples then, {len(getattr(now, name))} now)"
            )
    if problems:
        raise UsageError(
            f"this run was started with other settings: {'; '.join(problems)}. Restore them, or use another run name; replies_from= this run then takes its paid replies along."
        )


def _differences(name: str, was: Any, value: Any) -> list[tuple[str, Any, Any]]:
    """What differs, by name: of two tables their entries."""
    if isinstance(was, Mapping) and isinstance(value, Mapping):
        keys = dict.fromkeys([*was, *value])
        return [(f"{name}.{key}", was.get(key), value.get(key)) for key in keys if was.get(key) != value.get(key)]
    return [] if was == value else [(name, was, value)]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:197] + "..."
