"""One run that is broken, mended and resumed, in this process or in one of its own, and what was found of it in the end."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.fault_task import ROLLOUTS, WORKERS, FaultyServer, invented, prepare_options
from benchmarks.http_lm import HttpLM
from gepa_lite import api
from gepa_lite.core.events import Event
from gepa_lite.errors import GepaLiteError
from gepa_lite.insight.progress import CallbackObserver
from gepa_lite.lm.litellm_client import LiteLLM
from gepa_lite.store.run_store import RunStore


@dataclass
class Finding:
    """What a scenario showed.

    Attributes:
        lost: replies that were received in full and are not in the store, beyond those in flight when a process was killed.
        again: requests that were answered twice, beyond those in flight when a process was killed.
        invented: stored scores that do not follow from good replies of the model, or from the program's own failure.
        over: rollouts above the budget.
        resumed: the event log in the end is that of the run without faults; None where nothing went on.
        message: what the user was told, or "".
        told: the message names what went wrong.
    """

    lost: int = 0
    again: int = 0
    invented: int = 0
    over: int = 0
    resumed: bool | None = None
    message: str = ""
    told: bool = True

    @property
    def clean(self) -> bool:
        """Nothing lost, paid twice, invented or passed; told, and resumed."""
        return not (self.lost or self.again or self.invented or self.over) and self.told and self.resumed is not False


@dataclass
class Bench:
    """One scenario's folder and server, and the way to look at what came of it.

    Args:
        folder: of the run.
        server: that answers it.
        judged: the feedback asks a model.
        client: ``"litellm"``, or ``"light"`` for processes that must start quickly.
        timeout: seconds that a litellm call may take: long, since an answer that comes too late for its client on a busy machine counts as lost, where no fault hangs.
    """

    folder: Path
    server: FaultyServer
    judged: bool = False
    client: str = "litellm"
    timeout: float = 30.0
    allowance: int = 0
    told: list[tuple[str, bool]] = field(default_factory=list)

    def lm(self) -> Any:
        """A client of the server."""
        if self.client == "light":
            return HttpLM(self.server.base_url, "desk-model")
        return LiteLLM(
            "openai/desk-model", api_base=self.server.base_url, api_key="key", timeout=self.timeout, max_attempts=3, max_wait=0.05
        )

    def session(self, workers: int | str = WORKERS, on_event: Callable[[Event], None] | None = None) -> None:
        """One session of the run, to its end or to an error."""
        options = dict(prepare_options(self.lm(), judged=self.judged, workers=workers))
        program, train, val = options.pop("program"), options.pop("trainset"), options.pop("valset")
        observers = [] if on_event is None else [CallbackObserver(on_event)]
        api.execute(api.prepare(program, train, val, **options), self.folder, observers)

    def fails(self, words: Sequence[str], **how: Any) -> None:
        """A session that must end with one error of ours that holds these words."""
        try:
            self.session(**how)
        except GepaLiteError as error:
            self.told.append((f"{type(error).__name__}: {error}", all(word in str(error) for word in words)))
        else:
            self.told.append(("the session ended without an error", False))

    def process(self, **environment: str) -> subprocess.CompletedProcess[str]:
        """One session in a process of its own, on the light client."""
        command = [
            sys.executable,
            "-c",
            "import sys; from benchmarks.fault_bench import child; child(*sys.argv[1:])",
            str(self.folder),
            self.server.base_url,
        ]
        root = str(Path(__file__).parents[1])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        return subprocess.run(
            command,
            cwd=root,
            env={**os.environ, "PYTHONPATH": path, "GEPA_LITE_PROGRESS": "0", **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def finding(self, truth: Truth, *, whole: bool = True) -> Finding:
        """What is in the store in the end, against the run without faults."""
        with RunStore.read(self.folder) as store:
            events = store.events()
            rollouts = list(store.rollouts())
        answered = Counter(self.server.answered)
        stored = self._stored()
        message = "; ".join(dict.fromkeys(text for text, _ in self.told)).replace(str(self.folder), "RUN")
        return Finding(
            lost=max(0, len(self.server.answered) - stored - self.allowance),
            again=max(0, sum(answered.values()) - truth.answered - self.allowance) if whole else 0,
            invented=sum(invented(rollout) for rollout in rollouts),
            over=max(0, len(rollouts) - ROLLOUTS),
            # the first event names the server, which listens elsewhere each time
            resumed=events[1:] == truth.events[1:] if whole else None,
            message=message,
            told=all(good for _, good in self.told),
        )

    def _stored(self) -> int:
        connection = sqlite3.connect(f"file:{self.folder / 'run.db'}?mode=ro", uri=True)
        try:
            (count,) = connection.execute("SELECT count(*) FROM completions").fetchone()
        finally:
            connection.close()
        return int(count)


@dataclass(frozen=True)
class Truth:
    """The run that nothing broke."""

    events: list[Event]
    answered: int


def child(folder: str, base_url: str) -> None:
    """One session in this process, broken as the environment says; an error of ours goes to standard error and exits with 3."""
    import resource

    number, _, place = os.environ.get("GEPA_LITE_FAULT_KILL", "0:0").partition(":")
    seen = 0

    def kill(event: Event) -> None:
        nonlocal seen
        seen += 1
        if seen == int(place):
            os.kill(os.getpid(), int(number))

    presses = int(os.environ.get("GEPA_LITE_FAULT_CTRL_C", "0"))
    for press in range(presses):
        timer = threading.Timer(1.0 + 0.5 * press, os.kill, (os.getpid(), signal.SIGINT))
        timer.daemon = True
        timer.start()
    if limit := os.environ.get("GEPA_LITE_FAULT_DISK"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
    server = mock.Mock(spec=FaultyServer, base_url=base_url)
    try:
        Bench(Path(folder), server, client="light").session(on_event=kill)
    except GepaLiteError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(3)
