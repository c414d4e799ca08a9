"""Read the JSON objects in a model's reply: amid prose and fences, and with the slips that models make."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

_STRICT = json.JSONDecoder(strict=False)  # not strict: raw line breaks inside strings are taken
_LOOSE_LIMIT = 1_000_000
_STARTS_LIMIT = 1_000
_DEPTH_LIMIT = 100
_AROUND = 30

_NOT_SPACE = re.compile(r"\S")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_WORD = re.compile(r"\w+")
_STRING_STOP = {'"': re.compile(r'["\\]'), "'": re.compile(r"['\\]")}
_HEX = re.compile(r"[0-9a-fA-F]+")
_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_ESCAPES = {'"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "\n": ""}


@dataclass(frozen=True, slots=True)
class Objects:
    """The JSON objects of a text.

    Attributes:
        found: the outermost objects, in order.
        cut_off: an object begins and never ends.
        broken: the text around the place where the longest unreadable object breaks, or "".
    """

    found: tuple[dict[str, Any], ...] = ()
    cut_off: bool = False
    broken: str = ""


class _Unreadable(ValueError):
    """No value here.

    Attributes:
        place: how far reading came.
        at_end: it failed for want of more text.
    """

    def __init__(self, place: int, *, at_end: bool) -> None:
        super().__init__(place)
        self.place = place
        self.at_end = at_end


def json_value(text: str) -> Any:
    """The value that the whole text is, code fence aside, as JSON or as JSON with slips (see ``json_objects``).

    Raises:
        ValueError: the text is anything else.
    """
    text = _without_fence(text.strip())
    try:
        return _STRICT.decode(text)
    except (ValueError, RecursionError):
        if len(text) > _LOOSE_LIMIT:
            raise ValueError from None
    reader = _Reader(text)
    value = reader.value(0)
    if reader.space() < len(text):
        raise ValueError
    return value


def json_objects(text: str) -> Objects:
    """The objects in a reply: fenced or not, with prose around them.

    Taken beside JSON: single quotes, Python's True, False, None and tuples, trailing commas, raw line breaks and unknown escapes in
    strings, keys without quotes. Time is linear in the text. A text above a million characters must be one JSON object. Never raises.
    """
    try:
        value = _STRICT.decode(_without_fence(text.strip()))
    except (ValueError, RecursionError):
        pass
    else:
        if isinstance(value, dict):
            return Objects((value,))
    if len(text) > _LOOSE_LIMIT:
        return Objects()
    found: list[dict[str, Any]] = []
    broken = range(0)
    start, starts, work = text.find("{"), 0, 0
    while start >= 0 and starts < _STARTS_LIMIT and work < 4 * len(text) + 10_000:
        starts += 1
        reader = _Reader(text, start)
        try:
            found.append(reader.value(0))
            end = reader.place
            work += end - start
        except _Unreadable as failure:
            if failure.at_end:  # what lies inside an unfinished object is part of it, never an answer of its own
                return Objects(tuple(found), cut_off=True)
            broken = max(broken, range(start, failure.place), key=len)
            work += failure.place - start
            end = start + 1
        start = text.find("{", end)
    around = text[max(broken.start, broken.stop - _AROUND) : broken.stop + _AROUND] if len(broken) > 1 else ""
    return Objects(tuple(found), broken=around)


def _without_fence(text: str) -> str:
    """The inside of a text that is one code fence as a whole."""
    if not (text.startswith("```") and text.endswith("```") and len(text) > 6):
        return text
    inside = text[3:-3]
    language, newline, rest = inside.partition("\n")
    return (rest if newline and language.strip().isalnum() else inside).strip()


class _Reader:
    """A recursive-descent reader of one value. Reading a part costs time in proportion to its length."""

    def __init__(self, text: str, place: int = 0) -> None:
        self.text = text
        self.place = place

    def fail(self) -> _Unreadable:
        return _Unreadable(self.place, at_end=self.place >= len(self.text))

    def space(self) -> int:
        """Skip white space and return the place after it."""
        match = _NOT_SPACE.search(self.text, self.place)
        self.place = match.start() if match else len(self.text)
        return self.place

    def peek(self) -> str:
        """The next mark after white space."""
        if self.space() >= len(self.text):
            raise self.fail()
        return self.text[self.place]

    def value(self, depth: int) -> Any:
        mark = self.peek()
        if depth > _DEPTH_LIMIT:
            raise _Unreadable(self.place, at_end=False)
        if mark == "{":
            return self.object(depth)
        if mark in "[(":
            return self.list("]" if mark == "[" else ")", depth)
        if mark in _STRING_STOP:
            return self.string(mark)
        return self.bare()

    def object(self, depth: int) -> dict[str, Any]:
        self.place += 1
        values: dict[str, Any] = {}
        while self.peek() != "}":
            key = self.key()
            if self.peek() != ":":
                raise self.fail()
            self.place += 1
            values[key] = self.value(depth + 1)
            self.separator("}")
        self.place += 1
        return values

    def key(self) -> str:
        mark = self.peek()
        if mark in _STRING_STOP:
            return self.string(mark)
        match = _WORD.match(self.text, self.place)
        if match is None:
            raise self.fail()
        self.place = match.end()
        return match.group()

    def list(self, closing: str, depth: int) -> list[Any]:
        self.place += 1
        values = []
        while self.peek() != closing:
            values.append(self.value(depth + 1))
            self.separator(closing)
        self.place += 1
        return values

    def separator(self, closing: str) -> None:
        """A comma, or nothing before the closing mark."""
        mark = self.peek()
        if mark == ",":
            self.place += 1
        elif mark != closing:
            raise self.fail()

    def string(self, quote: str) -> str:
        self.place += 1
        pieces: list[str] = []
        while True:
            stop = _STRING_STOP[quote].search(self.text, self.place)
            if stop is None:
                self.place = len(self.text)
                raise self.fail()
            pieces.append(self.text[self.place : stop.start()])
            self.place = stop.end()
            if stop.group() == quote:
                return "".join(pieces)
            pieces.append(self.escape())

    def escape(self) -> str:
        """What follows a backslash. One that JSON does not have, as in a regex or a formula, stands for itself, backslash included."""
        if self.place >= len(self.text):
            raise self.fail()
        mark = self.text[self.place]
        self.place += 1
        if mark in _ESCAPES:
            return _ESCAPES[mark]
        if mark != "u":
            return "\\" + mark
        unit = self.hex_unit(self.place)
        if unit is None:
            return "\\u"
        self.place += 4
        if 0xD800 <= unit < 0xDC00 and self.text.startswith("\\u", self.place):
            low = self.hex_unit(self.place + 2)
            if low is not None and 0xDC00 <= low < 0xE000:
                self.place += 6
                return chr(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00))
        return chr(unit)

    def hex_unit(self, place: int) -> int | None:
        digits = self.text[place : place + 4]
        return int(digits, 16) if len(digits) == 4 and _HEX.fullmatch(digits) else None

    def bare(self) -> Any:
        """A number, or one of true, false, null and Python's spellings of them."""
        match = _NUMBER.match(self.text, self.place) or _WORD.match(self.text, self.place)
        if match is None:
            raise self.fail()
        word = match.group()
        self.place = match.end()
        if word in _WORDS:
            return _WORDS[word]
        try:
            return int(word) if word.lstrip("+-").isdigit() else float(word)
        except ValueError:  # another word, or more digits than Python converts
            raise self.fail() from None
