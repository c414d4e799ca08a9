"""Judge the HotpotQA program: the answer, and to each module what its own step found, lost or should have said (GEPA's artifact)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback
from gepa_lite.errors import UsageError

from .match import FieldFeedback, accepted, normalized, shown
from .retrieval import missing_after

_LONGEST = 1_500
"""Characters of a document that are quoted."""


def hotpot_multihop(
    answer: str = "answer", titles: str = "gold_titles", context: str = "context", facts: str = "supporting_facts"
) -> FieldFeedback:
    """A feedback function for ``HotpotMultiHop``: 1 where the answer is right up to case, punctuation and articles, else 0; each module hears of its own step.

    * ``create_query_hop2``: which gold documents the first search had left open, which of them its query found, and the text of those it did not.
    * ``summarize1`` and ``summarize2``: what an ideal summary holds, and what is not there to be summed up.
    * ``final_answer``: the right answer, and the gold documents.

    What a query left open is what was missing after the first search. (The artifact puts what is missing after the second in its place.)

    Args:
        answer: the output field, and the label.
        titles: the label with the gold titles.
        context: the label with the documents, as pairs of title and text (or list of sentences), or as the public set's dict of ``title`` and ``sentences``.
        facts: the label with the supporting facts, as pairs of title and sentence number, or the public set's dict of ``title`` and ``sent_id``; where an example has none, the ideal
            summary is the gold documents' text.

    Raises:
        UsageError: from the function, where the output has not two hops.

    Example:
        >>> labels = {"answer": "Moss", "gold_titles": ["Fern", "Ivy"], "context": [["Fern", "It likes shade."], ["Ivy", "It climbs."]]}
        >>> row = Example("id", {"question": "Which one?"}, labels)
        >>> found = hotpot_multihop()(row, {"answer": "moss", "hops": [["Fern | It likes shade."], []]})
        >>> print(found.for_module("create_query_hop2").split("'Moss'. ")[1].split(" Use the")[0])
        The first search found 'Fern'. Still missing then: 'Ivy'. This step's query found 0 of 1 (nothing).
    """

    def feedback(example: Example, output: Any) -> Feedback:
        if len(output["hops"]) != 2:
            raise UsageError(f"hotpot_multihop: the output has {len(output['hops'])} hops; the program makes 2.")
        golds = accepted(example[answer])
        right = any(normalized(str(gold)) == normalized(str(output[answer])) for gold in golds)
        gold = " or ".join(map(repr, golds))
        verdict = f"Right: the answer is {gold}." if right else f"Wrong: the answer should be {gold}, but it was {shown(output[answer])}."
        task = f"The question is {example['question']!r}, and the right answer {gold}."
        names = {normalized(str(title)): str(title) for title in example[titles]}
        _, after_1, after_2 = missing_after(list(names), output["hops"])
        texts = _documents(example[context]) if context in example else {}
        ideal = _ideal(example, facts, list(names), texts)
        missing_1, missing_2 = _quoted(after_1, names, texts), _quoted(after_2, names, texts)
        modules = {
            "create_query_hop2": f"{task} The first search found {_named([one for one in names if one not in after_1], names)}. {_query(after_1, after_2, names)}"
            f"{missing_2}",
            "summarize1": f"{task} The first search found {_named([one for one in names if one not in after_1], names)}; it lacks {_named(after_1, names)}."
            f"{ideal}{missing_1}",
            "summarize2": f"{task}{ideal}",
            "final_answer": f"{verdict}{_quoted(list(names), names, texts, 'The gold documents')}",
        }
        lost = f" Never found: {_named(after_2, names)}." if after_2 else " All gold documents were found."
        return Feedback(float(right), f"{verdict}{lost}", modules)

    return feedback


def _query(before: Sequence[str], after: Sequence[str], names: Mapping[str, str]) -> str:
    if not before:
        return "Nothing was left to find for this step's query."
    found = [one for one in before if one not in after]
    words = f"Still missing then: {_named(before, names)}. This step's query found {len(found)} of {len(before)} ({_named(found, names)})."
    if not after:
        return words
    return f"{words} Use the clues of the first summary to name what is still missing: a person, place or work that it links to."


def _quoted(some: Sequence[str], names: Mapping[str, str], texts: Mapping[str, str], head: str = "The text of what is missing") -> str:
    known = [f"{names[one]} | {texts[one]}" for one in some if one in texts]
    return f" {head}: {' // '.join(known)}" if known else ""


def _ideal(example: Example, facts: str, gold: Sequence[str], texts: Mapping[str, str]) -> str:
    sentences = _facts(example[facts], example) if facts in example else []
    told = " ".join(sentences) or " ".join(texts[one] for one in gold if one in texts)
    return f" An ideal summary says: {told}" if told else ""


def _pairs(value: Any, second: str) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return list(zip(value["title"], value[second], strict=True))
    return [(str(pair[0]), pair[1]) for pair in value]


def _documents(value: Any) -> dict[str, str]:
    """Text by normalized title."""
    told = {
        normalized(str(title)): text if isinstance(text, str) else " ".join(map(str.strip, text))
        for title, text in _pairs(value, "sentences")
    }
    return {title: text if len(text) <= _LONGEST else f"{text[:_LONGEST]} […]" for title, text in told.items()}


def _facts(value: Any, example: Example) -> list[str]:
    """The sentences of the supporting facts, as far as the documents come in sentences."""
    documents = {str(title): text for title, text in _pairs(example["context"], "sentences")} if "context" in example else {}
    found = []
    for title, place in _pairs(value, "sent_id"):
        sentences = documents.get(str(title), ())
        if not isinstance(sentences, str) and isinstance(place, int) and place < len(sentences):
            found.append(str(sentences[place]).strip())
    return found


def _named(some: Sequence[str], names: Mapping[str, str]) -> str:
    return ", ".join(repr(names[one]) for one in some) or "nothing"
