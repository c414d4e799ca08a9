"""Which prompt a call carries, told from its messages."""

from __future__ import annotations

import string
from typing import Any

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gepa_lite as gl
from gepa_lite.adapters.recording.attribution import carried_by, inputs_without_prompt
from gepa_lite.adapters.recording.scope import OTHER
from gepa_lite.core.placeholders import likely_form
from gepa_lite.program.recorder import call_directly
from gepa_lite.testing import ScriptedLM


def system(text: str, user: str = "hi") -> list[dict[str, str]]:
    return [{"role": "system", "content": text}, {"role": "user", "content": user}]


@pytest.mark.parametrize(
    ("text", "form", "messages", "inputs"),
    [
        ("Sort it.", "text", system("Sort it."), {"user": "hi"}),
        (
            "Sort it.\n",
            "text",
            system("You are kind.  Sort\n it. Be brief."),
            {"system, before the prompt": "You are kind.", "system, after the prompt": "Be brief.", "user": "hi"},
        ),
        ("Sort {what} by {how!r}.", "format", system("Sort a\nb by 'size'."), {"what": "a\nb", "how": "'size'", "user": "hi"}),
        ('Sort {what}: {{"a": 1}}.', "format", system('Sort x: {"a": 1}.'), {"what": "x", "user": "hi"}),
        ("{what}\n\nSort it by {how}", "format", [{"role": "user", "content": "x y\n\nSort it by size"}], {"what": "x y", "how": "size"}),
        ("Sort {what} for {who}.", "text", system("Sort {what} for {who}."), {"user": "hi"}),
        ("Sort $what for $$5.", "template", system("Sort x for $5."), {"what": "x", "user": "hi"}),
        (
            "Sort {{ what }}{% if how %} by {{ how }}{% endif %}, thanks.",
            "jinja",
            system("Sort x, thanks."),
            {"what, how": "x", "user": "hi"},
        ),
    ],
)
def test_a_prompt_is_found_where_it_stands_and_as_it_was_filled_in(text: str, form: str, messages: Any, inputs: dict[str, str]) -> None:
    other = "Say in one sentence what it is, and for whom, and why, and when."
    found = carried_by(messages, {"other": other, "sort": text}, {"sort": form}, None)
    assert found is not None
    assert found.module == "sort"
    assert found.inputs == inputs


def test_what_carries_no_prompt_is_told_apart() -> None:
    assert carried_by(system("Something else."), {"a": "Sort it.", "b": "", "c": "{x}"}, {"c": "format"}, None) is None
    assert carried_by(system("Sort it slowly"), {"a": "Sort it {how}, please."}, {"a": "format"}, None) is None
    assert inputs_without_prompt([*system("x"), {"role": "user", "content": "again"}]) == {"system": "x", "user": "hi", "user 2": "again"}


def test_the_longer_of_two_prompts_wins_and_of_equal_ones_the_last_that_was_read() -> None:
    found = carried_by(system("Sort it by size."), {"short": "Sort it", "long": "Sort it by size."}, {}, "short")
    assert found is not None
    assert found.module == "long"
    for name in ("a", "b"):
        found = carried_by(system("Sort it."), {"a": "Sort it.", "b": "Sort it."}, {}, name)
        assert found is not None
        assert found.module == name


letters = st.text(alphabet="abc XYZ\n.", min_size=3, max_size=30).filter(lambda text: len(text.split()) > 0)


@settings(max_examples=150, deadline=None)
@given(letters, letters, st.text(alphabet="uvw ", min_size=1, max_size=20), st.sampled_from(["format", "template", "jinja"]))
def test_a_filled_template_is_always_found(before: str, after: str, value: str, form: str) -> None:
    holes = {"format": "{x}", "template": "${x}", "jinja": "{{ x }}"}
    text = f"{before}{holes[form]}{after}"
    filled = {
        "format": lambda: text.format(x=value),
        "template": lambda: string.Template(text).substitute(x=value),
        "jinja": lambda: jinja2.Template(text).render(x=value),
    }[form]()
    found = carried_by(system(f"One. {filled} Two."), {"p": text}, {"p": form}, None)
    assert found is not None
    assert found.module == "p"


def test_two_prompts_with_one_text_keep_their_own_traces_and_explicit_words_win() -> None:
    ask = gl.ChatModel(ScriptedLM("ok"))

    def pipeline(message: str) -> str:
        for name in ("first", "second"):
            ask(system(gl.prompt(name), f"{message} {name}"))
        with gl.attribute_to("hidden"):
            ask(f"nothing of {gl.prompt('hidden')[:2]} is in here")
        ask("no prompt at all")
        return "done"

    texts = {"first": "Sort it.", "second": "Sort it.", "hidden": "Hidden text."}
    trace = gl.wrap(pipeline, texts, lm=ask).run({"message": "m"}, call_directly).trace
    assert [call.module for call in trace.calls] == ["first", "second", "hidden", OTHER]
    assert [call.inputs["user"] for call in trace.calls[:2]] == ["m first", "m second"]
    assert trace.calls[0].outputs == {"text": "ok"}


def test_likely_forms_are_what_attribution_is_given() -> None:
    wrapped = gl.wrap(lambda x: x, {"a": "Sort {x}.", "b": "Sort $x.", "c": "Sort."})
    assert (
        [part.contract.form for part in wrapped.parts.values()]
        == [likely_form(text) for text in wrapped.prompts.values()]
        == ["format", "template", "text"]
    )
    assert "twice" in wrapped.parts["a"].words
