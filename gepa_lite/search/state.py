"""The state of a search: a fold over its events. ``apply`` is pure; resume is replay (design decision 1)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gepa_lite.core.append_only import Log, Rows, Seen
from gepa_lite.core.budget import Budget, Spend
from gepa_lite.core.candidate import Candidate
from gepa_lite.core.events import (
    BudgetChanged,
    Deferred,
    Event,
    Merged,
    MilestoneScored,
    Proposed,
    RunStarted,
    SealOpened,
    SeedValidated,
    SetAside,
    Shortened,
    StepEnded,
    Stopped,
    Tested,
    Twin,
    Unjoined,
    Validated,
    Vetoed,
)
from gepa_lite.search.tops import Tops


@dataclass(frozen=True, slots=True)
class Member:
    """A candidate in the pool.

    Attributes:
        index: its place in the pool; the seed is 0.
        candidate: its texts.
        parents: indices of its parents; empty for the seed.
        step: the step that made it; -1 for the seed and for other starts, whose parent the seed is.
        mean: mean value on the validation set, None while a cell is missing: then it is neither on the front nor a parent.
        took: what its validation took beyond rollouts that were charged before: what one more call of the program costs is known from here.
        spent: the run's rollouts when it joined.
    """

    index: int
    candidate: Candidate
    parents: tuple[int, ...]
    step: int
    mean: float | None
    took: Spend = field(default_factory=Spend)
    spent: int = 0


@dataclass(frozen=True, slots=True)
class Costs:
    """The dearest rollout and reflection so far, in tokens and dollars: what the next step's worst case is reckoned from."""

    rollout_tokens: float = 0.0
    rollout_usd: float = 0.0
    reflection_tokens: float = 0.0
    reflection_usd: float = 0.0


@dataclass(frozen=True)
class RunState:
    """Everything a search decides by.

    Attributes:
        started: the run's first event, without the examples that were set aside; None before it.
        set_aside: validation examples that the seed got no score on for reasons outside the program; None for none.
        pool: the candidates, the seed first.
        table: values on the validation set, shape (candidates, examples); missing is NaN.
        objectives: further scores on the validation set by name, each a table like ``table``.
        means: shape (candidates, 1 + objectives): the mean value, and that of each objective in order of name; NaN where a cell is missing.
        tops: the leaders of each column of ``table`` and of the objectives' tables in order of name, among the candidates without a missing value.
        best_index: index of the member with the highest mean; the first of equal ones.
        pointers: for each candidate the place in ``rotation`` of the module it is improved in next.
        rotation: module paths that ran in the seed's validation, in order of declaration.
        next_step: index of the next step, deferred ones apart.
        deferred: steps whose outcome is committed later, each with the step that it follows (``core.events.Deferred``), in order of their deferral.
        spend: logical cost.
        costs: what rollouts and reflections have cost at most.
        paid_rollouts: (candidate id, example id) of rollouts already charged; those of candidates in the pool on the validation set are in ``table``.
        seen: ids of the candidates in the pool, and of those that were vetoed.
        unusable_row: proposals in a row whose reflection gave no usable text.
        idle_row: proposals in a row that brought nothing new to try: no reply to use, a candidate that is known or was run on the same examples before, or nothing to learn from.
        void_row: proposals in a row that lost a rollout or the reflection to an outage.
        proposals: all proposals so far, in order.
        merges: all merges so far, in order.
        stopped: why the search ended, None while it goes on.
        tested: the last look at the test set, None before the first.
        budget: the bounds in force.
        opened: the winners for which the test set was opened: one, but for a run that was given more budget afterwards and found another winner.
        elsewhere: looks at the same examples by other runs.
        pins: the seed's values on the pinned examples.
        calls: calls of each module in a rollout of the seed, on average.
        vetoes: children that broke a pin, in order.
        unjoined: texts that broke the program's contract together, in order.
        leads: each member that was the best when it joined, in order; the seed is the first.
        milestones: candidates scored on the curve's examples.
        shortenings: sentences that were left out after the search, in order.
    """

    started: RunStarted | None = None
    set_aside: SetAside | None = None
    pool: Log[Member] = field(default_factory=Log)
    table: Rows = field(default_factory=lambda: Rows(0))
    objectives: Mapping[str, Rows] = field(default_factory=dict)
    means: Rows = field(default_factory=lambda: Rows(1))
    tops: tuple[Tops, ...] = ()
    best_index: int = 0
    pointers: tuple[int, ...] = ()
    rotation: tuple[str, ...] = ()
    next_step: int = 0
    deferred: tuple[tuple[int, int], ...] = ()
    spend: Spend = field(default_factory=Spend)
    costs: Costs = field(default_factory=Costs)
    paid_rollouts: Seen[tuple[str, str]] = field(default_factory=Seen)
    seen: Seen[str] = field(default_factory=Seen)
    unusable_row: int = 0
    idle_row: int = 0
    void_row: int = 0
    proposals: Log[Proposed] = field(default_factory=Log)
    merges: Log[Merged] = field(default_factory=Log)
    stopped: Stopped | None = None
    tested: Tested | None = None
    budget: Budget = field(default_factory=Budget)
    opened: tuple[int, ...] = ()
    elsewhere: int = 0
    pins: tuple[float | None, ...] = ()
    calls: Mapping[str, float] = field(default_factory=dict)
    vetoes: Log[Vetoed] = field(default_factory=Log)
    unjoined: Log[Unjoined] = field(default_factory=Log)
    leads: tuple[int, ...] = ()
    milestones: Log[MilestoneScored] = field(default_factory=Log)
    shortenings: Log[Shortened] = field(default_factory=Log)

    @property
    def looks(self) -> int:
        """How often the test set was looked at, in this run and in others, for winners of any kind; at least 1."""
        return max(1, len(self.opened) + self.elsewhere)

    @property
    def seed_validated(self) -> bool:
        """Whether the seed is in the pool."""
        return len(self.pool) > 0

    @property
    def waiting_starts(self) -> tuple[Candidate, ...]:
        """The starts beside the seed that were not validated or vetoed yet, in order; none where the search may begin."""
        assert self.started is not None
        starts = (Candidate(self.started.texts).replace(start.texts) for start in self.started.starts)
        return tuple(start for start in starts if start.id not in self.seen)

    @property
    def best(self) -> Member:
        """The member with the highest mean; the first of equal ones."""
        return self.pool[self.best_index]

    def under(self, budget: Budget) -> RunState:
        """The same state under other bounds."""
        return self if self.budget == budget else self._with(budget=budget)

    def _with(self, **changes: Any) -> RunState:
        """A copy with some fields changed: ``dataclasses.replace`` at a fraction of its cost, as a state has many fields and a step several events."""
        own = self.__dict__
        fields = {name: own[name] for name in _STATE_FIELDS} | changes
        assert len(fields) == len(_STATE_FIELDS), f"a state has no field {changes.keys() - set(_STATE_FIELDS)}"
        state = object.__new__(RunState)
        state.__dict__.update(fields)
        return state

    def apply(self, event: Event) -> RunState:
        """The state after an event; this one is unchanged."""
        match event:
            case RunStarted():
                return self._with(started=event, table=Rows(len(event.validation_ids)), budget=event.budget)
            case SetAside() | SeedValidated():
                return self._after_seed(event)
            case Proposed():
                return self._after_proposal(event)
            case Merged():
                return self._after_merge(event)
            case Validated():
                parent = self.pool[event.parents[0]]
                pointer = max(self.pointers[index] for index in event.parents)
                return self._join(parent.candidate.replace(event.texts), event.parents, event.step, event, pointer)
            case Vetoed():
                return self._after_veto(event)
            case Unjoined():
                return self._with(unjoined=self.unjoined.append(event))
            case Twin():
                return self._with(spend=self.spend + event.spend, costs=self._dearer(event.spend))
            case StepEnded() | Deferred():
                return self._after_step(event)
            case Stopped():
                return self._with(stopped=event)
            case BudgetChanged():
                stopped = None if self.stopped is not None and self.stopped.code == "budget" else self.stopped
                return self._with(budget=event.budget, stopped=stopped)
            case _:
                return self._after_search(event)

    def _after_step(self, event: StepEnded | Deferred) -> RunState:
        others = tuple(entry for entry in self.deferred if entry[0] != event.step)
        # a deferred step gave its place in the order away
        next_step = self.next_step if len(others) < len(self.deferred) else event.step + 1
        return self._with(next_step=next_step, deferred=(*others, (event.step, event.behind)) if isinstance(event, Deferred) else others)

    def _after_merge(self, event: Merged) -> RunState:
        child = self.pool[event.parents[0]].candidate.replace(event.texts)
        return self._with(
            merges=self.merges.append(event),
            paid_rollouts=self.paid_rollouts.add(_ran(child.id, event.example_ids, event.after)),
            spend=self.spend + event.spend,
            costs=self._dearer(event.spend),
        )

    def _after_veto(self, event: Vetoed) -> RunState:
        child = self.pool[event.parents[0]].candidate.replace(event.texts)
        return self._with(
            vetoes=self.vetoes.append(event),
            # known, so that it is not proposed and paid for again
            seen=self.seen.add([child.id]),
            spend=self.spend + event.spend,
            costs=self._dearer(event.spend),
        )

    def _after_search(self, event: Shortened | SealOpened | Tested | MilestoneScored) -> RunState:
        match event:
            case Shortened():
                return self._after_shortening(event)
            case SealOpened():
                opened = self.opened if event.winner in self.opened else (*self.opened, event.winner)
                return self._with(opened=opened, elsewhere=max(self.elsewhere, event.elsewhere))
            case Tested():
                return self._with(tested=event, spend=self.spend + event.spend)
            case MilestoneScored():
                return self._with(milestones=self.milestones.append(event), spend=self.spend + event.spend)

    def _after_shortening(self, event: Shortened) -> RunState:
        state = self._with(shortenings=self.shortenings.append(event))
        if event.status != "dropped":
            return state._with(spend=self.spend + event.spend)
        parent = self.pool[event.parent]
        child = parent.candidate.replace(event.texts)
        joined = Validated(self.next_step, (event.parent,), event.texts, event.values, event.spend, event.objectives)
        return state._join(child, (event.parent,), self.next_step, joined, self.pointers[event.parent])

    def _after_setting_aside(self, event: SetAside) -> RunState:
        assert self.started is not None
        started = self.started.without(event.example_ids)
        spend = self.spend + event.spend
        return self._with(started=started, set_aside=event, table=Rows(len(started.validation_ids)), spend=spend)

    def _after_seed(self, event: SetAside | SeedValidated) -> RunState:
        assert self.started is not None
        if isinstance(event, SetAside):
            return self._after_setting_aside(event)
        rotation = tuple(path for path in self.started.texts if path not in event.idle_modules)
        state = self._with(rotation=rotation, pins=event.pins, calls=event.calls)
        return state._join(Candidate(self.started.texts), (), -1, event, 0)

    def _after_proposal(self, event: Proposed) -> RunState:
        parent = self.pool[event.parent]
        child_id = parent.candidate.replace(event.texts).id if event.texts else ""
        charged = [*_ran(parent.candidate.id, event.example_ids, event.before), *_ran(child_id, event.example_ids, event.after)]
        turned = [self.rotation.index(module) for module in event.modules if module in self.rotation]
        place = turned[-1] if turned else self.pointers[event.parent]
        pointers = (*self.pointers[: event.parent], (place + 1) % len(self.rotation), *self.pointers[event.parent + 1 :])
        judged = event.status == "accepted" or (event.status == "rejected" and bool(event.after))
        rejected = event.status == "rejected"
        return self._with(
            pointers=pointers,
            paid_rollouts=self.paid_rollouts.add(charged),
            # a text that is known already was a usable reply
            unusable_row=0 if judged else self.unusable_row + (rejected and not event.texts),
            idle_row=0 if judged and event.code != "tried" else self.idle_row + (rejected or event.status == "skipped"),
            void_row=self.void_row + 1 if event.status == "void" else 0,
            proposals=self.proposals.append(event),
            spend=self.spend + event.spend,
            costs=self._dearer(event.spend),
        )

    def _join(self, candidate: Candidate, parents: tuple[int, ...], step: int, event: SeedValidated | Validated, pointer: int) -> RunState:
        first, width = len(self.pool) == 0, len(event.values)
        names = sorted(event.objectives if first else self.objectives)
        empty = (None,) * width
        rows = [event.values, *(event.objectives.get(name, empty) for name in names)]
        spend = self.spend + event.spend
        member = Member(len(self.pool), candidate, parents, step, mean_of(event.values), event.spend, spend.rollouts)
        leads = first or _leads(member, self.best)
        means = [member.mean, *map(mean_of, rows[1:])]
        tables = [table.append(row) for table, row in zip(self._tables(names, width), rows, strict=True)]
        tops = (Tops.none(width),) * len(rows) if first else self.tops
        if member.mean is not None:
            tops = tuple(top.add(member.index, table.last, member.mean) for top, table in zip(tops, tables, strict=True))
        return self._with(
            pool=self.pool.append(member),
            best_index=member.index if leads else self.best_index,
            leads=(*self.leads, member.index) if leads else self.leads,
            table=tables[0],
            objectives=dict(zip(names, tables[1:], strict=True)),
            means=(Rows(len(rows)) if first else self.means).append(means),
            tops=tops,
            pointers=(*self.pointers, pointer),
            seen=self.seen.add([candidate.id]),
            spend=spend,
            costs=self._dearer(event.spend),
        )

    def _tables(self, names: Sequence[str], width: int) -> list[Rows]:
        return [self.table, *(self.objectives.get(name, Rows(width)) for name in names)]

    def _dearer(self, spend: Spend) -> Costs:
        costs = self.costs
        if spend.rollouts:
            work = spend.task + spend.judge
            costs = dataclasses.replace(
                costs,
                rollout_tokens=max(costs.rollout_tokens, work.tokens / spend.rollouts),
                rollout_usd=max(costs.rollout_usd, (work.usd or 0.0) / spend.rollouts),
            )
        if spend.reflection.calls:
            costs = dataclasses.replace(
                costs,
                reflection_tokens=max(costs.reflection_tokens, spend.reflection.tokens),
                reflection_usd=max(costs.reflection_usd, spend.reflection.usd or 0.0),
            )
        return costs


_STATE_FIELDS = tuple(item.name for item in dataclasses.fields(RunState))


def _leads(member: Member, best: Member) -> bool:
    return member.mean is not None and (best.mean is None or member.mean > best.mean)


def mean_of(values: Sequence[float | None]) -> float | None:
    """The mean, exactly rounded so that equal multisets have equal means; None if a cell is missing."""
    if not values:
        return None
    try:
        return math.fsum(values) / len(values)  # type: ignore[arg-type]  # a missing cell is told by what fsum raises, without a look at each
    except TypeError:
        if None in values:
            return None
        raise


def _ran(candidate_id: str, example_ids: Sequence[str], values: Sequence[float | None]) -> list[tuple[str, str]]:
    """The rollouts that a row of values is of."""
    return [(candidate_id, example) for example, value in zip(example_ids, values, strict=False) if value is not None]


def replay(events: Iterable[Event]) -> RunState:
    """The state after a log of events."""
    state = RunState()
    for event in events:
        state = state.apply(event)
    return state
