"""Which candidate is improved next."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gepa_lite.search.front import Front, prune


class Selector(Protocol):
    """Chooses a parent from the front; draws only from the stream it is given. A frozen dataclass, so that its settings are part of the run's fingerprint."""

    def __call__(self, front: Front, stream: random.Random) -> int:
        """The parent's row in ``front``."""
        ...


def _draw(weights: NDArray[np.int64] | NDArray[np.float64], stream: random.Random) -> int:
    """A row with probability proportional to its weight; weights are at least 0 and not all 0."""
    sums = np.cumsum(weights)
    return min(int(np.searchsorted(sums, stream.random() * sums[-1], side="right")), len(weights) - 1)


def _ranking(front: Front) -> NDArray[np.int64]:
    """Rows by descending mean, the first of equal ones first."""
    return np.argsort(-front.means, kind="stable")


@dataclass(frozen=True, slots=True)
class Pareto:
    """The paper's: a survivor of the pruned per-example front, with probability proportional to the examples it wins."""

    def __call__(self, front: Front, stream: random.Random) -> int:
        """Draw."""
        return _draw(prune(front), stream)


@dataclass(frozen=True, slots=True)
class Best:
    """Greedy: the highest mean (the paper's ablation "SelectBestCandidate")."""

    def __call__(self, front: Front, stream: random.Random) -> int:
        """The best, without a draw."""
        return front.best


@dataclass(frozen=True, slots=True)
class EpsilonGreedy:
    """The highest mean, but with probability ``epsilon`` any candidate."""

    epsilon: float = 0.1

    def __call__(self, front: Front, stream: random.Random) -> int:
        """Draw."""
        return stream.randrange(len(front.members)) if stream.random() < self.epsilon else front.best


@dataclass(frozen=True, slots=True)
class TopKPareto:
    """The paper's draw among the ``k`` best means alone."""

    k: int = 5

    def __call__(self, front: Front, stream: random.Random) -> int:
        """Draw."""
        rows = _ranking(front)[: self.k]
        return int(rows[_draw(prune(Front.of(front.rows(rows), front.means[rows])), stream)])


@dataclass(frozen=True, slots=True)
class Beam:
    """One of the ``width`` best means, all alike (the paper's ablation "BeamSearch")."""

    width: int = 4

    def __call__(self, front: Front, stream: random.Random) -> int:
        """Draw."""
        rows = _ranking(front)[: self.width]
        return int(rows[stream.randrange(len(rows))])


@dataclass(frozen=True, slots=True)
class Elite:
    """One of the best ``share`` of the candidates, with probability proportional to its mean above the worst of the range (trajectory study §3)."""

    share: float = 0.2

    def __call__(self, front: Front, stream: random.Random) -> int:
        """Draw."""
        rows = _ranking(front)[: max(1, int(self.share * len(front.members)))]
        fitness = front.means[rows] - front.worst
        return int(rows[_draw(fitness, stream)]) if fitness.sum() > 0 else int(rows[0])


@dataclass(frozen=True, slots=True)
class Likely:
    """A candidate with the probability that it is truly the best on an example drawn at random.

    One binary score says little of a cell: each cell's rate has a Beta posterior whose prior is the candidate's own mean, worth ``weight`` samples. So a win within noise counts
    nearly as a tie, a candidate that is good everywhere wins often, and the best mean never has probability zero.
    """

    weight: float = 4.0

    def __call__(self, front: Front, stream: random.Random) -> int:
        """Draw."""
        column = stream.randrange(front.width)
        scale = max(front.top - front.worst, 1e-12)
        scores = np.clip((front.column(column) - front.worst) / scale, 0.0, 1.0)
        means = np.clip((front.means - front.worst) / scale, 0.02, 0.98)
        generator = np.random.default_rng(stream.getrandbits(64))
        draws = generator.beta(self.weight * means + scores, self.weight * (1 - means) + 1 - scores)
        return int(np.argmax(draws))


SELECTORS: dict[str, Selector] = {
    "beam": Beam(),
    "best": Best(),
    "elite": Elite(),
    "epsilon_greedy": EpsilonGreedy(),
    "likely": Likely(),
    "pareto": Pareto(),
    "top_k_pareto": TopKPareto(),
}
