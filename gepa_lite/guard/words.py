"""Texts as words: what is compared is neither case nor punctuation nor layout."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gepa_lite.core.ids import jsonable

_IDEOGRAPH = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_IDEOGRAPH}]|[^\W{_IDEOGRAPH}_]+(?:['\u2019][^\W{_IDEOGRAPH}_]+)*")
_APOSTROPHES = str.maketrans("", "", "'\u2019")
_WIDE = re.compile(rf"[{_IDEOGRAPH}]")


class Words(NamedTuple):
    """A text's words.

    Attributes:
        text: as it was.
        folded: the words without regard to case and apostrophes.
        spans: first character of each, and the character after it.
    """

    text: str
    folded: list[str]
    spans: list[tuple[int, int]]

    def written(self, place: int) -> str:
        """A word as it is written."""
        start, end = self.spans[place]
        return self.text[start:end]


def words_of(text: str) -> Words:
    """Split a text. An ideograph is a word of its own.

    >>> words_of("Who's there?  It's 5 p.m.").folded
    ['whos', 'there', 'its', '5', 'p', 'm']
    """
    matches = list(_WORD.finditer(text))
    return Words(text, [match.group().casefold().translate(_APOSTROPHES) for match in matches], [match.span() for match in matches])


def folded_words(text: str) -> list[str]:
    """The words alone, as ``words_of`` gives them, in less time."""
    return [word.replace("'", "") for word in _WORD.findall(text.lower())] if text.isascii() else words_of(text).folded


def weight(words: Sequence[str]) -> float:
    """How many words a run is worth: an ideograph is half a word."""
    return sum(0.5 if _WIDE.match(word) else 1.0 for word in words)


def joined(words: Sequence[str]) -> str:
    """Words as one text, in which a phrase that is joined too is found whole.

    >>> joined(["a", "bc"]) in joined(["x", "a", "bc", "y"]), joined(["b"]) in joined(["bc"])
    (True, False)
    """
    return f" {' '.join(words)} "


def windows(words: Sequence[str], size: int) -> Iterator[tuple[str, ...]]:
    """All runs of so many words."""
    return (tuple(words[start : start + size]) for start in range(len(words) - size + 1))


def texts_in(value: Any) -> Iterator[str]:
    """The texts and numbers in a field's value, however nested; keys, booleans and None are none."""
    plain = jsonable(value)
    if isinstance(plain, Mapping):
        for item in plain.values():
            yield from texts_in(item)
    elif isinstance(plain, list):
        for item in plain:
            yield from texts_in(item)
    elif isinstance(plain, str):
        yield plain
    elif isinstance(plain, (int, float)) and not isinstance(plain, bool):
        yield f"{plain:g}" if isinstance(plain, float) else str(plain)
