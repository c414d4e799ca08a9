"""Run a candidate on the validation set: all of it at once (the paper's), or in blocks that end early where the rest can't matter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gepa_lite.core.candidate import Candidate
from gepa_lite.core.events import Event, SeedValidated, SetAside, Validated, Vetoed
from gepa_lite.errors import BudgetSpentError, ModelsDownError, UsageError
from gepa_lite.search.charges import Uncharged
from gepa_lite.search.ports import Ports
from gepa_lite.search.search import Search
from gepa_lite.search.state import RunState
from gepa_lite.search.trial import Trial, run_trial, spend_of
from gepa_lite.search.winner import own_objectives

VALIDATION_LATER = 1
"""Priority of validation rollouts: minibatches, which proposals wait for, go first."""


def validate_seed(state: RunState, search: Search, ports: Ports) -> list[Event]:
    """Run the seed on the whole validation set and the pins; what is missing is tried once more.

    Returns:
        ``SeedValidated``; before it ``SetAside`` where a few validation examples stay missing: no more than ``Search.coverage`` allows, and no pins.

    Raises:
        UsageError: the budget can't pay for it.
        RunError: more is missing: without the seed's scores nothing can be compared.
    """
    started = state.started
    assert started is not None
    seed = Candidate(started.texts)
    try:
        trial = _tried_twice(seed, started.validation_ids, search, ports)
        pinned = _tried_twice(seed, started.extra_pin_ids, search, ports)
    except BudgetSpentError as error:
        raise UsageError(f"the budget can't pay for the seed's validation: {error}. Raise it; what was paid is kept.") from error
    absent = [example for example, value in zip(started.validation_ids, trial.values, strict=True) if value is None]
    enough = len(absent) <= (1 - search.coverage) * len(started.validation_ids) + 1e-9
    if pinned.missing or (absent and not (enough and set(absent).isdisjoint(started.pin_ids))):
        raise ModelsDownError(
            f"the seed's validation has no score for reasons outside the program: {trial.missing or pinned.missing}. Resume when they have passed"
            f"{'' if enough else ', or lower Search(coverage=) if they never will'}."
        )
    kept = trial.on(place for place, value in enumerate(trial.values) if value is not None)
    events: list[Event] = []
    if absent:
        lost = trial.on(place for place, value in enumerate(trial.values) if value is None)
        events.append(SetAside(tuple(absent), lost.first_failure, spend_of(lost.rollouts)))
        started = started.without(absent)
    idle = tuple(module for module in started.texts if module not in kept.modules)
    known = dict(zip((*started.validation_ids, *started.extra_pin_ids), (*kept.values, *pinned.values), strict=True))
    pins = tuple(known[example] for example in started.pin_ids)
    objectives = {**kept.objectives, **own_objectives(search, started.texts, kept.calls, kept.values)}
    spend = spend_of((*kept.rollouts, *pinned.rollouts))
    return [*events, SeedValidated(kept.values, idle, spend, objectives, pins, kept.calls)]


def _tried_twice(seed: Candidate, example_ids: Sequence[str], search: Search, ports: Ports) -> Trial:
    """The seed's rollouts; a few that are missing at first are run again once the others have ended, for most outages are short."""
    trial = run_trial(ports, seed, example_ids, repeats=search.repeats, sample=0, priority=(VALIDATION_LATER, -1))
    places = [place for place, value in enumerate(trial.values) if value is None]
    if not places or 2 * len(places) > len(example_ids):
        # where most are missing the models are down
        return trial
    again = run_trial(
        ports, seed, [example_ids[place] for place in places], repeats=search.repeats, sample=0, priority=(VALIDATION_LATER, -1)
    )
    return trial.replaced(places, again)


def validate(
    child: Candidate,
    step: int,
    parents: tuple[int, ...],
    texts: Mapping[str, str],
    state: RunState,
    search: Search,
    ports: Ports,
    pinned: Trial | None = None,
) -> Uncharged:
    """Run a child on the pins, and where it holds them on the validation set.

    Args:
        child: the candidate.
        step: the step's index.
        parents: indices of its parents.
        texts: the modules in which it differs from the first parent.
        state: what it is compared with.
        search: the rules.
        ports: the way to the world.
        pinned: its rollouts on the pins, where it was run on them already.
    """
    assert state.started is not None
    pinned = pinned or run_pins(child, step, state, search, ports)
    if (veto := vetoed(step, parents, texts, state, pinned)) is not None:
        return veto
    if pinned.missing:
        # an outage is no veto: the candidate stays without a validation
        return Uncharged(Validated(step, parents, texts, (None,) * len(state.started.validation_ids)), (pinned,))
    ids = state.started.validation_ids
    blocks = [ids] if search.validation == "full" else _blocks(ids, search.validation_block)
    trials: list[Trial] = []
    for block in blocks:
        trials.append(run_trial(ports, child, block, repeats=search.repeats, sample=0, priority=(VALIDATION_LATER, step)))
        done = sum(len(trial.values) for trial in trials)
        if done < len(ids) and not _may_matter(state, search, [v for trial in trials for v in trial.values]):
            break
    event = joining(Validated(step, parents, texts, ()), child, trials, state, search)
    return Uncharged(event, (pinned, *trials))


def vetoed(step: int, parents: tuple[int, ...], texts: Mapping[str, str], state: RunState, pinned: Trial) -> Uncharged | None:
    """The veto of a child by its rollouts on the pins, or None where it holds them."""
    broken = broken_pins(state, pinned)
    if not broken:
        return None
    assert state.started is not None
    pins = tuple(state.started.pin_ids[place] for place in broken)
    before, after = (tuple(row[place] for place in broken) for row in (state.pins, pinned.values))
    return Uncharged(Vetoed(step, parents, texts, pins, before, after), (pinned,))


def joining(event: Validated, child: Candidate, trials: Sequence[Trial], state: RunState, search: Search) -> Validated:
    """An event filled with what a child's rollouts on the validation set say; the cells behind them were not run."""
    assert state.started is not None
    values = [value for trial in trials for value in trial.values]
    unrun = len(state.started.validation_ids) - len(values)
    objectives = [trial.objectives for trial in trials]
    names = sorted({name for scores in objectives for name in scores})
    padding = (None,) * unrun
    joined = {
        name: (*(v for t, s in zip(trials, objectives, strict=True) for v in s.get(name, (None,) * len(t.values))), *padding)
        for name in names
    }
    cells = (*values, *padding)
    by_name = {**joined, **own_objectives(search, child.texts, state.calls, cells)}
    return replace(event, values=cells, objectives=by_name, unrun=unrun)


def run_pins(child: Candidate, step: int, state: RunState, search: Search, ports: Ports) -> Trial:
    """A child's rollouts on the pins."""
    assert state.started is not None
    return run_trial(ports, child, state.started.pin_ids, repeats=search.repeats, sample=0, priority=(VALIDATION_LATER, step))


def broken_pins(state: RunState, pinned: Trial) -> list[int]:
    """Places of the pins on which the child is below the seed."""
    pairs = enumerate(zip(state.pins, pinned.values, strict=True))
    return [place for place, (before, after) in pairs if before is not None and after is not None and after < before - 1e-12]


def _blocks(ids: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """Each twice as large as the one before: most weak candidates end in the first, and a good one, which waits for each block in turn, waits for few."""
    blocks, start = [], 0
    while start < len(ids):
        blocks.append(tuple(ids[start : start + size]))
        start, size = start + size, 2 * size
    return blocks


def _may_matter(state: RunState, search: Search, values: Sequence[float | None]) -> bool:
    """Whether a candidate may still beat the best mean or win an example alone, with at least ``Search.validation_bound`` probability."""
    if any(value is None for value in values):
        return True
    known = np.array(values, dtype=np.float64)
    best = state.table.array[state.best.index]
    tops = state.tops[0].best
    done = len(known)
    chance = _chance_to_lead(known, best, done)
    unsolved = tops < search.objective.best - 1e-12
    return bool(max(chance, _chance_to_win_alone(known, tops, unsolved, done)) >= search.validation_bound)


def _chance_to_lead(known: NDArray[np.float64], best: NDArray[np.float64], done: int) -> float:
    """Normal approximation: the rest's paired differences to the best candidate go on as those so far, with their uncertainty."""
    differences, left = known - best[:done], len(best) - done
    mean = float(differences.mean())
    # a floor for the spread: a run of equal values is no proof of no variance
    variance = max(float(differences.var()), 0.05)
    spread = math.sqrt(variance * left * (1 + left / done))
    needed = -float(differences.sum())
    return 0.5 * math.erfc((needed - mean * left) / (spread * math.sqrt(2)))


def _chance_to_win_alone(known: NDArray[np.float64], tops: NDArray[np.float64], unsolved: NDArray[np.bool_], done: int) -> float:
    """Beta-binomial: of the examples that no candidate solves fully, the share beaten so far goes on.

    What nobody solves is no easier than the rest, so the share of all examples on which the candidate reaches the best is an upper bound; the smaller chance counts.
    """
    won = int((known[unsolved[:done]] > tops[:done][unsolved[:done]] + 1e-12).sum())
    if won:
        return 1.0
    left = int(unsolved[done:].sum())
    reached = int((known >= tops[:done] - 1e-12).sum())
    return min(_chance_of_any(0, int(unsolved[:done].sum()), left), _chance_of_any(reached, done, left))


def _chance_of_any(successes: int, trials: int, left: int) -> float:
    """The chance of at least one success in ``left`` more trials, under a Beta(1/2, 1/2) prior."""
    failures = trials - successes
    return 1.0 - math.exp(sum(math.log((failures + 0.5 + i) / (trials + 1.0 + i)) for i in range(left)))
