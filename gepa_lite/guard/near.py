"""Sentences of examples that a text repeats with words left out, put in or replaced."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gepa_lite.guard.words import joined

_LEAST = 5
_MOST = 20
_SAME = 0.75
"""Of a sentence's words, the share that must stand in a text in the same order."""
_RARE_SHARE = 0.01
_RARE_WORDS = 2


class Piece(NamedTuple):
    """A sentence, or part of a long one, and who holds it."""

    words: tuple[str, ...]
    owners: tuple[int, ...]


class Likeness(NamedTuple):
    """Words of a text that repeat most of a piece: the first and the last."""

    piece: Piece
    first: int
    last: int


class NearIndex:
    """Sentences by their rare words: two of them must stand near each other before words are compared one by one.

    Attributes:
        rare: words that stand in at most 1 % of the examples, or in two, and are not known.

    Args:
        sentences: owner and words of each; several owners may have the same one.
        examples: how many examples there are.
        known: words that are open anyway, as one joined text.
        shared: owners from which on a sentence is anybody's.
    """

    def __init__(self, sentences: Sequence[tuple[int, Sequence[str]]], examples: int, known: str, shared: int) -> None:
        holders: dict[str, set[int]] = defaultdict(set)
        owners: dict[tuple[str, ...], set[int]] = defaultdict(set)
        for owner, words in sentences:
            for word in words:
                holders[word].add(owner // 2)
            for part in _pieces(words):
                owners[part].add(owner)
        most = max(2, int(_RARE_SHARE * examples))
        self.rare = frozenset(word for word, who in holders.items() if len(who) <= most and joined((word,)) not in known)
        self._by_word: dict[str, list[Piece]] = defaultdict(list)
        for words, who in owners.items():
            rare = self.rare.intersection(words)
            if len(rare) >= _RARE_WORDS and len({owner // 2 for owner in who}) < shared:
                piece = Piece(words, tuple(sorted(who)))
                for word in rare:
                    self._by_word[word].append(piece)

    def matches(self, words: Sequence[str]) -> Iterator[Likeness]:
        """The pieces that a text repeats, each once."""
        places: dict[Piece, list[int]] = defaultdict(list)
        for place, word in enumerate(words):
            for piece in self._by_word.get(word, ()):
                places[piece].append(place)
        for piece, hits in places.items():
            if len({words[place] for place in hits}) >= _RARE_WORDS and (found := self._compared(piece, words, hits)):
                yield found

    def _compared(self, piece: Piece, words: Sequence[str], hits: Sequence[int]) -> Likeness | None:
        size = len(piece.words)
        need = max(_LEAST - 1, math.ceil(_SAME * size))
        bag = Counter(piece.words)
        done = -1
        for hit in hits:
            if hit <= done:
                continue
            # as far to either side as the piece may reach from any of its words, with a third put in
            start, done = max(0, hit - size * 4 // 3), hit + size * 4 // 3
            window = words[start : done + 1]
            if (Counter(window) & bag).total() < need:
                continue
            same = _in_order(piece.words, window)
            if len(same) < need or len({window[place] for place in same} & self.rare) < _RARE_WORDS:
                continue
            if same[-1] - same[0] < 2 * size:
                return Likeness(piece, start + same[0], start + same[-1])
        return None


def _pieces(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """A sentence in parts of about equal length; none where it is too short."""
    if len(words) >= _LEAST:
        parts = math.ceil(len(words) / _MOST)
        for part in range(parts):
            yield tuple(words[part * len(words) // parts : (part + 1) * len(words) // parts])


def _in_order(piece: Sequence[str], window: Sequence[str]) -> list[int]:
    """Places in the window of a longest common subsequence."""
    rows = [[0] * (len(window) + 1) for _ in range(len(piece) + 1)]
    for i in range(len(piece) - 1, -1, -1):
        for j in range(len(window) - 1, -1, -1):
            rows[i][j] = rows[i + 1][j + 1] + 1 if piece[i] == window[j] else max(rows[i + 1][j], rows[i][j + 1])
    i = j = 0
    same = []
    while i < len(piece) and j < len(window):
        if piece[i] == window[j]:
            same.append(j)
            i, j = i + 1, j + 1
        elif rows[i + 1][j] >= rows[i][j + 1]:
            i += 1
        else:
            j += 1
    return same
