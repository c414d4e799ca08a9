"""Several steps in flight: the invariants of docs/invariants.md (3, 5, 7, 8, 12) hold under every option, at any window, stopped at any event."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite import api
from gepa_lite.core.events import BudgetChanged, Event, Merged, Proposed, RunStarted, Stopped, Twin, Validated
from gepa_lite.core.rollout import Rollout
from gepa_lite.search.state import RunState, replay
from gepa_lite.session import Session
from gepa_lite.store.memory import MemoryStore
from gepa_lite.testing import ScriptedLM
from tests.test_search_run import EVERY_OPTION
from tests.triage import program, reflector, rows

CASES = [
    {**options, "window": window, "fan": options.get("fan", fan)}
    for number, options in enumerate(EVERY_OPTION)
    if "window" not in options
    for window, fan in (((1, 3), (1, 1)) if "overlap" in options else (((4, 3), (16, 1)), ((16, 3), (4, 1)), ((1, 3), (4, 8)))[number % 3])
]
"""Every option, each with two windows and fans in turn."""


class Watch:
    """Counts the rollouts that were really run."""

    def __init__(self) -> None:
        self.ran: Counter[Any] = Counter()

    def on_event(self, event: Event, state: RunState) -> None: ...
    def on_notice(self, text: str) -> None: ...
    def close(self) -> None: ...
    def on_rollout(self, rollout: Rollout, saved: bool) -> None:
        if not saved:
            self.ran[rollout.key] += 1


def run(
    options: dict[str, Any],
    *,
    budget: int = 200,
    before: Sequence[Event] = (),
    store: MemoryStore | None = None,
    test: int = 0,
    watch: Watch | None = None,
) -> list[Event]:
    """One session in memory, from a log that is there already."""
    prepared = api.prepare(
        program(),
        rows(24, 1),
        rows(16, 2),
        testset=rows(test, 3) if test else None,
        reflection_lm=reflector(),
        workers=4,
        search=gl.Search.paper(**options),
        budget=gl.Budget(rollouts=budget),
    )
    store = store or MemoryStore()
    store.commit(list(before))
    Session(prepared.spec, store, [watch] if watch else []).run()
    return store.events()


def boundaries(events: Sequence[Event]) -> list[int]:
    """Lengths of the log between two commits."""
    inner = (Proposed, Merged, Validated, Twin)
    return [
        place + 1
        for place, event in enumerate(events[:-1])
        if not isinstance(event, inner) and type(event).__name__ not in ("Vetoed", "Unjoined")
    ]


def bare(events: Sequence[Event]) -> list[Event]:
    """The log without what tells of the budget."""
    return [event for event in events if not isinstance(event, (RunStarted, Stopped, BudgetChanged))]


@pytest.mark.parametrize("options", CASES, ids=str)
def test_invariants_3_5_7_12_at_any_window(options: dict[str, Any]) -> None:
    watch = Watch()
    events = run(options, watch=watch)
    state = replay(events)
    assert state.stopped is not None
    assert state.spend.rollouts <= 200
    assert set(watch.ran.values()) == {1}
    assert state.spend.rollouts == len(watch.ran), "each rollout is run once, and charged once"
    tried = [state.pool[merge.parents[0]].candidate.replace(merge.texts).id for merge in state.merges]
    assert len(set(tried)) == len(tried) <= gl.Search().merge_attempts
    ids = [member.candidate.id for member in state.pool]
    assert len(set(ids)) == len(ids)
    draw = random.Random(str(options))
    for cut in draw.sample(boundaries(events), 2):
        assert run(options, before=events[:cut]) == events, f"stopped after {cut} events"


@pytest.mark.parametrize("options", CASES[::6], ids=str)
def test_invariant_7_stopped_at_every_event(options: dict[str, Any]) -> None:
    events = run(options, budget=150)
    for cut in boundaries(events):
        assert run(options, budget=150, before=events[:cut]) == events


@pytest.mark.parametrize("options", [options for options in CASES if not options.get("shorten")], ids=str)
def test_invariant_8_a_larger_budget_goes_on_at_any_window(options: dict[str, Any]) -> None:
    whole = run(options)
    first = run(options, budget=110)
    assert replay(first).spend.rollouts <= 110
    assert bare(run(options, before=first)) == bare(whole)


@pytest.mark.parametrize("options", [{"fan": 3, "minibatch": 20}, {"fan": 8}, {"fan": 8, "window": 4}], ids=str)
def test_invariant_5_what_two_proposals_of_a_step_need_is_charged_once(options: dict[str, Any]) -> None:
    watch = Watch()
    state = replay(run(options, budget=330, watch=watch))
    shared = Counter((proposal.step, proposal.parent, example) for proposal in state.proposals for example in proposal.example_ids)
    assert max(shared.values()) > 1 or options.get("minibatch") is None
    assert set(watch.ran.values()) == {1}
    assert state.spend.rollouts == len(watch.ran)


def test_a_text_that_is_proposed_again_is_answered_by_its_scores_and_ends_the_search() -> None:
    lm = ScriptedLM("<prompt>Nothing that helps.</prompt>", name="reflector")
    rules = gl.Search.paper(skip_perfect=False, modules="round_robin")
    prepared = api.prepare(program(), rows(24, 1), rows(16, 2), reflection_lm=lm, search=rules, budget=gl.Budget(rollouts=3_000))
    store = MemoryStore()
    state = Session(prepared.spec, store).run().state
    assert state.stopped is not None
    assert state.stopped.code == "nothing_to_learn"
    assert "tried on the same examples" in state.stopped.reason
    tried = [proposal for proposal in state.proposals if proposal.code == "tried"]
    assert all(proposal.spend.rollouts == 0 and proposal.after for proposal in tried)
    # the seed on both sets, and each of the two texts on the training set
    assert state.spend.rollouts == len(list(store.rollouts())) <= 16 + 24 + 2 * 24
