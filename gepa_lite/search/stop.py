"""When the search ends. A step is admitted if what is committed and its own worst case fit in the budget (design decision 7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gepa_lite.core.events import Stopped
from gepa_lite.core.money import dollars
from gepa_lite.search.plan import StepPlan
from gepa_lite.search.reserve import reserved_rollouts
from gepa_lite.search.search import Search
from gepa_lite.search.state import RunState
from gepa_lite.search.stop_rules import Surroundings

UNUSABLE_IN_A_ROW = 10
"""Replies in a row without a usable prompt that end the search."""

IDLE_IN_A_ROW = 20
"""Proposals in a row that bring nothing new to try and end the search; two epochs where these are longer."""


def why_stop(state: RunState, search: Search, around: Surroundings) -> Stopped | None:
    """Why no step may be planned from a state, whatever is left of the budget, or None.

    Args:
        state: what the step would be planned from.
        search: the rules.
        around: what the rules may know of the world.
    """
    assert state.started is not None
    if state.best.mean is not None and state.best.mean >= search.objective.best:
        return Stopped("perfect", "the best candidate has the best possible score on every validation example")
    if state.unusable_row >= UNUSABLE_IN_A_ROW:
        reasons = sorted({p.reason for p in state.proposals[-UNUSABLE_IN_A_ROW:]})
        return Stopped(
            "reflection", f"the reflection model gave no usable prompt {UNUSABLE_IN_A_ROW} times in a row: {'; '.join(reasons[:3])}"
        )
    epoch = -(-len(state.started.train_ids) // search.least_minibatch)
    if state.idle_row >= max(IDLE_IN_A_ROW, 2 * epoch):
        return Stopped("nothing_to_learn", _idle_words(state))
    if around.asked:
        return Stopped("asked", around.asked)
    for rule in search.stop:
        if reason := rule(state, search.objective, around):
            return Stopped("rule", reason)
    return None


def _idle_words(state: RunState) -> str:
    codes = Counter(p.code for p in state.proposals[-state.idle_row :])
    if codes["perfect"] == state.idle_row:
        return f"the last {state.idle_row} minibatches were all perfect: the training examples teach nothing more"
    words = {
        "perfect": "perfect minibatches",
        "tried": "texts that were tried on the same examples before",
        "known": "texts of the pool",
        "no_lessons": "minibatches without a module",
        "unmoved": "trainings that changed no weight",
    }
    named = [f"{codes.pop(code)} {name}" for code, name in words.items() if codes[code]]
    rest = sum(codes.values())
    return f"the last {state.idle_row} proposals brought nothing new to try: {', '.join([*named, *([f'{rest} without a usable text'] if rest else [])])}"


def no_room(state: RunState, steps: Sequence[StepPlan], search: Search, around: Surroundings) -> Stopped | None:
    """Why what is left of the budget can't pay for steps at their worst, or None.

    Args:
        state: the newest one.
        steps: those in flight, and the one that is to be taken.
        search: the rules.
        around: tells the time.
    """
    budget, spend, costs = state.budget, state.spend, state.costs
    tests = reserved_rollouts(state, search)
    rollouts, proposals = sum(step.rollouts for step in steps), sum(step.proposals for step in steps)
    for_test = f" and {tests:,} are kept for after the search" if tests else ""
    if budget.rollouts is not None and spend.rollouts + rollouts + tests > budget.rollouts:
        left = max(0, budget.rollouts - spend.rollouts)
        return Stopped("budget", f"{left:,} of {budget.rollouts:,} rollouts are left; one more step may take {rollouts:,}{for_test}")
    if budget.proposals is not None and spend.proposals + proposals > budget.proposals:
        return Stopped("budget", f"{spend.proposals:,} of {budget.proposals:,} proposals are made")
    if budget.seconds is not None and around.elapsed + around.kept >= budget.seconds:
        kept = f" and {around.kept:,.0f} are kept for after the search" if around.kept else ""
        return Stopped("budget", f"{around.elapsed:,.0f} of {budget.seconds:,.0f} seconds are over{kept}")
    tokens = (rollouts + tests) * costs.rollout_tokens + proposals * costs.reflection_tokens
    if budget.tokens is not None and spend.tokens + tokens > budget.tokens:
        left = max(0, budget.tokens - spend.tokens)
        return Stopped("budget", f"{left:,} of {budget.tokens:,} tokens are left; one more step{for_test} may take {tokens:,.0f}")
    usd = (rollouts + tests) * costs.rollout_usd + proposals * costs.reflection_usd
    if budget.usd is not None and (spend.usd or 0.0) + usd > budget.usd:
        left_usd = max(0.0, budget.usd - (spend.usd or 0.0))
        return Stopped(
            "budget", f"{dollars(left_usd, 4)} of {dollars(budget.usd)} USD are left; one more step{for_test} may take {dollars(usd, 4)}"
        )
    return None
