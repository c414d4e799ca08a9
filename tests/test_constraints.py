"""IFEval's constraints: each kept by one text and broken by another, in words."""

from __future__ import annotations

from typing import Any

import pytest
from gepa_lite.feedback.constraints import constraints, loose_variants

import gepa_lite as gl
from benchmarks import data_sets
from gepa_lite.errors import UsageError

CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "keywords:existence": ({"keywords": ["fern", "moss"]}, "Moss and ferns", "moss"),
    "keywords:forbidden_words": ({"forbidden_words": ["art"]}, "party", "An art."),
    "keywords:frequency": ({"keyword": "a", "relation": "at least", "frequency": 2}, "a a", "a"),
    "keywords:letter_frequency": ({"letter": "z", "let_relation": "less than", "let_frequency": 2}, "zoo", "zz"),
    "language:response_language": (
        {"language": "de"},
        "Das ist ein ganz normaler deutscher Satz über das Wetter.",
        "This is a plain English sentence about the weather.",
    ),
    "length_constraints:number_words": ({"relation": "at least", "num_words": 3}, "one two three", "one two"),
    "length_constraints:number_sentences": ({"relation": "less than", "num_sentences": 2}, "One.", "One. Two! Three?"),
    "length_constraints:number_paragraphs": ({"num_paragraphs": 2}, "a\n***\nb", "a\n\nb"),
    "length_constraints:nth_paragraph_first_word": (
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "fern"},
        "a\n\nFern b",
        "a\n\nb",
    ),
    "detectable_content:number_placeholders": ({"num_placeholders": 2}, "[a] [b]", "[a]"),
    "detectable_content:postscript": ({"postscript_marker": "P.P.S"}, "a\nP.P.S b", "a\nP.S. b"),
    "detectable_format:number_bullet_lists": ({"num_bullets": 2}, "* a\n* b", "* a"),
    "detectable_format:constrained_response": ({}, "My answer is no.", "No."),
    "detectable_format:number_highlighted_sections": ({"num_highlights": 2}, "*a* **b**", "*a*"),
    "detectable_format:multiple_sections": ({"section_spliter": "Day", "num_sections": 2}, "Day 1\na\nDay 2\nb", "Day 1"),
    "detectable_format:json_format": ({}, '```json\n{"a": 1}\n```', "{a: 1}"),
    "detectable_format:title": ({}, "<<A fern>>\nx", "A fern"),
    "combination:two_responses": ({}, "a\n******\nb", "a\n******\na"),
    "combination:repeat_prompt": ({"prompt_to_repeat": "Say it."}, "Say it. Yes.", "Yes."),
    "startend:end_checker": ({"end_phrase": "Any questions?"}, "a. any questions?", "a"),
    "startend:quotation": ({}, '"a"', "a"),
    "change_case:english_capital": ({}, "A FERN", "A fern"),
    "change_case:english_lowercase": ({}, "a fern", "A FERN"),
    "change_case:capital_word_frequency": ({"capital_relation": "at least", "capital_frequency": 2}, "A FERN", "a FERN"),
    "punctuation:no_comma": ({}, "a b", "a, b"),
}


@pytest.mark.parametrize("name", CASES)
def test_each_is_kept_and_broken(name: str) -> None:
    given, good, bad = CASES[name]
    row = gl.Example("id", {}, {"instruction_id_list": [name], "kwargs": [given]})
    kept, broken = (constraints()(row, {"response": text}) for text in (good, bad))
    assert (kept.score, broken.score) == (1.0, 0.0)
    assert kept.text.startswith("Kept: ")
    assert broken.text.startswith("Broken: ")
    assert "{" not in broken.text


def test_the_eight_loose_variants() -> None:
    """Papers, A12."""
    assert loose_variants("a\n*b*\nc") == ["a\n*b*\nc", "*b*\nc", "a\n*b*", "*b*", "a\nb\nc", "b\nc", "a\nb", "b"]
    row = gl.Example("id", {}, {"instruction_id_list": ["punctuation:no_comma", "detectable_format:title"], "kwargs": [{}, {}]})
    chatty = {"response": "Sure, here:\nno comma"}
    assert (constraints()(row, chatty).score, constraints(loose=False)(row, chatty).score) == (0.5, 0.0)
    assert constraints()(row, {"response": ""}).score == 0.0


def test_unknown_constraints_are_refused_and_all_of_ifeval_is_known() -> None:
    with pytest.raises(UsageError, match="'count:ferns' is not known"):
        constraints()(gl.Example("id", {}, {"instruction_id_list": ["count:ferns"], "kwargs": [{}]}), {"response": "a"})
    if not data_sets.data_folder().is_dir():
        pytest.skip("the data is not here")
    for row in data_sets.load("ifeval-local"):
        assert 0 <= constraints()(gl.Example("id", {}, row), {"response": "A reply that is long enough, in English."}).score <= 1
