"""What an open page costs the search that it follows: part of ``python -m benchmarks ui``."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from unittest import mock

import gepa_lite as gl
from benchmarks.report import Row
from benchmarks.ui_server import Server
from gepa_lite.testing import ScriptedLM

PROPOSALS = 160
"""Of each search: about 15 seconds."""
Pair = dict[str, float]


def measure_pair(number: int, proposals: int) -> Pair:
    """Two searches alone and two with a page open, in the order A B B A or B A A B in turns, so that what drifts evenly cancels; before them a short one that nobody times, which loads what is loaded once.

    Returns:
        ``alone`` and ``watched``, seconds of both searches; ``cpu``, the seconds of CPU of the server while the watched ones went on, opening the page with it; ``looks`` and ``pages`` that it was asked for.
    """
    kinds = ("alone", "watched", "watched", "alone") if number % 2 else ("watched", "alone", "alone", "watched")
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, GEPA_LITE_PROGRESS="0"):
        search(Path(folder) / "before", 5)
        total: Counter[str] = Counter()
        for place, kind in enumerate(kinds):
            root = Path(folder) / str(place)
            root.mkdir()
            total.update({"alone": search(root / "search", proposals)} if kind == "alone" else _watched(root, proposals))
        return dict(total)


def following_rows(pairs: Sequence[Pair]) -> list[Row]:
    """The figures of all pairs; an interval is of the mean, by Student's t, and a goal is met where the whole interval meets it."""
    ratios = [math.log(pair["watched"] / pair["alone"]) for pair in pairs]
    middle, low, high = (math.exp(value) for value in mean_interval(ratios))
    shares = [pair["cpu"] / pair["watched"] for pair in pairs]
    share = mean_interval(shares)
    alone, watched = (statistics.median(pair[kind] for pair in pairs) for kind in ("alone", "watched"))
    return [
        Row("two searches with nobody looking, s", alone, spread=_range(pair["alone"] for pair in pairs)),
        Row("the same with a page open, s; mean ratio [95 %]", watched, alone, middle, "< 5 % slower", high < 1.05, (low, high)),
        Row("CPU of the server meanwhile, of one core [95 %]", share[0], goal="< 0.05", met=share[2] < 0.05, spread=share[1:]),
        Row("the same, least and most of a pair", statistics.median(shares), goal="< 0.05", met=max(shares) < 0.05, spread=_range(shares)),
        Row("pages that were made for the two", statistics.median(pair["pages"] for pair in pairs)),
    ]


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean with the ends of its 95 % interval by Student's t.

    Example:
        >>> [round(value, 2) for value in mean_interval([1.0, 2.0, 3.0])]
        [2.0, -0.48, 4.48]
    """
    from scipy.stats import t

    middle = statistics.fmean(values)
    if len(values) < 2:
        return middle, -math.inf, math.inf
    half = float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
    return middle, middle - half, middle + half


def _range(values: Iterable[float]) -> tuple[float, float]:
    known = list(values)
    return min(known), max(known)


def _watched(root: Path, proposals: int) -> Pair:
    with Server(root) as server:
        command = [sys.executable, "-c", _WATCH, f"http://{server.address}/run/search"]
        watcher = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert watcher.stdout is not None
        # a browser is open before; what it takes to start is not the page's
        watcher.stdout.readline()
        begun = server.cpu()
        try:
            seconds = search(root / "search", proposals)
            cpu = server.cpu() - begun
            counts, _ = watcher.communicate("enough\n", timeout=60)
        finally:
            watcher.terminate()
            watcher.wait()
    return {"watched": seconds, "cpu": cpu, **json.loads(counts)}


# as the pages' own script does: the mark, the page where it is another, and again when the server says
_WATCH = """
import json, select, sys, time, urllib.request
print("ready", flush=True)
mark, pace, pages, looks = None, 2.0, 0, 0
while True:
    try:
        now = urllib.request.urlopen(sys.argv[1] + "/now", timeout=30).read()
        looks += 1
        if now != mark:
            with urllib.request.urlopen(sys.argv[1], timeout=30) as answer:
                answer.read()
                pace = int(answer.headers.get("x-next-look") or 1000 * pace) / 1000
            pages += 1
        mark = now
    except OSError:
        pass
    if select.select([sys.stdin], [], [], pace)[0]:
        break
print(json.dumps({"looks": looks, "pages": pages}), flush=True)
"""


class _Echo(gl.Program):
    """Say a word."""

    say = gl.Module("word -> reply", "Repeat the word.")

    def forward(self, word: str) -> gl.Outputs:
        return self.say(word=word)


def search(folder: Path, proposals: int) -> float:
    """Seconds of a search whose models take 20 ms a call."""
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
        budget=gl.Budget(proposals=proposals),
        search=gl.Search(fan=1),
        run=folder,
        workers=4,
    )
    return time.perf_counter() - begin
