"""Which of a few texts a reply means. Never a guess: a reply that fits two of them means none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

_MARKUP = " \t\r\n*_`~\"'«»\u201c\u201d\u2018\u2019"  # the last four: curly quotes
_PUNCTUATION = _MARKUP + ".,;:!?()[]{}<>#-\u2013\u2014"
_JOINTS = re.compile(r"[\s_\-]+")
_SEARCH_LIMIT = 20_000
_WHOLE_MARGIN = 1_000
_BOOL_WORDS = {"yes": "true", "no": "false"}
# "no evidence", "a dog": words of the language that stand for a choice only where the phrase ends after them
_EVERYDAY = frozenset({"yes", "no"})
_PHRASE_ENDS = re.compile(r"[ \t]*(?:$|[^\w\s]|[\r\n])")
_NEGATION = re.compile(r"(?:\b(?:not|never|no|neither|nor|without|cannot)|n['\u2019]t)\s+(?:\w+\s+){0,2}$", re.IGNORECASE)


class Ambiguous(ValueError):
    """Two or more choices fit.

    Attributes:
        found: the choices that fit, in declared order.
    """

    def __init__(self, found: Iterable[str]) -> None:
        self.found = tuple(found)
        super().__init__(", ".join(self.found))


def whole_choice(text: str, choices: Mapping[str, Any]) -> str | None:
    """The choice that the whole text is: exactly, else without regard to case and joints, then markup, then surrounding punctuation.

    For a bool (choices ``true`` and ``false``) yes and no count too.

    Raises:
        Ambiguous: two choices are equal under the first rule that finds any.
    """
    if text in choices:
        return text
    if len(text) > max(map(len, choices), default=0) + _WHOLE_MARGIN:
        return None
    spellings = {choice: choice for choice in choices}
    if is_bool(choices):
        spellings.update(_BOOL_WORDS)
    for strip in (" \t\r\n", _MARKUP, _PUNCTUATION):
        key = _key(text, strip)
        fits = dict.fromkeys(choice for spelling, choice in spellings.items() if key and _key(spelling, strip) == key)
        if len(fits) > 1:
            raise Ambiguous(fits)
        if fits:
            return next(iter(fits))
    return None


def is_bool(choices: Mapping[str, Any]) -> bool:
    """Whether the choices stand for True and False."""
    return set(choices.values()) == {True, False}


def _key(text: str, strip: str) -> str:
    return _JOINTS.sub(" ", text.strip(strip)).casefold()


def choice_in_prose(text: str, choices: Mapping[str, Any]) -> str | None:
    """The one choice that a text names as a word, whatever its case and joints; the longest where one holds another ("very high", "high").

    One-letter choices and yes and no count only where a phrase ends after them, and letters only in their own case. A choice under a
    negation ("not high") is not taken. Texts above 20,000 characters are not searched.

    Raises:
        Ambiguous: two different choices occur.
    """
    spellings = {_key(choice, ""): choice for choice in choices}
    if is_bool(choices):
        spellings.update(_BOOL_WORDS)
    if len(text) > _SEARCH_LIMIT or len(spellings) < len(choices):
        return None
    longest_first = sorted(filter(None, spellings), key=len, reverse=True)
    words = "|".join(r"[\s_\-]+".join(map(re.escape, spelling.split(" "))) for spelling in longest_first)
    pattern = re.compile(rf"(?<!\w)(?:{words})(?!\w)", re.IGNORECASE)
    found: dict[str, bool] = {}
    for match in pattern.finditer(text):
        word = match.group()
        choice = spellings.get(_key(word, ""))
        if choice is None or (len(choice) == 1 and word != choice):
            continue
        found[choice] = found.get(choice, False) or _is_meant(text, match)
    if len(found) > 1:
        raise Ambiguous(choice for choice in choices if choice in found)
    return next((choice for choice, meant in found.items() if meant), None)


def _is_meant(text: str, match: re.Match[str]) -> bool:
    word = match.group()
    if (len(word) == 1 or word.casefold() in _EVERYDAY) and not _PHRASE_ENDS.match(text, match.end()):
        return False
    return _NEGATION.search(text[max(0, match.start() - 40) : match.start()]) is None
