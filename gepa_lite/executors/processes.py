"""Worker processes, for programs and feedback that compute. Model calls come back to the driver, so cache, ledger and keys stay in one place."""

from __future__ import annotations

import dataclasses
import multiprocessing
import pickle
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from gepa_lite.core.example import Example
from gepa_lite.core.rollout import Failure, Rollout, RolloutKey
from gepa_lite.errors import RunError
from gepa_lite.executors.shipping import Manifest, pack, portable
from gepa_lite.executors.worker import Answer, Ask, Begun, Done, Job, Judging, serve
from gepa_lite.program.optimizable import Optimizable
from gepa_lite.rollouts.executor import RunRollout
from gepa_lite.rollouts.judge import Judge
from gepa_lite.rollouts.overdue import Attempt
from gepa_lite.rollouts.rollout import PayForCall, RolloutRunner

LIVES = 3
"""How often a rollout is started anew after its worker died, the first time included."""


class _Lost(Exception):
    """The worker process ended under its rollout."""


class _Overdue(Exception):
    """The rollout took too long."""

    def __init__(self, outcome: Callable[[], Rollout]) -> None:
        super().__init__()
        self.outcome = outcome


class WorkerProcesses:
    """A set of worker processes that are started as they are needed and replaced where they die.

    A rollout whose worker dies is run again in a new one, since its model calls are cached or paid already; after three deaths it is *missing*, never a score: a machine that kills processes
    (out of memory) is not told apart from a program that ends its own.

    Args:
        count: processes at once, at least 1.
        timeout: seconds that a rollout may take in its worker, which is ended then; None for any time.
    """

    def __init__(self, count: int, timeout: float | None = None) -> None:
        self._timeout = timeout
        # spawn: a fork of a process with threads may deadlock
        self._context = multiprocessing.get_context("spawn")
        self._manifest = Manifest()
        self._free: queue.SimpleQueue[_Worker | None] = queue.SimpleQueue()
        for _ in range(count):
            self._free.put(None)
        self._packed: dict[int, tuple[object, tuple[str, bytes]]] = {}
        self._lock = threading.Lock()
        self._living: set[_Worker] = set()
        self._closed = False
        # calls of one rollout may overlap, so they are not served by the thread that reads its pipe
        self._callers = ThreadPoolExecutor(max_workers=8 * count, thread_name_prefix="gepa-lite-worker-call")

    def place(self, runner: RolloutRunner, texts: Mapping[str, str]) -> RunRollout:
        """A rollout function that does the runner's work in a worker process.

        Args:
            runner: of the seed program, which is sent once.
            texts: the candidate's prompts, sent with each rollout.

        Raises:
            UsageError: the program or the feedback can't be sent.
        """
        parts = (
            self._pack(runner.program, runner.program.sendable, "the program"),
            self._pack(runner.judge, lambda: runner.judge, "the feedback function"),
        )

        def run(example: Example, key: RolloutKey) -> Rollout:
            return self._run(runner, Job(parts[0][0], parts[1][0], dict(parts), texts, runner.objective, example, key))

        return run

    def close(self) -> None:
        """End all workers; rollouts that they run end with a ``RunError``."""
        with self._lock:
            self._closed = True
            living = list(self._living)
        for worker in living:
            worker.end()
        self._callers.shutdown(wait=False, cancel_futures=True)

    def _pack(self, value: Optimizable | Judge, sendable: Callable[[], object], what: str) -> tuple[str, bytes]:
        with self._lock:
            if id(value) not in self._packed:
                # the value is kept, so that its id stays its own
                self._packed[id(value)] = (value, (f"part-{len(self._packed)}", pack(sendable(), self._manifest, what)))
            return self._packed[id(value)][1]

    def _run(self, runner: RolloutRunner, job: Job) -> Rollout:
        last = ""
        for _ in range(LIVES):
            worker = self._take()
            try:
                rollout = worker.run(runner, job, self._timeout)
            except _Lost as lost:
                last = str(lost)
                self._drop(worker)
                if self._closed:
                    raise RunError("the run is ending: its worker processes were stopped") from None
            except _Overdue as overdue:
                self._drop(worker)
                return overdue.outcome()
            except BaseException:
                self._free.put(worker)
                raise
            else:
                self._free.put(worker)
                return rollout
        message = f"the worker process died {LIVES} times under this rollout ({last}): out of memory, a program that ends its process, or a script without if __name__ == '__main__'"
        return Rollout(job.key, None, None, failure=Failure("worker", "world", message))

    def _take(self) -> _Worker:
        worker = self._free.get()
        if worker is not None and worker.alive:
            return worker
        if worker is not None:
            with self._lock:
                self._living.discard(worker)
        with self._lock:
            if self._closed:
                self._free.put(None)
                raise RunError("the run is ending: no new worker process is started")
            try:
                worker = _Worker(self._context, self._manifest, self._callers)
            except OSError as error:
                self._free.put(None)
                raise RunError(
                    f"no worker process could be started ({error}). Lower workers, then resume; what was paid is kept."
                ) from error
            self._living.add(worker)
        return worker

    def _drop(self, worker: _Worker) -> None:
        worker.end()
        with self._lock:
            self._living.discard(worker)
        self._free.put(None)


class _Worker:
    """The driver's end of one worker process. One rollout at a time."""

    def __init__(self, context: multiprocessing.context.SpawnContext, manifest: Manifest, callers: ThreadPoolExecutor) -> None:
        self._manifest = manifest
        self._callers = callers
        self._pipe: Connection
        self._pipe, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(target=serve, args=(theirs,), name="gepa-lite-worker")
        self._process.start()
        theirs.close()
        self._sending = threading.Lock()
        self._seen: set[str] = set()

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def end(self) -> None:
        """Kill the process: it holds nothing that is not in the driver."""
        self._process.kill()
        self._process.join()

    def run(self, runner: RolloutRunner, job: Job, timeout: float | None) -> Rollout:
        """Run one rollout to its end.

        Raises:
            _Lost: the process died.
            _Overdue: it took longer than the timeout.
            RunError: the rollout ended the run.
        """
        unseen = {name: data for name, data in job.parts.items() if name not in self._seen}
        self._send(dataclasses.replace(job, parts=unseen))
        self._seen.update(unseen)
        attempt = Attempt()
        attempt.objective, attempt.calls_held = runner.objective, runner.program.calls_held
        until: float | None = None
        while True:
            try:
                if timeout is not None and until is not None and not self._pipe.poll(max(0.0, until - time.monotonic())):
                    attempt.end()
                    raise _Overdue(lambda: attempt.given_up(job.example, job.key, timeout))
                message = self._pipe.recv()
            except (EOFError, OSError):
                raise self._lost() from None
            if isinstance(message, Done):
                if message.error is not None:
                    raise message.error
                assert message.rollout is not None
                return message.rollout
            if isinstance(message, Begun):
                until = None if timeout is None else time.monotonic() + timeout
                continue
            if isinstance(message, Judging):
                attempt.judge()
                continue
            self._callers.submit(self._pay, runner.pay, message, attempt)

    def _pay(self, pay: PayForCall, ask: Ask, attempt: Attempt) -> None:
        try:
            lm = self._manifest.model(ask.lm) if isinstance(ask.lm, int) else self._manifest.same(pickle.loads(ask.lm))
            with attempt.calling() as usages:
                completion = pay(lm, ask.request, role=ask.role, sample=ask.sample, address=ask.address)
                if ask.role == "task":
                    usages.append(completion.usage)
            answer = Answer(ask.number, completion, None)
        except BaseException as error:
            answer = Answer(ask.number, None, portable(error))
        try:
            self._send(answer)
        except _Lost:
            # the thread that reads the pipe notices too, and starts the rollout anew
            return

    def _send(self, message: Job | Answer) -> None:
        try:
            with self._sending:
                self._pipe.send(message)
        except (BrokenPipeError, OSError):
            raise self._lost() from None

    def _lost(self) -> _Lost:
        self._process.join(timeout=5)
        code = self._process.exitcode
        return _Lost(f"signal {-code}" if code is not None and code < 0 else f"exit code {code}")
