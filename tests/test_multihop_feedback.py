"""HotpotQA's feedback: each module hears what its own step found and lost, by the right sets."""

from __future__ import annotations

from typing import Any

import pytest
from gepa_lite.feedback.multihop import hotpot_multihop
from gepa_lite.programs.multihop import HotpotMultiHop
from gepa_lite.programs.retrieval import BM25

import gepa_lite as gl
from benchmarks import data_sets
from gepa_lite.errors import UsageError
from gepa_lite.testing import ScriptedLM

CONTEXT = [
    ["Fern", ["Ferns like shade. ", "They have fronds."]],
    ["Moss", ["Moss is small. ", "It likes rain."]],
    ["Ivy", ["Ivy climbs."]],
]
LABELS: dict[str, Any] = {
    "answer": "the rain",
    "gold_titles": ["Fern", "Moss"],
    "context": CONTEXT,
    "supporting_facts": [["Fern", 0], ["Moss", 1]],
}


def judged(hops: list[list[str]], answer: str = "shade", **labels: Any) -> gl.Feedback:
    row = gl.Example("id", {"question": "What does the small one like?"}, {**LABELS, **labels})
    return hotpot_multihop()(row, {"answer": answer, "hops": hops})


def test_a_lost_document_is_named_with_its_text_to_the_step_that_lost_it() -> None:
    found = judged([["Fern | a", "Ivy | b"], ["Ivy | b"]])
    assert (found.score, found.text) == (0.0, "Wrong: the answer should be 'the rain', but it was 'shade'. Never found: 'Moss'.")
    query = found.for_module("create_query_hop2")
    assert "The first search found 'Fern'. Still missing then: 'Moss'. This step's query found 0 of 1 (nothing)." in query
    assert "The text of what is missing: Moss | Moss is small. It likes rain." in query
    assert "clues of the first summary" in query
    assert "it lacks 'Moss'. An ideal summary says: Ferns like shade. It likes rain." in found.for_module("summarize1")
    assert found.for_module("summarize2").endswith("An ideal summary says: Ferns like shade. It likes rain.")
    final = found.for_module("final_answer")
    assert final.startswith("Wrong: the answer should be 'the rain', but it was 'shade'. The gold documents: Fern | Ferns like shade.")
    assert set(found.modules) == set(HotpotMultiHop(lambda query, k: [], ScriptedLM("x")).prompts)


def test_the_query_is_measured_by_what_the_first_search_left() -> None:
    """The artifact's slip, put right: what was missing is taken after the first search, not after the second."""
    both = judged([["Ivy | b"], ["Moss | c"]])
    assert "Still missing then: 'Fern', 'Moss'. This step's query found 1 of 2 ('Moss')." in both.for_module("create_query_hop2")
    right = judged([["Fern | a"], ["Moss | c"]], answer="Rain!")
    assert (right.score, right.text) == (1.0, "Right: the answer is 'the rain'. All gold documents were found.")
    assert "clues" not in right.for_module("create_query_hop2")
    assert "Nothing was left to find" in judged([["Fern | a", "Moss | c"], []]).for_module("create_query_hop2")


def test_the_public_sets_form_of_documents_and_facts_is_read_too() -> None:
    """Dicts of lists, as the hub's HotpotQA has them; and rows without sentences or facts."""
    public = {"title": [title for title, _ in CONTEXT], "sentences": [text for _, text in CONTEXT]}
    hops = [["Fern | a"], []]
    same = judged(hops, context=public, supporting_facts={"title": ["Fern", "Moss"], "sent_id": [0, 1]})
    assert same == judged(hops)
    plain = judged(hops, context=[["Fern", "Ferns like shade."], ["Moss", "m" * 2_000]])
    assert "An ideal summary says: Ferns like shade. mmm" in plain.for_module("summarize2")
    assert "m […]" in plain.for_module("summarize1")
    with pytest.raises(UsageError, match="has 1 hops"):
        judged([["Fern | a"]])


def test_a_run_over_local_rows_gives_each_module_its_words() -> None:
    if not data_sets.data_folder().is_dir():
        pytest.skip("the data is not here")
    rows = data_sets.load("hotpotqa-local")[:5]
    corpus = [f"{title} | {text}" for row in rows for title, text in row["context"]]
    lm = ScriptedLM(lambda request: '{"reasoning": "r", "query": "q", "summary": "s", "answer": "nobody"}')
    found = gl.evaluate(HotpotMultiHop(BM25(corpus), lm), rows, feedback=hotpot_multihop())
    assert found.mean == 0.0
    for rollout in found.rollouts:
        assert all(len(words) > 40 for words in rollout.feedback.modules.values())
