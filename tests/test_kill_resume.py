"""A run killed at random moments and resumed has the log of the uninterrupted one, and pays again at most for what was in flight."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import gepa_lite as gl
from gepa_lite import api
from gepa_lite.store.run_store import RunStore
from tests.triage import program, reflector, rows

KILLS = 10
"""Per setting; with the settings below at least thirty in all."""

SETTINGS = [
    gl.Search(),
    gl.Search(fan=2, window=3),
    gl.Search.paper(reuse=False, accept="non_strict"),
    gl.Search(shorten=40, pins=rows(2, 8), milestones=3),
]


def go(folder: Path, setting: int, kill_after: tuple[int, float] | None) -> None:
    """One session of the run, in a process of its own.

    Each call is written to a file before it is answered. With ``kill_after=(calls, seconds)`` the process kills itself so many seconds after so many calls.
    """
    log = (folder.parent / f"calls-{os.getpid()}").open("a")
    counter = itertools.count(1)

    def pace(request: gl.Request) -> float:
        log.write("x")
        log.flush()
        if kill_after is None:
            return 0.0
        if next(counter) == kill_after[0]:
            threading.Timer(kill_after[1], os.kill, (os.getpid(), signal.SIGKILL)).start()
        return 0.002

    prepared = api.prepare(
        program(seconds=pace),
        rows(24, 1),
        rows(16, 2),
        testset=rows(10, 3),
        curveset=rows(6, 4) if setting == 3 else None,
        reflection_lm=reflector(seconds=pace),
        budget=gl.Budget(rollouts=200),
        search=SETTINGS[setting],
        workers=4,
    )
    api.execute(prepared, folder, [])


def session(folder: Path, setting: int, kill_after: tuple[int, float] | None) -> int:
    """Run a session to its end; the return code."""
    code = f"from pathlib import Path; from tests.test_kill_resume import go; go(Path({str(folder)!r}), {setting}, {kill_after})"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


@pytest.mark.timeout(300)
@pytest.mark.parametrize("setting", range(len(SETTINGS)))
def test_killed_at_random_moments_the_log_is_the_uninterrupted_one(tmp_path: Path, setting: int) -> None:
    whole, broken = tmp_path / "whole" / "run", tmp_path / "broken" / "run"
    for folder in (whole, broken):
        folder.parent.mkdir()
    assert session(whole, setting, None) == 0
    draw = random.Random(setting)
    kills = sum(session(broken, setting, (draw.randint(1, 24), draw.random() * 0.02)) != 0 for _ in range(KILLS))
    assert session(broken, setting, None) == 0
    with RunStore.read(whole) as a, RunStore.read(broken) as b:
        assert b.events() == a.events()
        assert {r.key: r.value for r in b.rollouts()} == {r.key: r.value for r in a.rollouts()}
        once = a.paid().total.calls
        assert b.paid().total.calls >= once, "what the crashes lost is counted"
    sent = {folder: sum(len(file.read_text()) for file in folder.parent.glob("calls-*")) for folder in (whole, broken)}
    assert sent[whole] == once
    assert kills == KILLS
    assert sent[broken] - once <= kills * 4, "at most the calls in flight are paid again: four workers"
