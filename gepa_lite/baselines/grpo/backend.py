"""The seam to what computes the updates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gepa_lite.baselines.grpo.rows import Row
from gepa_lite.baselines.grpo.settings import Training
from gepa_lite.lm.policy.engine import Engine


@dataclass(frozen=True, slots=True)
class Update:
    """One update of the weights.

    Attributes:
        step: index, from 0.
        loss: of the policy.
        grad_norm: before it was scaled down.
        seconds: of computing it: processor time on a CPU, wall time on a GPU; rollouts apart.
    """

    step: int
    loss: float
    grad_norm: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Course:
    """A training as the backend drives it.

    Attributes:
        engine: the model, with the adapter to train on it.
        settings: how.
        example_ids: to draw from.
        seed: of the order of examples and of all else that the backend draws.
        folder: for checkpoints; a training goes on from the newest in it.
        rows: given the index of an update and its examples, each once, the rows to train on.
        ended: told of each update once the new weights are on the engine; False ends the training.
    """

    engine: Engine
    settings: Training
    example_ids: Sequence[str]
    seed: int
    folder: Path
    rows: Callable[[int, Sequence[str]], list[Row]]
    ended: Callable[[Update], bool]


class RLBackend(Protocol):
    """Trains the adapter on an engine. It asks for rows before each update and tells of it afterwards; an exception of either passes through.

    A training that was broken off goes on from its newest checkpoint, made after every ``validate_every``-th update was told of, and takes the course that it would have taken.
    """

    def train(self, course: Course) -> None:
        """Train until the last step, or until ``ended`` says so."""
        ...
