"""Break everything around a run and count what it costs: paid calls lost or paid twice, scores invented, budgets passed, resumes that differ.

Each scenario runs the same small optimization against a real HTTP server, breaks it, mends it and resumes. Its event log and its scores must in the end be those of a run that nothing broke.

Options of its own: names of scenarios; without any, all.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.fault_bench import Bench, Finding, Truth
from benchmarks.fault_task import FAN, WORKERS, FaultyServer
from benchmarks.report import Options, Report, Row
from gepa_lite.core.events import Event, Tested
from gepa_lite.store.run_store import RunStore
from gepa_lite.testing import fault

PASSING = ("rate_limit", "server", "hang", "cut", "empty", "bad_utf8", "wrong_types", "no_choices", "html")
LASTING = ("unauthorized", "forbidden", "not_found", "bad_request", "quota", *PASSING)
IN_FLIGHT = WORKERS + FAN
"""Calls that can be under way at once: the rollouts' and the proposals'."""
KILL_POINTS = 17
"""Events of the run, at each of which a process is killed."""


Scenario = Callable[[Bench, Truth], Finding]


def passing(name: Any, retry_after: str | None = None) -> Scenario:
    """Every fifth task request and every second reflection meet the fault once; the client's retries get through and the run never notices."""

    def play(bench: Bench, truth: Truth) -> Finding:
        every = 25 if name == "hang" else 5
        bench.server.fault = lambda role, count: fault(name, retry_after=retry_after) if count % every == every - 1 else None
        bench.session()
        return bench.finding(truth)

    return play


def burst(bench: Bench, truth: Truth) -> Finding:
    """Eight requests in a row answer 500, twice: the client's retries get through and the run never notices."""
    bench.server.fault = lambda role, count: fault("server") if role == "task" and (20 <= count < 28 or 60 <= count < 68) else None
    bench.session()
    return bench.finding(truth)


def lasting(name: Any, role: str, words: Sequence[str], retry_after: str | None = None) -> Scenario:
    """From some request of a role on, all meet the fault: the run stops with one error; mended, it goes on."""

    def play(bench: Bench, truth: Truth) -> Finding:
        start = {"task": 30, "judge": 2, "reflection": 2}[role]
        bench.server.fault = lambda asked, count: fault(name, retry_after=retry_after) if asked == role and count >= start else None
        bench.fails(words)
        bench.server.fault = None
        bench.session()
        # a proposal that the outage voided before the run stopped is an event of the run: it goes on from there, another way
        with RunStore.read(bench.folder) as store:
            events = store.events()
        voided = any(getattr(event, "status", "") == "void" for event in events)
        ended = any(isinstance(event, Tested) for event in events)
        finding = bench.finding(truth, whole=not voided)
        return dataclasses.replace(finding, resumed=ended) if voided else finding

    return play


def huge(bench: Bench, truth: Truth) -> Finding:
    """A reply of 10 MB is an answer like another: judged, kept, and the run goes on."""
    bench.server.fault = lambda role, count: fault("huge") if role == "task" and count == 20 else None
    bench.session()
    return bench.finding(truth, whole=False)


def hostile_program(bench: Bench, truth: Truth) -> Finding:
    """A program that raises on some mails: those score the worst of the range, with the exception as the diagnosis."""
    with environment(GEPA_LITE_FAULT_PROGRAM="raise"):
        bench.session()
    with RunStore.read(bench.folder) as store:
        failed = [rollout for rollout in store.rollouts() if rollout.failure is not None]
    bench.told.append((f"{len(failed)} rollouts are scored as the program's own failure", bool(failed)))
    return bench.finding(truth, whole=False)


def raising_feedback(bench: Bench, truth: Truth) -> Finding:
    """Feedback that raises stops the run and names the example; mended, the run goes on."""
    with environment(GEPA_LITE_FAULT_FEEDBACK="raise"):
        bench.fails(["the label is missing", "example"])
    bench.session()
    return bench.finding(truth)


def blocking_feedback(bench: Bench, truth: Truth) -> Finding:
    """Feedback that never returns: Ctrl-C once waits for it, twice ends the process; mended, the run goes on."""
    done = bench.process(GEPA_LITE_FAULT_FEEDBACK="block", GEPA_LITE_FAULT_CTRL_C="2")
    bench.told.append((done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "", "KeyboardInterrupt" in done.stderr))
    bench.session()
    return bench.finding(truth)


def overdue_feedback(bench: Bench, truth: Truth) -> Finding:
    """Feedback that never returns, with a time that a rollout may take: the run ends and names the example; mended, it goes on."""
    with environment(GEPA_LITE_FAULT_FEEDBACK="block"):
        bench.fails(["did not return within 1 s", "example"], workers=f"{WORKERS},timeout:1")
    bench.session()
    return bench.finding(truth)


def overdue_program(*, first_in_threads: bool) -> Scenario:
    """A program that never returns on some mails, with a time that a rollout may take: scored as its failure, with words. In threads too many are left behind, and the run goes on in processes."""

    def play(bench: Bench, truth: Truth) -> Finding:
        with environment(GEPA_LITE_FAULT_PROGRAM="block"):
            if first_in_threads:
                bench.fails(["did not end within 1 s", "processes"], workers=f"{WORKERS},timeout:1")
            bench.session(workers="processes:2,timeout:4")
        with RunStore.read(bench.folder) as store:
            failed = [rollout for rollout in store.rollouts() if rollout.failure is not None and rollout.failure.kind == "deadline"]
        bench.told.append((f"{len(failed)} rollouts are scored as the program's own failure", bool(failed)))
        return bench.finding(truth, whole=False)

    return play


def killed(number: int, place: int) -> Scenario:
    """A signal at one event of the run, in a process of its own."""

    def play(bench: Bench, truth: Truth) -> Finding:
        assert len(truth.events) == KILL_POINTS
        at = 1 + place
        done = bench.process(GEPA_LITE_FAULT_KILL=f"{number}:{at}")
        bench.told.append(("", done.returncode == -number))
        bench.allowance = IN_FLIGHT
        bench.session()
        return bench.finding(truth)

    return play


def full_disk(bench: Bench, truth: Truth) -> Finding:
    """The disk is full in the middle of the run."""
    done = bench.process(GEPA_LITE_FAULT_DISK="120000")
    message = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ""
    bench.told.append((message, done.returncode == 3 and "full" in message and "resume" in message))
    # a reply that came while the disk was full could not be kept
    bench.allowance = IN_FLIGHT
    bench.session()
    return bench.finding(truth)


def locked_store(bench: Bench, truth: Truth) -> Finding:
    """Another program holds the database for a while: the run waits and loses nothing."""

    def hold(event: Event) -> None:
        if not holders:
            other = sqlite3.connect(bench.folder / "run.db", isolation_level=None, check_same_thread=False)
            other.execute("BEGIN IMMEDIATE")
            holders.append(threading.Timer(1.0, other.close))
            holders[0].start()

    holders: list[threading.Timer] = []
    bench.session(on_event=hold)
    return bench.finding(truth)


def two_writers(bench: Bench, truth: Truth) -> Finding:
    """A second process works on the same run: refused in words, and the first goes on."""

    def second(event: Event) -> None:
        if not tried:
            tried.append(bench.process())

    tried: list[subprocess.CompletedProcess[str]] = []
    bench.session(on_event=second)
    words = tried[0].stderr.strip().splitlines()[-1]
    bench.told.append((words, tried[0].returncode == 3 and "RunLockedError" in words))
    return bench.finding(truth)


def truncated_store(bench: Bench, truth: Truth) -> Finding:
    """The file was cut in half: refused in words, untouched; the copy of it goes on."""
    bench.session()
    file = bench.folder / "run.db"
    copy = bench.folder.parent / "copy.db"
    shutil.copy(file, copy)
    with file.open("r+b") as handle:
        handle.truncate(file.stat().st_size // 2)
    before = file.read_bytes()
    bench.fails(["run.db", "cut off"])
    bench.told.append(("", file.read_bytes() == before))
    shutil.copy(copy, file)
    bench.session()
    return bench.finding(truth)


def clock_jumps(bench: Bench, truth: Truth) -> Finding:
    """The wall clock jumps a year to and fro."""
    real = time.time
    jumps = iter(range(10**9))
    with mock.patch("time.time", side_effect=lambda: real() + (3e7 if next(jumps) % 2 else -3e7)):
        bench.session()
    return bench.finding(truth)


def dying_workers(bench: Bench, truth: Truth) -> Finding:
    """Worker processes abort under a quarter of the mails, once each."""
    with environment(GEPA_LITE_FAULT_PROGRAM=f"die:{bench.folder.parent}"):
        bench.session("processes:2")
    deaths = sum(1 for path in bench.folder.parent.iterdir() if path.is_file())
    bench.told.append((f"{deaths} workers died", deaths > 0))
    return bench.finding(truth)


@contextmanager
def environment(**values: str) -> Iterator[None]:
    """Environment variables within the block."""
    with mock.patch.dict(os.environ, values):
        yield


_SAID = {
    "unauthorized": "401",
    "forbidden": "403",
    "not_found": "404",
    "bad_request": "400",
    "quota": "quota",
    "rate_limit": "429",
    "server": "500",
    "hang": "time-out",
}
"""What the error that ends a run says of a lasting fault; of all others, that the connection failed."""

SCENARIOS: Mapping[str, Scenario] = {
    **{f"passing {name}": passing(name) for name in PASSING},
    "passing rate_limit with Retry-After": passing("rate_limit", "0.02"),
    "burst of 500s": burst,
    **{f"lasting {name}": lasting(name, "task", [_SAID.get(name, "connection")]) for name in LASTING},
    "lasting rate_limit with Retry-After": lasting("rate_limit", "task", ["429"], "0.02"),
    "lasting rate_limit with Retry-After of an hour": lasting("rate_limit", "task", ["429"], "3600"),
    **{f"lasting {name} of the judge": lasting(name, "judge", ["judge", _SAID.get(name, "connection")]) for name in LASTING},
    "lasting server of the reflection": lasting("server", "reflection", ["reflection", "500"]),
    "lasting unauthorized of the reflection": lasting("unauthorized", "reflection", ["reflection", "401"]),
    "reply of 10 MB": huge,
    "program that raises": hostile_program,
    "feedback that raises": raising_feedback,
    "feedback that blocks": blocking_feedback,
    "feedback past its time": overdue_feedback,
    "program past its time, in processes": overdue_program(first_in_threads=False),
    "program past its time, in threads": overdue_program(first_in_threads=True),
    **{f"SIGKILL at event {place}/{KILL_POINTS}": killed(signal.SIGKILL, place) for place in range(KILL_POINTS)},
    **{f"SIGTERM at event {place}/{KILL_POINTS}": killed(signal.SIGTERM, place) for place in range(KILL_POINTS)},
    "disk full": full_disk,
    "store locked": locked_store,
    "two writers": two_writers,
    "store truncated": truncated_store,
    "clock jumps": clock_jumps,
    "worker processes dying": dying_workers,
}

_LIGHT = ("SIG", "disk full", "two writers", "feedback that blocks", "worker processes", "feedback past", "program past")


def truth_of(folder: Path, *, judged: bool = False, client: str = "light") -> Truth:
    """The run that nothing breaks."""
    server = FaultyServer()
    try:
        bench = Bench(folder, server, judged, client)
        bench.session()
        with RunStore.read(folder) as store:
            return Truth(store.events(), len(server.answered))
    finally:
        server.close()


def play(name: str, folder: Path, truths: Callable[[bool, str], Truth]) -> Finding:
    """Play one scenario in a folder.

    Args:
        name: of ``SCENARIOS``.
        folder: an empty one.
        truths: the run without faults, for a judged feedback or not.
    """
    server = FaultyServer()
    try:
        client = "light" if name.startswith(_LIGHT) else "litellm"
        bench = Bench(folder / "run", server, "judge" in name, client, 1.0 if "hang" in name else 30.0)
        return SCENARIOS[name](bench, truths(bench.judged, client))
    finally:
        server.close()


def run(options: Options) -> Report:
    """Play every scenario; with ``--quick`` every kind once."""
    os.environ["GEPA_LITE_PROGRESS"] = "0"
    names = list(options.rest) or list(SCENARIOS)
    if options.quick and not options.rest:
        names = [name for name in names if not any(f" {place}/" in name for place in range(KILL_POINTS) if place != 5)]
    rows: list[Row] = []
    findings: dict[str, Finding] = {}
    with tempfile.TemporaryDirectory() as top:
        known: dict[tuple[bool, str], Truth] = {}

        def truths(judged: bool, client: str) -> Truth:
            if (judged, client) not in known:
                known[judged, client] = truth_of(Path(top) / f"truth-{judged}-{client}", judged=judged, client=client)
            return known[judged, client]

        for number, name in enumerate(names):
            folder = Path(top) / str(number)
            folder.mkdir()
            finding = findings[name] = play(name, folder, truths)
            rows.append(
                Row(
                    name,
                    "as it should" if finding.clean else str(finding),
                    goal="nothing lost, invented or passed; resumes",
                    met=finding.clean,
                )
            )
    total = {key: sum(getattr(finding, key) for finding in findings.values()) for key in ("lost", "again", "invented", "over")}
    rows += [Row(f"{words} in all", total[key], goal="0", met=total[key] == 0) for key, words in _WORDS.items()]
    messages = {name: finding.message for name, finding in findings.items() if finding.message}
    return Report("faults", rows, n=len(names), model="scripted, behind a local HTTP server", extra={"messages": messages})


_WORDS = {
    "lost": "paid calls lost beyond those in flight at a kill",
    "again": "paid calls paid twice beyond those in flight at a kill",
    "invented": "scores invented",
    "over": "rollouts over the budget",
}
