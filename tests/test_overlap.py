"""Proposals beside a validation (``Search.overlap``): who is their parent, and what becomes of a run that was begun under another rule for it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

import gepa_lite as gl
from gepa_lite import api
from gepa_lite.core.events import Event, Proposed, Validated
from gepa_lite.search import plan
from gepa_lite.search.state import Member, RunState, replay
from gepa_lite.session import Session
from gepa_lite.store.memory import MemoryStore
from gepa_lite.testing import ScriptedLM
from tests.test_windows import Watch, boundaries
from tests.triage import program, rows

RULES = gl.Search(fan=2, selector="pareto", proposer="rewrite")


def forgetful(request: gl.Request) -> str:
    """The reflection model: it writes down the rules that the reviews name, and forgets what was there before. So the front has several candidates."""
    text = request.messages[0]["content"]
    named = dict.fromkeys(re.findall(r"RULE:(\w+)", text))
    return "<prompt>\nDecide how urgent it is." + "".join(f" rule {kind}." for kind in named) + "\n</prompt>"


def run(store: MemoryStore, budget: int, watch: Watch | None = None) -> list[Event]:
    """One session on a store, until the budget ends it."""
    lm, bound = ScriptedLM(forgetful, name="reflector"), gl.Budget(rollouts=budget)
    prepared = api.prepare(program(), rows(24, 1), rows(16, 2), reflection_lm=lm, workers=4, search=RULES, budget=bound)
    Session(prepared.spec, store, [watch] if watch else []).run()
    return store.events()


def followers(events: Sequence[Event]) -> list[tuple[int, int]]:
    """Of each proposal beside a validation: its parent, and the candidate in validation."""
    state, found = RunState(), []
    children = {event.step: event for event in events if isinstance(event, Validated)}
    for event in events:
        if isinstance(event, Proposed) and event.step - 1 in children:
            found.append((event.parent, next(member.index for member in state.pool if member.step == event.step - 1)))
        state = state.apply(event)
    return found


def older_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan as versions did in which a child in validation took the place of its parents alone."""

    def standing_for(state: RunState, search: gl.Search, chosen: Member) -> Member:
        newest = state.pool[len(state.pool) - 1]
        waiting = search.overlaps and newest.step == state.next_step and newest.mean is None
        return newest if waiting and chosen.index in newest.parents else chosen

    monkeypatch.setattr(plan, "_standing_for", standing_for)


def test_the_child_in_validation_is_the_next_parent_whichever_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    found = followers(run(MemoryStore(), 500))
    assert len(found) > 5
    assert all(parent == child for parent, child in found)
    with monkeypatch.context() as patch:
        older_rule(patch)
        # on this task others than its parents are chosen, so the rules differ
        assert any(parent != child for parent, child in followers(run(MemoryStore(), 500)))


@pytest.mark.parametrize("share", [0.3, 0.6, 1.0])
def test_a_run_begun_under_the_older_rule_goes_on_and_pays_nothing_twice(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    before, first, store, second = MemoryStore(), Watch(), MemoryStore(), Watch()
    with monkeypatch.context() as patch:
        older_rule(patch)
        events = run(before, 300, first)
    # killed there: what was paid for the steps after the cut is on disk, and not in the log
    places = boundaries(events)
    cut = len(events) if share == 1 else places[int(len(places) * share)]
    store.commit(events[:cut])
    for rollout in before.rollouts():
        store.save_rollout(rollout)
    log = run(store, 500, second)
    assert log[:cut] == events[:cut]
    assert len(log) > cut
    assert all(parent == child for parent, child in followers(log) if child >= len(replay(events[:cut]).pool))
    assert not set(first.ran) & set(second.ran)
    assert set(second.ran.values()) == {1}
    state = replay(log)
    assert state.stopped is not None
    assert state.spend.rollouts <= 500
    # each rollout that the log speaks of is charged once
    assert state.spend.rollouts <= len(first.ran) + len(second.ran)
