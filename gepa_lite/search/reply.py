"""Read the new prompt out of a reflection model's reply, or say why there is none. Nothing is repaired or guessed."""

from __future__ import annotations

import re

_THINK = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_THINK_OPEN = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_THINK_CLOSE = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_TAG_OPEN = re.compile(r"<prompt>", re.IGNORECASE)
_TAG_CLOSE = re.compile(r"</prompt>", re.IGNORECASE)
_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([^\s`]*)[ \t]*$")


class UnusableReply(Exception):
    """A reply that holds no usable prompt.

    Attributes:
        code: ``empty``, ``cut_off``, ``no_block`` or ``several_blocks``.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def extract_prompt(reply: str, finish_reason: str = "stop") -> str:
    """The text of the one delimited block of a reply.

    Reasoning (``<think>...</think>``) is dropped first. A block is ``<prompt>...</prompt>``, or else one fenced code block, which may hold further fences: a fence
    line with a language opens a nested block, a bare one closes the innermost. A block within the tags that is fenced as a whole loses that fence. Prose around the block is ignored.

    Args:
        reply: the model's raw text.
        finish_reason: ``"length"`` says that the reply was cut off.

    Raises:
        UnusableReply: empty, cut off, without a block, or with several.
    """
    if finish_reason == "length":
        raise UnusableReply("cut_off", "the reply was cut off at the reflection model's token limit; raise Search(reflection_tokens=)")
    text = without_reasoning(reply)
    if not text.strip():
        raise UnusableReply("empty", "the reply is empty" if not reply.strip() else "the reply is reasoning only")
    block = _tagged(text)
    block = _fenced(text) if block is None else _unfenced(block)
    if not block.strip():
        raise UnusableReply("empty", "the block in the reply is empty")
    return block.strip()


def without_reasoning(reply: str) -> str:
    """The reply without ``<think>...</think>``.

    Raises:
        UnusableReply: it ends within its reasoning.
    """
    text = _THINK.sub("", reply)
    close = list(_THINK_CLOSE.finditer(text))
    if close:
        # some chat templates open the reasoning themselves, so that only its end is in the reply
        text = text[close[-1].end() :]
    opened = _THINK_OPEN.search(text)
    if opened:
        raise UnusableReply("cut_off", "the reply ends within its reasoning (<think> without </think>)")
    return text


def _tagged(text: str) -> str | None:
    opens, closes = list(_TAG_OPEN.finditer(text)), list(_TAG_CLOSE.finditer(text))
    if not opens:
        return None
    if not closes:
        raise UnusableReply("cut_off", "the reply opens <prompt> and never closes it")
    if len(opens) > 1 or len(closes) > 1:
        raise UnusableReply("several_blocks", f"the reply holds {max(len(opens), len(closes))} <prompt> blocks; one is needed")
    if closes[0].start() < opens[0].end():
        raise UnusableReply("no_block", "the reply closes <prompt> before it opens it")
    return text[opens[0].end() : closes[0].start()]


def _blocks(text: str) -> list[tuple[int, int]]:
    """Outermost fenced blocks as (first, last + 1) line numbers of their content; an unclosed one ends at -1."""
    blocks: list[tuple[int, int]] = []
    depth: list[str] = []
    start = 0
    for number, line in enumerate(text.splitlines()):
        match = _FENCE.match(line)
        if match is None:
            continue
        marks, language = match.groups()
        if depth and not language and marks[0] == depth[-1][0] and len(marks) >= len(depth[-1]):
            depth.pop()
            if not depth:
                blocks.append((start, number))
        elif language or not depth:
            if not depth:
                start = number + 1
            depth.append(marks)
    if depth:
        blocks.append((start, -1))
    return blocks


def _fenced(text: str) -> str:
    blocks = _blocks(text)
    if not blocks:
        raise UnusableReply("no_block", "the reply has no <prompt>...</prompt> and no fenced block")
    if len(blocks) > 1:
        raise UnusableReply("several_blocks", f"the reply holds {len(blocks)} fenced blocks; one is needed")
    first, last = blocks[0]
    if last == -1:
        raise UnusableReply("cut_off", "the reply opens a fenced block and never closes it")
    return "\n".join(text.splitlines()[first:last])


def _unfenced(block: str) -> str:
    lines = block.strip().splitlines()
    blocks = _blocks(block.strip())
    if len(blocks) == 1 and blocks[0] == (1, len(lines) - 1):
        return "\n".join(lines[1:-1])
    return block
