"""What the simulated landscapes say: the sentences of prompts and reviews, and what each of them means.

Prompts are real text, one sentence a rule, so that hashes, diffs and merges work on them as on any prompt. A sentence that is not in the vocabulary means nothing and
only adds to the length.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from gepa_lite.core.seeds import stream

MODULES = ("read", "plan", "draft", "check", "route", "answer")
DESKS = ("north", "south", "east", "west")
TASKS = (
    "Read the message and note what it asks for.",
    "Plan the steps that the message calls for.",
    "Draft a reply to the message.",
    "Check the draft against the message.",
    "Choose the team that gets the message.",
    "Answer the message.",
)
FILLERS = (
    "Be careful and precise.",
    "Think step by step before you decide.",
    "Consider every detail of the message.",
    "Do not make assumptions.",
    "Keep a professional tone throughout.",
    "Weigh all the options before you commit to one.",
    "Double-check your work.",
    "Pay attention to the context.",
    "Make sure that the result is complete.",
    "Focus on what matters most.",
    "Be consistent with earlier decisions.",
    "Stay objective and clear.",
    "Take your time with unusual messages.",
    "Avoid mistakes wherever you can.",
    "Follow the instructions closely.",
    "Use good judgement.",
)
_SHAPES = ("late", "damaged", "missing", "double", "wrong", "early", "unsigned", "expired", "reopened", "urgent", "foreign", "partial")
_THINGS = ("parcel", "invoice", "refund", "contract", "password", "visit", "permit", "order", "ticket", "quote", "badge", "repair")
_ACTIONS = (
    "mark it as urgent",
    "ask for the order number",
    "name the deadline",
    "offer a call",
    "keep it to one line",
    "quote the policy",
    "list the amounts",
    "leave out the names",
    "add the date",
    "put it on hold",
    "send it to a person",
    "decline politely",
)

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_MESSAGE = re.compile(r"^Message (\d+) is wrong\.$")
_MEMORY = re.compile(r"^Treat message (\d+) as its reviewer did\.$")

Kind = Literal["rule", "garbled", "blunt", "memory", "broken", "misled", "blunted", "desk", "message"]


@dataclass(frozen=True, slots=True)
class Mark:
    """The meaning of one sentence.

    Attributes:
        kind: in prompts ``rule``, ``garbled``, ``blunt`` or ``memory``; in reviews ``broken``, ``misled``, ``blunted``, ``desk`` or ``message``.
        module: the module it concerns; -1 for any.
        index: of the rule, the desk or the message.
    """

    kind: Kind
    module: int
    index: int


def sentences_of(text: str) -> list[str]:
    """The sentences of a text, in order; line breaks separate them too."""
    return [piece for piece in _SENTENCE_END.split(text.strip()) if piece]


class Vocabulary:
    """The sentences of one landscape, drawn by its seed, and their meanings.

    Args:
        seed: of the draw.
        modules: how many modules there are.
        rules: rules per module; ``modules * rules`` may be 144 at most.
    """

    def __init__(self, seed: int, modules: int, rules: int) -> None:
        dice = stream(seed, "vocabulary")
        topics = list(itertools.product(_SHAPES, _THINGS))
        dice.shuffle(topics)
        self._meanings: dict[str, Mark] = {}
        self._rules: dict[tuple[int, int], tuple[str, str, str, str]] = {}
        self.topics: dict[tuple[int, int], str] = {}
        for place, (module, rule) in enumerate(itertools.product(range(modules), range(rules))):
            topic = " ".join(topics[place])
            action, wrong = dice.sample(_ACTIONS, 2)
            said = (
                f"When a message mentions the {topic}, {action}.",
                f"When a message mentions the {topic} or the like, {wrong}.",
                f"It mentions the {topic}, and this step did not {action}.",
                f"It was misled by the sentence on the {topic} or the like.",
            )
            self.topics[module, rule] = topic
            self._rules[module, rule] = said
            kinds: tuple[Kind, ...] = ("rule", "garbled", "broken", "misled")
            self._meanings.update({text: Mark(kind, module, rule) for kind, text in zip(kinds, said, strict=True)})
        for desk in range(len(DESKS)):
            self._meanings[self.blunt(desk)] = Mark("blunt", -1, desk)
            self._meanings[self.blunted(desk)] = Mark("blunted", -1, desk)
            self._meanings[self.desk(desk)] = Mark("desk", -1, desk)

    def rule(self, module: int, rule: int) -> str:
        """The rule as it helps."""
        return self._rules[module, rule][0]

    def garbled(self, module: int, rule: int) -> str:
        """The rule got wrong: another action, on too broad a condition."""
        return self._rules[module, rule][1]

    def broken(self, module: int, rule: int) -> str:
        """The review that names a rule which was not followed."""
        return self._rules[module, rule][2]

    def misled(self, module: int, rule: int) -> str:
        """The review that blames a garbled rule."""
        return self._rules[module, rule][3]

    def blunt(self, desk: int) -> str:
        """The shortcut that fits one desk's messages and no others."""
        return f"Whatever the message says, do as the {DESKS[desk]} desk does."

    def blunted(self, desk: int) -> str:
        """The review that blames a shortcut."""
        return f"It was misled by what the {DESKS[desk]} desk does."

    def desk(self, desk: int) -> str:
        """The review's word on where a message belongs."""
        return f"It belongs to the {DESKS[desk]} desk."

    def memory(self, number: int) -> str:
        """One training message learnt by heart."""
        return f"Treat message {number} as its reviewer did."

    def wrong(self, number: int) -> str:
        """How a review of a message begins."""
        return f"Message {number} is wrong."

    def mark(self, sentence: str) -> Mark | None:
        """What a sentence means; None where it means nothing."""
        known = self._meanings.get(sentence)
        if known is not None:
            return known
        for kind, pattern in _NUMBERED.items():
            if found := pattern.match(sentence):
                return Mark(kind, -1, int(found[1]))
        return None

    def marks(self, texts: Iterable[str], module: int) -> list[Mark]:
        """What texts mean for one module, in order; sentences on other modules mean nothing here."""
        found = (self.mark(sentence) for text in texts for sentence in sentences_of(text))
        return [mark for mark in found if mark is not None and mark.module in (module, -1)]


_NUMBERED: Mapping[Kind, re.Pattern[str]] = {"message": _MESSAGE, "memory": _MEMORY}
