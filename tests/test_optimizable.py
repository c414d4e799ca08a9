"""The seam between a run and what it optimizes."""

from __future__ import annotations

import pytest

import gepa_lite as gl
from gepa_lite.adapters.adapt import adapt
from gepa_lite.core.contract import Contract
from gepa_lite.program.optimizable import Optimizable, check_parts
from gepa_lite.testing import ScriptedLM


class Names(gl.Program):
    """Say what a thing is called.

    In two words.
    """

    # names that the seam has too: they stay the user's own
    name = gl.Module("thing -> label", "Name it.")
    parts = gl.Module("label: str -> count: int", "Count its letters.")

    def forward(self, thing: str) -> gl.Outputs:
        return self.parts(label=self.name(thing=thing).label)


def test_a_native_program_keeps_its_own_names_beside_the_seam() -> None:
    program: Optimizable = adapt(Names(lm=ScriptedLM({"Name it": "a lamp", "Count": '{"count": 4}'})))
    assert program.name == "Names"
    assert program.purpose == "Say what a thing is called. In two words."
    assert program.prompts == {"name": "Name it.", "parts": "Count its letters."}
    assert [(part.signature, part.model) for part in program.parts.values()] == [
        ("thing -> label", "scripted"),
        ("label -> count: int", "scripted"),
    ]
    assert "integer" in program.parts["parts"].words or "count" in program.parts["parts"].words
    changed = program.with_prompts({"name": "Name it now."})
    assert changed.prompts["name"] == changed.deliverable.prompts["name"] == "Name it now."
    assert program.prompts["name"] == "Name it."
    execution = changed.run({"thing": "lamp"})
    assert execution.output.count == 4
    assert execution.trace.modules == ("name", "parts")


def test_adapting_twice_changes_nothing() -> None:
    program = adapt(Names())
    assert adapt(program) is program


@pytest.mark.parametrize(
    ("program", "words"), [(Names, "the class Names; make an instance"), (3, "of type int"), (len, "of type builtin_function_or_method")]
)
def test_what_is_no_program_is_refused_by_its_type(program: object, words: str) -> None:
    with pytest.raises(gl.UsageError, match=words):
        adapt(program)


def test_texts_for_unknown_parts_are_refused_with_near_matches() -> None:
    with pytest.raises(gl.UsageError, match="Did you mean 'parts'"):
        check_parts(adapt(Names(lm=ScriptedLM("x"))), {"part": "x"}, "here")
    with pytest.raises(gl.UsageError, match="of type int; a str is needed"):
        check_parts(adapt(Names(lm=ScriptedLM("x"))), {"parts": 3}, "here")


def test_a_frozen_span_must_stay_letter_by_letter() -> None:
    contract = Contract(frozen=("{city}", "Tools:\n(1) look"))
    assert contract.breach("Ask about {city}. Tools:\n(1) look") is None
    assert "{city}" in (contract.breach("Ask about {town}. Tools:\n(1) look") or "")
