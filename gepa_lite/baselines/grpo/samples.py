"""What was really sampled in training, kept until a checkpoint makes it superfluous."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from gepa_lite.baselines.grpo.rows import Episode, SampledCall
from gepa_lite.core.rollout import Rollout
from gepa_lite.errors import StoreError
from gepa_lite.lm.policy.draws import Sample
from gepa_lite.lm.policy.lm import MARK

_SAMPLED = re.compile(rf"policy/.*{MARK}([0-9a-f]{{20}})", re.DOTALL)
"""What names a sample in place of a model."""


class SampleBook:
    """Samples by their id, each on disk before its reply is used. ``keep`` is called from many threads.

    Args:
        folder: where they are kept, one file a step.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._samples: dict[int, dict[str, Sample]] = {}
        self._step = 0
        self._lock = threading.Lock()

    def load(self) -> None:
        """Read what an earlier session kept; a last line that was cut off is left out."""
        for path in sorted(self._folder.glob("*.jsonl")):
            for line in path.read_text().splitlines():
                try:
                    sample = Sample(*(tuple(part) for part in json.loads(line)))
                except (ValueError, TypeError):
                    continue
                self._samples.setdefault(int(path.stem), {})[sample.id] = sample

    def begin(self, step: int, oldest: int) -> None:
        """From here on samples belong to a step; those of steps before the oldest are dropped, from memory too."""
        with self._lock:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._drop(lambda number: number < oldest)
            self._step = step

    def clear(self) -> None:
        """Drop all: the training is done."""
        with self._lock:
            self._drop(lambda number: True)

    def _drop(self, old: Callable[[int], bool]) -> None:
        for path in self._folder.glob("*.jsonl"):
            if old(int(path.stem)):
                path.unlink()
        self._samples = {number: samples for number, samples in self._samples.items() if not old(number)}

    def keep(self, sample: Sample) -> None:
        """Keep one."""
        with self._lock:
            self._samples.setdefault(self._step, {})[sample.id] = sample
            with (self._folder / f"{self._step}.jsonl").open("a") as file:
                # a line that was cut off has no end: the next one must not go on in it
                file.write("\n" + json.dumps([sample.prompt_ids, sample.completion_ids, sample.logprobs]))

    def episode(self, rollout: Rollout) -> Episode:
        """A rollout with what its calls sampled. Calls of other models, and failed ones, are no part of it; a missing rollout has no reward.

        Raises:
            StoreError: a sample is not in the book any more: to train without it would be another training.
        """
        calls = []
        for call in rollout.trace.calls:
            if (named := _SAMPLED.fullmatch(call.model)) is not None:
                sample = self._find(named[1])
                calls.append(SampledCall(call.module, sample.prompt_ids, sample.completion_ids, sample.logprobs))
        return Episode(rollout.key.example_id, tuple(calls), rollout.value)

    def _find(self, name: str) -> Sample:
        for samples in self._samples.values():
            if name in samples:
                return samples[name]
        raise StoreError(f"{self._folder} lacks the sample {name} of this run's training: restore the folder, or train in a new run.")


def drawn(count: int, most: int, order: Sequence[int]) -> list[int]:
    """Which of so many rows are trained on where fewer fit: the first of a shuffled order, in their own order.

    >>> drawn(4, 2, [3, 0, 2, 1])
    [0, 3]
    """
    return sorted(order[:most]) if count > most else list(range(count))
