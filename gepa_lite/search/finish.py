"""After the search: shorten the winner, score the sealed test set once, score the curve's milestones. Read ``finish`` from top to bottom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gepa_lite.core.candidate import Candidate
from gepa_lite.core.events import Event, MilestoneScored, SealOpened, Tested
from gepa_lite.errors import BudgetSpentError
from gepa_lite.search.ports import Ports
from gepa_lite.search.reserve import milestones_of
from gepa_lite.search.search import Search
from gepa_lite.search.shorten import Breach, next_cut, take_cut
from gepa_lite.search.state import RunState
from gepa_lite.search.trial import Trial, run_trial, spend_of
from gepa_lite.search.validate import VALIDATION_LATER
from gepa_lite.search.verdict import MISSING_SHARE
from gepa_lite.search.winner import winner_of


@dataclass(frozen=True, slots=True)
class Ending:
    """What the time after the search needs.

    Attributes:
        search: the rules.
        ports: the way to the world.
        breach: the contract that a shorter text must keep to.
        looks_elsewhere: how often other runs looked at the same test examples for other candidates than the one of this id.
        tell: says a person what they should know.
    """

    search: Search
    ports: Ports
    breach: Breach
    looks_elsewhere: Callable[[str], int]
    tell: Callable[[str], None]


def finish(state: RunState, ending: Ending) -> RunState:
    """Everything that comes after the search, each part once: a resume goes on where it stopped.

    Raises:
        RunError: the run can't go on; what was paid is kept.
    """
    if not state.seed_validated:
        return state
    state = shorten(state, ending)
    state = score_test(state, ending)
    return score_milestones(state, ending)


def shorten(state: RunState, ending: Ending) -> RunState:
    """Drop the winner's sentences that cost nothing to leave out, within ``Search.shorten`` rollouts."""
    search = ending.search
    while search.shorten and state.tested is None and (cut := next_cut(state, search)) is not None:
        try:
            event = take_cut(cut, state, search, ending.ports, ending.breach)
        except BudgetSpentError as error:
            ending.tell(f"The budget ran out within the shortening pass ({error}).")
            break
        if event is None:
            break
        state = _commit(state, event, ending)
    return state


def score_test(state: RunState, ending: Ending) -> RunState:
    """Score the sealed test set for seed and winner, once; a run that went on after that scores a new winner in one more look, which the event log keeps."""
    assert state.started is not None
    ids, winner, earlier = state.started.test_ids, winner_of(state, ending.search), state.tested
    if not ids or (earlier is not None and earlier.winner == winner.index):
        return state
    if winner.index not in state.opened:
        who = tuple(dict.fromkeys((state.pool[0].candidate.id, winner.candidate.id)))
        state = _commit(state, SealOpened(winner.index, who, ending.looks_elsewhere(winner.candidate.id)), ending)

    def score(candidate: Candidate) -> Trial:
        return run_trial(ending.ports, candidate, ids, repeats=1, sample=0, priority=(VALIDATION_LATER,))

    try:
        seed_trial = None if earlier is not None else score(state.pool[0].candidate)
        winner_trial = None if winner.index == 0 else score(winner.candidate)
    except BudgetSpentError as error:
        ending.tell(f"The budget ran out within the test set ({error}): resume with a larger one to finish it.")
        return state
    trials = [trial for trial in (seed_trial, winner_trial) if trial is not None]
    missing = sum(None in pair for pair in zip(*(trial.values for trial in trials), strict=True))
    if missing > MISSING_SHARE * len(ids):
        ending.tell(
            f"{missing} of {len(ids)} test examples have no score, for reasons outside the program: resume to finish them; what was paid is kept."
        )
        return state
    if missing:
        ending.tell(f"{missing} of {len(ids)} test examples have no score, for reasons outside the program: the verdict leaves them out.")
    if state.looks > 1:
        ending.tell(
            f"The test set was looked at {state.looks} times, by this run or others beside it: interval and p-value are held to stricter bounds."
        )
    seed_values, seed_objectives = (earlier.seed_values, earlier.seed_objectives) if earlier is not None else ((), {})
    if seed_trial is not None:
        seed_values, seed_objectives = seed_trial.values, seed_trial.objectives
    values, objectives = (seed_values, seed_objectives) if winner_trial is None else (winner_trial.values, winner_trial.objectives)
    spend = spend_of(rollout for trial in trials for rollout in trial.rollouts)
    return _commit(state, Tested(winner.index, seed_values, values, spend, seed_objectives, objectives), ending)


def score_milestones(state: RunState, ending: Ending) -> RunState:
    """Score candidates that led in the course of the search on examples that it never saw."""
    assert state.started is not None
    ids = state.started.curve_ids
    scored = {event.member for event in state.milestones}
    for index in milestones_of(state, ending.search) if ids else ():
        if index in scored:
            continue
        try:
            trial = run_trial(ending.ports, state.pool[index].candidate, ids, repeats=1, sample=0, priority=(VALIDATION_LATER,))
        except BudgetSpentError as error:
            ending.tell(f"The budget ran out within the curve's examples ({error}): resume with a larger one to finish it.")
            break
        state = _commit(state, MilestoneScored(index, trial.values, spend_of(trial.rollouts)), ending)
    return state


def _commit(state: RunState, event: Event, ending: Ending) -> RunState:
    state = state.apply(event)
    ending.ports.commit([event], state)
    return state
