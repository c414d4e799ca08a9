"""The course of a search in expectation: what it spends on what, step by step, until a bound of the budget is reached."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gepa_lite.core.budget import Budget
from gepa_lite.forecast.reuse import Parents
from gepa_lite.run_spec import RunSpec
from gepa_lite.search.fans import Fan, fan_at

_MOST_STEPS = 5_000
"""A course that no bound ends by then is cut: its figures are lower bounds."""

_DEAREST = 1.3
"""The dearest rollout against the mean one: a step is admitted by the dearest so far."""

_PARENTS = 0.5
"""Of the accepted children, those that are drawn as parents."""

_GROWN_AFTER = 4.0
"""Accepted proposals after which prompts have their final length."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Calls, tokens and dollars in expectation; ``usd`` is None where a price is unknown."""

    calls: float = 0.0
    tokens: float = 0.0
    usd: float | None = 0.0

    def __add__(self, other: Cost) -> Cost:
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        return Cost(self.calls + other.calls, self.tokens + other.tokens, usd)

    def times(self, count: float) -> Cost:
        """So many of it."""
        return Cost(self.calls * count, self.tokens * count, None if self.usd is None else self.usd * count)


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a run fixes its course.

    Attributes:
        train: training examples.
        validation: examples that a child is validated on, pins included.
        after: rollouts kept for after the search.
        asks: texts asked for in a proposal.
        fan: proposals of a step, as in ``Search``.
        minibatch: examples of one.
        repeats: rollouts an example.
        block: examples of a staged validation's first block; None where it is always full.
        budget: the bounds.
        starts: starts that are validated before the search, the seed included.
        prompts: of the program.
        reuse: whether a candidate's rollout on a training example is paid once.
        epochs: whether no example comes twice within an epoch.
        overlap: whether a step's proposals are made beside the validation before them.
    """

    train: int
    validation: int
    after: int
    asks: int
    fan: Fan
    minibatch: int
    repeats: int
    block: int | None
    budget: Budget
    starts: int = 1
    prompts: int = 1
    reuse: bool = True
    epochs: bool = True
    overlap: bool = False

    def proposals(self, step: int) -> int:
        """Of a step."""
        return fan_at(self.fan, step, self.prompts)


@dataclass(frozen=True, slots=True)
class Case:
    """One view of what can't be known beforehand, and what things take in it.

    Attributes:
        accept: chance that a usable proposal is accepted.
        share: share of the validation set that an accepted child is run on, where validation is staged.
        skip: chance that a minibatch is perfect, so that nothing is asked.
        usable: chance that a reflection gives a usable text.
        task: one rollout's calls of the program, with the seed's prompts.
        grown: what longer prompts add to it once a few proposals are accepted.
        judge: one rollout's calls of the feedback function.
        reflection: one proposal.
        fresh: share of a child's calls that the cache does not hold, since only one of its modules is new.
        rollout_seconds: of one rollout.
        rate: rollouts in a second when all workers are busy.
        reflection_seconds: of one proposal.
        shared: whether all models run on one machine, whose cores are busy with whatever is done: then nothing is gained by doing two things at once.
    """

    accept: float
    share: float
    skip: float
    usable: float
    task: Cost
    grown: Cost
    judge: Cost
    reflection: Cost
    fresh: float
    rollout_seconds: float
    rate: float
    reflection_seconds: float
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Beside:
    """The validation that may be running beside the next step.

    Attributes:
        chance: that there is one.
        seconds: it takes alone.
        work: of them, those in which all workers are busy.
    """

    chance: float = 0.0
    seconds: float = 0.0
    work: float = 0.0


@dataclass(frozen=True, slots=True)
class Tally:
    """What a course took.

    Attributes:
        seed: rollouts of the seed's validation.
        minibatches: rollouts of parents and children on minibatches.
        parents: those of parents alone.
        children: rollouts of children on the validation set.
        after: rollouts after the search.
        proposals: texts asked of the reflection model.
        seconds: wall time.
        task: the program's calls.
        judge: the feedback function's.
        reflection: the rewriting.
        steps: taken.
        ended_by: the bound that was reached: a field of ``Budget``; "" where none was.
        pool: who may be a parent.
        beside: the validation whose seconds are not counted yet.
    """

    seed: float = 0.0
    minibatches: float = 0.0
    parents: float = 0.0
    children: float = 0.0
    after: float = 0.0
    proposals: float = 0.0
    seconds: float = 0.0
    task: Cost = Cost()
    judge: Cost = Cost()
    reflection: Cost = Cost()
    steps: int = 0
    ended_by: str = ""
    pool: Parents | None = None
    beside: Beside = Beside()

    @property
    def rollouts(self) -> float:
        """All rollouts."""
        return self.seed + self.minibatches + self.children + self.after

    @property
    def total(self) -> Cost:
        """All roles."""
        return self.task + self.judge + self.reflection

    @property
    def validation_share(self) -> float:
        """Share of the rollouts that go into validation, of seed and children."""
        return (self.seed + self.children) / self.rollouts if self.rollouts else 0.0


def shape_of(spec: RunSpec) -> Shape:
    """The shape of a prepared run."""
    search = spec.search
    return Shape(
        train=len(spec.train),
        validation=len(spec.validation) + len(spec.pins),
        after=spec.rollouts_after,
        asks=len(spec.program.parts) if search.modules == "all" else 1,
        fan=search.fan,
        minibatch=min(search.least_minibatch, len(spec.train)),
        repeats=search.repeats,
        block=search.validation_block if search.validation == "staged" else None,
        budget=spec.budget,
        starts=1 + len(spec.starts),
        prompts=len(spec.program.parts),
        reuse=search.reuse,
        epochs=search.sampling == "epoch",
        overlap=search.overlaps,
    )


def follow(shape: Shape, case: Case) -> Tally:
    """The course of a search of this shape in this case.

    Steps are taken while what is spent, a step's worst case and what is kept for after the search fit in the budget: the rule of the search itself.
    """
    tally = _seeded(shape, case)
    for _ in range(_MOST_STEPS):
        if ended := _bound(tally, shape, case):
            tally = replace(tally, ended_by=ended)
            break
        tally = _step(tally, shape, case)
    tally = replace(tally, seconds=tally.seconds + tally.beside.chance * tally.beside.seconds)
    return _ran(tally, case, shape.after, "after")


def seed_alone(shape: Shape, case: Case) -> Tally:
    """The course of a run whose seed is perfect on the whole validation set, so that there is nothing to search for."""
    return _ran(_seeded(shape, case), case, shape.after, "after")


def _seeded(shape: Shape, case: Case) -> Tally:
    """After the starts' validation."""
    tally = Tally(pool=Parents.of(shape.train, shape.minibatch, epochs=shape.epochs))
    return _ran(tally, case, shape.starts * shape.validation * shape.repeats, "seed")


def _step(tally: Tally, shape: Shape, case: Case) -> Tally:
    assert tally.pool is not None
    batch, fan, begun = shape.minibatch * shape.repeats, shape.proposals(tally.steps), tally
    new, pool = tally.pool.take(fan, tally.beside.chance if shape.overlap else 0.0)
    new = new if shape.reuse else float(fan)
    tally = _ran(tally, case, new * batch, "minibatches", chance=1 - (1 - new / fan) ** (fan * shape.minibatch))
    tally = replace(tally, steps=tally.steps + 1, parents=tally.parents + new * batch)
    slots = fan * (1 - case.skip)
    asked = slots * shape.asks
    tally = replace(
        tally,
        proposals=tally.proposals + asked,
        reflection=tally.reflection + case.reflection.times(asked),
        seconds=tally.seconds + case.reflection_seconds * shape.asks * (1 - case.skip**fan),
    )
    judged = (1 - case.skip) * case.usable
    tally = _ran(tally, case, fan * judged * batch, "minibatches", case.fresh, chance=1 - (1 - judged) ** fan)
    child = 1 - (1 - case.accept * case.usable) ** slots
    tally = replace(tally, pool=pool.join(_PARENTS * child))
    return _validated(tally, begun, child, shape, case)


def _validated(tally: Tally, begun: Tally, child: float, shape: Shape, case: Case) -> Tally:
    """With the validation of a step's child, whose chance is given; ``begun`` is the tally before the step."""
    part = float(shape.validation) if shape.block is None else max(min(shape.block, shape.validation), case.share * shape.validation)
    alone, work = _blocks(part, shape, case) * case.fresh, part * shape.repeats / case.rate * case.fresh
    drafted, before = tally.seconds - begun.seconds, begun.beside
    done = _ran(tally, case, child * part * shape.repeats, "children")
    if not shape.overlap:
        return replace(done, seconds=tally.seconds + child * alone)
    busy = drafted if case.shared else (tally.minibatches - begun.minibatches) / case.rate
    both = max(drafted, before.seconds, before.work + busy)
    seconds = begun.seconds + (1 - before.chance) * drafted + before.chance * both
    return replace(done, seconds=seconds, beside=Beside(child, alone, work))


def _blocks(part: float, shape: Shape, case: Case) -> float:
    """Seconds of a validation on so many examples: each block of a staged one waits for the one before, and is twice as large."""
    seconds, start, size = 0.0, 0, shape.block or shape.validation
    while part - start > 1e-9:
        whole = min(size, shape.validation - start)
        chance = min(1.0, (part - start) / whole)
        seconds += chance * max(case.rollout_seconds, whole * shape.repeats / case.rate)
        start, size = start + whole, 2 * size
    return seconds


def _ran(tally: Tally, case: Case, rollouts: float, purpose: str, fresh: float = 1.0, chance: float = 1.0) -> Tally:
    """The tally after so many more rollouts in expectation, where there are any with some chance."""
    # a phase of few rollouts takes at least one rollout's time
    seconds = max(case.rollout_seconds * min(chance, rollouts), rollouts / case.rate)
    return replace(
        tally,
        **{purpose: getattr(tally, purpose) + rollouts},
        task=tally.task + _rollout(tally, case).times(rollouts),
        judge=tally.judge + case.judge.times(rollouts),
        seconds=tally.seconds + seconds * fresh,
    )


def _rollout(tally: Tally, case: Case) -> Cost:
    """The program's calls in a rollout now: prompts grow with what is accepted."""
    return case.task + case.grown.times(min(1.0, tally.proposals * case.accept * case.usable / _GROWN_AFTER))


def _bound(tally: Tally, shape: Shape, case: Case) -> str:
    """The bound that refuses one more step, or ""."""
    budget = shape.budget
    fan = shape.proposals(tally.steps)
    worst = (2 * fan * shape.minibatch + shape.validation) * shape.repeats + shape.after
    # with the prompts as long as they may be at the step's end
    later = replace(tally, proposals=tally.proposals + fan * shape.asks)
    ahead = (_rollout(later, case) + case.judge).times(worst * _DEAREST) + case.reflection.times(fan * shape.asks * _DEAREST)
    ahead = ahead + tally.total
    pace = tally.seconds / tally.rollouts if tally.rollouts else 0.0
    reached = {
        "rollouts": budget.rollouts is not None and tally.rollouts + worst > budget.rollouts + 1e-9,
        "proposals": budget.proposals is not None and tally.proposals + fan * shape.asks > budget.proposals + 1e-9,
        "tokens": budget.tokens is not None and ahead.tokens > budget.tokens,
        "usd": budget.usd is not None and ahead.usd is not None and ahead.usd > budget.usd,
        "seconds": budget.seconds is not None and tally.seconds + shape.after * pace >= budget.seconds,
    }
    return next((name for name, here in reached.items() if here), "")
