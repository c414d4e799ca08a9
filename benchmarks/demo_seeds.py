"""The demo on several seeds, one after the other: does the sealed test set say ``improved``?

``python -m benchmarks demo-seeds --seeds 0,1,2,3,4``. A seed whose run folder is there is resumed, so an interrupted table continues. The task model is greedy, so its replies are
shared between the seeds: the seed program's validation and test are the same in every run, and are computed once.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from benchmarks.report import Options, Report, Row
from gepa_lite import api
from gepa_lite.core.ids import content_hash
from gepa_lite.demo.task import Fernpost, demo_settings, load_splits
from gepa_lite.insight.progress import Progress
from gepa_lite.lm.protocol import LM, Completion, LMInfo, Request
from gepa_lite.lm.resolve import open_lm


class GreedyMemo:
    """An LM that remembers the replies to greedy requests."""

    def __init__(self, lm: LM) -> None:
        self._lm = lm
        self._replies: dict[str, Completion] = {}
        self._lock = threading.Lock()

    def complete(self, request: Request) -> Completion:
        """A remembered reply, or a new one."""
        if request.params.temperature != 0.0:
            return self._lm.complete(request)
        key = content_hash(request)
        with self._lock:
            known = self._replies.get(key)
        if known is None:
            known = self._lm.complete(request)
            with self._lock:
                self._replies[key] = known
        return known

    def describe(self) -> LMInfo:
        """The model's own."""
        return self._lm.describe()


def run(options: Options) -> Report:
    """One run a seed, under the folder in ``GEPA_LITE_RUNS`` or ``gepa_runs``."""
    name = options.rest[0] if options.rest else "local/qwen2.5-coder-1.5b"
    lm = GreedyMemo(open_lm(name))
    train, validation, test = load_splits()
    root = Path(os.environ.get("GEPA_LITE_RUNS", "gepa_runs"))
    rows, improved = [], 0
    for seed in options.seeds:
        budget, search = demo_settings(seed)
        prepared = api.prepare(Fernpost(lm=lm), train, validation, testset=test, budget=budget, search=search)
        # each in a folder of its own: they are replicates, and not further looks at one test set to choose from
        result = api.execute(prepared, root / f"demo-seed-{seed}" / "run", [Progress(search.objective)])
        print(result, flush=True)
        improved += result.improved
        if result.test is not None:
            gain = f"{result.test.gain:+.3f} [{result.test.low:+.3f}, {result.test.high:+.3f}]"
            rows.append(
                Row(
                    f"seed {seed}: test {result.test.before:.3f} to {result.test.after:.3f}, {result.costs.seconds:,.0f} s",
                    gain,
                    goal=result.verdict,
                )
            )
    needed = -(-4 * len(options.seeds) // 5)
    rows.append(Row("seeds with the verdict improved", improved, goal=f">= {needed} of {len(options.seeds)}", met=improved >= needed))
    return Report("demo-seeds", rows, n=len(test), seeds=options.seeds, model=name)
