"""The race of several starts: all on the same validation examples at once, committed in their order."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gepa_lite.core.candidate import Candidate
from gepa_lite.core.events import Stopped, Validated
from gepa_lite.errors import BudgetSpentError, ModelsDownError
from gepa_lite.search.charges import Uncharged
from gepa_lite.search.ports import Ports
from gepa_lite.search.reserve import fits, reserved_rollouts
from gepa_lite.search.search import Search
from gepa_lite.search.state import RunState
from gepa_lite.search.trial import run_trial
from gepa_lite.search.validate import VALIDATION_LATER, joining, vetoed


def race(state: RunState, search: Search, ports: Ports) -> Iterator[Uncharged | Stopped]:
    """Run the starts that wait on the pins and the whole validation set, side by side: as many as the budget has room for at their worst.

    What one of them lost is found after those before it are handed out, so that they are kept; the rollouts of those behind it are on disk, and a resume takes them from there.

    Args:
        state: after the seed's validation; what the starts are compared with is the same for all.
        search: the rules.
        ports: the way to the world.

    Returns:
        The outcomes in the order of the starts. ``Stopped`` is the last: the budget has no room for that start.

    Raises:
        RunError: a cell is missing: starts are compared on all examples.
    """
    assert state.started is not None
    rollouts = (len(state.started.validation_ids) + len(state.started.extra_pin_ids)) * search.repeats
    reserved, waiting = reserved_rollouts(state, search), state.waiting_starts
    entered = next((n for n in range(len(waiting)) if not fits(state, (n + 1) * rollouts, reserved)), len(waiting))
    if not entered:
        yield Stopped("budget", f"no room for the {rollouts:,} rollouts that another start's validation takes")
        return
    for outcome in ports.gather([partial(_run, place, start, state, search, ports) for place, start in enumerate(waiting[:entered])]):
        missing = outcome.trials[-1].missing if isinstance(outcome, Uncharged) and isinstance(outcome.event, Validated) else None
        if missing is not None:
            raise ModelsDownError(
                f"a start's validation has no score for reasons outside the program: {missing}. Resume when they have passed."
            )
        yield outcome
        if isinstance(outcome, Stopped):
            return


def _run(place: int, start: Candidate, state: RunState, search: Search, ports: Ports) -> Uncharged | Stopped:
    """One start; where workers are few the earlier ones are served first, so that a budget that ends has paid for whole ones."""
    assert state.started is not None
    seed, priority = state.pool[0].candidate.texts, (VALIDATION_LATER, -1, place)
    texts = {module: text for module, text in start.texts.items() if text != seed[module]}
    try:
        pinned = run_trial(ports, start, state.started.pin_ids, repeats=search.repeats, sample=0, priority=priority)
        veto = vetoed(-1, (0,), texts, state, pinned)
        if veto is not None:
            return veto
        if pinned.missing:
            return Uncharged(Validated(-1, (0,), texts, (None,) * len(state.started.validation_ids)), (pinned,))
        trial = run_trial(ports, start, state.started.validation_ids, repeats=search.repeats, sample=0, priority=priority)
    except BudgetSpentError as error:
        return Stopped("budget", f"{error}, within the validation of another start")
    return Uncharged(joining(Validated(-1, (0,), texts, ()), start, [trial], state, search), (pinned, trial))
