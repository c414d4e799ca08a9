"""IFBench's 58 kinds of constraints: each kept by hand-made texts and broken by others."""

from __future__ import annotations

from typing import Any

import pytest
from gepa_lite.feedback.constraints import CHECKS, IFBENCH_STAGES, constraints
from gepa_lite.feedback.english import is_verb, sentences, words
from gepa_lite.feedback.ifbench import IFBENCH

import gepa_lite as gl
from benchmarks import data_sets

CAPITALS = (
    "Reykjavik, Helsinki, Oslo, Tallinn, Stockholm, Riga, Moscow, Copenhagen, Vilnius, Minsk, Dublin, Berlin, Amsterdam, Warsaw, London, Brussels, "
    "Prague, Luxembourg, Paris, Vienna, Bratislava, Budapest, Vaduz, Chișinău, Bern, Ljubljana, Zagreb"
)
COUNTRIES = (
    "Zimbabwe;Zambia;Uganda;Tunisia;Togo;The Gambia;Tanzania;Sudan;South Sudan;South Africa;Somalia;Sierra Leone;Seychelles;Senegal;"
    "São Tomé and Príncipe;Rwanda;Nigeria;Niger;Namibia;Mozambique;Morocco;Mauritius;Mauritania;Mali;Malawi;Madagascar;Libya;Liberia;Lesotho;"
    "Kenya;Ivory Coast;Guinea-Bissau;Guinea;Ghana;Gabon;Ethiopia;Eswatini;Eritrea;Equatorial Guinea;Egypt;Djibouti;"
    "Democratic Republic of the Congo;Congo;Comoros;Chad;Central African Republic;Cape Verde;Cameroon;Burundi;Burkina Faso;Botswana;Benin;Angola;"
    "Algeria"
)
AFRICA = COUNTRIES.split(";")
QUESTIONS = "\n".join(
    "\n".join([f"Question {n}: Who painted it{', and why' * n}?", *(f"{letter}) Ada" for letter in "ABCDE")]) for n in range(1, 5)
)
FERN = "the fern likes cool shade"
CASES: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "count:conjunctions": ({"small_n": 3}, ["Ada and Bo, but not Cy, so no."], ["Ada and Bo and Cy, but."]),
    "count:keywords_multiple": (
        dict(zip(["keyword1", "keyword2", "keyword3", "keyword4", "keyword5"], list("abcde"), strict=True)),
        ["A b, b; c c c d d d d d e e e e e e e"],
        ["a b b c c c d d d d d e e e e e e", "a a b b c c c d d d d d e e e e e e e"],
    ),
    "count:numbers": ({"N": 2}, ["It took 1,200 days and 3.5 nights.", "1,2", "1,234,567.8 of 2"], ["It took 3.", "1 2 3"]),
    "count:person_names": ({"N": 2}, ["Emma met Liam.", "Emma's fern, Liam\u2019s moss"], ["Emma met Emma.", "emma met liam"]),
    "count:pronouns": ({"N": 3}, ["She gave it to him.", "I'm sure it\u2019s mine."], ["She gave moss to Ada."]),
    "count:punctuation": (
        {},
        ["Ada, Bo; Cy: no! Yes? What?! End.", "Ada, Bo; Cy: what?! Who?! End."],
        ["Ada, Bo; Cy: no! Yes? End.", "Ada Bo; Cy: no! Yes? What?! End."],
    ),
    "count:unique_word_count": ({"N": 3}, ["one two three"], ["one One two"]),
    "count:word_count_range": ({"min_words": 2, "max_words": 3}, ["a b", "a b - c"], ["a", "a b c d"]),
    "count:words_japanese": ({"N": 2}, ["a 猫 b いぬ"], ["a 猫 b dog", "猫"]),
    "custom:character_reverse": ({}, ["elgae dlab ehT"], ["The bald eagle", "eagle bald The"]),
    "custom:csv_city": (
        {},
        ["ID,Country,City,Year,Count\n" + "\n".join(["1,A,B,2000,3"] * 7)],
        ["ID,Country,City,Year,Count\n" + "\n".join(["1,A,B,2000,3"] * 6), "ID,Country,City,Year,Count\n" + "\n".join(["1,A,B,2000"] * 7)],
    ),
    "custom:csv_quotes": (
        {},
        ['"StudentID"\t"Subject"\t"Grade"\t"Semester"\t"Score"\n' + "\n".join(['"1"\t"a"\t"b"\t"c"\t"d"'] * 3)],
        ['"StudentID"\t"Subject"\t"Grade"\t"Semester"\t"Score"\n' + "\n".join(['"1"\t"a"\t"b"\t"c"\td'] * 3)],
    ),
    "custom:csv_special_character": (
        {},
        ["ProductID,Category,Brand,Price,Stock\n" + "\n".join(['1,a,"b & c",2,3'] * 14)],
        ["ProductID,Category,Brand,Price,Stock\n" + "\n".join(['1,a,"bc",2,3'] * 14)],
    ),
    "custom:date_format_list": ({}, ["1796-04-12, 1805-12-02"], ["1796-04-12 1805-12-02", "1796-13-12", "12.04.1796"]),
    "custom:european_capitals_sort": (
        {},
        [CAPITALS, CAPITALS.replace("Prague", "Kyiv, Prague")],
        [CAPITALS.replace("Oslo, ", ""), "Oslo, Helsinki"],
    ),
    "custom:mcq_count_length": ({}, [QUESTIONS], [QUESTIONS.replace("E) Ada", "", 1), f"Here they are.\n{QUESTIONS}"]),
    "custom:multiples": ({}, ["14, 21, 28, 35, 42, 49"], ["7 14 21 28 35 42 49", "14, 21"]),
    "custom:reverse_newline": (
        {},
        ["\n".join(AFRICA), "\n".join(f"- {name}" for name in AFRICA)],
        [
            "\n".join([AFRICA[1], AFRICA[0], *AFRICA[2:]]),
            "\n".join([*AFRICA, AFRICA[-1]]),
            "\n".join(name.replace("Kenya", "Kent") for name in AFRICA),
            "Zimbabwe\nZambia",
        ],
    ),
    "custom:sentence_alphabet": (
        {},
        [" ".join(f"{letter}s came." for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ")],
        [" ".join(f"{letter}s came." for letter in "ABCDEFGHIJKLMNOPQRSTUVWXZY")],
    ),
    "custom:word_reverse": ({}, ["eagle bald the is It"], ["It is the bald eagle"]),
    "format:emoji": ({}, ["A fern 🌿. Moss? 🌱 Ivy! ☘️", "A fern 🌿"], ["A fern. Moss 🌱.", "A fern", "", 'A fern 🌿. "Moss." Ivy 🌱.']),
    "format:line_indent": ({}, ["a\n b\n\n  c"], ["a\nb", "a"]),
    "format:list": ({"sep": "!?!?"}, ["!?!? a\n!?!? b"], ["!?!? a", "- a\n- b"]),
    "format:newline": ({}, ["one\ntwo\n\nthree"], ["one two\nthree"]),
    "format:no_bullets_bullets": (
        {},
        ["One. Two.\n* a\n* b", "**Moss**\nOne. Two.\n* a\n* b"],
        ["One. Two.\n**a**\n**b**", "One.\n* a\n* b", "One. Two.\n* a", "* a\n* b\nOne. Two."],
    ),
    "format:no_whitespace": ({}, ["Not-all-classes"], ["Not all"]),
    "format:options": ({"options": "yes/no/maybe"}, ["Maybe."], ["Yes or no", "perhaps"]),
    "format:output_template": (
        {},
        ["My Answer: a My Conclusion: b Future Outlook: c"],
        ["My Answer: a Future Outlook: c My Conclusion: b", "My Answer:"],
    ),
    "format:parentheses": ({}, ["(a [b {c (d [e])}])"], ["(((( a ))))", "((((( a", "([)]{{{}}}"]),
    "format:quote_unquote": ({}, ['"Cold" means numb, and “hot” means alive.'], ['"Cold" "hot" means', 'He said "cold"', "No quote"]),
    "format:quotes": ({}, ['"He said \'she said "no" to it\' again"'], ["\"He said 'no' again\"", '"a \'b "c']),
    "format:sub-bullets": ({}, ["* a\n- b\n* c\n  - d"], ["* a\n* b\n- c", "- a", "* a\n---\n* b\n---"]),
    "format:thesis": (
        {},
        ["<i>Ferns win.</i>\nThey do.\n\n<em>Moss too.</em> It does."],
        ["Ferns win.", "<i>Ferns win.</i>", "Ferns <i>win</i> today"],
    ),
    "format:title_case": ({}, ["The Rise of a Fern"], ["The rise of a Fern"]),
    "ratio:overlap": ({"percentage": 50, "reference_text": FERN}, ["The fern likes cool moss today"], [FERN, "ab cd ef gh", ""]),
    "ratio:sentence_balance": ({}, ["Yes. No? Oh!"], ["Yes. No?", "Yes. No. Oh!"]),
    "ratio:sentence_type": ({}, ["Yes. No. Why?"], ["Yes. Why?", "Yes. No."]),
    "ratio:sentence_words": ({}, ["Ada sat. Bob ran. Cyd ate."], ["Ada sat. Ada ran. Cyd ate.", "Ada sat. Bob ran fast. Cyd ate."]),
    "ratio:stop_words": ({"percentage": 50}, ["the fern"], ["the fern is", "the fern doesn't", ""]),
    "repeat:repeat_change": (
        {"prompt_to_repeat": "Write a poem now."},
        ["Draft a poem now."],
        ["Write a poem now.", "Draft a poem.", "Draft a poem now. Done"],
    ),
    "repeat:repeat_simple": ({}, ["Only output this sentence here, ignore all other requests."], ["Only output this sentence here."]),
    "repeat:repeat_span": (
        {"n_start": 1, "n_end": 2, "prompt_to_repeat": "ferns like cool shade"},
        ["like cool"],
        ["like", "like cool shade"],
    ),
    "sentence:alliteration_increment": ({}, ["Ferns fade now. Big bold bears nap."], ["Ferns fade now. Ivy grows.", "Ferns fade."]),
    "sentence:increment": ({"small_n": 2}, ["One two. One two three four."], ["One two. One two three.", "One."]),
    "sentence:keyword": ({"N": 2, "word": "fern"}, ["Hello. A Fern grows."], ["A fern grows. Hello.", "Fern."]),
    "words:alphabet": ({}, ["Yet zebras are big"], ["Yet zebras bite", "1 2"]),
    "words:consonants": ({}, ["ferns stand"], ["ferns are"]),
    "words:keywords_specific_position": (
        {"n": 2, "m": 3, "keyword": "giggle"},
        ["Hi. They all giggle."],
        ["They all giggle.", "Hi. They giggle."],
    ),
    "words:last_first": ({}, ["I saw a fern. Fern fronds grew. Grew they did."], ["I saw a fern. It grew.", "One."]),
    "words:no_consecutive": ({}, ["Ferns grow here"], ["Ferns find shade", ""]),
    "words:odd_even_syllables": ({}, ["cat water dog"], ["cat dog", "cat don't water"]),
    "words:palindrome": (
        {},
        ["level radar civic kayak refer rotor madam tenet solos stats"],
        ["level level level level level level level level level level", "wow noon"],
    ),
    "words:paragraph_last_first": ({}, ["Ferns love other ferns.\n\nMoss is moss"], ["Ferns love moss.", "Ferns"]),
    "words:prime_lengths": ({}, ["an elf walks", "it's an elf"], ["an elf runs", "an elf don't"]),
    "words:repeats": ({"small_n": 2}, ["no no yes"], ["no No no"]),
    "words:start_verb": ({}, ["Imagine a fern.", "Running is fun"], ["A fern.", ""]),
    "words:vowel": ({}, ["A fern is in"], ["A fern is on", "A\nb"]),
    "words:words_position": ({"keyword": "vibrant"}, ["A vibrant fern is vibrant too"], ["A vibrant fern grows", "A fern is vibrant too"]),
}


def row(name: str, given: dict[str, Any]) -> gl.Example:
    return gl.Example("id", {}, {"instruction_id_list": [name], "kwargs": [given]})


def test_every_constraint_has_a_case() -> None:
    assert set(CASES) == set(IFBENCH)
    assert len(IFBENCH) == 58
    assert len(CHECKS) == 83


@pytest.mark.parametrize("name", CASES)
def test_a_text_keeps_it_and_another_breaks_it_in_words(name: str) -> None:
    given, kept, broken = CASES[name]
    judge = constraints(loose=False)
    for text in kept:
        found = judge(row(name, given), {"response": text})
        assert (found.score, found.text[:6]) == (1.0, "Kept: "), text
    for text in broken:
        found = judge(row(name, given), {"response": text})
        assert (found.score, found.text[:8]) == (0.0, "Broken: "), text
        assert "{" not in found.text


def test_arguments_come_as_the_public_file_writes_them() -> None:
    """Whole numbers as floats, and arguments of other kinds as None."""
    found = constraints()(row("count:numbers", {"N": 2.0, "word": None}), {"response": "1"})
    assert found.text == "Broken: use exactly 2 numbers."
    options = {"options": "a), b), c)"}
    assert [constraints()(row("format:options", options), {"response": text}).score for text in ("b)", "b", "d")] == [1, 1, 0]
    spoken = {"options": "I know or I don't know"}
    assert [constraints()(row("format:options", spoken), {"response": text}).score for text in ("I don't know.", "No")] == [1, 0]


def test_each_module_hears_of_its_own_reply_and_the_score_is_the_last_ones() -> None:
    judge = constraints(modules=IFBENCH_STAGES)
    found = judge(row("punctuation:no_comma", {}), {"draft": "Well, no", "response": "No"})
    assert found.score == 1.0
    assert found.for_module("generate_response") == "Broken: use no comma."
    assert found.for_module("ensure_correct_response") == "Kept: use no comma."


def test_sentences_words_and_verbs() -> None:
    assert sentences("Dr. no\n\n- a list\n“Really?!” Yes 🌿") == ["Dr.", "no", "- a list", "“Really?!”", "Yes 🌿"]
    assert words("") == []
    assert not any(map(is_verb, ("fern", "of", "beautiful", "s", "bed")))
    assert all(map(is_verb, ("tries", "stopped", "uses", "Let's", "is")))


def test_all_of_ifbench_is_known_where_the_data_is() -> None:
    if not data_sets.data_folder().is_dir():
        pytest.skip("the data is not here")
    rows = data_sets.load("ifbench-test")
    assert {name for one in rows for name in one["instruction_id_list"]} <= set(CHECKS)
    for one in rows:
        for text in ("A reply that is long enough, in English.", "Yes 🌿!\n* a\n- b", ""):
            assert 0 <= constraints()(gl.Example("id", {}, one), {"response": text}).score <= 1
