"""The events of a run: a closed union. The state is a fold over them; nothing else changes it (design decision 1).

Events hold decisions and logical cost only. Timestamps, latencies, retries and cache hits are observations, kept beside the log and outside its equality.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gepa_lite.core.budget import Budget, Spend
from gepa_lite.core.candidate import Start
from gepa_lite.core.closing_events import MilestoneScored, SealOpened, Shortened, Tested
from gepa_lite.core.finding import Finding

__all__ = [
    "EVENT_TYPES",
    "BudgetChanged",
    "Deferred",
    "Event",
    "Merged",
    "MilestoneScored",
    "ProposalStatus",
    "Proposed",
    "RunStarted",
    "SealOpened",
    "SeedValidated",
    "SetAside",
    "Shortened",
    "StepEnded",
    "Stopped",
    "Tested",
    "Twin",
    "Unjoined",
    "Validated",
    "Vetoed",
]

ProposalStatus = Literal["accepted", "rejected", "skipped", "void"]


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The first event.

    Attributes:
        settings: what fixes the run's course (search rules, models, data and program fingerprints), as JSON types; a resume that differs is refused.
        texts: the seed candidate.
        train_ids: example ids in the order given.
        validation_ids: likewise: the columns of the score table.
        test_ids: likewise; empty without a test set.
        budget: the bounds.
        pin_ids: examples on which no candidate may score less than the seed.
        curve_ids: examples that the search never sees, scored at milestones once it has ended.
        starts: texts to start from beside the seed: each is validated right after it, as a child of the seed by step -1.
    """

    settings: Mapping[str, Any]
    texts: Mapping[str, str]
    train_ids: tuple[str, ...]
    validation_ids: tuple[str, ...]
    test_ids: tuple[str, ...]
    budget: Budget
    pin_ids: tuple[str, ...] = ()
    curve_ids: tuple[str, ...] = ()
    starts: tuple[Start, ...] = ()

    @property
    def extra_pin_ids(self) -> tuple[str, ...]:
        """The pins that are not validation examples: they take rollouts of their own."""
        known = set(self.validation_ids)
        return tuple(example for example in self.pin_ids if example not in known)

    def without(self, example_ids: Collection[str]) -> RunStarted:
        """The same start with these validation examples left out."""
        return replace(self, validation_ids=tuple(example for example in self.validation_ids if example not in example_ids))


@dataclass(frozen=True, slots=True)
class SetAside:
    """Validation examples that the seed got no score on, tried twice, for reasons outside the program: they leave the validation set of this run.

    Attributes:
        example_ids: in the order of ``RunStarted.validation_ids``.
        reason: the first failure, in words.
        spend: logical cost of their rollouts.
    """

    example_ids: tuple[str, ...]
    reason: str
    spend: Spend = field(default_factory=Spend)

    @property
    def words(self) -> str:
        """What was set aside and why, for a person."""
        named = ", ".join(self.example_ids[:5]) + (", ..." if len(self.example_ids) > 5 else "")
        count = len(self.example_ids)
        return f"{count} validation {'example is' if count == 1 else 'examples are'} set aside and counted nowhere ({named}): the seed got no score in two tries. {self.reason}"


@dataclass(frozen=True, slots=True)
class SeedValidated:
    """The seed candidate was run on the whole validation set.

    Attributes:
        values: by position of ``validation_ids``, without those that were set aside; higher is better; None is missing.
        idle_modules: modules that ran in no rollout: they leave the rotation.
        spend: logical cost.
        objectives: further scores by name, by position of ``validation_ids``; higher is better.
        pins: values by position of ``RunStarted.pin_ids``.
        calls: calls of each module in a rollout, on average: what the length of its prompt is weighed by.
    """

    values: tuple[float | None, ...]
    idle_modules: tuple[str, ...] = ()
    spend: Spend = field(default_factory=Spend)
    objectives: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    pins: tuple[float | None, ...] = ()
    calls: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Proposed:
    """One proposal: a parent was run on a minibatch, one of its modules (or all) reflected upon, and the new text judged on the same minibatch.

    Attributes:
        step: index of the step, from 0.
        slot: index within the step's fan.
        parent: index of the parent in the pool.
        modules: paths of the modules that were to be rewritten.
        example_ids: the minibatch.
        before: the parent's values on it.
        status: accepted, rejected, skipped (nothing to learn) or void (a missing cell).
        reason: why, in words; for a person and the report.
        code: a short stable word for the reason, e.g. ``"improved"``, ``"not_better"``, ``"perfect"``, ``"empty"``.
        texts: the proposed texts by module; empty where there was none.
        after: the child's values on the minibatch; empty where it was not run.
        model: the reflection model that was asked, or "".
        proposer: ``"rewrite"`` or ``"edit"``.
        shown: what the reflection prompt was cut to: examples shown and dropped, values shortened, estimated tokens.
        spend: logical cost.
        findings: what the contract and the leak guard found in proposed texts, also in one that was written once more.
    """

    step: int
    slot: int
    parent: int
    modules: tuple[str, ...]
    example_ids: tuple[str, ...]
    before: tuple[float | None, ...]
    status: ProposalStatus
    code: str
    reason: str
    texts: Mapping[str, str] = field(default_factory=dict)
    after: tuple[float | None, ...] = ()
    model: str = ""
    proposer: str = "rewrite"
    shown: Mapping[str, int] = field(default_factory=dict)
    spend: Spend = field(default_factory=Spend)
    findings: tuple[Finding, ...] = ()

    @property
    def module(self) -> str:
        """The modules in words."""
        return " + ".join(self.modules)

    @property
    def gain(self) -> float:
        """How much the child's sum of values is above the parent's, on the cells that both have."""
        return sum(a - b for a, b in zip(self.after, self.before, strict=False) if a is not None and b is not None)


@dataclass(frozen=True, slots=True)
class Merged:
    """Two candidates were joined, module by module, and the child tried on a few validation examples.

    Attributes:
        step: index of the step.
        parents: indices in the pool, the older first.
        ancestor: index of the common ancestor.
        sources: for each module the index of the candidate that its text was taken from.
        texts: the modules in which the child differs from the first parent.
        example_ids: validation examples it was tried on.
        before: both parents' values on them.
        status: accepted, rejected or void (a missing cell).
        code: a short stable word for the reason.
        reason: why, in words.
        after: the child's values.
        spend: logical cost.
    """

    step: int
    parents: tuple[int, ...]
    ancestor: int
    sources: Mapping[str, int]
    texts: Mapping[str, str]
    example_ids: tuple[str, ...]
    before: tuple[tuple[float, ...], ...]
    status: ProposalStatus
    code: str
    reason: str
    after: tuple[float | None, ...] = ()
    spend: Spend = field(default_factory=Spend)


@dataclass(frozen=True, slots=True)
class Validated:
    """A child was run on the whole validation set and joins the pool.

    Attributes:
        step: index of the step.
        parents: indices in the pool.
        texts: the modules it changed, with their new texts.
        values: by position of ``validation_ids``; None is missing: with any missing cell it is neither on the front nor a parent.
        spend: logical cost.
        objectives: further scores by name, by position of ``validation_ids``; higher is better.
        unrun: cells that a staged validation did not run, since the candidate's chance had become too small; they are None in ``values``, and no outage.
    """

    step: int
    parents: tuple[int, ...]
    texts: Mapping[str, str]
    values: tuple[float | None, ...]
    spend: Spend = field(default_factory=Spend)
    objectives: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    unrun: int = 0


@dataclass(frozen=True, slots=True)
class Vetoed:
    """A child scored less than the seed on a pinned example: it is not validated and does not join the pool.

    Attributes:
        step: index of the step.
        parents: indices in the pool.
        texts: the modules it changed, with their new texts.
        pin_ids: the pins that broke.
        before: the seed's values on them.
        after: the child's.
        spend: logical cost.
    """

    step: int
    parents: tuple[int, ...]
    texts: Mapping[str, str]
    pin_ids: tuple[str, ...]
    before: tuple[float | None, ...]
    after: tuple[float | None, ...]
    spend: Spend = field(default_factory=Spend)


@dataclass(frozen=True, slots=True)
class Unjoined:
    """The best accepted texts of a step's modules break the program's contract together: the best of them alone is validated.

    Attributes:
        step: index of the step.
        parents: index of the parent in the pool.
        texts: by module.
        reason: what they break, in words.
    """

    step: int
    parents: tuple[int, ...]
    texts: Mapping[str, str]
    reason: str


@dataclass(frozen=True, slots=True)
class Twin:
    """A step in flight at the same time had made the same child: it is in the pool already, or was vetoed, and nothing else becomes of this one.

    Attributes:
        step: index of the step.
        parents: indices in the pool.
        texts: the modules in which it differs from the first parent.
        spend: logical cost: of rollouts that the other step did not run.
    """

    step: int
    parents: tuple[int, ...]
    texts: Mapping[str, str]
    spend: Spend = field(default_factory=Spend)


@dataclass(frozen=True, slots=True)
class Deferred:
    """A step took longer than the steps behind it may wait for (``Search.patience``): they go on, and it is committed later. Its place in the window is free.

    Attributes:
        step: index of the step.
        behind: the step that it is committed right after; where that one is deferred too, right before the one after it.
    """

    step: int
    behind: int


@dataclass(frozen=True, slots=True)
class StepEnded:
    """A step's last event: its outcome is committed and the next step may see it."""

    step: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """The search ended.

    Attributes:
        code: ``"budget"``, ``"perfect"``, ``"no_modules"``, ...
        reason: in words.
    """

    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class BudgetChanged:
    """A resume brought another budget; a search that had ended for its budget goes on."""

    budget: Budget


Event = (
    RunStarted
    | SetAside
    | SeedValidated
    | Proposed
    | Merged
    | Validated
    | Vetoed
    | Unjoined
    | Twin
    | Deferred
    | StepEnded
    | Stopped
    | BudgetChanged
    | Shortened
    | SealOpened
    | Tested
    | MilestoneScored
)
EVENT_TYPES: tuple[type[Event], ...] = (
    RunStarted,
    SetAside,
    SeedValidated,
    Proposed,
    Merged,
    Validated,
    Vetoed,
    Unjoined,
    Twin,
    Deferred,
    StepEnded,
    Stopped,
    BudgetChanged,
    Shortened,
    SealOpened,
    Tested,
    MilestoneScored,
)
