"""``python -m benchmarks ui``: how quick the live pages are over a run of 10,000 candidates and 1,000,000 rollouts, and what following a run costs the run.

Seconds are a visitor's, and grow with what else the machine does; seconds of CPU are the server's own.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import gepa_lite as gl
from benchmarks.report import Options, Report, Row
from benchmarks.ui_recording import Size, write_large_run
from gepa_lite.testing import ScriptedLM

VIEWS = ("", "/candidates", "/candidate/1", "/proposals", "/lineage", "/matrix", "/measures", "/settings")
_SERVERS = 5
"""Servers that are started anew, so that each view is asked for the first time as often."""
_AGAIN = 5
"""Times that each server is asked for each view again."""
_PAIRS = 9
"""Searches alone, each beside one that is watched."""


def run(options: Options) -> Report:
    """Write the run, start the server as a user would, and time each view as a browser would ask for it."""
    size = Size(1_000, 100_000) if options.quick else Size()
    servers, pairs = (2, 2) if options.quick else (_SERVERS, _PAIRS)
    load = os.getloadavg()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "runs"
        write_large_run(root / "large", size, options.seeds[0])
        times: dict[str, list[float]] = {}
        for _ in range(servers):
            _visit(root, times)
        rows = [_row(name, values) for name, values in times.items()]
        with mock.patch.dict(os.environ, GEPA_LITE_PROGRESS="0"):
            rows += _slowing(Path(folder) / "slow", pairs)
    extra = {
        "candidates": size.candidates,
        "rollouts": size.rollouts,
        "servers": servers,
        "pairs": pairs,
        "load_average": [load, os.getloadavg()],
    }
    return Report("ui", rows, size.rollouts, options.seeds, extra=extra)


def _visit(root: Path, times: dict[str, list[float]]) -> None:
    """Start a server, ask for every view and add what was measured."""

    def note(name: str, value: float) -> None:
        times.setdefault(name, []).append(value)

    with Server(root) as server:
        begun = server.cpu()
        note(_FIRST, server.seconds("/"))
        note("list, the first page, CPU s", server.cpu() - begun)
        begin = time.perf_counter()
        while server.status("/run/large") == 202:
            time.sleep(0.05)
        note("until the run's whole log is read, s", time.perf_counter() - begin)
        for view in VIEWS:
            name, begun = view or "/", server.cpu()
            note(f"{name} the first time, s", server.seconds(f"/run/large{view}"))
            note(f"{name} the first time, CPU s", server.cpu() - begun)
            for _ in range(_AGAIN):
                note(f"{name} again, s", server.seconds(f"/run/large{view}"))
        note(_MEMORY, server.memory())


_FIRST = "list, the first page, s"
_MEMORY = "memory of the server at most, MB"
_GOALS = {_FIRST: ("< 1", 1.0), _MEMORY: ("< 500", 500.0)}


def _row(name: str, values: Sequence[float]) -> Row:
    """The median and the spread; a goal is met where the worst meets it."""
    spread = (min(values), max(values))
    if name not in _GOALS:
        return Row(name, statistics.median(values), spread=spread)
    words, bound = _GOALS[name]
    return Row(name, statistics.median(values), goal=words, met=max(values) < bound, spread=spread)


class Server:
    """``gepa-lite ui`` in a process of its own."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __enter__(self) -> Server:
        command = [sys.executable, "-m", "gepa_lite", "ui", str(self._root), "--port", "0"]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        line = self._process.stderr.readline()
        self.address = line.split("http://", 1)[1].split("/", 1)[0]
        for _ in range(200):
            try:
                self.status("/static/ui.js")
                return self
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(f"the server did not start: {line}")

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.wait()

    def status(self, path: str) -> int:
        """Ask for a page."""
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=120) as answer:
            answer.read()
            return int(answer.status)

    def seconds(self, path: str) -> float:
        """How long a page takes."""
        begin = time.perf_counter()
        self.status(path)
        return time.perf_counter() - begin

    def cpu(self) -> float:
        """Seconds of CPU that it has taken; 0 where the system does not say."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """The most it has held, in megabytes; 0 where the system does not say."""
        try:
            text = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        except OSError:
            return 0.0
        return int(text.split("VmHWM:")[1].split()[0]) / 1024


def _slowing(folder: Path, pairs: int) -> list[Row]:
    """A search whose models take 20 ms a call, alone and while a page that follows it is open: pairs in turns, each in the other order than the one before, and the median of their ratios."""
    alone, watched, taken = [], [], []
    for number in range(pairs):
        kinds = [False, True] if number % 2 else [True, False]
        for kind in kinds:
            if kind:
                seconds, cpu = _watched(folder / "watched", f"search-{number}")
                watched.append(seconds)
                taken.append(cpu / seconds)
            else:
                alone.append(_search(folder / f"alone-{number}"))
    ratios = [with_page / without for with_page, without in zip(watched, alone, strict=True)]
    ratio = statistics.median(ratios)
    beside = statistics.median(alone)
    return [
        Row("a search with nobody looking, s", beside, spread=(min(alone), max(alone))),
        Row(
            "the same with a page open, s; ratio of pairs",
            statistics.median(watched),
            beside,
            ratio,
            "< 5 % slower",
            ratio < 1.05,
            (min(ratios), max(ratios)),
        ),
        Row(
            "CPU of the server meanwhile, of one core",
            statistics.median(taken),
            goal="< 0.05",
            met=max(taken) < 0.05,
            spread=(min(taken), max(taken)),
        ),
    ]


def _watched(root: Path, name: str) -> tuple[float, float]:
    """Seconds of the search, and seconds of CPU that the server took meanwhile."""
    root.mkdir(parents=True, exist_ok=True)
    with Server(root) as server:
        command = [sys.executable, "-c", _WATCH, f"http://{server.address}/run/{name}"]
        watcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert watcher.stdout is not None
        # a browser is open before; what it takes to start is not the page's
        watcher.stdout.readline()
        begun = server.cpu()
        try:
            return _search(root / name), server.cpu() - begun
        finally:
            watcher.terminate()
            watcher.wait()


# as the pages' own script does: the mark every two seconds, the page where it is another
_WATCH = """
import sys, time, urllib.request
print("ready", flush=True)
mark = None
while True:
    try:
        now = urllib.request.urlopen(sys.argv[1] + "/now", timeout=30).read()
        if now != mark:
            urllib.request.urlopen(sys.argv[1], timeout=30).read()
        mark = now
    except OSError:
        pass
    time.sleep(2)
"""


class _Echo(gl.Program):
    """Say a word."""

    say = gl.Module("word -> reply", "Repeat the word.")

    def forward(self, word: str) -> gl.Outputs:
        return self.say(word=word)


def _search(folder: Path) -> float:
    numbers = iter(range(100_000))
    task = ScriptedLM(lambda request: "red", name="task", seconds=lambda request: 0.02)
    reflection = ScriptedLM(
        lambda request: f"<prompt>Repeat it, way {next(numbers)}.</prompt>", name="reflection", seconds=lambda request: 0.02
    )
    words = [{"word": f"word {number}"} for number in range(60)]
    begin = time.perf_counter()
    gl.optimize(
        _Echo(lm=task),
        words[:30],
        words[30:],
        feedback=lambda example, output: gl.Feedback(len(example["word"]) % 7 / 10, "no"),
        reflection_lm=reflection,
        budget=gl.Budget(proposals=80),
        search=gl.Search(fan=1),
        run=folder,
        workers=4,
    )
    return time.perf_counter() - begin
