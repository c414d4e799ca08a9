"""Rollouts fan out, and none is handed back before it is on disk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from gepa_lite.core.candidate import Candidate
from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback
from gepa_lite.core.rollout import Rollout, RolloutKey
from gepa_lite.errors import StoreError
from gepa_lite.executors.threads import ThreadExecutor
from gepa_lite.rollouts.evaluator import Evaluator, RolloutStore
from gepa_lite.store.run_store import RunStore

EXAMPLES = [Example(f"e{number}", {"n": number}, {}) for number in range(40)]
SEED = Candidate({"a": "text"})


def run_one(example: Example, key: RolloutKey) -> Rollout:
    return Rollout(key, 1.0, Feedback(1.0))


def evaluate(store: RolloutStore, examples: Sequence[Example], run: Callable[[Example, RolloutKey], Rollout] = run_one) -> list[Rollout]:
    executor = ThreadExecutor(1)
    try:
        return Evaluator(lambda candidate: run, executor, store, lambda: None, lambda rollout, saved: None).run(SEED, examples)[0]
    finally:
        executor.close()


class HandedIn:
    """A store that is handed rollouts; each wait for the disk does what it was given to do."""

    def __init__(self, waits: Callable[[], None]) -> None:
        self.count = 0
        self._waits = waits

    def rollouts_at(self, keys: Sequence[RolloutKey]) -> dict[RolloutKey, Rollout]:
        return {}

    def hand_in_rollout(self, rollout: Rollout) -> Callable[[], None]:
        self.count += 1
        return self._waits


def test_what_was_evaluated_is_on_disk_and_is_not_run_again(tmp_path: Path) -> None:
    ran: list[str] = []

    def run(example: Example, key: RolloutKey) -> Rollout:
        ran.append(example.id)
        return run_one(example, key)

    with RunStore.create(tmp_path / "run") as store:
        first = evaluate(store, EXAMPLES[:30], run)
        with RunStore.read(tmp_path / "run") as other:
            assert sorted(rollout.key.example_id for rollout in other.rollouts()) == sorted(example.id for example in EXAMPLES[:30])
        both = evaluate(store, EXAMPLES, run)
    assert both[:30] == first
    assert [rollout.key.example_id for rollout in both] == [example.id for example in EXAMPLES]
    assert sorted(ran) == sorted(example.id for example in EXAMPLES)


def test_a_worker_goes_on_while_the_disk_is_busy() -> None:
    all_in = threading.Event()

    def wait() -> None:
        assert all_in.wait(10), "the one worker waited for the disk"

    store = HandedIn(wait)

    def run(example: Example, key: RolloutKey) -> Rollout:
        if example is EXAMPLES[-1]:
            all_in.set()
        return run_one(example, key)

    assert len(evaluate(store, EXAMPLES, run)) == store.count == len(EXAMPLES)


def test_a_rollout_that_the_disk_refuses_is_not_handed_back() -> None:
    def refuse() -> None:
        raise StoreError("the disk is full")

    with pytest.raises(StoreError, match="disk is full"):
        evaluate(HandedIn(refuse), EXAMPLES[:3])


def test_a_missing_rollout_is_tried_once_more_and_never_handed_in() -> None:
    store = HandedIn(lambda: None)
    tries: list[str] = []

    def run(example: Example, key: RolloutKey) -> Rollout:
        tries.append(example.id)
        return Rollout(key, None, None) if example is EXAMPLES[0] else run_one(example, key)

    rollouts = evaluate(store, EXAMPLES[:3], run)
    assert [rollout.missing for rollout in rollouts] == [True, False, False]
    assert tries == ["e0", "e1", "e2", "e0"]
    assert store.count == 2


def test_a_second_try_leaves_what_others_wait_for_as_it_was() -> None:
    handed: list[dict[RolloutKey, Rollout]] = []

    class Watched(Evaluator):
        def _gather(self, ref: str, jobs: Mapping[RolloutKey, Example], priority: tuple[int, ...]) -> dict[RolloutKey, Rollout]:
            handed.append(super()._gather(ref, jobs, priority))
            return handed[-1]

    def run(example: Example, key: RolloutKey) -> Rollout:
        return run_one(example, key) if handed else Rollout(key, None, None)

    executor = ThreadExecutor(1)
    try:
        evaluator = Watched(lambda candidate: run, executor, HandedIn(lambda: None), lambda: None, lambda rollout, saved: None)
        rollouts = evaluator.run(SEED, EXAMPLES[:2])[0]
    finally:
        executor.close()
    assert [rollout.missing for rollout in rollouts] == [False, False]
    assert [[rollout.missing for rollout in each.values()] for each in handed] == [[True, True], [False, False]]
