"""The simulated reflection model: it reads reviews, and rewrites a prompt as a small language model would, faults included."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from gepa_lite.errors import UsageError
from gepa_lite.testing.landscape_words import FILLERS, Mark, Vocabulary, sentences_of


@dataclass(frozen=True, slots=True)
class Reflector:
    """Habits of the reflection model.

    The first five are what it does about one rule that the reviews name and the prompt lacks: they sum to 1 at most, and the rest is the chance that it overlooks
    the rule. Where the reviews name nothing new, ``find`` and ``garble`` yield an empty phrase.

    Attributes:
        find: states the rule.
        garble: states it wrongly: another action on too broad a condition.
        overfit: learns one of the reviewed messages by heart.
        deceive: takes the shortcut of the message's desk; an empty phrase where there are no desks.
        miss: adds an empty phrase.
        lose: chance that a sentence of the prompt is left out, for each sentence.
        repair: chance that a sentence which the reviews blame is left out, for each.
        most: rules taken up at most.
    """

    find: float = 0.45
    garble: float = 0.15
    overfit: float = 0.05
    deceive: float = 0.0
    miss: float = 0.25
    lose: float = 0.02
    repair: float = 0.3
    most: int = 1

    def __post_init__(self) -> None:
        chances = (self.find, self.garble, self.overfit, self.deceive, self.miss)
        if min(*chances, self.lose, self.repair) < 0 or sum(chances) > 1 + 1e-9 or max(self.lose, self.repair) > 1:
            raise UsageError("Reflector: chances lie in [0, 1], and those of find, garble, overfit, deceive and miss sum to 1 at most.")
        if self.most < 1:
            raise UsageError(f"Reflector(most={self.most!r}): a whole number of at least 1 is needed.")


def rewrite(habits: Reflector, words: Vocabulary, module: int, text: str, lessons: Sequence[str], dice: random.Random) -> str:
    """A new text for a module.

    Args:
        habits: chances of what it does.
        words: what the sentences mean.
        module: whose text it is.
        text: the prompt now.
        lessons: the reviews.
        dice: every draw comes from here.
    """
    heard = words.marks(lessons, module)
    blamed = {_blamed(words, mark) for mark in heard if mark.kind in ("misled", "blunted")}
    sentences = sentences_of(text)
    kept = []
    for sentence in sentences:
        # drawn for each sentence, so that a blame does not shift the draws after it
        lost, repaired = dice.random() < habits.lose, dice.random() < habits.repair
        if not lost and not (sentence in blamed and repaired):
            kept.append(sentence)
    held = set(sentences)
    named = dict.fromkeys(mark.index for mark in heard if mark.kind == "broken")
    lacking = [rule for rule in named if words.rule(module, rule) not in held]
    taken: list[int | None] = [*dice.sample(lacking, min(habits.most, len(lacking)))]
    for rule in taken or [None]:
        addition = _addition(habits, words, module, rule, heard, dice)
        if addition is not None and addition not in kept:
            kept.append(addition)
    return " ".join(kept) or text


def _addition(
    habits: Reflector, words: Vocabulary, module: int, rule: int | None, heard: Sequence[Mark], dice: random.Random
) -> str | None:
    """The sentence added for one named rule (None: nothing new was named), or None."""
    filler = dice.choice(FILLERS)
    deed = dice.choices(
        ("find", "garble", "overfit", "deceive", "miss", "overlook"),
        (habits.find, habits.garble, habits.overfit, habits.deceive, habits.miss, _overlooked(habits)),
    )[0]
    messages = [mark.index for mark in heard if mark.kind == "message"]
    desks = [mark.index for mark in heard if mark.kind == "desk"]
    if deed == "overlook":
        return None
    if deed == "find" and rule is not None:
        return words.rule(module, rule)
    if deed == "garble" and rule is not None:
        return words.garbled(module, rule)
    if deed == "overfit" and messages:
        return words.memory(dice.choice(messages))
    if deed == "deceive" and desks:
        return words.blunt(dice.choice(desks))
    return filler


def _overlooked(habits: Reflector) -> float:
    """The chance that a named rule is overlooked."""
    return max(0.0, 1 - habits.find - habits.garble - habits.overfit - habits.deceive - habits.miss)


def _blamed(words: Vocabulary, mark: Mark) -> str:
    return words.blunt(mark.index) if mark.kind == "blunted" else words.garbled(mark.module, mark.index)
