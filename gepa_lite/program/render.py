"""Turn a signature, an instruction and inputs into messages. Texts go into the templates as data and are never rendered themselves."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from gepa_lite.core.call import Message
from gepa_lite.core.ids import jsonable
from gepa_lite.program.annotation import annotation_words
from gepa_lite.program.signature import Field, Signature

_INLINE_LIMIT = 200
_WORDS_LIMIT = 600


@dataclass(frozen=True, slots=True)
class _Shown:
    """A field or a value as the templates take it."""

    name: str
    text: str
    description: str = ""
    tag: str = ""


@cache
def _templates() -> Environment:
    # Messages are plain text, so nothing is escaped; the texts of candidates and inputs reach a template only as values
    return Environment(
        loader=PackageLoader("gepa_lite.program"),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def message_text(template: str, **values: Any) -> str:
    """The text of one of this package's message templates; the values go in verbatim."""
    return _templates().get_template(template).render(**values)


def render_messages(signature: Signature, instruction: str, inputs: Mapping[str, Any]) -> tuple[Message, ...]:
    """The messages of one call: what stays the same between examples first, so that endpoints can cache it.

    The system message is the instruction, verbatim and once, then what the signature describes, then the form of the answer. The user
    message is the inputs alone. Equal arguments give equal messages in every process.

    Args:
        signature: what the module takes and gives.
        instruction: the candidate's text; braces and percent signs in it mean nothing.
        inputs: a value for each input of the signature.

    Raises:
        UsageError: an input is missing or unexpected.
    """
    values = signature.inputs_of(inputs)
    user = message_text("user.j2", values=[_shown_value(name, value) for name, value in values.items()])
    return {"role": "system", "content": system_text(signature, instruction)}, {"role": "user", "content": user}


def system_text(signature: Signature, instruction: str) -> str:
    """The system message: the same for all inputs. What follows the instruction depends on the signature alone."""
    return message_text(
        "system.j2",
        instruction=instruction,
        inputs=[_shown(entry) for entry in signature.inputs if entry.description],
        outputs=[_shown(entry) for entry in signature.outputs if entry.description and signature.reply_form != "json"],
        answer=answer_form(signature),
    )


def answer_form(signature: Signature) -> str:
    """How a model is asked to answer: the last part of the system message."""
    return message_text(
        "answer.j2",
        form=signature.reply_form,
        outputs=[_shown(entry) for entry in signature.outputs],
        choices=signature.choices,
        inline=all(_is_plain(choice) and "," not in choice for choice in signature.choices),
    )


def constraint(signature: Signature) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """What a ``Request`` may hold the reply to: ``json_schema`` and ``choices``, of which at most one is given."""
    return (signature.json_schema if signature.reply_form == "json" else None), signature.choices


def describe_inputs_outputs(signature: Signature) -> str:
    """The inputs, the outputs and the form of the answer in a few lines, for a model that rewrites the instruction."""
    return message_text(
        "describe.j2",
        inputs=[_shown(entry) for entry in signature.inputs],
        outputs=[] if signature.reply_form == "json" else [_shown(entry) for entry in signature.outputs],
        answer=answer_form(signature),  # which lists the outputs itself where they are keys of an object
    )


def _shown(entry: Field) -> _Shown:
    words = annotation_words(entry.annotation)
    if len(words) > _WORDS_LIMIT:
        words = words[:_WORDS_LIMIT].rstrip() + " …"
    return _Shown(entry.name, words, " ".join(entry.description.split()))


def _shown_value(name: str, value: Any) -> _Shown:
    """A value as text: inline where it is short and plain, else between tags that its text does not hold."""
    text = _value_text(value)
    if len(text) <= _INLINE_LIMIT and _is_plain(text):
        return _Shown(name, text)
    tag, number = name, 1
    while f"<{tag}>" in text or f"</{tag}>" in text:
        number += 1
        tag = f"{name}-{number}"
    return _Shown(name, text, tag=tag)


def _value_text(value: Any) -> str:
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, str) and value:
        return value
    plain = jsonable(value)
    if isinstance(plain, str) and plain:  # a date, or an object that has no JSON form
        return plain
    return json.dumps(plain, ensure_ascii=False)


def _is_plain(text: str) -> bool:
    """One line without space around it."""
    return text == text.strip() and len(text.splitlines()) == 1
