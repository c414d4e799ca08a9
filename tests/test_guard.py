"""The leak guard alone: what it finds in a text, and what it lets stand."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import gepa_lite as gl
from benchmarks.guard import PROMPTS, made_up_personal, made_up_secrets
from gepa_lite.core.example import Example, make_example
from gepa_lite.core.finding import Finding
from gepa_lite.errors import UsageError
from gepa_lite.guard.detect import personal_data, secrets
from gepa_lite.guard.near import NearIndex
from gepa_lite.guard.options import Guard
from gepa_lite.guard.overlap import OverlapIndex, runs_of
from gepa_lite.guard.phrases import class_fields
from gepa_lite.guard.review import MOST, LeakGuard
from gepa_lite.guard.words import folded_words, joined, words_of
from gepa_lite.search.reflect import template_sources

SEED = "Decide which team takes the message."
TRAIN = [
    {
        "message": "My monstera arrived with two snapped stems and wet cardboard.",
        "team": "fern",
        "note": "Snapped stems on arrival are claims",
    },
    {"message": "Please move the June parcel to my sister in Utrecht.", "team": "moss", "note": "A moved parcel goes to the depot"},
    {"message": "The card was charged twice for order forty-one.", "team": "fern", "note": "Double charges are for Ines Okafor"},
    {"message": "Could you tell me whether the ficus likes shade?", "team": "fern", "note": "Ficus advice"},
]
VALIDATION = [{"message": "My voucher from Grandma expired on the train to Lisbon.", "team": "moss", "note": "Vouchers never expire"}]
TEST = [{"message": "Two beetles were marching across the moss pole this morning.", "team": "fern", "note": "Beetles are pests"}]


def examples(rows: list[dict[str, Any]]) -> list[Example]:
    return [make_example(row, ["message"], [], "rows") for row in rows]


def guard(options: Guard | None = None, known: tuple[str, ...] = (), **splits: list[dict[str, Any]]) -> LeakGuard:
    given = {"train": TRAIN, "validation": VALIDATION, "test": TEST, **splits}
    return LeakGuard(options or Guard(), {name: examples(rows) for name, rows in given.items()}, [SEED, *known], template_sources())


def review(text: str, options: Guard | None = None, **more: Any) -> list[Finding]:
    known = more.pop("known", ())
    heard = more.pop("heard", ())
    return guard(options, known, **more).review("route", f"{SEED} {text}", {"route": SEED}, heard)


def rules(found: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.rule, finding.split) for finding in found]


# --- copies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("My monstera arrived with two snapped stems and wet cardboard.", "train"),
        ("my MONSTERA arrived, with two snapped stems; and wet cardboard", "train"),
        ("e.g. 'arrived with two snapped stems and' is fern", "train"),
        ("My monstera arrived with snapped stems and wet cardboard.", "train"),
        ("My orchid arrived with two snapped stems and some wet cardboard.", "train"),
        ("My voucher from Grandma expired on the train to Lisbon -> moss", "validation"),
        ("Two beetles were marching across the pole this morning", "test"),
    ],
)
def test_inputs_of_any_split_are_found_also_lightly_edited(text: str, split: str) -> None:
    found = review(text)
    assert rules(found) == [("copied_input", split)]
    finding = found[0]
    ids = {example.id for example in examples([*TRAIN, *VALIDATION, *TEST])}
    assert (finding.module, finding.blocks, finding.attempt) == ("route", True, 0)
    assert finding.example_id in ids
    assert f"{SEED} {text}"[finding.start : finding.end] in text
    assert "leave it out" in finding.words


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Broken plants go to team fern; changed addresses go to team moss.",
        "A plant that arrived damaged is for fern. A voucher that has expired is for moss.",
        "Charged twice means fern. Parcels that must be moved are moss.",
        "Could you tell me whether",
        "The message may speak of pests such as beetles.",
    ],
)
def test_rules_in_general_words_are_let_stand(text: str) -> None:
    assert review(text) == []


def test_what_seed_parent_description_or_allowance_hold_is_not_found_again() -> None:
    copied = TRAIN[0]["message"]
    assert rules(review(copied)) == [("copied_input", "train")]
    assert review(copied, known=(f"Such as: {copied}",)) == []
    assert review(copied, Guard(allow=(copied,))) == []
    assert review(copied, Guard(ignore=("message",))) == []
    assert review(copied, Guard(copies=False)) == []
    kept = guard().review("route", f"{SEED} {copied} Be brief.", {"route": f"{SEED} {copied}"})
    assert kept == []


def test_words_that_three_examples_share_are_anybodys() -> None:
    opening = "I hope this rather lengthy letter finds you well today"
    rows = [{"message": f"{opening}, {name}.", "team": "fern"} for name in ("Ada", "Bo", "Cy")]
    assert rules(review(opening, train=rows[:2], validation=TRAIN[1:2])) == [("copied_input", "train")]
    assert review(opening, train=rows) == []
    assert review(opening, train=rows[:1], validation=rows[1:]) == []


def test_a_run_of_everyday_words_is_no_copy_unless_it_is_a_whole_sentence() -> None:
    everyday = "please have a look at it as soon as you can"
    rows = [{"message": f"{' '.join(random.Random(n).sample(everyday.split(), 11))}. {n}", "team": "fern"} for n in range(40)]
    given = [*rows, {"message": "It please as soon as you can have a look. Have a look at it please", "team": "fern"}]
    assert review("please as soon as you can have", train=given) == []
    assert rules(review("have a look at it please", train=given)) == [("copied_input", "train")]


def test_labels_of_one_example_are_found_and_classes_are_not() -> None:
    assert rules(review("Snapped stems on arrival are claims.")) == [("copied_label", "train")]
    assert rules(review("Ask ines okafor about it. Double charges are for Ines Okafor.")) == [("copied_label", "train")]
    assert rules(review("vouchers never expire")) == [("copied_label", "validation")]
    assert review("fern and moss, fern or moss") == []
    assert review("Vouchers never expire.", Guard(ignore=("note",))) == []


def test_a_short_answer_is_found_beside_rare_words_of_its_input_alone() -> None:
    rows = [{"message": f"How many {a} fit in {b}?", "answer": str(17 + n)} for n, (a, b) in enumerate(zip("abcdefgh", "stuvwxyz"))]
    rows += [{"message": "How many marmots live near Zermatt?", "answer": "412"}]
    assert review("Count to 412 and stop.", train=rows) == []
    assert rules(review("For marmots and Zermatt say 412.", train=rows)) == [("copied_label", "train")]
    shared = [*rows, {"message": "How many for tea?", "answer": "412"}, {"message": "How many for gin?", "answer": "412"}]
    assert review("For marmots and Zermatt say 412.", train=shared) == [], "three training examples share it"


def test_the_feedbacks_words_on_other_examples_are_free() -> None:
    train = examples(TRAIN)
    note = "A moved parcel goes to the depot"
    assert rules(review(note)) == [("copied_label", "train")]
    assert review(note, heard=[(train[0].id, f"Wrong. {note}, always.")]) == []
    assert review("Ficus advice for all", heard=[(train[0].id, "Ficus advice counts as care.")]) == []
    assert rules(review(TRAIN[1]["message"], heard=[(train[1].id, TRAIN[1]["message"])])) == [("copied_input", "train")]


@pytest.mark.parametrize(
    ("note", "free"),
    [
        ("A moved parcel goes to the depot at once", True),
        ("Moved parcels need a form", True),
        ("The June parcel goes to Utrecht by boat", False),
        ("A parcel weighs 12 kilos when it is moved", False),
        ("Jan Smit", False),
    ],
)
def test_a_reason_that_the_feedback_quotes_from_a_label_is_free_and_an_answer_is_not(note: str, free: bool) -> None:
    rows = [TRAIN[0], {**TRAIN[1], "note": note}, *TRAIN[2:]]
    heard = [(examples(rows)[1].id, f"Wrong: {note}.")]
    assert rules(review(note, train=rows)) == [("copied_label", "train")]
    assert rules(review(note, train=rows, heard=heard)) == ([] if free else [("copied_label", "train")])
    beside = f"For June in Utrecht with a sister: {note}"
    assert bool(review(beside, train=rows, heard=heard)) == (not free or len(note.split()) < 6), (
        "a short one beside its question is an answer"
    )


@pytest.mark.parametrize(
    ("values", "is_class"),
    [
        (["high", "low", "high", "low"], True),
        (["high", "low", "high", "high"], True),
        (["a", "b", "c", "d", "a", "b"], True),
        (["Lisbon", "Utrecht", "Oslo", "Riga", "Turin", "Lisbon"], False),
        (["none"] * 5 + ["Lisbon", "Utrecht", "Oslo", "Riga"], False),
        (["1", "2", "1", "2"], False),
        ([["a", "b"], ["b"], ["a"]], True),
        (["x"], False),
    ],
    ids=str,
)
def test_fields_of_classes_are_told_by_values_that_repeat(values: list[Any], is_class: bool) -> None:
    rows = [{"message": f"text {n}", "label": value} for n, value in enumerate(values)]
    assert class_fields(examples(rows)) == (frozenset({"label"}) if is_class else frozenset())


def test_at_most_so_many_findings_and_a_secret_is_among_them() -> None:
    rows = [{"message": f"Parcel {n} of {n}x went to depot {n}y by barge {n}z"} for n in range(60)]
    text = "\n".join(row["message"] for row in rows) + "\nghp_" + "a1" * 18
    found = review(text, train=rows)
    assert len(found) == MOST
    assert found[-1].rule == "secret"


# --- personal data, secrets, talk ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", made_up_personal())
def test_personal_data_is_found_and_never_told(text: str) -> None:
    (found,) = review(f"Write to {text} at once.")
    assert (found.rule, found.split) == ("personal", "")
    assert text not in found.words
    assert f"{SEED} Write to {text} at once."[found.start : found.end] == text
    assert review(f"Write to {text} at once.", Guard(personal=False)) == []
    assert review(f"Write to {text} at once.", Guard(allow=(text,))) == []


@pytest.mark.parametrize("text", made_up_secrets(), ids=range(44))
def test_secrets_are_found_and_never_told(text: str) -> None:
    found = review(f"Send {text} along.")
    assert "secret" in {finding.rule for finding in found}
    assert not any(text in finding.words for finding in found)
    assert "secret" not in {finding.rule for finding in review(f"Send {text} along.", Guard(secrets=False))}


@pytest.mark.parametrize("text", PROMPTS["look_alikes"])
def test_look_alikes_are_neither(text: str) -> None:
    assert personal_data(text) == []
    assert secrets(text) == []


def test_phone_numbers_without_a_country_need_a_region() -> None:
    assert personal_data("Call 030 901820 now") == []
    assert [what for what, _, _ in personal_data("Call 030 901820 now", "DE")] == ["a phone number"]
    assert [found.rule for found in review("Call 030 901820 now", Guard(region="DE"))] == ["personal"]


def test_a_copied_passage_with_a_secret_in_it_is_told_without_it() -> None:
    key = "ghp_" + "a1" * 18
    row = {"message": f"Our deploy script prints {key} and mails ada@lovelace.org every night."}
    for options in (Guard(), Guard(personal=False, secrets=False)):
        found = review(row["message"], options, train=[row])
        copied = next(finding for finding in found if finding.rule == "copied_input")
        assert "***" in copied.words
        assert not any(key in finding.words or "lovelace" in finding.words for finding in found)


@pytest.mark.parametrize("text", PROMPTS["meta"])
def test_talk_about_the_prompt_is_found(text: str) -> None:
    assert {finding.rule for finding in review(f"\n{text}")} == {"meta"}
    assert review(f"\n{text}", Guard(meta=False)) == []


def test_a_program_about_prompts_and_feedback_may_speak_of_them() -> None:
    text = "Say what the feedback suggests. Rate the current prompt. The assistant failed if it was rude."
    assert len(review(text)) == 3
    assert review(text, known=("Rate a prompt by the feedback that the assistant got.",)) == []


@pytest.mark.parametrize("name", ["trec", "banking77", "facility", "demo"])
def test_honest_prompts_are_no_talk_about_prompts_and_hold_nothing_sensitive(name: str) -> None:
    assert review("\n".join(PROMPTS[name])) == []


# --- options ------------------------------------------------------------------------------------------------------------


def test_detectors_of_ones_own() -> None:
    def badges(text: str) -> list[tuple[str, int, int]]:
        return [("a badge number", *match.span()) for match in re.finditer(r"BDG\d+", text)]

    (found,) = review("Ask BDG4711.", Guard(detectors=(badges,)))
    assert (found.rule, found.words) == ("personal", "it holds a badge number (line 1): leave it out")
    with pytest.raises(UsageError, match=r"badges_without_end must give \(what, start, end\)"):
        review("Ask.", Guard(detectors=(badges_without_end,)))


def badges_without_end(text: str) -> Any:
    return [("a badge", 3)]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"mode": "block"}, "'reject', 'warn' or 'off'"),
        ({"words": 2}, "at least 3"),
        ({"words": True}, "at least 3"),
        ({"allow": [""]}, "not empty"),
        ({"ignore": [3]}, "not empty"),
        ({"detectors": ("spacy",)}, "functions are needed"),
    ],
)
def test_wrong_options_are_refused_where_they_are_written(values: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Guard(**values)


def test_a_field_that_no_example_has_is_named() -> None:
    with pytest.raises(UsageError, match=r"no example has a field 'notes'; they have 'message', 'note', 'team'"):
        guard(Guard(ignore=("notes",)))
    with pytest.raises(UsageError, match=r"Search\(guard='maybe'\)"):
        gl.Search(guard="maybe")  # type: ignore[arg-type]


def test_a_warning_does_not_block() -> None:
    assert [finding.blocks for finding in review(TRAIN[0]["message"], Guard(mode="warn"))] == [False]


def test_more_words_in_a_row_find_less() -> None:
    text = "arrived with two snapped stems and"
    assert rules(review(text, Guard(words=6))) == [("copied_input", "train")]
    assert review(text, Guard(words=9)) == []


def test_importing_and_naming_the_options_loads_no_detector_and_no_numpy() -> None:
    code = "import sys, gepa_lite as gl; gl.Guard(); print([m for m in ('numpy', 'phonenumbers', 'stdnum', 'detect_secrets') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


# --- properties -----------------------------------------------------------------------------------------------------------

WORDS = st.lists(st.sampled_from(["a", "b", "c", "d", "e", "f", "g"]), max_size=30)


@settings(max_examples=150, deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=5), WORDS, st.integers(2, 5))
def test_the_index_finds_exactly_the_runs_that_are_there(texts: list[list[str]], text: list[str], size: int) -> None:
    index = OverlapIndex(size, list(enumerate(texts)))
    expected: dict[int, frozenset[int]] = {}
    for start in range(len(text) - size + 1):
        run = text[start : start + size]
        if owners := {n for n, words in enumerate(texts) if any(words[at : at + size] == run for at in range(len(words) - size + 1))}:
            expected[start] = frozenset(owners)
    hits = index.hits(text)
    assert hits == expected
    for run in runs_of(hits, size):
        assert run.last - run.first + 1 >= size
        assert all(set(run.owners) <= hits[start] for start in range(run.first, run.last - size + 2))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_sentence_is_found_with_a_word_in_six_left_out_wherever_it_stands(data: st.DataObject) -> None:
    draw = data.draw(st.randoms(use_true_random=False))
    sentences = [
        [f"w{n}x{place}" for place in range(size)] for n, size in enumerate(data.draw(st.lists(st.integers(6, 40), min_size=1, max_size=4)))
    ]
    index = NearIndex([(2 * n, words) for n, words in enumerate(sentences)], len(sentences), "", 3)
    chosen = data.draw(st.integers(0, len(sentences) - 1))
    kept = [word for place, word in enumerate(sentences[chosen]) if place % 6 != 2]
    around = [f"z{n}" for n in range(draw.randrange(30))]
    matches = list(index.matches([*around, *kept, *around]))
    assert matches
    assert {match.piece.owners for match in matches} == {(2 * chosen,)}
    assert all(len(around) <= match.first <= match.last < len(around) + len(kept) for match in matches)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200))
def test_any_text_can_be_looked_through_and_folded_words_agree(text: str) -> None:
    assert folded_words(text) == words_of(text).folded
    for found in review(text):
        assert 0 <= found.start < found.end <= len(SEED) + 1 + len(text)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "Z"]), min_size=1, max_size=120))
def test_a_text_is_never_found_against_its_own_parent(text: str) -> None:
    look = guard(train=[{"message": text + " and more", "team": "a"}, *TRAIN[1:]])
    assert look.review("route", text, {"route": text}) == []


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("abcdefghij", min_size=4, max_size=8), min_size=7, max_size=25, unique=True))
def test_a_whole_input_is_always_found(words: list[str]) -> None:
    assume(not set(words) & set(folded_words(SEED)))
    message = " ".join(words)
    found = review(message.upper(), train=[{"message": message, "team": "a"}])
    assert rules(found) == [("copied_input", "train")]
    assert joined(words) == joined(folded_words(message))
