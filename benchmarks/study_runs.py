"""What the studies run on simulated landscapes: searches under one variant of the rules, cell by cell, kept as each is done."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.search_code import code_hash
from benchmarks.search_runs import Enough, changes_of
from gepa_lite import Budget, Search
from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback
from gepa_lite.core.seeds import stream
from gepa_lite.testing import LANDSCAPES, Landscape, run_landscape
from gepa_lite.testing.landscape_search import LANDSCAPE_TEMPLATE
from gepa_lite.testing.landscape_words import FILLERS, sentences_of
from gepa_lite.testing.landscapes import Reading, uniform

RESULTS = Path(__file__).parent / "results" / "studies"
CHECKPOINTS = (200, 500, 1_000)

STARTS = ("bare", "half", "wordy")
"""Starting artifacts: a task sentence alone; with half of the rules; with six sentences that say nothing."""

_FILLERS = 6
_LATE = 0.6
_READ = 4

LATE_TEMPLATE = (
    LANDSCAPE_TEMPLATE.removesuffix("{% endfor %}")
    + """\
{% for call in lesson.context if call.review %}
Review: {{ call.review }}
{% endfor %}
{% endfor %}"""
)
"""The lines that the simulated reflection model reads, with the reviews of the steps around."""


@dataclass(frozen=True)
class Variant:
    """One setting of a study.

    Attributes:
        search: its rules.
        start: one of ``STARTS``.
        late: whether faults are told to later steps, as in ``LateLandscape``.
    """

    search: Search
    start: str = "bare"
    late: bool = False

    @property
    def words(self) -> str:
        """What it is, in words that tell it from any other."""
        return f"{changes_of(self.search)}; start {self.start}{'; late' if self.late else ''}"


class LateLandscape(Landscape):
    """A landscape on which many a fault shows only later in the program, and whose reflection model reads few reviews.

    With chance 0.6, what a module did wrong is told to a later module in place of it, so that its own review says only that the answer is wrong. Of all reviews that a reflection is given, the
    model reads four, drawn at random. So a longer horizon shows more of the faults, and more that is not the module's; a larger minibatch shows more cases, and more than is read.
    """

    def review(self, readings: Sequence[Reading], example: Example, score: float) -> Feedback:
        """The words on one rollout, those of single modules told where the fault shows."""
        found = super().review(readings, example, score)
        opening = self._words.wrong(example.labels["number"]) if score < 1 else found.text
        told: dict[str, list[str]] = {}
        for module, words in found.modules.items():
            place = self.modules.index(module)
            if uniform(self.seed, "late", example.id, module) < _LATE:
                place += int(uniform(self.seed, "where", example.id, module) * (len(self.modules) - place))
            told.setdefault(self.modules[place], []).append(words)
        return Feedback(score, opening, {module: " ".join(words) for module, words in told.items()})

    def reflect(self, module: str, text: str, lessons: Sequence[str], draw: int | str = 0) -> str:
        """As in a landscape, of four reviews at most."""
        dice = stream(self.seed, "read", module, draw)
        read = [lessons[place] for place in sorted(dice.sample(range(len(lessons)), min(_READ, len(lessons))))]
        return super().reflect(module, text, read, draw)


def starting_texts(land: Landscape, start: str) -> dict[str, str]:
    """The prompts to start from.

    >>> from gepa_lite.testing import landscape
    >>> [len(sentences_of(starting_texts(landscape("one-easy"), start)["read"])) for start in STARTS]
    [1, 4, 7]
    """
    texts = dict(land.seed_texts)
    if start == "half":
        return {name: " ".join(sentences_of(text)[: 1 + (len(sentences_of(text)) - 1) // 2]) for name, text in land.full_texts.items()}
    if start == "wordy":
        return {name: " ".join([text, *FILLERS[:_FILLERS]]) for name, text in texts.items()}
    return texts


def play(variant: Variant, name: str, seed: int, rollouts: int = CHECKPOINTS[-1]) -> list[float]:
    """One search: the exact held-out score of what was best by validation at each of ``CHECKPOINTS``."""
    land: Landscape = (LateLandscape if variant.late else Landscape)(LANDSCAPES[name], seed)
    land.seed_texts = starting_texts(land, variant.start)
    rules = dataclasses.replace(variant.search, stop=(Enough(rollouts // 2),))
    if variant.late:
        rules = dataclasses.replace(rules, reflection_template=LATE_TEMPLATE)
    found = run_landscape(land, rules, Budget(rollouts=rollouts), seed=seed)
    return [round(found.at(spent), 5) for spent in CHECKPOINTS if spent <= rollouts]


class Cells:
    """The outcomes of a study on disk: one file, a line for each variant and landscape. What was run under other rules is dropped.

    Each cell keeps the state of the code that made it; one that another state made stays, and ``made_by`` tells.

    Args:
        path: the file; None keeps nothing.
        variants: by name.
        rollouts: of a search.
    """

    def __init__(self, path: Path | None, variants: Mapping[str, Variant], rollouts: int) -> None:
        self._path, self._variants, self._rollouts = path, variants, rollouts
        self._found: dict[str, dict[str, list[float]]] = {}
        self._code: dict[str, dict[str, str]] = {}
        if path is not None and path.exists():
            kept = json.loads(path.read_text())
            rules = kept["rules"] if kept["rollouts"] == rollouts else {}
            known = {name for name, variant in variants.items() if rules.get(name) == variant.words}
            self._found = {key: row for key, row in kept["cells"].items() if key.split(" on ")[0] in known}
            self._code = {key: row for key, row in kept.get("search_code", {}).items() if key in self._found}

    def fill(self, names: Sequence[str], seeds: Sequence[int], until: float = float("inf")) -> int:
        """Run what is lacking until a moment of ``time.monotonic``; the number of cells left. Seed by seed, so that a part of the whole is a whole of fewer seeds."""
        lacking = [
            (seed, variant, name)
            for seed in seeds
            for variant in self._variants
            for name in names
            if str(seed) not in self._found.get(f"{variant} on {name}", {})
        ]
        saved = time.monotonic()
        for done, (seed, variant, name) in enumerate(lacking):
            if time.monotonic() > until:
                self.save()
                return len(lacking) - done
            key = f"{variant} on {name}"
            self._found.setdefault(key, {})[str(seed)] = play(self._variants[variant], name, seed, self._rollouts)
            self._code.setdefault(key, {})[str(seed)] = code_hash()
            if time.monotonic() > saved + 20:
                self.save()
                saved = time.monotonic()
        self.save()
        return 0

    def save(self) -> None:
        """Write the file, whole."""
        if self._path is None:
            return
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(row, separators=(',', ':'))}" for key, row in sorted(self._found.items()))
        rules = {name: one.words for name, one in self._variants.items()}
        code = {"search_code": self._code} if self._code else {}
        head = {"rollouts": self._rollouts, "checkpoints": CHECKPOINTS, "rules": rules, **code}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self._path.with_suffix(".part")
        scratch.write_text(f'{json.dumps(head)[:-1]}, "cells": {{\n{lines}\n}}}}\n')
        scratch.replace(self._path)

    def made_by(self, names: Sequence[str], seeds: Sequence[int]) -> list[str | None]:
        """The state of the code behind each cell that is there, None where it was not kept."""
        keys = [f"{variant} on {name}" for variant in self._variants for name in names]
        there = [(key, str(seed)) for key in keys for seed in seeds if str(seed) in self._found.get(key, {})]
        return [self._code.get(key, {}).get(seed) for key, seed in there]

    def scores(self, variant: str, name: str, seeds: Sequence[int], checkpoint: int) -> list[float]:
        """Held-out scores of some seeds, in their order."""
        place = CHECKPOINTS.index(checkpoint)
        return [self._found[f"{variant} on {name}"][str(seed)][place] for seed in seeds]
