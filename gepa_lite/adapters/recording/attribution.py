"""Which prompt a model call carries: the one whose text stands in its messages, also with its placeholders filled in."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from gepa_lite.core.call import Message
from gepa_lite.core.placeholders import PLACEHOLDERS

_JINJA = re.compile(r"\{\{-?\s*(?P<name>[A-Za-z_][\w.]*)?.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)

_ENOUGH = 0.6
"""The share of a Jinja2 template's own letters that must be found: blocks may be left out of what it renders."""


@dataclass(frozen=True, slots=True)
class Carried:
    """A prompt that was found in the messages of a call.

    Attributes:
        module: its name.
        inputs: what else was sent: the values of its placeholders, what stands around it, the other messages.
        weight: letters of the prompt that were found.
    """

    module: str
    inputs: Mapping[str, str]
    weight: int


@dataclass(frozen=True, slots=True)
class _Hole:
    name: str


@dataclass(frozen=True, slots=True)
class _Match:
    found: int
    of: int
    values: Mapping[str, str]
    before: str
    after: str

    @property
    def share(self) -> float:
        return self.found / self.of if self.of else 0.0


@dataclass
class _Seeker:
    """Finds the pieces of one template in one text, from left to right."""

    text: str
    place: int = 0
    first: int = -1
    found: int = 0
    values: dict[str, str] = field(default_factory=dict)

    def seek(self, piece: str, holes: Sequence[str]) -> None:
        """Look for the next literal piece; what lies before it fills the holes."""
        at = self.text.find(piece, self.place)
        if at < 0:
            return
        if self.first < 0:
            # a template that starts with a placeholder starts where its message does
            self.first = 0 if holes else at
        self._fill(holes, self.text[self.place : at])
        self.place = at + len(piece)
        self.found += len(piece)

    def end(self, holes: Sequence[str]) -> None:
        """A template that ends with a placeholder ends where its message does."""
        if holes and self.first >= 0:
            self._fill(holes, self.text[self.place :])
            self.place = len(self.text)

    def _fill(self, holes: Sequence[str], value: str) -> None:
        names = [name for name in holes if name]
        if len(names) == len(holes) == 1:
            self.values.setdefault(names[0], value.strip())
        elif names:
            self.values.setdefault(", ".join(names), value.strip())


def carried_by(messages: Sequence[Message], texts: Mapping[str, str], forms: Mapping[str, str], last_read: str | None) -> Carried | None:
    """The prompt that a call carries, or None.

    Args:
        messages: as they were sent.
        texts: the prompts by name, as they were in force.
        forms: of the prompts, see ``Contract``.
        last_read: decides between prompts that are found equally well.
    """
    best: Carried | None = None
    for name, text in texts.items():
        matches = [(_match(text, forms.get(name, "text"), message["content"]), index) for index, message in enumerate(messages)]
        match, index = max(matches, key=lambda pair: pair[0].found, default=(_Match(0, 1, {}, "", ""), 0))
        if match.found == 0 or match.share < (_ENOUGH if forms.get(name) == "jinja" else 1.0):
            continue
        if best is None or match.found > best.weight or (match.found == best.weight and name == last_read):
            best = Carried(name, _rest(messages, match, index), match.found)
    return best


def inputs_without_prompt(messages: Sequence[Message]) -> dict[str, str]:
    """The messages of a call that carries no prompt, by role."""
    return _rest(messages, _Match(0, 1, {}, "", ""), -1)


def _rest(messages: Sequence[Message], match: _Match, index: int) -> dict[str, str]:
    inputs = dict(match.values)
    for place, message in enumerate(messages):
        role = message["role"]
        if place != index:
            _add(inputs, role, message["content"])
            continue
        _add(inputs, f"{role}, before the prompt", match.before)
        _add(inputs, f"{role}, after the prompt", match.after)
    return inputs


def _add(inputs: dict[str, str], name: str, text: str) -> None:
    if not text.strip():
        return
    number = 2
    key = name
    while key in inputs:
        key, number = f"{name} {number}", number + 1
    inputs[key] = text.strip()


def _match(text: str, form: str, content: str) -> _Match:
    whole = text.strip()
    if not whole:
        return _Match(0, 1, {}, "", "")
    plain = _verbatim(whole, content) or _verbatim(_one_line(whole), _one_line(content))
    if plain is not None:
        return plain
    pieces = _pieces(whole, form)
    exact = _in_pieces(pieces, content)
    if exact.share == 1.0 or not any(isinstance(piece, _Hole) for piece in pieces):
        return exact
    loose = _in_pieces([_one_line(piece) if isinstance(piece, str) else piece for piece in pieces], _one_line(content))
    return max(exact, loose, key=lambda match: match.share)


def _verbatim(text: str, content: str) -> _Match | None:
    before, found, after = content.partition(text)
    return _Match(len(text), len(text), {}, before, after) if found else None


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _in_pieces(pieces: Sequence[str | _Hole], content: str) -> _Match:
    seeker = _Seeker(content)
    holes: list[str] = []
    literals = [piece.strip() for piece in pieces if isinstance(piece, str)]
    for piece in pieces:
        if isinstance(piece, _Hole):
            holes.append(piece.name)
        elif piece.strip():
            found = seeker.found
            seeker.seek(piece.strip(), holes)
            # what a missing piece leaves open is no value of a placeholder
            holes = [] if seeker.found > found else [*holes, ""]
    seeker.end(holes)
    start = max(0, seeker.first)
    return _Match(seeker.found, sum(map(len, literals)), seeker.values, content[:start], content[seeker.place :])


@lru_cache(maxsize=512)
def _pieces(text: str, form: str) -> tuple[str | _Hole, ...]:
    return tuple(_split(text, form))


def _split(text: str, form: str) -> Iterator[str | _Hole]:
    if form == "format":
        for literal, name, _, _ in string.Formatter().parse(text):
            yield literal
            if name is not None:
                yield _Hole(name)
        return
    pattern = {"jinja": _JINJA, "template": string.Template.pattern}.get(form, PLACEHOLDERS)
    place, held = 0, ""
    for match in pattern.finditer(text):
        held += text[place : match.start()]
        place = match.end()
        if form == "template" and match["escaped"] is not None:
            held += "$"
            continue
        yield held
        held = ""
        names = [value for key, value in match.groupdict().items() if value and key != "escaped"]
        yield _Hole(names[0] if names else "")
    yield held + text[place:]
