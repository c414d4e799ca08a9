"""Which runs of a text's words stand in which examples: an index over all examples, built once a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gepa_lite.core.seeds import stream

_GAP = -1


class Run(NamedTuple):
    """Words of a text that stand in one example, in a row.

    Attributes:
        first: place of the first word in the text.
        last: of the last one.
        owners: the examples that hold all of them, ascending.
    """

    first: int
    last: int
    owners: tuple[int, ...]


class OverlapIndex:
    """Word n-grams of many texts, as sorted 64-bit hashes: about 12 bytes a word. A hit is verified word by word.

    Args:
        size: words in a row.
        texts: owner and words of each text; an owner may have several.
    """

    def __init__(self, size: int, texts: Sequence[tuple[int, Sequence[str]]]) -> None:
        self._size = size
        self._numbers: dict[str, int] = {}
        ids: list[int] = []
        owners: list[int] = []
        for owner, words in texts:
            ids += [self._numbers.setdefault(word, len(self._numbers)) for word in words]
            ids.append(_GAP)
            owners += [owner] * (len(words) + 1)
        self._ids = np.array(ids, dtype=np.int64)
        self._owners = np.array(owners, dtype=np.int32)
        # fixed odd factors: the hash is the same in every process
        draw = stream(0, "n-gram")
        self._factors = np.array([draw.getrandbits(64) | 1 for _ in range(size)], dtype=np.uint64)
        hashes, whole = self._hashes(self._ids)
        places = np.flatnonzero(whole)
        order = np.argsort(hashes[places], kind="stable")
        self._places = places[order].astype(np.int32)
        self._sorted = hashes[places][order]

    def hits(self, words: Sequence[str]) -> dict[int, frozenset[int]]:
        """For each place of a text at which a run begins that some examples hold: who they are."""
        ids = np.array([self._numbers.get(word, _GAP) for word in words], dtype=np.int64)
        hashes, whole = self._hashes(ids)
        starts = np.flatnonzero(whole)
        if not len(starts) or not len(self._sorted):
            return {}
        left = np.searchsorted(self._sorted, hashes[starts], side="left")
        right = np.searchsorted(self._sorted, hashes[starts], side="right")
        found = {}
        for place in np.flatnonzero(right > left):
            start = int(starts[place])
            where = self._places[left[place] : right[place]]
            same = (self._ids[where[:, None] + np.arange(self._size)] == ids[start : start + self._size]).all(axis=1)
            if same.any():
                found[start] = frozenset(self._owners[where[same]].tolist())
        return found

    def _hashes(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """The hash of the run at each place, and whether there is one that crosses no gap."""
        count = len(ids) - self._size + 1
        if count <= 0:
            return np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.bool_)
        hashes = np.zeros(count, dtype=np.uint64)
        whole = np.ones(count, dtype=np.bool_)
        for offset in range(self._size):
            part = ids[offset : offset + count]
            hashes += (part + 2).astype(np.uint64) * self._factors[offset]
            whole &= part != _GAP
        return hashes, whole


def runs_of(hits: dict[int, frozenset[int]], size: int) -> list[Run]:
    """Hits in a row that have an owner in common, joined: the longest runs, from left to right."""
    runs: list[Run] = []
    first, last, owners = -1, -1, frozenset[int]()
    for start in sorted(hits):
        common = owners & hits[start]
        if first >= 0 and start == last + 1 and common:
            last, owners = start, common
            continue
        if first >= 0:
            runs.append(Run(first, last + size - 1, tuple(sorted(owners))))
        first = last = start
        owners = hits[start]
    if first >= 0:
        runs.append(Run(first, last + size - 1, tuple(sorted(owners))))
    return runs
