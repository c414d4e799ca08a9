"""A few real rollouts of the seed, kept in the run's store: the run that follows finds them there and does not pay for them again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from gepa_lite.core.candidate import Candidate
from gepa_lite.core.example import Example
from gepa_lite.core.ids import jsonable
from gepa_lite.core.rollout import Rollout
from gepa_lite.engine import Engine
from gepa_lite.run_spec import RunSpec, record_samples
from gepa_lite.store.protocol import Store


@dataclass(frozen=True, slots=True)
class Samples:
    """Rollouts of the seed on validation examples.

    Attributes:
        examples: shortest inputs first.
        rollouts: in the same order; missing ones are among them.
        new: how many of them were run now.
        pair_seconds: wall time of the rollouts that were run side by side; 0 where none were.
        pair: how many those were.
    """

    examples: tuple[Example, ...]
    rollouts: tuple[Rollout, ...]
    new: int
    pair_seconds: float
    pair: int

    @property
    def scored(self) -> tuple[Rollout, ...]:
        """Those with a score."""
        return tuple(rollout for rollout in self.rollouts if not rollout.missing)


def spread_examples(examples: Sequence[Example], count: int) -> tuple[Example, ...]:
    """Examples at even distances in the size of their inputs, so that a few stand for all.

    >>> rows = [Example(str(n), {"text": "x" * n}, {}) for n in range(9)]
    >>> [example.id for example in spread_examples(rows, 3)]
    ['1', '4', '7']
    """
    ordered = sorted(examples, key=lambda example: (size_of(example), example.id))
    count = min(count, len(ordered))
    return tuple(ordered[int((place + 0.5) * len(ordered) / count)] for place in range(count))


def size_of(example: Example) -> int:
    """Characters of an example's inputs."""
    return sum(len(str(jsonable(value))) for value in example.inputs.values())


def take_samples(spec: RunSpec, store: Store, count: int) -> Samples:
    """Run the seed on a few validation examples: one alone, which also warms the models up, then the others side by side.

    Args:
        spec: the run to come.
        store: the run's own.
        count: rollouts, at least 1.

    Raises:
        UsageError: the store holds samples of another program, feedback or model.
        RunError: the feedback function is broken, or the models are down.
    """
    record_samples(store, spec)
    examples = spread_examples(spec.validation, count)
    seed, fresh = Candidate(spec.program.prompts), set[str]()

    def note(rollout: Rollout, saved: bool) -> None:
        if not saved:
            fresh.add(rollout.key.example_id)

    store.begin_session({"workers": spec.workers.count, "engine": spec.workers.engine})
    began = time.monotonic()
    engine = Engine(spec, store, spec.budget, lambda: None, note)
    try:
        middle = len(examples) // 2
        rollouts = {examples[middle].id: engine.evaluate(seed, [examples[middle]])[0][0]}
        others = [example for place, example in enumerate(examples) if place != middle]
        started = time.monotonic()
        rollouts.update({rollout.key.example_id: rollout for rollout in (engine.evaluate(seed, others)[0] if others else ())})
        pair = time.monotonic() - started
    finally:
        engine.close()
        store.end_session(time.monotonic() - began, "samples")
    together = len(others) if all(example.id in fresh for example in others) else 0
    return Samples(examples, tuple(rollouts[example.id] for example in examples), len(fresh), pair if together else 0.0, together)
