"""The parts that run rollouts and call models: one ledger, one cache, one breaker, one pool of workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gepa_lite.core.budget import Budget
from gepa_lite.core.candidate import Candidate
from gepa_lite.core.example import Example
from gepa_lite.core.rollout import Rollout
from gepa_lite.executors.processes import WorkerProcesses
from gepa_lite.executors.threads import ThreadExecutor
from gepa_lite.lm.breaker import Breaker
from gepa_lite.lm.client import ModelClient
from gepa_lite.lm.meter import Meter
from gepa_lite.lm.protocol import Completion
from gepa_lite.rollouts.evaluator import Evaluator
from gepa_lite.rollouts.executor import RunRollout
from gepa_lite.rollouts.rollout import RolloutRunner
from gepa_lite.run_spec import RunSpec
from gepa_lite.store.protocol import Store


class Engine:
    """Runs candidates on examples and calls models, within a budget.

    Args:
        spec: program, judge, scores, prices and workers.
        store: where what is paid for is kept.
        budget: the bounds in force; tokens and dollars are held here.
        allowed: raises where no new work may be taken.
        observe: told of each rollout and whether it was on disk; called from worker threads.
        earlier: a model's reply that another run paid for, by its key, or None.
    """

    def __init__(
        self,
        spec: RunSpec,
        store: Store,
        budget: Budget,
        allowed: Callable[[], None],
        observe: Callable[[Rollout, bool], None],
        earlier: Callable[[str], Completion | None] | None = None,
    ) -> None:
        self._spec = spec
        self.meter = Meter(budget, store.paid().total)
        names = {spec.describe(lm).name for lm, _ in spec.reflectors.values()} if spec.drop_reflectors else ()
        self.client = ModelClient(store, self.meter, Breaker(names), allowed, spec.prices, earlier)
        workers = spec.workers
        processes = workers.engine == "processes"
        # processes are ended by their own watch
        self._executor = ThreadExecutor(workers.count, None if processes else workers.timeout)
        self._processes = WorkerProcesses(workers.count, workers.timeout) if processes else None
        self._evaluator = Evaluator(self._runner, self._executor, store, allowed, observe)

    def evaluate(
        self, candidate: Candidate, examples: Sequence[Example], *, samples: Sequence[int] = (0,), priority: tuple[int, ...] = (0,)
    ) -> list[list[Rollout]]:
        """For each sample number the rollouts in the order of the examples; those on disk are not paid again."""
        return self._evaluator.run(candidate, examples, samples=samples, priority=priority)

    def close(self, wait: bool = True) -> None:
        """Drop what is queued, and wait for what runs unless told not to."""
        if self._processes is not None and not wait:
            self._processes.close()
        self._executor.close(wait)
        if self._processes is not None:
            self._processes.close()

    def _runner(self, candidate: Candidate) -> RunRollout:
        spec, call = self._spec, self.client.call
        if self._processes is not None:
            return self._processes.place(RolloutRunner(spec.program, spec.judge, spec.search.objective, call), candidate.texts)
        return RolloutRunner(spec.program.with_prompts(candidate.texts), spec.judge, spec.search.objective, call)
