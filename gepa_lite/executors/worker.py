"""A worker process: it runs one rollout at a time and asks the driver for every model call."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from gepa_lite.core.budget import Role
from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Objective
from gepa_lite.core.rollout import Rollout, RolloutKey
from gepa_lite.errors import UsageError
from gepa_lite.executors.shipping import DistantLM, portable, unpack
from gepa_lite.lm.protocol import LM, Completion, Request
from gepa_lite.rollouts.overdue import Attempt, attempting
from gepa_lite.rollouts.rollout import RolloutRunner


@dataclass(frozen=True, slots=True)
class Job:
    """Driver to worker: run this rollout. ``parts`` holds the packed program and judge, where the worker has not seen them."""

    program: str
    judge: str
    parts: Mapping[str, bytes]
    texts: Mapping[str, str]
    objective: Objective
    example: Example
    key: RolloutKey


@dataclass(frozen=True, slots=True)
class Ask:
    """Worker to driver: make this call. ``lm`` is a number, or the packed model where the worker opened it itself."""

    number: int
    lm: int | bytes
    request: Request
    role: Role
    sample: int
    address: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """Driver to worker: the reply of a call, or the error that it raised."""

    number: int
    completion: Completion | None
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class Begun:
    """Worker to driver: what the rollout needs is imported, and it runs now."""


@dataclass(frozen=True, slots=True)
class Judging:
    """Worker to driver: the program has ended, and the feedback function runs."""


@dataclass(frozen=True, slots=True)
class Done:
    """Worker to driver: the rollout, or the error that ended it."""

    rollout: Rollout | None
    error: BaseException | None


class _Line:
    """The worker's end of the pipe. Threads of the program share it."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Completion]] = {}
        self._numbers = 0
        self.jobs: list[Job] = []
        self.arrived = threading.Condition()
        threading.Thread(target=self._listen, name="gepa-lite-line", daemon=True).start()

    def pay(self, lm: LM, request: Request, *, role: Role, sample: int, address: tuple[int | str, ...]) -> Completion:
        """Have the driver make a call (``rollouts.rollout.PayForCall``).

        Raises:
            UsageError: a model that was made in the worker can't be sent to the driver.
        """
        named = lm.number if isinstance(lm, DistantLM) else _packed(lm)
        future: Future[Completion] = Future()
        with self._lock:
            self._numbers += 1
            number = self._numbers
            self._waiting[number] = future
            self._pipe.send(Ask(number, named, request, role, sample, address))
        return future.result()

    def send(self, done: Done) -> None:
        """Tell the driver how the rollout ended; what can't be sent ends the run in words instead of the process."""
        try:
            data = pickle.dumps(done)
        except Exception as error:
            words = f"a rollout can't be sent back from its worker process ({type(error).__name__}: {error}): give modules plain inputs, or use threads: workers=16."
            data = pickle.dumps(Done(None, UsageError(words)))
        with self._lock:
            self._pipe.send_bytes(data)

    def tell(self, stage: Begun | Judging) -> None:
        """Tell the driver how far the rollout is."""
        with self._lock:
            self._pipe.send(stage)

    def next_job(self) -> Job:
        """Wait for work."""
        with self.arrived:
            while not self.jobs:
                self.arrived.wait()
            return self.jobs.pop(0)

    def _listen(self) -> None:
        while True:
            try:
                message = self._pipe.recv()
            except (EOFError, OSError):
                # the driver is gone, or wants no more: nothing here is worth finishing
                os._exit(0)
            if isinstance(message, Job):
                with self.arrived:
                    self.jobs.append(message)
                    self.arrived.notify()
                continue
            with self._lock:
                future = self._waiting.pop(message.number)
            if message.error is not None:
                future.set_exception(message.error)
            else:
                future.set_result(message.completion)


def _packed(lm: LM) -> bytes:
    try:
        return pickle.dumps(lm)
    except Exception as error:
        raise UsageError(
            f"{lm.describe().name} was made in a worker process and can't be sent to the driver ({type(error).__name__}: {error}): "
            f"make it outside of forward and feedback, or use threads: workers=16."
        ) from error


def serve(pipe: Connection) -> None:
    """The worker's main function: run jobs until the driver closes the pipe."""
    # Ctrl-C reaches the whole process group; the driver decides what it means
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = _Line(pipe)
    parts: dict[str, Any] = {}
    while True:
        job = line.next_job()
        try:
            parts.update({name: unpack(data) for name, data in job.parts.items()})
            runner = RolloutRunner(parts[job.program].with_prompts(job.texts), parts[job.judge], job.objective, line.pay)
            line.tell(Begun())
            with attempting(Attempt(lambda: line.tell(Judging()))):
                done = Done(runner(job.example, job.key), None)
        except BaseException as error:
            done = Done(None, portable(error))
        line.send(done)
