"""What was really sampled in training, kept until a checkpoint makes it superfluous."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path

from gepa_lite.baselines.grpo.rows import Episode, SampledCall
from gepa_lite.core.rollout import Rollout
from gepa_lite.lm.policy.draws import Sample
from gepa_lite.lm.policy.lm import MARK


class SampleBook:
    """Samples by their id, each on disk before its reply is used. ``keep`` is called from many threads.

    Args:
        folder: where they are kept, one file a step.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._samples: dict[str, Sample] = {}
        self._file = folder / "0.jsonl"
        self._lock = threading.Lock()

    def load(self) -> None:
        """Read what an earlier session kept; a last line that was cut off is left out."""
        for path in sorted(self._folder.glob("*.jsonl")):
            for line in path.read_text().splitlines():
                try:
                    sample = Sample(*(tuple(part) for part in json.loads(line)))
                except (ValueError, TypeError):
                    continue
                self._samples[sample.id] = sample

    def begin(self, step: int, oldest: int) -> None:
        """From here on samples belong to a step; those of steps before the oldest are dropped."""
        with self._lock:
            self._folder.mkdir(parents=True, exist_ok=True)
            for path in self._folder.glob("*.jsonl"):
                if int(path.stem) < oldest:
                    path.unlink()
            self._file = self._folder / f"{step}.jsonl"

    def keep(self, sample: Sample) -> None:
        """Keep one."""
        with self._lock:
            self._samples[sample.id] = sample
            with self._file.open("a") as file:
                # a line that was cut off has no end: the next one must not go on in it
                file.write("\n" + json.dumps([sample.prompt_ids, sample.completion_ids, sample.logprobs]))

    def episode(self, rollout: Rollout) -> Episode:
        """A rollout with what its calls sampled. Calls of other models, and failed ones, are no part of it; a missing rollout has no reward."""
        calls = []
        for call in rollout.trace.calls:
            sample = self._samples.get(call.model.rpartition(MARK)[2])
            if sample is not None:
                calls.append(SampledCall(call.module, sample.prompt_ids, sample.completion_ids, sample.logprobs))
        return Episode(rollout.key.example_id, tuple(calls), rollout.value)


def drawn(count: int, most: int, order: Sequence[int]) -> list[int]:
    """Which of so many rows are trained on where fewer fit: the first of a shuffled order, in their own order.

    >>> drawn(4, 2, [3, 0, 2, 1])
    [0, 3]
    """
    return sorted(order[:most]) if count > most else list(range(count))
