"""A prompt's sentences, as they stand: joined again they are the text."""

from __future__ import annotations

import re

_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|approx|Mr|Mrs|Ms|Dr|St|fig|eq|p|pp)|^\s*(?:[-*+]\s*)?\(?(?:\d{1,3}|[A-Za-z]))[.)]$", re.IGNORECASE
)
"""What ends in a full stop and is no sentence: short forms, and the marks of a list."""

_END = re.compile(r"""(?<=[.!?])["')\]*_]*\s+|\n+""")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)


def sentences_of(text: str) -> list[str]:
    r"""The sentences of a text, each with the white space behind it: ``"".join(sentences_of(text)) == text``.

    A line end ends a sentence, as in a list; a fenced block of code is one; ``e.g.`` and the number of a list's item end none.

    Example:
        >>> sentences_of("Be brief, e.g. one line. Use:\n1. The gist.\n2. No names!")
        ['Be brief, e.g. one line. ', 'Use:\n', '1. The gist.\n', '2. No names!']
    """
    pieces: list[str] = []
    for start, end, fenced in _blocks(text):
        block = text[start:end]
        pieces += [block] if fenced else _plain_sentences(block)
    return pieces


def without_sentence(text: str, sentence: str) -> str:
    r"""The text without the first occurrence of a sentence, trimmed at its ends.

    Example:
        >>> without_sentence("Route it. Be brief. Be kind.", "Be brief. ")
        'Route it. Be kind.'
    """
    pieces = sentences_of(text)
    pieces.remove(sentence)
    return "".join(pieces).strip()


def same_sentence(sentence: str) -> str:
    """A sentence for comparison: its words, without the white space and the list's mark around them."""
    return re.sub(r"^(?:[-*+]|\(?\d{1,3}[.)])\s+", "", " ".join(sentence.split()))


def _plain_sentences(block: str) -> list[str]:
    pieces: list[str] = []
    start = 0
    for match in _END.finditer(block):
        piece = block[start : match.end()]
        if not piece.strip():
            continue
        if "\n" not in match.group() and _ABBREVIATION.search(block[start : match.start()]):
            continue
        pieces.append(piece)
        start = match.end()
    if start < len(block):
        pieces.append(block[start:])
    return pieces


def _blocks(text: str) -> list[tuple[int, int, bool]]:
    """Start, end and whether it is fenced, of each stretch."""
    marks = [match.start() for match in _FENCE.finditer(text)]
    blocks: list[tuple[int, int, bool]] = []
    start = 0
    for opening, closing in zip(marks[::2], marks[1::2], strict=False):
        line_end = text.find("\n", closing)
        end = len(text) if line_end < 0 else line_end + 1
        blocks += [(start, opening, False), (opening, end, True)]
        start = end
    blocks.append((start, len(text), False))
    return [(begin, end, fenced) for begin, end, fenced in blocks if begin < end]
