"""Three programs in the shapes of dspy's public tutorials. They know nothing of gepa_lite."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from tests.dspy_task import dspy

CORPUS = {
    "Ada Lovelace": "Ada Lovelace worked with Charles Babbage.",
    "Charles Babbage": "Charles Babbage was born in London.",
    "Grace Hopper": "Grace Hopper worked with Howard Aiken.",
    "Howard Aiken": "Howard Aiken was born in Hoboken.",
    "Alan Turing": "Alan Turing worked with Max Newman.",
    "Max Newman": "Max Newman was born in Chelsea.",
    "Lise Meitner": "Lise Meitner worked with Otto Hahn.",
    "Otto Hahn": "Otto Hahn was born in Frankfurt.",
}
"""Who worked with whom, and who was born where: each question needs two articles."""


def search(query: str, k: int) -> list[str]:
    """The first articles whose title is in the query."""
    return [text for title, text in CORPUS.items() if title.lower() in query.lower()][:k]


class Hop(dspy.Module):  # type: ignore[misc]
    """Answer a question that needs several articles."""

    def __init__(self, num_docs: int = 2, num_hops: int = 2) -> None:
        super().__init__()
        self.num_docs, self.num_hops = num_docs, num_hops
        self.generate_query = dspy.ChainOfThought("question, notes -> query")
        self.append_notes = dspy.ChainOfThought("question, notes, context -> new_notes: list[str]")
        self.answer = dspy.Predict("question, notes -> answer")

    def forward(self, question: str) -> Any:
        notes: list[str] = []
        for _ in range(self.num_hops):
            query = self.generate_query(question=question, notes=notes).query
            context = search(query, k=self.num_docs)
            prediction = self.append_notes(question=question, notes=notes, context=context)
            notes.extend(prediction.new_notes)
        return dspy.Prediction(notes=notes, answer=self.answer(question=question, notes=notes).answer)


class Person(BaseModel):
    """A person of a text."""

    name: str
    role: Literal["scientist", "artist"]


class ExtractPeople(dspy.Signature):  # type: ignore[misc]
    """Extract the people that a text names."""

    text: str = dspy.InputField()
    people: list[Person] = dspy.OutputField(desc="all people, in order")


def extractor() -> Any:
    """One predictor with a typed, nested output."""
    return dspy.ChainOfThought(ExtractPeople)


def lookup(title: str) -> str:
    """Read one article by its exact title."""
    return CORPUS[title]


def agent() -> Any:
    """An agent with one tool."""
    return dspy.ReAct("question -> place", tools=[lookup], max_iters=4)


QUESTIONS = [
    dspy.Example(
        question=f"Where was the colleague of {title} born?", colleague=text.split(" with ")[1].rstrip("."), place=place
    ).with_inputs("question")
    for (title, text), place in zip(list(CORPUS.items())[::2], ["London", "Hoboken", "Chelsea", "Frankfurt"], strict=True)
]
