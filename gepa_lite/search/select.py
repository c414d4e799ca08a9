"""Which candidate is improved next."""

from __future__ import annotations

import random
from typing import Protocol

import numpy as np

from gepa_lite.search.front import Front, prune


class Selector(Protocol):
    """Chooses a parent from the front; draws only from the stream it is given."""

    def __call__(self, front: Front, stream: random.Random) -> int:
        """The parent's row in ``front``."""
        ...


def pareto(front: Front, stream: random.Random) -> int:
    """The paper's: a survivor of the pruned per-example front, with probability proportional to the examples it wins."""
    wins = prune(front.owners, front.means)
    ticket = stream.randrange(int(wins.sum()))
    return int(np.searchsorted(np.cumsum(wins), ticket, side="right"))


def best(front: Front, stream: random.Random) -> int:
    """Greedy: the highest mean (the paper's ablation "SelectBestCandidate")."""
    return front.best


SELECTORS: dict[str, Selector] = {"best": best, "pareto": pareto}
