"""Short inputs and labels, looked for as a whole, and what tells a copy of them from a word that is anybody's."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from gepa_lite.core.example import Example
from gepa_lite.guard.words import Words, folded_words, joined, texts_in

SHARED = 3
"""Training examples that must share a label, or examples that must share words of their inputs, for them to be no one example's."""

_ONCE_SHARE = 0.7
"""Of the distinct values of a label field that holds classes, at most so many come once; answers hardly repeat."""
_RARE_SHARE = 0.01
_NEAR = 25
_BESIDE = 4
_NAME_LETTERS = 4


class Phrase(NamedTuple):
    """A short input or a label.

    Attributes:
        words: folded.
        kind: what it is.
        owners: the examples that have it, ascending.
        strong: whether it gives an example away alone; a weak one does so only beside rare words of that example's input.
        written: how it is written.
    """

    words: tuple[str, ...]
    kind: Literal["input", "label"]
    owners: tuple[int, ...]
    strong: bool
    written: frozenset[str]


class Match(NamedTuple):
    """A phrase in a text: first word, last word, and the examples that it gives away."""

    phrase: Phrase
    first: int
    last: int
    owners: tuple[int, ...]


@dataclass
class _Gathered:
    """What the examples hold, before it is sorted out."""

    inputs: dict[tuple[str, ...], list[int]] = field(default_factory=lambda: defaultdict(list))
    labels: dict[tuple[str, ...], list[int]] = field(default_factory=lambda: defaultdict(list))
    written: dict[tuple[str, ...], set[str]] = field(default_factory=lambda: defaultdict(set))
    vocabulary: list[frozenset[str]] = field(default_factory=list)
    joined_inputs: list[str] = field(default_factory=list)


class PhraseIndex:
    """Short inputs and labels of all examples.

    Args:
        examples: all of them.
        train: how many of them, from the start, are training examples.
        compared: how many, from the start, are training or validation examples: the fields that hold classes are told by them.
        size: words from which on a text is too long for a phrase.
        ignore: fields left out.
        known: words that are open anyway, as one joined text.
    """

    def __init__(self, examples: Sequence[Example], train: int, compared: int, size: int, ignore: Sequence[str], known: str) -> None:
        self._train, self._known = train, known
        gathered = _gather(examples, class_fields(examples[:compared]), size, ignore)
        self._vocabulary = gathered.vocabulary
        self._frequency = Counter(word for words in gathered.vocabulary for word in words)
        self._train_frequency = Counter(word for words in gathered.vocabulary[:train] for word in words)
        self._rare_at = max(2, int(_RARE_SHARE * len(examples)))
        self._train_inputs = gathered.joined_inputs[:train]
        self._by_first: dict[str, list[Phrase]] = defaultdict(list)
        for kind, found in (("input", gathered.inputs), ("label", gathered.labels)):
            for words, owners in found.items():
                if self._is_anybodys(words, owners, kind):
                    continue
                strong = self._strong_input(words) if kind == "input" else self._strong_label(words, gathered.written[words])
                if strong or kind == "label":
                    owned = tuple(dict.fromkeys(owners))
                    self._by_first[words[0]].append(Phrase(words, kind, owned, strong, frozenset(gathered.written[words])))  # type: ignore[arg-type]

    def matches(self, words: Words) -> Iterator[Match]:
        """The phrases that a text gives examples away by, in order."""
        folded = words.folded
        for first, word in enumerate(folded):
            for phrase in self._by_first.get(word, ()):
                last = first + len(phrase.words) - 1
                if tuple(folded[first : last + 1]) != phrase.words:
                    continue
                if len(phrase.words) == 1 and phrase.strong and words.written(first) not in phrase.written:
                    continue
                owners = phrase.owners if phrase.strong else self.in_company(phrase.owners, folded, first, last)
                if owners:
                    yield Match(phrase, first, last, owners)

    def is_general(self, words: Sequence[str], owner: int) -> bool:
        """Whether words of an example's label state no particulars: no number, and at most one rare word of its input."""
        # in few examples short words such as "to" seem rare too
        own = {word for word in words if len(word) >= _NAME_LETTERS and word in self._vocabulary[owner] and self._is_rare(word)}
        return len(own) <= 1 and not any(map(str.isdigit, "".join(words)))

    def in_company(self, owners: Sequence[int], folded: Sequence[str], first: int, last: int) -> tuple[int, ...]:
        """The examples of which rare words of the input stand near: two of them, or the only one close by."""
        return tuple(owner for owner in owners if self._is_near(owner, folded, first, last))

    def _is_anybodys(self, words: tuple[str, ...], owners: Sequence[int], kind: str) -> bool:
        """Open already, shared by several training examples, or part of the language of their inputs."""
        sharing = {owner for owner in owners if kind == "input" or owner < self._train}
        if joined(words) in self._known or len(sharing) >= SHARED:
            return True
        if kind == "input" or any(self._train_frequency[word] < SHARED for word in words):
            return False
        if len(words) == 1:
            return True
        spoken = joined(words)
        return sum(spoken in text for text in self._train_inputs) >= SHARED

    def _strong_input(self, words: tuple[str, ...]) -> bool:
        return len(words) >= 3 and any(self._is_rare(word) for word in words)

    def _strong_label(self, words: tuple[str, ...], written: set[str]) -> bool:
        """A name, or three words and more of which one at least is no everyday word of the inputs."""
        if all(self._train_frequency[word] >= SHARED for word in words):
            return False
        if len(words) >= 3:
            return True
        name = all(text[:1].isupper() or (any(map(str.isdigit, text)) and any(map(str.isalpha, text))) for text in written)
        return name and max(map(len, words)) >= _NAME_LETTERS and any(map(str.isalpha, words[-1]))

    def _is_rare(self, word: str) -> bool:
        return 0 < self._frequency[word] <= self._rare_at and joined((word,)) not in self._known

    def _is_near(self, owner: int, folded: Sequence[str], first: int, last: int) -> bool:
        rare = {word for word in self._vocabulary[owner] if self._is_rare(word)} - set(folded[first : last + 1])
        near = rare.intersection(folded[max(0, first - _NEAR) : last + 1 + _NEAR])
        if len(near) >= 2:
            return True
        return bool(near) and len(rare) == 1 and not rare.isdisjoint(folded[max(0, first - _BESIDE) : last + 1 + _BESIDE])


def class_fields(examples: Sequence[Example]) -> frozenset[str]:
    """The label fields that hold classes: of their distinct values at least 3 in 10 come twice or more. Numbers are none: each is looked at alone."""
    values: Mapping[str, list[str]] = defaultdict(list)
    for example in examples:
        for name, value in example.labels.items():
            values[name] += [joined(folded_words(text)) for text in texts_in(value)]
    found = set()
    for name, texts in values.items():
        counts = Counter(texts)
        once = sum(count == 1 for count in counts.values())
        numbers = sum(text.replace(" ", "").isdigit() for text in texts)
        if len(texts) > 1 and once <= _ONCE_SHARE * len(counts) and 2 * numbers <= len(texts):
            found.add(name)
    return frozenset(found)


def _gather(examples: Sequence[Example], classes: frozenset[str], size: int, ignore: Sequence[str]) -> _Gathered:
    gathered = _Gathered()
    for owner, example in enumerate(examples):
        vocabulary: set[str] = set()
        spoken: list[str] = []
        for value in example.inputs.values():
            for text in texts_in(value):
                words = tuple(folded_words(text))
                vocabulary.update(words)
                spoken += [*words, "\n"]
        gathered.vocabulary.append(frozenset(vocabulary))
        gathered.joined_inputs.append(joined(spoken))
        for kind, found in ((example.inputs, gathered.inputs), (example.labels, gathered.labels)):
            for name, value in kind.items():
                if name in ignore or (kind is example.labels and name in classes):
                    continue
                for text in texts_in(value):
                    words = tuple(folded_words(text))
                    if 0 < len(words) < size:
                        found[words].append(owner)
                        gathered.written[words].add(" ".join(text.split()))
    return gathered
