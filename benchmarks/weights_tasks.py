"""Two tasks that a model of 135M parameters does badly by naive prompts, and on which part of the answer is worth part of the score: for prompts against weights.

The feedback states the form of the answer to prompt optimizers in words, and gives training part of the score for part of the form: both can learn it. ``form`` tells it apart from content.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gepa_lite as gl

_THINGS = (
    "pencils",
    "staplers",
    "folders",
    "markers",
    "envelopes",
    "stamps",
    "scissors",
    "notebooks",
    "lamps",
    "chairs",
    "cables",
    "batteries",
    "towels",
    "cups",
    "spoons",
    "plates",
    "candles",
    "brushes",
    "gloves",
    "ladders",
    "buckets",
    "hammers",
    "nails",
    "blankets",
    "pillows",
)
_NOTES = (
    "Hi, this is {who}. Could you bring {list} to room {room} by noon? Thanks a lot!",
    "{who} from room {room} here: we are out of {list} again, please send some.",
    "For the meeting in room {room} we still need {list}. Ask {who} if the door is locked.",
    "Please order {list} for {who}. The invoice goes to room {room}, as always.",
    "Room {room} was cleaned yesterday, but {list} are missing. {who} would like them back this week.",
)
_NAMES = ("Ann", "Omar", "Lucia", "Peter", "Mei", "Jonas", "Nadia", "Tom")


class Orders(gl.Program):
    """Take from a note what it asks for."""

    pick = gl.Module("note -> things", "List the things that the note asks for.", max_tokens=24, temperature=0.0, retries=0)

    def forward(self, note: str) -> gl.Outputs:
        """Read one note."""
        return self.pick(note=note)


class Contacts(gl.Program):
    """Take from a note who wrote it or is to be asked, and of which room it speaks."""

    who = gl.Module("note -> person", "Which person does the note name?", max_tokens=16, temperature=0.0, retries=0)
    where = gl.Module("note -> room", "Which room does the note name?", max_tokens=16, temperature=0.0, retries=0)

    def forward(self, note: str) -> gl.Outputs:
        """Read one note."""
        return gl.Outputs(person=self.who(note=note).person, room=self.where(note=note).room)


def orders_feedback(example: Any, output: Any) -> gl.Feedback:
    """F1 of the words against the things; in form where every word is of the note."""
    gold, said = example["things"].split(", "), _words(output.things)
    missing = [thing for thing in gold if thing not in said]
    extra = list(dict.fromkeys(word for word in said if word not in gold))
    text = f"Expected exactly: {example['things']}." + (f" Missing: {', '.join(missing)}." if missing else "")
    text += f" Words that are too many: {', '.join(extra[:8])}." if extra else ""
    note = _words(example["note"])
    return gl.Feedback(_f1(said, gold), text, objectives={"form": float(bool(said) and all(word in note for word in said))})


def contacts_feedback(example: Any, output: Any) -> gl.Feedback:
    """Half for the person, half for the room, each the F1 of its words; in form where both are one word."""
    parts = {"who": (output.person, example["person"]), "where": (output.room, example["room"])}
    said = {module: _words(reply) for module, (reply, _) in parts.items()}
    scores = {module: _f1(said[module], [right.lower()]) for module, (_, right) in parts.items()}
    modules = {
        module: f"Right: {right}." if scores[module] == 1 else f"Expected the one word {right!r} and nothing else."
        for module, (_, right) in parts.items()
    }
    text = f"The person is {example['person']}, the room {example['room']}."
    form = all(len(words) == 1 for words in said.values())
    return gl.Feedback(sum(scores.values()) / 2, text, modules=modules, scores=scores, objectives={"form": float(form)})


def rows(count: int, draw: random.Random) -> list[dict[str, str]]:
    """Notes by a person, about a room, that ask for two or three things."""
    made = []
    for place in range(count):
        things = draw.sample(_THINGS, 2 + place % 2)
        person, room = draw.choice(_NAMES), str(draw.randint(1, 99))
        note = draw.choice(_NOTES).format(who=person, room=room, list=f"{', '.join(things[:-1])} and {things[-1]}")
        made.append({"note": note, "things": ", ".join(things), "person": person, "room": room})
    return made


@dataclass(frozen=True)
class WeightsTask:
    """A task.

    Attributes:
        program: its naive prompts and flow.
        feedback: score, diagnosis, and ``form`` among the objectives.
        by_hand: prompts by someone who knows the task.
    """

    program: type[gl.Program]
    feedback: Callable[[Any, Any], gl.Feedback]
    by_hand: Mapping[str, str]


def splits(sizes: Sequence[int]) -> list[list[dict[str, str]]]:
    """Training, validation and test examples, the same for every run."""
    every = rows(sum(sizes), random.Random(2))
    ends = [sum(sizes[: place + 1]) for place in range(len(sizes))]
    return [every[end - size : end] for end, size in zip(ends, sizes, strict=True)]


TASKS: Mapping[str, WeightsTask] = {
    "orders": WeightsTask(
        Orders,
        orders_feedback,
        {
            "pick": "Copy from the note only the things that are needed, with commas between them. No other words.\n"
            "Note: Could you bring forks and knives to room 3? Thanks, Eva.\nThings: forks, knives"
        },
    ),
    "contacts": WeightsTask(
        Contacts,
        contacts_feedback,
        {
            "who": "Copy the one name of a person from the note. No other words.\nNote: Eva needs forks in room 3.\nPerson: Eva",
            "where": "Copy the number of the room from the note. No other words.\nNote: Eva needs forks in room 3.\nRoom: 3",
        },
    ),
}


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def _f1(said: Sequence[str], gold: Sequence[str]) -> float:
    shared = sum((Counter(said) & Counter(gold)).values())
    return 2 * shared / (len(said) + len(gold)) if shared else 0.0
