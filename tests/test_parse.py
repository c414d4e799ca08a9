"""Replies: what is taken, what is refused and in which words, and that nothing else is ever raised."""

from __future__ import annotations

import contextlib
import datetime
import enum
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, field_validator

from gepa_lite.errors import OutputError
from gepa_lite.program.loose_json import json_objects, json_value
from gepa_lite.program.parse import parse_reply, retry_messages
from gepa_lite.program.signature import Signature


class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"


class Ticket(BaseModel):
    title: str
    votes: int = 0


class Question(BaseModel):
    question: str


class Checked(BaseModel):
    code: str
    note: str = "none given"

    @field_validator("code")
    @classmethod
    def known(cls, value: str) -> str:
        if value == "boom":
            raise KeyError(value)
        if not value.startswith("E"):
            raise ValueError("a code starts with E")
        return value


TEXT = Signature.parse("q -> answer")
URGENCY = Signature.parse("q -> urgency: Literal['low', 'high', 'very high']")
BOOL = Signature.parse("q -> valid: bool")
PAIR = Signature.parse("q -> urgency: Literal['low', 'high'], reason")
LETTER = Signature.parse("q -> pick: Literal['A', 'B', 'C']")
ALL = [TEXT, URGENCY, BOOL, PAIR, LETTER]
ALL += [
    Signature.parse(f"q -> a: {source}", types={"Ticket": Ticket, "Level": Level})
    for source in ("int", "list[str]", "Level", "Ticket", "list[Ticket]", "date", "Any", "dict[str, int]", "Literal[1, 2]", "str | None")
]


def refusal(signature: Signature, text: str) -> str:
    with pytest.raises(OutputError) as caught:
        parse_reply(signature, text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("  42\n", "42"),
        ("```sql\nSELECT 1\n```", "```sql\nSELECT 1\n```"),
        ("<think>hmm </think>42", "42"),
        ("<think>a</think>\n<think>b</think> 42", "42"),
        ("<THINKING>a\n</THINKING>42", "42"),
        ("so it must be…</think>\n42", "42"),
        ("Use the <think> tag", "Use the <think> tag"),
        ("answer: 42", "answer: 42"),
    ],
)
def test_text(text: str, answer: str) -> None:
    assert parse_reply(TEXT, text) == {"answer": answer}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "The reply was empty"),
        (" \n", "The reply was empty"),
        ("<think>on and on", "reasoning that never ends"),
        ("<think>on and on</think>", "reasoning and no answer"),
        ("on and on</think> ", "reasoning and no answer"),
    ],
)
@pytest.mark.parametrize("signature", [TEXT, URGENCY, PAIR])
def test_no_answer(signature: Signature, text: str, problem: str) -> None:
    assert problem in refusal(signature, text)


@pytest.mark.parametrize(
    ("signature", "text", "value"),
    [
        (URGENCY, "high", "high"),
        (URGENCY, "**High**.", "high"),
        (URGENCY, '"LOW"', "low"),
        (URGENCY, "`very_high`", "very high"),
        (URGENCY, "urgency: high", "high"),
        (URGENCY, "**Urgency:** High", "high"),
        (URGENCY, "1. urgency: high", "high"),
        (URGENCY, "Neither low nor unclear.\nUrgency: high\nThat is not low.", "high"),
        (URGENCY, "The urgency is high.", "high"),
        (URGENCY, "It is very high!", "very high"),
        (URGENCY, '{"urgency": "High"}', "high"),
        (URGENCY, 'Here: ```json\n{"urgency": "low", "why": "not high"}\n```', "low"),
        (URGENCY, "<think>low? high?</think>low", "low"),
        (URGENCY, "The follow-up is highly urgent: high", "high"),
        (BOOL, "true", True),
        (BOOL, "No.", False),
        (BOOL, "Yes, it is.", True),
        (BOOL, "The claim is false.", False),
        (BOOL, '{"valid": true}', True),
        (BOOL, '{"valid": "no"}', False),
        (BOOL, "valid: yes", True),
        (LETTER, "B", "B"),
        (LETTER, "(b)", "B"),
        (LETTER, "The answer is B.", "B"),
        (LETTER, "Pick: C", "C"),
        (Signature.parse("q -> a: Level", types={"Level": Level}), "HIGH", Level.HIGH),
        (Signature.parse("q -> a: Literal['a', 'A']"), "A", "A"),
        (Signature.parse("q -> a: Literal['C', 'C++', 'C#']"), "C#", "C#"),
        (Signature.parse("q -> a: Literal['C', 'C++', 'C#']"), "`C#`", "C#"),
        (Signature.parse("q -> a: Literal['not_applicable', 'x']"), "Not applicable.", "not_applicable"),
        (Signature.parse("q -> a: Literal['not_applicable', 'x']"), "This is `Not applicable` here.", "not_applicable"),
    ],
)
def test_choices(signature: Signature, text: str, value: Any) -> None:
    assert parse_reply(signature, text) == {signature.outputs[0].name: value}


@pytest.mark.parametrize(
    ("signature", "text", "problem"),
    [
        (URGENCY, "urgent", "none of the choices"),
        (URGENCY, "It is low or high.", "more than one of the choices: low, high"),
        (URGENCY, "First I thought low. So: high", "more than one"),
        (URGENCY, "It is not high.", "none of the choices"),
        (URGENCY, "It isn't really high", "none of the choices"),
        (URGENCY, "urgency: low\nurgency: high", "more than one"),
        (URGENCY, '{"urgency": "urgent"}', "found 'urgent'"),
        (BOOL, "There is no problem", "none of the choices"),
        (BOOL, "No, it is not true.", "more than one"),
        (LETTER, "It is A dog", "none of the choices"),
        (LETTER, "it is a b c", "none of the choices"),
        (LETTER, "A or B.", "more than one"),
        (URGENCY, "...", "none of the choices"),
    ],
)
def test_choices_are_never_guessed(signature: Signature, text: str, problem: str) -> None:
    message = refusal(signature, text)
    assert problem in message
    assert f"Expected exactly one of {', '.join(signature.choices)}." in message
    assert text in message


@pytest.mark.parametrize(
    "text",
    [
        '{"urgency": "high", "reason": "it burns"}',
        '```json\n{"urgency": "high", "reason": "it burns"}\n```',
        '```\n{"urgency": "high", "reason": "it burns"}```',
        'Sure! {"urgency": "high", "reason": "it burns"} Anything else?',
        'I use {braces} first. {"urgency": "high", "reason": "it burns"}',
        "{'urgency': 'high', 'reason': 'it burns'}",
        '{"urgency": "high", "reason": "it burns",}',
        '{urgency: "high", reason: "it burns"}',
        '{"Urgency": "HIGH", "REASON": "it burns"}',
        '{"urgency": "**High**", "reason": "it burns", "more": [1, {"a": (2,)}]}',
        '[{"urgency": "high", "reason": "it burns"}]',
        '{"urgency": "high", "reason": "it burns"} or again {"urgency": "high", "reason": "it burns"}',
        '{"note": 1} {"urgency": "high", "reason": "it burns"}',
        '<think>{"urgency": "low", "reason": "?"}</think>{"urgency": "high", "reason": "it burns"}',
        '{"output": {"urgency": "high", "reason": "it burns"}}',
        "urgency: high\nreason: it burns",
        "Well:\n- **Urgency**: High\n- **Reason**: it burns",
        "1. urgency: high\n2. reason:\n   it burns",
    ],
)
def test_objects(text: str) -> None:
    assert parse_reply(PAIR, text) == {"urgency": "high", "reason": "it burns"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"urgency": "low", "reason": "two\nlines"}', "two\nlines"),
        ('Look: {"urgency": "low", "reason": "two\nlines",}', "two\nlines"),
        ('{"urgency": "low", "reason": "\\d+ \\alpha \\u00e9 \\ud83d\\ude00 \\n",}', "\\d+ \\alpha é 😀 \n"),
        ("{'urgency': 'low', 'reason': 'it\\'s \"so\"'}", 'it\'s "so"'),
        ('{"urgency": "low", "reason": "a } and { and <think> and </think>"}', "a } and { and <think> and </think>"),
        ('{"urgency": "low", "reason": 5}', "5"),
        ("urgency: low\nreason: one\ntwo: three", "one\ntwo: three"),
    ],
)
def test_texts_in_objects(text: str, reason: str) -> None:
    assert parse_reply(PAIR, text) == {"urgency": "low", "reason": reason}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"urgency": "high"}', "lacks 'reason'; it has 'urgency'"),
        ("{}", "lacks 'urgency', 'reason'; it has no keys"),
        ('{"urgency": "high", "reason": "it bur', "cut off"),
        ('{"urgency": "high", "more": {"urgency": "low", "reason": "inner"}', "cut off"),
        ('{"urgency": "high", "reason": "a"} {"urgency": "low", "reason": "b"}', "2 JSON objects that differ"),
        ('{"a": 1} {"b": 2}', "None of the 2 JSON objects"),
        ('{"urgency": "urgent", "reason": "x"}', "urgency: Input should be 'low' or 'high', found 'urgent'"),
        ('{"urgency": "low", "reason": null}', "reason: Input should be a valid string, found None"),
        ("high, since it burns", "no JSON object"),
        ("urgency: high\nurgency: low\nreason: x", "no JSON object"),
        ('{"urgency": "high" "reason": "no comma"}', """can't be read; it breaks near: '{"urgency": "high" "reason": "no comma"}'"""),
        ('{"urgency": "high", "reason": "he said "stop" now"}', "can't be read; it breaks near"),
        ('{"output": {"urgency": "high"}}', "lacks 'reason'; it has 'output'"),
    ],
)
def test_objects_are_never_guessed(text: str, problem: str) -> None:
    message = refusal(PAIR, text)
    assert problem in message
    assert 'Expected one JSON object with "urgency" (one of "low", "high"), "reason" (text).' in message


@pytest.mark.parametrize(
    ("source", "text", "value"),
    [
        ("int", '{"a": "1,234,567"}', 1234567),
        ("int", "5", 5),
        ("int", "**5**", 5),
        ("int", "a: 5\nas asked", 5),
        ("int", '{"a": 5.0}', 5),
        ("float", '{"a": "-1,234.5"}', -1234.5),
        ("int | None", '{"a": "1,000"}', 1000),
        ("int | None", '{"a": null}', None),
        ("list[int]", '{"a": ["1,000", 2]}', [1000, 2]),
        ("list[int]", "[1, 2]", [1, 2]),
        ("list[Literal['x', 'y']]", '{"a": ["X", "y."]}', ["x", "y"]),
        ("dict[str, Literal['x']]", '{"a": {"k": "X"}}', {"k": "x"}),
        ("set[str]", "['u', 'v', 'u']", {"u", "v"}),
        ("tuple[int, ...]", '{"a": [1, 2]}', (1, 2)),
        ("tuple[int, str]", "Here: {'a': (1, 'x')}", (1, "x")),
        ("date", '{"a": "2024-01-31"}', datetime.date(2024, 1, 31)),
        ("date", "2024-01-31", datetime.date(2024, 1, 31)),
        ("Literal[1, 2]", '{"a": "2"}', 2),
        ("Literal[1, 2]", "2", 2),
        ("list[bool]", '{"a": ["yes", "False", true]}', [True, False, True]),
        ("Ticket", '{"title": "x", "votes": "3"}', Ticket(title="x", votes=3)),
        ("Ticket", '{"a": {"title": "x"}}', Ticket(title="x")),
        ("list[Ticket]", '[{"title": "x"}, {"title": "y"}]', [Ticket(title="x"), Ticket(title="y")]),
        ("list[Ticket]", 'Here:\n```json\n[{"title": "x"}]\n```\nDone.', [Ticket(title="x")]),
        ("list[Ticket]", '```json\n[{"title": "x"}]\n```', [Ticket(title="x")]),
        ("Any", '{"a": {"b": [null]}}', {"b": [None]}),
        ("dict[str, int]", '{"a": {"x": 1}}', {"x": 1}),
    ],
)
def test_types(source: str, text: str, value: Any) -> None:
    parsed = parse_reply(Signature.parse(f"q -> a: {source}", types={"Ticket": Ticket}), text)["a"]
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("source", "text", "problem"),
    [
        ("int", "five", "a: Input should be a valid integer"),
        ("int", "1,23", "valid integer"),
        ("int", "The score is 5, " + "I think. " * 50, "no JSON object"),
        ("float", '{"a": NaN}', "finite"),
        ("list[str]", "x, y", "no JSON object"),
        ("Ticket", '{"name": "x"}', "lacks 'a'; it has 'name'"),
        ("Any", '{"b": 1}', "lacks 'a'"),
        ("list[int]", '{"a": ["p", "q", "r", "s", "t", "u", "v"]}', "(and 2 more)"),
    ],
)
def test_types_refused(source: str, text: str, problem: str) -> None:
    assert problem in refusal(Signature.parse(f"q -> a: {source}", types={"Ticket": Ticket}), text)


def test_a_users_model_validates() -> None:
    signature = Signature.of(Question, Checked)
    assert parse_reply(signature, '{"code": "E1"}') == {"code": "E1", "note": "none given"}
    assert "a code starts with E" in refusal(signature, '{"code": "X"}')
    assert "KeyError" in refusal(signature, '{"code": "boom"}')


def test_an_error_is_short_and_keeps_both_ends() -> None:
    message = refusal(URGENCY, "start " + "x" * 5000 + " end")
    assert len(message) < 500
    assert "start x" in message
    assert "x end" in message
    assert len(refusal(PAIR, '{"urgency": "' + "x" * 5000 + '", "reason": "y"}')) < 800


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
outputs = st.fixed_dictionaries(
    {
        "text": st.text(),
        "count": st.integers(),
        "share": st.floats(allow_nan=False, allow_infinity=False),
        "sure": st.booleans(),
        "level": st.sampled_from(["low", "high"]),
        "tags": st.lists(st.text(), max_size=3),
        "maybe": st.none() | st.text(),
        "rest": json_values,
    }
)
WIDE = Signature.parse(
    "q -> text, count: int, share: float, sure: bool, level: Literal['low', 'high'], tags: list[str], maybe: str | None, rest: Any"
)


@settings(deadline=None, max_examples=60)
@given(outputs, st.booleans(), st.sampled_from([None, 2]))
def test_json_round_trip(values: dict[str, Any], ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(values, ensure_ascii=ascii_only, indent=indent)
    assert parse_reply(WIDE, text) == values
    assert parse_reply(WIDE, f"```json\n{text}\n```") == values


@settings(deadline=None, max_examples=60)
@given(outputs)
def test_round_trip_amid_prose_and_as_python(values: dict[str, Any]) -> None:
    text = json.dumps(values)
    assert json_objects(f"So: {text} — done").found == (values,)
    assert json_objects("So: " + text[:-1] + ", }").found == (values,)


@settings(deadline=None, max_examples=60)
@given(json_values)
def test_loose_json_reads_what_json_reads(value: Any) -> None:
    assert json_value(json.dumps([value])) == [value]
    assert json_value(json.dumps([value])[:-1] + ",]") == [value]


MARKS = ["{", "}", "[", "]", "(", ")", '"', "'", ":", ",", "\\", "\\u", "```", "**", ".", "-", "\n", " ", "<think>", "</think>"]
WORDS = [
    "json\n",
    "urgency",
    "reason",
    "high",
    "low",
    "a",
    "yes",
    "no",
    "not ",
    "true",
    "None",
    "NaN",
    "1",
    "e9",
    "9" * 5000,
    "\ud800",
    "😀",
]
pieces = st.sampled_from(MARKS + WORDS)


@settings(deadline=None, max_examples=200)
@given(st.one_of(st.text(), st.lists(pieces, max_size=30).map("".join)))
def test_nothing_but_an_output_error_is_raised(text: str) -> None:
    for signature in ALL:
        with contextlib.suppress(OutputError):
            assert set(parse_reply(signature, text)) == set(signature.output_names)


@pytest.mark.parametrize(
    "unit", ["{", '{"', '{"a":', "[", "{'a': [1, ", "<think>", "</think>", "a: b\n", "high ", "\n", "* ", "x", "1", "```", '\\"{"']
)
def test_ten_megabytes_take_a_moment(unit: str) -> None:
    text = unit * (10_000_000 // len(unit))
    start = time.perf_counter()
    for signature, reply in ((PAIR, text), (PAIR, text[:900_000]), (URGENCY, text)):
        with contextlib.suppress(OutputError):
            parse_reply(signature, reply)
    assert time.perf_counter() - start < 15


def test_a_deep_object_is_refused() -> None:
    assert "Expected" in refusal(PAIR, '{"urgency": ' * 100_000)
    assert "Expected" in refusal(PAIR, '{"urgency": ' + "[" * 100_000 + "]" * 100_000 + "}")


def test_retry_messages() -> None:
    first = ({"role": "system", "content": "Do it."}, {"role": "user", "content": "q: x"})
    error = OutputError(refusal(URGENCY, "urgent {{ 7*7 }}"))
    messages = retry_messages(first, "urgent {{ 7*7 }}", error)
    assert messages[:2] == first
    assert messages[2] == {"role": "assistant", "content": "urgent {{ 7*7 }}"}
    assert messages[3]["role"] == "user"
    assert str(error) in messages[3]["content"]
    assert "low, high, very high" in messages[3]["content"]


def test_retry_messages_cut_a_long_reply_and_never_send_an_empty_one() -> None:
    assert len(retry_messages((), "x" * 100_000, "no")[0]["content"]) < 4_100
    assert retry_messages((), "", "no")[0]["content"] == "(no answer)"
