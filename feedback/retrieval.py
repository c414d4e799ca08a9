"""Judge multi-hop retrieval: which gold documents each hop found, told to the module that searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback
from gepa_lite.errors import UsageError

from .match import FieldFeedback, normalized

HOVER_STAGES: Mapping[str, tuple[int, int]] = {
    "summarize1": (1, 3),
    "create_query_hop2": (1, 2),
    "summarize2": (2, 3),
    "create_query_hop3": (2, 3),
}
"""Of each module of HoVer's program, the hops before and after which the missing documents are compared (GEPA's artifact)."""


def retrieval_coverage(
    label: str = "gold_titles", field: str = "hops", *, stages: Mapping[str, tuple[int, int]] | None = None, share: bool = False
) -> FieldFeedback:
    """A feedback function: 1 where all gold documents were found, else 0 (or their share), with what each module helped to find and what is still missing.

    Args:
        label: the label with the gold titles; they are compared up to case, punctuation and articles.
        field: the output field with one list of documents (``"title | text"``) a hop.
        stages: for each module the numbers of the hops before and after it, from 1; ``HOVER_STAGES`` is the paper's table, and the default.
        share: score the share of gold titles instead of all or nothing.

    Example:
        >>> judge = retrieval_coverage(stages={"query": (1, 2)})
        >>> found = judge(Example("id", {}, {"gold_titles": ["Fern", "Moss", "Ivy"]}), {"hops": [["Fern | a"], ["Moss | b"]]})
        >>> found.for_module("query")
        "This step helped to find: 'Moss'. Still missing after it: 'Ivy'."
    """
    table = HOVER_STAGES if stages is None else stages

    def feedback(example: Example, output: Any) -> Feedback:
        titles = {normalized(str(title)): str(title) for title in example[label]}
        missing = missing_after(list(titles), output[field])
        if any(after >= len(missing) for _, after in table.values()):
            raise UsageError(
                f"retrieval_coverage: stages name hop {max(after for _, after in table.values())}, and the output has {len(missing) - 1} hops."
            )
        left = missing[-1]
        score = 1 - len(left) / len(titles) if share else float(not left)
        if not left:
            return Feedback(score, "All gold documents were found.")
        hops = " ".join(
            f"Hop {number} found {_named(titles, [one for one in before if one not in after])}."
            for number, (before, after) in enumerate(pairwise(missing), 1)
        )
        modules = {
            module: f"This step helped to find: {_named(titles, [one for one in missing[before] if one not in missing[after]])}. "
            f"Still missing after it: {_named(titles, [one for one in missing[before] if one in missing[after]])}."
            for module, (before, after) in table.items()
        }
        return Feedback(score, f"Missing: {_named(titles, left)}. {hops}", modules)

    return feedback


def missing_after(gold: Sequence[str], hops: Sequence[Sequence[str]]) -> list[list[str]]:
    """The gold titles that are missing before the first hop, after it, and so on; gold titles in normalized form.

    >>> missing_after(["fern", "moss"], [["Fern | a"], ["Moss | b"]])
    [['fern', 'moss'], ['moss'], []]
    """
    states = [list(gold)]
    for documents in hops:
        found = {normalized(document.split(" | ", 1)[0]) for document in documents}
        states.append([title for title in states[-1] if title not in found])
    return states


def _named(titles: Mapping[str, str], some: Sequence[str]) -> str:
    return ", ".join(repr(titles[one]) for one in some) or "nothing"
