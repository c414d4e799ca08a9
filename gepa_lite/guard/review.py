"""The leak guard itself: everything that a proposed text gives away beyond what its parent did."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gepa_lite.core.example import Example
from gepa_lite.core.finding import Finding
from gepa_lite.core.sentences import sentences_of
from gepa_lite.errors import UsageError
from gepa_lite.guard.detect import personal_data, secrets
from gepa_lite.guard.meta import MetaIndex
from gepa_lite.guard.near import NearIndex, Piece
from gepa_lite.guard.options import Guard, Span
from gepa_lite.guard.overlap import OverlapIndex, runs_of
from gepa_lite.guard.phrases import SHARED, Match, PhraseIndex, class_fields
from gepa_lite.guard.words import Words, folded_words, joined, texts_in, weight, windows, words_of

MOST = 20
"""Findings of one text that are kept."""

_EXCERPT = 12

_LONGER = 4
"""Words by which a run of everyday words must be longer than one with a rare word, unless it is a whole sentence of the example."""

_FEW = 3
"""Words from which on a label that the feedback quotes may be a reason, and no name."""

Heard = Sequence[tuple[str, str]]
"""What the feedback said, by example id. Words that it says of one example are free even where another example holds them: they are the reviewer's; so is a reason that it quotes from a label."""


class _Place(NamedTuple):
    """Words of the text that stand in an example: the first and the last, who holds them, and whether a label does."""

    first: int
    last: int
    owner: int
    label: bool


class LeakGuard:
    """Looks through proposed texts. Built once a run; a look takes milliseconds and is pure.

    Args:
        options: what to look for.
        splits: the examples by split, ``train`` and ``validation`` among them.
        known: texts that are open anyway: the seed prompts, the program's purpose, its signatures in words.
        templates: sources of the reflection templates.

    Raises:
        UsageError: the options name a field that no example has.
    """

    def __init__(self, options: Guard, splits: Mapping[str, Sequence[Example]], known: Sequence[str], templates: Sequence[str]) -> None:
        self._options = options
        self._splits = [split for split, examples in splits.items() for _ in examples]
        self._examples = [example for examples in splits.values() for example in examples]
        _check_fields(options, self._examples)
        self._train = sum(split == "train" for split in self._splits)
        compared = sum(split in ("train", "validation") for split in self._splits)
        self._known = (*known, *options.allow)
        self._known_words = joined([word for text in self._known for word in [*folded_words(text), "\n"]])
        self._known_runs = {run for text in self._known for run in windows(folded_words(text), options.words)}
        sentences: list[tuple[int, list[str]]] = []
        runs: list[tuple[int, list[str]]] = []
        for owner, text in self._texts(class_fields(self._examples[:compared])):
            spoken = [folded_words(sentence) for sentence in sentences_of(text)]
            sentences += [(owner, words) for words in spoken]
            runs.append((owner, [word for words in spoken for word in words]))
        self._overlap = OverlapIndex(options.words, runs)
        self._sentences: dict[int, list[str]] = defaultdict(list)
        for owner, words in sentences:
            if len(words) >= options.words:
                self._sentences[owner].append(joined(words))
        self._near = NearIndex(sentences, len(self._examples), self._known_words, SHARED)
        self._phrases = PhraseIndex(self._examples, self._train, compared, options.words, options.ignore, self._known_words)
        self._meta = MetaIndex(templates, self._known_words)

    def review(self, module: str, text: str, parent: Mapping[str, str], heard: Heard = ()) -> list[Finding]:
        """What a proposed text gives away, at most ``MOST`` findings: copies first, in order.

        Args:
            module: whose text it is.
            text: as proposed.
            parent: the texts of the candidate that it changes: what they hold is not found again.
            heard: what the feedback said that led to it.

        Raises:
            UsageError: a detector of the user's own failed.
        """
        options, words = self._options, words_of(text)
        # looked for in any case, so that no finding's words hold them
        hidden = [*(("personal", span) for span in self._personal(text)), *(("secret", span) for span in secrets(text))]
        old = " ".join([*self._known, *parent.values()]).casefold()
        wanted = {"personal": options.personal, "secret": options.secrets}
        found = [
            self._sensitive(module, text, rule, span)
            for rule, span in hidden
            if wanted[rule] and text[span[1] : span[2]].casefold() not in old
        ]
        if options.meta:
            talk = (span for span in self._meta.spans(words) if text[span[0] : span[1]].casefold() not in old)
            found += [self._talk(module, words, span, hidden) for span in talk]
        if options.copies:
            places = self._places(words, parent, heard)[: max(1, MOST - len(found))]
            found = [*(self._copy(module, words, place, hidden) for place in places), *found]
        return found[:MOST]

    def _texts(self, classes: frozenset[str]) -> Iterator[tuple[int, str]]:
        """Texts of inputs with even owners, of labels with odd ones."""
        for place, example in enumerate(self._examples):
            for label, fields in enumerate((example.inputs, example.labels)):
                for name, value in fields.items():
                    if name not in self._options.ignore and not (label and name in classes):
                        for text in texts_in(value):
                            yield 2 * place + label, text

    def _places(self, words: Words, parent: Mapping[str, str], heard: Heard) -> list[_Place]:
        """Where examples are copied, in order: runs of words, then sentences that are nearly theirs, then short phrases."""
        size = self._options.words
        before = {run for text in parent.values() for run in windows(folded_words(text), size)} | self._known_runs
        spoken = [(example, folded_words(text)) for example, text in heard]
        said: dict[tuple[str, ...], set[str]] = {}
        for example, told in spoken:
            for run in windows(told, size):
                said.setdefault(run, set()).add(example)
        hits = {}
        for start, owners in self._overlap.hits(words.folded).items():
            run = tuple(words.folded[start : start + size])
            if run not in before and not self._is_shared(owners) and not self._is_feedback(run, owners, said.get(run)):
                hits[start] = owners
        places = [
            _Place(run.first, run.last, run.owners[0] // 2, bool(run.owners[0] % 2))
            for run in runs_of(hits, size)
            if self._tells(run.owners, words.folded[run.first : run.last + 1])
        ]
        places += self._nearly(words, parent, spoken, places)
        places += self._phrases_in(words, parent, [(example, joined(told)) for example, told in spoken], places)
        return sorted(places, key=lambda place: (place.first, -place.last))

    def _tells(self, owners: Sequence[int], run: Sequence[str]) -> bool:
        """Whether words in a row are an example's own and no turn of everyday speech."""
        heavy = weight(run) - self._options.words
        if heavy < 0 or heavy >= _LONGER or not self._near.rare.isdisjoint(run):
            return heavy >= 0
        spoken = joined(run)
        return any(sentence in spoken for owner in owners for sentence in self._sentences[owner])

    def _is_shared(self, owners: frozenset[int]) -> bool:
        """Whether a run of words is anybody's: several training examples hold it, or the inputs of several examples of any split."""
        training, asked = {owner // 2 for owner in owners if owner // 2 < self._train}, {owner for owner in owners if owner % 2 == 0}
        return len(training) >= SHARED or len(asked) >= SHARED

    def _is_feedback(self, run: Sequence[str], owners: Iterable[int], said: set[str] | None) -> bool:
        """Whether words are the feedback's: said of an example that does not hold them, or a label that it quotes and that states no particulars."""
        if said is None:
            return False
        return bool(said - self._ids(owners)) or all(owner % 2 and self._phrases.is_general(run, owner // 2) for owner in owners)

    def _nearly(
        self, words: Words, parent: Mapping[str, str], spoken: Sequence[tuple[str, list[str]]], places: Sequence[_Place]
    ) -> list[_Place]:
        found = list(self._near.matches(words.folded))
        if not found:
            return []
        before = {match.piece for text in (*parent.values(), *self._known) for match in self._near.matches(folded_words(text))}
        said: dict[Piece, set[str]] = {}
        for example, told in spoken:
            for match in self._near.matches(told):
                said.setdefault(match.piece, set()).add(example)
        covered = {place for run in places for place in range(run.first, run.last + 1)}
        return [
            _Place(match.first, match.last, match.piece.owners[0] // 2, bool(match.piece.owners[0] % 2))
            for match in found
            if match.piece not in before
            and not self._is_feedback(match.piece.words, match.piece.owners, said.get(match.piece))
            and covered.isdisjoint(range(match.first, match.last + 1))
        ]

    def _phrases_in(self, words: Words, parent: Mapping[str, str], heard: Heard, places: Sequence[_Place]) -> Iterator[_Place]:
        before = joined([word for text in parent.values() for word in [*folded_words(text), "\n"]])
        covered = {place for run in places for place in range(run.first, run.last + 1)}
        seen: set[tuple[str, ...]] = set()
        for match in self._phrases.matches(words):
            phrase, spoken = match.phrase, joined(match.phrase.words)
            if phrase.words in seen or (phrase.strong and spoken in before) or covered.issuperset(range(match.first, match.last + 1)):
                continue
            if not phrase.strong and self._beside(before, words, match.first, match.last):
                continue
            said = {example for example, told in heard if spoken in told}
            if said and self._is_said(match, words, said):
                continue
            seen.add(phrase.words)
            yield _Place(match.first, match.last, match.owners[0], phrase.kind == "label")

    def _is_said(self, match: Match, words: Words, said: set[str]) -> bool:
        """As for runs of words; a label of few words may be an answer, so it is free only where its question is not near."""
        if said - self._ids(2 * owner for owner in match.owners):
            return True
        phrase = match.phrase
        if phrase.kind == "input" or len(phrase.words) < _FEW or not all(self._phrases.is_general(phrase.words, o) for o in match.owners):
            return False
        return not self._phrases.in_company(match.owners, words.folded, match.first, match.last)

    @staticmethod
    def _beside(before: str, words: Words, first: int, last: int) -> bool:
        """Whether a word stands where it stood in the parent: with the same neighbours."""
        return joined(words.folded[max(0, first - 2) : last + 3]) in before

    def _ids(self, owners: Iterable[int]) -> set[str]:
        return {self._examples[owner // 2].id for owner in owners}

    def _personal(self, text: str) -> list[Span]:
        found = personal_data(text, self._options.region)
        for detector in self._options.detectors:
            try:
                spans = [(str(what), int(start), int(end)) for what, start, end in detector(text)]
            except Exception as error:
                name = getattr(detector, "__qualname__", type(detector).__qualname__)
                raise UsageError(
                    f"Guard(detectors=...): {name} must give (what, start, end) of a text: {type(error).__name__}: {error}"
                ) from error
            found += [span for span in spans if 0 <= span[1] < span[2] <= len(text)]
        return sorted(found, key=lambda span: (span[1], span[2]))

    def _copy(self, module: str, words: Words, place: _Place, hidden: Sequence[tuple[str, Span]]) -> Finding:
        start, end = words.spans[place.first][0], words.spans[place.last][1]
        shown = words.spans[min(place.last, place.first + _EXCERPT - 1)][1]
        excerpt = _excerpt(words.text, start, shown, hidden) + (" ..." if shown < end else "")
        if place.label:
            rule, why = (
                "copied_label",
                f"it gives away what belongs to one example alone, {excerpt!r}: leave it out, and say the general rule",
            )
        else:
            rule, why = "copied_input", f"it copies {excerpt!r} from an example: leave it out, and say the general rule in other words"
        return self._finding(module, rule, why, start, end, self._splits[place.owner], self._examples[place.owner].id)

    def _sensitive(self, module: str, text: str, rule: str, span: Span) -> Finding:
        what, start, end = span
        line = text.count("\n", 0, start) + 1
        return self._finding(module, rule, f"it holds {what} (line {line}): leave it out", start, end)

    def _talk(self, module: str, words: Words, span: tuple[int, int], hidden: Sequence[tuple[str, Span]]) -> Finding:
        excerpt = " ".join(_excerpt(words.text, *span, hidden).split()[:_EXCERPT])
        why = f"it speaks of how the prompt was made, {excerpt!r}: leave that out, and say only what the step must do"
        return self._finding(module, "meta", why, *span)

    def _finding(self, module: str, rule: str, words: str, start: int, end: int, split: str = "", example: str = "") -> Finding:
        return Finding(module, rule, words, self._options.mode == "reject", 0, split, example, start, end)


def _excerpt(text: str, start: int, end: int, hidden: Sequence[tuple[str, Span]]) -> str:
    """A piece of a text with personal data and secrets struck out."""
    shown, place = "", start
    for first, last in sorted((span[1], span[2]) for _, span in hidden):
        if last > place and first < end:
            shown += text[place : max(place, first)] + "***"
            place = max(place, last)
    return " ".join((shown + text[place:end]).split())


def _check_fields(options: Guard, examples: Sequence[Example]) -> None:
    names = sorted({name for example in examples for name in example})
    for name in options.ignore:
        if name not in names:
            raise UsageError(f"Guard(ignore={options.ignore!r}): no example has a field {name!r}; they have {', '.join(map(repr, names))}.")
