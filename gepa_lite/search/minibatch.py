"""Which training examples a proposal learns from: epoch-shuffled (papers: GEPA §1.5)."""

from __future__ import annotations

from collections.abc import Sequence

from gepa_lite.core.seeds import stream


def epoch_minibatch(ids: Sequence[str], size: int, index: int, seed: int) -> tuple[str, ...]:
    """The minibatch of one index: a pure function of its arguments.

    Each epoch is a new shuffle, padded to a multiple of ``size``, so every example is seen once or twice an epoch. Consecutive indices of an epoch do not overlap but
    for the padding, which never repeats an example within a minibatch.

    Args:
        ids: the training examples' ids.
        size: examples per minibatch; with fewer examples than that, all of them.
        index: global index of the proposal, from 0.
        seed: the search's seed.
    """
    if size >= len(ids):
        return tuple(ids)
    per_epoch = -(-len(ids) // size)
    epoch, place = divmod(index, per_epoch)
    order = list(ids)
    stream(seed, "epoch", epoch).shuffle(order)
    lacking = per_epoch * size - len(order)
    order += order[:lacking]
    return tuple(order[place * size : (place + 1) * size])
