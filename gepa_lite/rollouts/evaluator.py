"""Fan rollouts out over an executor; each is paid for once and on disk before it is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import Protocol

from gepa_lite.core.candidate import Candidate
from gepa_lite.core.example import Example
from gepa_lite.core.rollout import Rollout, RolloutKey
from gepa_lite.rollouts.executor import Executor, RunRollout


class RolloutStore(Protocol):
    """Where paid rollouts are kept."""

    def rollouts_at(self, keys: Sequence[RolloutKey]) -> dict[RolloutKey, Rollout]:
        """Those of some rollouts that were saved."""
        ...

    def hand_in_rollout(self, rollout: Rollout) -> Callable[[], None]:
        """Keep a scored rollout; what is returned waits until it is durable."""
        ...


class Evaluator:
    """Runs a candidate on examples.

    Args:
        runner: makes a candidate's rollout function.
        executor: runs it.
        store: rollouts found there are not run again.
        interrupted: raises when no new work may be taken.
        observe: told of each rollout and whether it was on disk already; called from worker threads.
    """

    def __init__(
        self,
        runner: Callable[[Candidate], RunRollout],
        executor: Executor,
        store: RolloutStore,
        interrupted: Callable[[], None],
        observe: Callable[[Rollout, bool], None],
    ) -> None:
        self._runner = runner
        self._executor = executor
        self._store = store
        self._interrupted = interrupted
        self._observe = observe
        self._handed_in: dict[RolloutKey, Callable[[], None]] = {}

    def run(self, candidate: Candidate, examples: Sequence[Example], *, sample: int = 0, priority: tuple[int, ...] = (0,)) -> list[Rollout]:
        """Rollouts of a candidate, in the order of the examples.

        A rollout that is missing for the world's fault is tried once more after all others are in; missing ones are returned but never saved.

        Raises:
            RunError: the run can't go on; rollouts that were running are finished and saved first.
        """
        ref = self._executor.put(candidate.id, self._keep(self._runner(candidate)))
        keys = [RolloutKey(candidate.id, example.id, sample) for example in examples]
        rollouts = self._gather(ref, list(zip(keys, examples, strict=True)), priority)
        again = [(key, example) for key, example in zip(keys, examples, strict=True) if rollouts[key].missing]
        if again:
            rollouts.update(self._gather(ref, again, priority))
        return [rollouts[key] for key in keys]

    def _gather(self, ref: str, jobs: Sequence[tuple[RolloutKey, Example]], priority: tuple[int, ...]) -> dict[RolloutKey, Rollout]:
        done = self._store.rollouts_at([key for key, _ in jobs])
        futures: dict[RolloutKey, Future[Rollout]] = {}
        for key, example in jobs:
            if key in done:
                self._observe(done[key], True)
            else:
                futures[key] = self._executor.submit(ref, example, key, priority)
        try:
            for key, future in futures.items():
                done[key] = future.result()
            for key in futures:
                self._wait_for_disk(key)
        except BaseException as error:
            for future in futures.values():
                future.cancel()
            # what runs is finished and saved; a second Ctrl-C asks not to wait even for that
            if not isinstance(error, KeyboardInterrupt):
                wait(futures.values())
            raise
        return done

    def _wait_for_disk(self, key: RolloutKey) -> None:
        handed_in = self._handed_in.get(key)
        if handed_in is not None:
            handed_in()
            # only now: who else waits for the same rollout and finds nothing here knows that it is on disk
            self._handed_in.pop(key, None)

    def _keep(self, run: RunRollout) -> RunRollout:
        def run_and_keep(example: Example, key: RolloutKey) -> Rollout:
            self._interrupted()
            rollout = run(example, key)
            if not rollout.missing:
                # the worker goes on with the next one; who asked for the rollout gets it once it is on disk
                self._handed_in[key] = self._store.hand_in_rollout(rollout)
            self._observe(rollout, False)
            return rollout

        return run_and_keep
