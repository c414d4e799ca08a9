"""Five small tasks for a small local model, each with a budget of another kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gepa_lite as gl
from benchmarks import data_sets, local_tasks
from gepa_lite.demo.task import Fernpost, demo_settings, load_splits


@dataclass(frozen=True)
class Task:
    """One run to estimate.

    Attributes:
        name: of the piece.
        program: the program's class.
        file: the data set's, in the folder of the public data sets; None for the demo's.
        sizes: training and validation examples.
        budget: of the run.
        search: its rules.
    """

    name: str
    program: type[gl.Program]
    file: str | None
    sizes: tuple[int, int]
    budget: gl.Budget
    search: gl.Search

    def rows(self, seed: int = 0) -> tuple[list[dict[str, Any]], list[dict[str, Any]]] | None:
        """Training and validation examples, others for each seed, or None where the data set is not at hand."""
        train, validation = self.sizes
        if self.file is None:
            learn, compare, _ = load_splits()
            return _turned(learn, seed * train)[:train], _turned(compare, seed * validation)[:validation]
        if not (data_sets.data_folder() / self.file).is_file():
            return None
        rows = [row for row in data_sets.read(self.file) if row["split"] == "train"]
        rows = _turned(rows, seed * (train + validation))
        return [_plain(row) for row in rows[:train]], [_plain(row) for row in rows[train : train + validation]]


def _turned(rows: list[dict[str, Any]], by: int) -> list[dict[str, Any]]:
    by %= len(rows)
    return rows[by:] + rows[:by]


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key in ("text", "label", "question", "answer", "solution")}


class Question(local_tasks.Question):
    """Say what kind of thing a question asks for."""

    def feedback(self, example: gl.Example, output: gl.Outputs) -> gl.Feedback:
        return _labelled(example, output.label)


class News(gl.Program):
    """Say in which section a piece of news belongs."""

    topic = gl.Module("text -> summary", "Say in a few words what happened.", max_tokens=30, temperature=0.0)
    section = gl.Module(
        "summary -> label: Literal['World', 'Sports', 'Business', 'Tech']", "Choose the section.", max_tokens=8, temperature=0.0
    )

    def forward(self, text: str) -> gl.Outputs:
        return self.section(summary=self.topic(text=text).summary)

    def feedback(self, example: gl.Example, output: gl.Outputs) -> gl.Feedback:
        return _labelled(example, output.label)


class Review(gl.Program):
    """Say how well a film was liked."""

    grade = gl.Module(
        "text -> label: Literal['terrible', 'bad', 'okay', 'good', 'great']", "Grade the review.", max_tokens=8, temperature=0.0
    )

    def forward(self, text: str) -> gl.Outputs:
        return self.grade(text=text)

    def feedback(self, example: gl.Example, output: gl.Outputs) -> gl.Feedback:
        return _labelled(example, output.label)


class Sums(gl.Program):
    """Solve a word problem."""

    solve = gl.Module("question -> answer", "Solve it. End with the number alone.", max_tokens=120, temperature=0.0)

    def forward(self, question: str) -> gl.Outputs:
        return self.solve(question=question)

    def feedback(self, example: gl.Example, output: gl.Outputs) -> gl.Feedback:
        words = output.answer.replace(",", "").replace("$", "").strip(" .").split()
        right = bool(words) and words[-1] == example["answer"]
        return gl.Feedback(float(right), "Right." if right else f"Wrong; a solution: {example['solution']}")


def _labelled(example: gl.Example, label: str) -> gl.Feedback:
    right = label == example["label"]
    return gl.Feedback(float(right), "Right." if right else f"Wrong: it is {example['label']}, not {label}.")


def _rules(**changes: Any) -> gl.Search:
    """The demo's rules, which fit a small model."""
    return demo_settings(0)[1] if not changes else gl.Search.paper(reflection_temperature=0.7, **changes)


TASKS: Sequence[Task] = (
    Task("demo", Fernpost, None, (20, 10), gl.Budget(rollouts=90), _rules()),
    Task(
        "trec",
        Question,
        "cls/trec.jsonl",
        (20, 16),
        gl.Budget(proposals=8),
        _rules(proposer="edit", minibatch=3, reflection_tokens=160),
    ),
    Task(
        "agnews",
        News,
        "cls/agnews.jsonl.gz",
        (16, 8),
        gl.Budget(tokens=15_000),
        _rules(proposer="edit", minibatch=3, reflection_tokens=160),
    ),
    Task(
        "sst5",
        Review,
        "cls/sst5.jsonl",
        (20, 12),
        gl.Budget(seconds=110),
        _rules(minibatch=4, reflection_tokens=300),
    ),
    Task(
        "gsm8k",
        Sums,
        "math/gsm8k.jsonl.gz",
        (10, 5),
        gl.Budget(rollouts=30),
        _rules(minibatch=2, reflection_tokens=200),
    ),
)
