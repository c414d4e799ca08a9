"""The ``edit`` proposer: a few bounded changes to a prompt in place of a whole new text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gepa_lite.search.reply import UnusableReply, without_reasoning

_EDIT = re.compile(r"<edit>(.*?)</edit>", re.DOTALL | re.IGNORECASE)
_FIND = re.compile(r"<find>(.*?)</find>", re.DOTALL | re.IGNORECASE)
_REPLACE = re.compile(r"<replace>(.*?)</replace>", re.DOTALL | re.IGNORECASE)
_ADD = re.compile(r"<add>(.*?)</add>", re.DOTALL | re.IGNORECASE)
_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Edit:
    """One operation: replace the only place where ``find`` stands; an empty ``find`` adds ``replace`` at the end, an empty ``replace`` deletes."""

    find: str
    replace: str

    @property
    def words(self) -> int:
        """Words taken out and put in."""
        return len(_WORD.findall(self.find)) + len(_WORD.findall(self.replace))


def read_edits(reply: str, finish_reason: str) -> list[Edit]:
    """The operations of a reply: ``<edit><find>..</find><replace>..</replace></edit>`` and ``<edit><add>..</add></edit>``.

    Raises:
        UnusableReply: cut off, empty, or without a complete operation.
    """
    if finish_reason == "length":
        raise UnusableReply("cut_off", "the reply was cut off at the reflection model's token limit; raise Search(reflection_tokens=)")
    text = without_reasoning(reply)
    if not text.strip():
        raise UnusableReply("empty", "the reply is empty")
    edits = []
    for body in _EDIT.findall(text):
        find, replace, add = (pattern.search(body) for pattern in (_FIND, _REPLACE, _ADD))
        if find and replace and not add:
            edits.append(Edit(find.group(1).strip(), replace.group(1).strip()))
        elif add and not find and not replace:
            edits.append(Edit("", add.group(1).strip()))
        else:
            raise UnusableReply("bad_edit", "an <edit> needs <find> and <replace>, or <add> alone")
    if not edits:
        raise UnusableReply("no_block", "the reply has no <edit>...</edit>")
    return edits


def apply_edits(text: str, edits: list[Edit], max_words: int) -> str:
    """The edited text. A sentence to add that stands in the text already changes nothing.

    Raises:
        UnusableReply: too many words change, or a ``find`` stands nowhere or in several places.
    """
    words = sum(edit.words for edit in edits)
    if words > max_words:
        raise UnusableReply("too_long_edit", f"the edits change {words} words; at most {max_words} are allowed (Search(edit_words=))")
    for edit in edits:
        if not edit.find:
            if not edit.replace:
                raise UnusableReply("bad_edit", "an <edit> adds nothing")
            if edit.replace not in text:
                text = f"{text.rstrip()}\n{edit.replace}"
            continue
        count = text.count(edit.find)
        if count != 1:
            where = "nowhere" if count == 0 else f"in {count} places"
            raise UnusableReply("bad_edit", f"the text to replace stands {where} in the prompt: {edit.find[:80]!r}")
        text = text.replace(edit.find, edit.replace)
    return re.sub(r"[ \t]{2,}", " ", text).strip()
