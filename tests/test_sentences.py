"""Sentences of a prompt: nothing is lost, and lists, code and short forms stay whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gepa_lite.core.sentences import same_sentence, sentences_of, without_sentence

TEXTS = st.lists(st.sampled_from(["a", "B", "1", ".", "!", "?", " ", "\n", "-", "*", "`", "```", ")", "é", "e.g."]), max_size=60).map(
    "".join
)


@given(TEXTS)
def test_joined_again_they_are_the_text(text: str) -> None:
    assert "".join(sentences_of(text)) == text


@given(TEXTS)
def test_leaving_one_out_takes_out_no_more(text: str) -> None:
    pieces = sentences_of(text)
    for piece in pieces:
        rest = without_sentence(text, piece)
        assert sorted(rest.split()) == sorted("".join(p for p in _without(pieces, piece)).split())


def _without(pieces: list[str], piece: str) -> list[str]:
    place = pieces.index(piece)
    return pieces[:place] + pieces[place + 1 :]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", []),
        ("One.", ["One."]),
        ("One. Two!  Three?", ["One. ", "Two!  ", "Three?"]),
        ("Use e.g. this, i.e. that. Done.", ["Use e.g. this, i.e. that. ", "Done."]),
        ("1. First thing. And more.\n2. Second.\n", ["1. First thing. ", "And more.\n", "2. Second.\n"]),
        ("- one\n- two\n\nEnd", ["- one\n", "- two\n\n", "End"]),
        ("Look:\n```\na. b. c.\nd\n```\nGood. Bye.", ["Look:\n", "```\na. b. c.\nd\n```\n", "Good. ", "Bye."]),
        ('Say "no." Then stop.', ['Say "no." ', "Then stop."]),
        ("Version 1.5 is fine. Ok.", ["Version 1.5 is fine. ", "Ok."]),
    ],
)
def test_where_sentences_end(text: str, pieces: list[str]) -> None:
    assert sentences_of(text) == pieces


def test_the_same_sentence_in_a_list_and_in_a_line() -> None:
    assert same_sentence("- Be  brief.\n") == same_sentence("2. Be brief. ") == same_sentence("Be brief.")
    assert same_sentence("Be brief.") != same_sentence("Be brief!")
