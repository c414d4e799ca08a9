"""Fan rollouts out over an executor; each is paid for once and on disk before it is used."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
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
        self._in_flight: dict[RolloutKey, Future[dict[RolloutKey, Rollout]]] = {}
        self._lock = threading.Lock()

    def run(
        self, candidate: Candidate, examples: Sequence[Example], *, samples: Sequence[int] = (0,), priority: tuple[int, ...] = (0,)
    ) -> list[list[Rollout]]:
        """For each sample number a candidate's rollouts, in the order of the examples; all at once.

        A rollout that another thread is waiting for is waited for, not run again. One that is missing for the world's fault is tried once more after all others are in; missing ones are
        returned but never saved.

        Raises:
            RunError: the run can't go on; rollouts that were running are finished and saved first.
        """
        ref = self._executor.put(candidate.id, self._allowed(self._runner(candidate)), self._keep)
        rows = [[RolloutKey(candidate.id, example.id, sample) for example in examples] for sample in samples]
        jobs = {key: example for row in rows for key, example in zip(row, examples, strict=True)}
        rollouts = self._gather(ref, jobs, priority)
        again = {key: example for key, example in jobs.items() if rollouts[key].missing}
        if again:
            # a dictionary of its own: others that wait for these rollouts read the first one
            rollouts = {**rollouts, **self._gather(ref, again, priority)}
        return [[rollouts[key] for key in row] for row in rows]

    def _gather(self, ref: str, jobs: Mapping[RolloutKey, Example], priority: tuple[int, ...]) -> dict[RolloutKey, Rollout]:
        # one future for all: whoever needs one of them gets it once they are all on disk
        batch: Future[dict[RolloutKey, Rollout]] = Future()
        others: dict[RolloutKey, Future[dict[RolloutKey, Rollout]]] = {}
        with self._lock:
            for key in jobs:
                running = self._in_flight.setdefault(key, batch)
                if running is not batch:
                    others[key] = running
        mine = {key: example for key, example in jobs.items() if key not in others} if others else jobs
        try:
            done = self._run_mine(ref, mine, priority)
            batch.set_result(done)
        except BaseException as error:
            batch.set_exception(error)
            raise
        finally:
            with self._lock:
                for key in mine:
                    del self._in_flight[key]
        if not others:
            return done
        found = dict(done)
        # those of others last, so that two that wait for each other's both get them
        for key, running in others.items():
            found[key] = running.result()[key]
            self._observe(found[key], True)
        return found

    def _run_mine(self, ref: str, jobs: Mapping[RolloutKey, Example], priority: tuple[int, ...]) -> dict[RolloutKey, Rollout]:
        """Those on disk, and the others run and on disk."""
        done = self._store.rollouts_at(list(jobs))
        futures: dict[RolloutKey, Future[Rollout]] = {}
        for key, example in jobs.items():
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

    def _allowed(self, run: RunRollout) -> RunRollout:
        def run_if_allowed(example: Example, key: RolloutKey) -> Rollout:
            self._interrupted()
            return run(example, key)

        return run_if_allowed

    def _keep(self, rollout: Rollout) -> None:
        if not rollout.missing:
            # the worker goes on with the next one; who asked for the rollout gets it once it is on disk
            self._handed_in[rollout.key] = self._store.hand_in_rollout(rollout)
        self._observe(rollout, False)
