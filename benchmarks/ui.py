"""``python -m benchmarks ui``: how quick the live pages are over a run of 10,000 candidates and 1,000,000 rollouts, and what following a run costs the run."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import gepa_lite as gl
from benchmarks.report import Options, Report, Row
from benchmarks.ui_recording import Size, write_large_run
from gepa_lite.testing import ScriptedLM

VIEWS = ("", "/candidates", "/candidate/1", "/proposals", "/lineage", "/matrix", "/measures", "/settings")
_REPEATS = 5


def run(options: Options) -> Report:
    """Write the run, start the server as a user would, and time each view as a browser would ask for it."""
    size = Size(1_000, 100_000) if options.quick else Size()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "runs"
        write_large_run(root / "large", size, options.seeds[0])
        with _Server(root) as server:
            rows = [_row("list, the first page, s", server.seconds("/"))]
            begin = time.perf_counter()
            while server.status("/run/large") == 202:
                time.sleep(0.05)
            rows.append(Row("until the run's whole log is read, s", time.perf_counter() - begin))
            for view in VIEWS:
                first = server.seconds(f"/run/large{view}")
                rows.append(Row(f"{view or '/'} the first time, s", first))
                again = statistics.median(server.seconds(f"/run/large{view}") for _ in range(_REPEATS))
                rows.append(Row(f"{view or '/'} again, s", again))
            memory = server.memory()
            rows.append(Row("memory of the server at most, MB", memory, goal="< 500", met=memory < 500))
        alone, watched = _slowing(Path(folder) / "slow", options.quick)
        slower = 100 * (watched / alone - 1)
        rows.append(Row("a running search with a page open, seconds", watched, alone, watched / alone, "< 5 % slower", slower < 5))
    return Report("ui", rows, size.rollouts, options.seeds, extra={"candidates": size.candidates, "rollouts": size.rollouts})


def _row(name: str, seconds: float) -> Row:
    return Row(name, seconds, goal="< 1", met=seconds < 1)


class _Server:
    """``gepa-lite ui`` in a process of its own."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __enter__(self) -> _Server:
        command = [sys.executable, "-m", "gepa_lite", "ui", str(self._root), "--port", "0"]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        line = self._process.stderr.readline()
        self._address = line.split("http://", 1)[1].split("/", 1)[0]
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
        with urllib.request.urlopen(f"http://{self._address}{path}", timeout=120) as answer:
            answer.read()
            return int(answer.status)

    def seconds(self, path: str) -> float:
        """How long a page takes."""
        begin = time.perf_counter()
        self.status(path)
        return time.perf_counter() - begin

    def memory(self) -> float:
        """The most it has held, in megabytes; 0 where the system does not say."""
        try:
            text = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        except OSError:
            return 0.0
        return int(text.split("VmHWM:")[1].split()[0]) / 1024


def _slowing(folder: Path, quick: bool) -> tuple[float, float]:
    """Seconds of a search whose models take 20 ms a call, alone and while a page that follows it is open; medians of runs in turns."""
    alone, watched = [], []
    for number in range(2 if quick else 5):
        alone.append(_search(folder / f"alone-{number}"))
        (folder / "watched").mkdir(parents=True, exist_ok=True)
        with _Server(folder / "watched") as server:
            name = f"watched-{number}"
            watcher = subprocess.Popen([sys.executable, "-c", _WATCH, f"http://{server._address}/run/{name}"])
            watched.append(_search(folder / "watched" / name))
            watcher.terminate()
            watcher.wait()
    return statistics.median(alone), statistics.median(watched)


# as the pages' own script does: the mark every two seconds, the page where it is another
_WATCH = """
import sys, time, urllib.request
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
