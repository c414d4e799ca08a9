"""A word diff that reads in a terminal, a pull request and a report alike."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Literal

_TOKEN = re.compile(r"\n|[^\S\n]+|\w+|[^\w\s]")


def word_changes(before: str, after: str) -> Iterator[tuple[Literal["kept", "removed", "added"], str]]:
    """The pieces of two texts in order: what was kept, removed and added, by whole words."""
    old, new = _TOKEN.findall(before), _TOKEN.findall(after)
    for tag, i, j, k, m in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            yield "kept", "".join(old[i:j])
            continue
        if i < j:
            yield "removed", "".join(old[i:j])
        if k < m:
            yield "added", "".join(new[k:m])


def word_diff(before: str, after: str) -> str:
    """The two texts as one: ``[-removed-]`` and ``{+added+}`` (the notation of ``git diff --word-diff``).

    >>> word_diff("Say how urgent it is.", "Say how late it is.")
    'Say how [-urgent-]{+late+} it is.'
    """
    marks = {"kept": "{}", "removed": "[-{}-]", "added": "{{+{}+}}"}
    return "".join(marks[kind].format(text) for kind, text in word_changes(before, after))
