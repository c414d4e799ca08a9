"""Which training examples a proposal learns from (papers: GEPA §1.5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from gepa_lite.core.seeds import stream

Schedule = int | tuple[tuple[int, int], ...]
"""A size, or sizes from given proposals on: ``((0, 3), (40, 6))`` is 3 for the first forty proposals and 6 from then on."""


def size_at(schedule: Schedule, index: int) -> tuple[int, int]:
    """The size that holds for a proposal, and how many proposals that size has held before it."""
    if isinstance(schedule, int):
        return schedule, index
    start, size = max((part for part in schedule if part[0] <= index), key=lambda part: part[0])
    return size, index - start


def epoch_minibatch(ids: Sequence[str], size: int, index: int, seed: int) -> tuple[str, ...]:
    """The minibatch of one index, epoch-shuffled: a pure function of its arguments.

    Each epoch is a new shuffle, padded to a multiple of ``size``, so every example is seen once or twice an epoch. Consecutive indices of an epoch do not overlap but
    for the padding, which never repeats an example within a minibatch.

    Args:
        ids: the training examples' ids.
        size: examples per minibatch; with fewer examples than that, all of them.
        index: index of the proposal among those of this size, from 0.
        seed: the search's seed.
    """
    if size >= len(ids):
        return tuple(ids)
    per_epoch = -(-len(ids) // size)
    epoch, place = divmod(index, per_epoch)
    return _epoch(tuple(ids), size, epoch, seed)[place * size : (place + 1) * size]


@lru_cache(maxsize=8)
def _epoch(ids: tuple[str, ...], size: int, epoch: int, seed: int) -> tuple[str, ...]:
    """One epoch's order, padded; kept, since each of its minibatches asks for it."""
    order = list(ids)
    stream(seed, "epoch", size, epoch).shuffle(order)
    order += order[: -len(order) % size]
    return tuple(order)


def hard_minibatch(ids: Sequence[str], size: int, index: int, seed: int, ease: Mapping[str, float]) -> tuple[str, ...]:
    """A minibatch that prefers examples that candidates failed on.

    An example's weight is 1 where it was never seen, else 0.1 at full ease rising to 1 at none: what is solved comes back now and then, so that a loss is noticed.

    Args:
        ids: the training examples' ids.
        size: examples per minibatch.
        index: global index of the proposal.
        seed: the search's seed.
        ease: by example, its mean value so far scaled to 0 (worst) to 1 (best).
    """
    if size >= len(ids):
        return tuple(ids)
    draw = stream(seed, "hard", index)
    # exponential keys: the smallest of -ln(u)/w are a weighted sample without replacement
    keys = {example: draw.expovariate(1.0) / (1.0 - 0.9 * ease.get(example, 0.0)) for example in ids}
    return tuple(sorted(ids, key=lambda example: (keys[example], example))[:size])
