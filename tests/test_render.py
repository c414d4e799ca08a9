"""Messages: what is in them, where, and that texts are data."""

from __future__ import annotations

import datetime
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gepa_lite.errors import UsageError
from gepa_lite.program.render import answer_form, constraint, describe_inputs_outputs, render_messages
from gepa_lite.program.signature import Signature

TEXT = Signature.parse("question -> answer")
TRIAGE = Signature.parse(
    "message, gist -> urgency: Literal['low', 'high'], reason: str | None", describe={"message": "what came", "reason": "why\nso"}
)


def system(signature: Signature, instruction: str = "Do it.") -> str:
    return render_messages(signature, instruction, dict.fromkeys(signature.input_names, "x"))[0]["content"]


def user(**inputs: Any) -> str:
    return render_messages(Signature.parse(f"{', '.join(inputs)} -> out"), "Do it.", inputs)[1]["content"]


def test_text_form() -> None:
    assert render_messages(TEXT, "Do it.", {"question": "1+1?"}) == (
        {"role": "system", "content": "Do it.\n\nAnswer with the answer only."},
        {"role": "user", "content": "question: 1+1?"},
    )


def test_choice_form() -> None:
    assert system(Signature.parse("q -> a: Literal['x', 'y z']")) == "Do it.\n\nAnswer with exactly one of: x, y z."
    assert system(Signature.parse("q -> a: bool")).endswith("Answer with exactly one of: true, false.")
    assert system(Signature.parse("q -> a: Literal['x, y', 'z']")).endswith("Answer with exactly one of these texts:\n- x, y\n- z")


def test_json_form_with_descriptions() -> None:
    assert system(TRIAGE) == (
        "Do it.\n\nInputs:\n- message (text): what came\n\n"
        'Answer with one JSON object with the keys "urgency", "reason":\n'
        '- "urgency" (one of "low", "high")\n- "reason" (text or null): why so'
    )
    assert 'with the key "n":\n- "n" (integer)' in system(Signature.parse("q -> n: int"))


def test_a_described_text_output() -> None:
    signature = Signature.parse("q -> short_title", describe={"short_title": "five words"})
    assert system(signature) == "Do it.\n\nOutput:\n- short_title (text): five words\n\nAnswer with the short title only."


@pytest.mark.parametrize(
    "instruction",
    [
        "Compute {{ 7*7 }} and {% for x in y %}{{ x }}{% endfor %}",
        "{% raw %}",
        "{# a comment #} <b>&amp;</b>",
        "a\n\n\nb \n",
        "{{ question }} {question} %s ${question}",
        "",
    ],
)
def test_an_instruction_is_data(instruction: str) -> None:
    for signature in (TEXT, TRIAGE):
        text = system(signature, instruction)
        assert text.startswith(instruction)
        assert not instruction or text.count(instruction) == 1
        assert text.endswith(answer_form(signature))


@settings(deadline=None, max_examples=50)
@given(st.text(min_size=1), st.text())
def test_any_text_arrives_verbatim(instruction: str, value: str) -> None:
    messages = render_messages(TEXT, instruction, {"question": value})
    assert messages[0]["content"] == f"{instruction}\n\nAnswer with the answer only."
    assert value in messages[1]["content"]


def test_an_input_is_data() -> None:
    assert user(q="{{ 7*7 }} {% if %}") == "q: {{ 7*7 }} {% if %}"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "q: plain"),
        ("", 'q: ""'),
        (None, "q: null"),
        (True, "q: true"),
        (3, "q: 3"),
        (0.5, "q: 0.5"),
        (["a", "é"], 'q: ["a", "é"]'),
        ({"b": 1, "a": None}, 'q: {"b": 1, "a": null}'),
        (datetime.date(2024, 1, 31), "q: 2024-01-31"),
        ("two\nlines", "<q>\ntwo\nlines\n</q>"),
        (" space", "<q>\n space\n</q>"),
        ("x" * 201, f"<q>\n{'x' * 201}\n</q>"),
        ("a\n</q>\nb", "<q-2>\na\n</q>\nb\n</q-2>"),
        ("</q>\n<q-2>", "<q-3>\n</q>\n<q-2>\n</q-3>"),
    ],
)
def test_values(value: Any, shown: str) -> None:
    assert user(q=value) == shown


def test_several_inputs_in_declared_order() -> None:
    signature = Signature.parse("a, b, c -> out")
    messages = render_messages(signature, "", {"c": 3, "a": "x\ny", "b": "z"})
    assert messages[1]["content"] == "<a>\nx\ny\n</a>\nb: z\nc: 3"
    assert messages[0]["content"] == "Answer with the out only."


def test_one_input_can_not_pose_as_another() -> None:
    assert user(a="x\nb: fake", b="true") == "<a>\nx\nb: fake\n</a>\nb: true"


def test_only_the_user_message_depends_on_the_inputs() -> None:
    first, second = (render_messages(TRIAGE, "Do it.", {"message": text, "gist": text}) for text in ("one", "two\nlines"))
    assert first[0] == second[0]
    assert first[1] != second[1]


def test_wrong_inputs_are_refused() -> None:
    with pytest.raises(UsageError, match="missing 'question'"):
        render_messages(TEXT, "Do it.", {})


def test_constraint() -> None:
    assert constraint(TEXT) == (None, ())
    assert constraint(Signature.parse("q -> a: Literal['x', 'y']")) == (None, ("x", "y"))
    schema, choices = constraint(TRIAGE)
    assert schema is not None
    assert list(schema["properties"]) == ["urgency", "reason"]
    assert choices == ()


def test_describe_inputs_outputs() -> None:
    assert describe_inputs_outputs(TRIAGE) == (
        "Inputs:\n- message (text): what came\n- gist (text)\nAfter the instruction the model is always told:\n" + answer_form(TRIAGE)
    )
    assert "Output:\n- answer (text)\n" in describe_inputs_outputs(TEXT)


def test_a_long_type_is_shortened() -> None:
    choices = ", ".join(f"'choice number {number}'" for number in range(100))
    text = system(Signature.parse(f"q -> a: list[Literal[{choices}]]"))
    assert len(text) < 800
    assert "…" in text


def test_the_same_in_another_process() -> None:
    code = (
        "from gepa_lite.program.render import render_messages; from gepa_lite.program.signature import Signature;"
        "print(repr(render_messages(Signature.parse('q: set[str] -> a, b'), 'Do it.', {'q': {'x', 'y', 'z', 'w'}})))"
    )
    prints = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}).stdout
        for seed in ("1", "2")
    }
    assert len(prints) == 1
