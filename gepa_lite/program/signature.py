"""Signatures: what a module takes and gives, as text (``"message -> urgency: Literal['low', 'high']"``) or as two pydantic models."""

from __future__ import annotations

import copy
import difflib
import enum
import keyword
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, create_model
from pydantic.errors import PydanticUserError

from gepa_lite.core.ids import content_hash
from gepa_lite.errors import UsageError
from gepa_lite.program.annotation import (
    AnnotationProblem,
    annotated_field,
    annotation_text,
    choice_values,
    read_annotation,
    structure,
    unwrapped,
)
from gepa_lite.program.strict_schema import strict_schema

ReplyForm = Literal["text", "choice", "json"]
"""How a module answers: the text of its one output, one of a few texts, or a JSON object."""


class _Required(enum.Enum):
    """An enum, so that the mark stays one object through pickling."""

    REQUIRED = "required"


REQUIRED: Final = _Required.REQUIRED
"""The ``default`` of a field that has none."""

# model_config and the properties of a pydantic model can't be fields of one
_RESERVED = frozenset(name for name in dir(BaseModel) if name.startswith("model_"))


@dataclass(frozen=True)
class Field:
    """One input or output.

    Attributes:
        name: an identifier that does not start with an underscore.
        annotation: its type, with pydantic constraints where it came from a model.
        description: what it holds, in words for the model; "" for none.
        default: the value where it is left out, or ``REQUIRED``. Only fields of pydantic models have one.
    """

    name: str
    annotation: Any = field(default=str, hash=False)
    description: str = ""
    default: Any = field(default=REQUIRED, hash=False)

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is REQUIRED

    @property
    def text(self) -> str:
        """As in a signature's text: ``name`` for str, else ``name: type``."""
        shown = annotation_text(self.annotation)
        return self.name if shown == "str" else f"{self.name}: {shown}"


@dataclass(frozen=True)
class Signature:
    """What a module takes and gives. Immutable, hashable, and picklable where the classes it names are.

    Attributes:
        inputs: at least one field.
        outputs: at least one field, no name shared with the inputs.
        output_type: the pydantic model the outputs came from, whose own validators then hold; None for a signature from text.

    Example:
        >>> signature = Signature.parse("message, gist -> urgency: Literal['low', 'high']")
        >>> signature.text, signature.reply_form, signature.choices
        ("message, gist -> urgency: Literal['low', 'high']", 'choice', ('low', 'high'))
    """

    inputs: tuple[Field, ...]
    outputs: tuple[Field, ...]
    output_type: type[BaseModel] | None = None

    def __post_init__(self) -> None:
        """Check the names and that the outputs can be validated, so that a wrong signature fails before a call is paid for.

        Raises:
            UsageError: an empty side, a bad or repeated name, or an output type that pydantic can't validate.
        """
        for side, fields in (("input", self.inputs), ("output", self.outputs)):
            if not fields:
                raise UsageError(f"signature {self.text!r} has no {side}: expected at least one, as in 'question -> answer'")
        seen: dict[str, str] = {}
        for side, entry in [("input", entry) for entry in self.inputs] + [("output", entry) for entry in self.outputs]:
            _check_name(entry.name, f"signature {self.text!r}: {side}")
            if entry.name in seen:
                both = "twice among the " + side + "s" if seen[entry.name] == side else "both an input and an output"
                raise UsageError(f"signature {self.text!r}: {entry.name!r} is {both}; give each field a name of its own")
            seen[entry.name] = side
        _ = self.output_model

    def __reduce__(self) -> tuple[type[Signature], tuple[Any, ...]]:
        """Pickle the declaration alone: the derived pydantic model has no importable name."""
        return Signature, (self.inputs, self.outputs, self.output_type)

    @classmethod
    def parse(cls, spec: str, *, describe: Mapping[str, str] | None = None, types: Mapping[str, Any] | None = None) -> Signature:
        """Read a signature's text. Nothing in it is evaluated.

        Args:
            spec: ``"in1, in2: type -> out1: type, out2"``; a field without a type is a text. Types: str, int, float, bool, list, dict,
                tuple, set, Any, None, Literal, Optional, Union, ``X | Y``, datetime.date, and the names in ``types``, nested at will.
            describe: descriptions by field name.
            types: further classes by the name the text uses: pydantic models, enums, dataclasses.

        Raises:
            UsageError: names the field, the place, what was expected and what came.
        """
        types = dict(types or {})
        inputs, outputs = _split(spec)
        signature = cls(
            tuple(_read_field(spec, "input", number, piece, types) for number, piece in enumerate(inputs, 1)),
            tuple(_read_field(spec, "output", number, piece, types) for number, piece in enumerate(outputs, 1)),
        )
        return signature.described(describe) if describe else signature

    @classmethod
    def of(cls, inputs: type[BaseModel], outputs: type[BaseModel]) -> Signature:
        """A signature from two pydantic models: names, types, descriptions, defaults and constraints are theirs.

        Raises:
            UsageError: not a pydantic model, no fields, or an output with an alias (models are asked for outputs by name).
        """
        for side, model in (("inputs", inputs), ("outputs", outputs)):
            if not (isinstance(model, type) and issubclass(model, BaseModel)):
                raise UsageError(f"the {side} of a signature: expected a pydantic model class, found {model!r}")
        for name, info in outputs.model_fields.items():
            if info.alias is not None or info.validation_alias is not None:
                raise UsageError(f"output {name!r} of {outputs.__name__} has an alias: expected none, since models are asked for {name!r}")
        return cls(_fields_of(inputs), _fields_of(outputs), outputs)

    def described(self, describe: Mapping[str, str]) -> Signature:
        """The same signature with other descriptions for the named fields.

        Raises:
            UsageError: a name that is not a field.
        """
        names = [entry.name for entry in (*self.inputs, *self.outputs)]
        for name in describe:
            if name not in names:
                raise UsageError(f"describe names {name!r}, which is no field of {self.text!r}{_near(name, names)}")

        def redo(fields: tuple[Field, ...]) -> tuple[Field, ...]:
            return tuple(replace(entry, description=describe.get(entry.name, entry.description)) for entry in fields)

        return Signature(redo(self.inputs), redo(self.outputs), self.output_type)

    @property
    def text(self) -> str:
        """The normal form as text. Descriptions, defaults and constraints are not in it."""
        sides = (", ".join(entry.text for entry in side) for side in (self.inputs, self.outputs))
        return " -> ".join(sides)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the names, types and directions. A changed field or choice of a named class changes it; a description never does."""
        return content_hash([[[entry.name, structure(entry.annotation)] for entry in side] for side in (self.inputs, self.outputs)])

    @property
    def input_names(self) -> tuple[str, ...]:
        """The inputs' names in order."""
        return tuple(entry.name for entry in self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The outputs' names in order."""
        return tuple(entry.name for entry in self.outputs)

    @cached_property
    def reply_form(self) -> ReplyForm:
        """``"text"`` for one output of type str, ``"choice"`` for one that is a Literal or Enum of texts or a bool, else ``"json"``."""
        if len(self.outputs) > 1:
            return "json"
        if unwrapped(self.outputs[0].annotation) is str:
            return "text"
        return "choice" if choice_values(self.outputs[0].annotation) else "json"

    @cached_property
    def choices(self) -> tuple[str, ...]:
        """The texts that a reply of form ``"choice"`` may be; empty for the other forms."""
        return tuple(choice_values(self.outputs[0].annotation) or ()) if self.reply_form == "choice" else ()

    @cached_property
    def output_model(self) -> type[BaseModel]:
        """The pydantic model that outputs are validated with, in lax mode: ``output_type``, or one made from the fields."""
        if self.output_type is not None:
            return self.output_type
        fields: dict[str, Any] = {entry.name: (entry.annotation, ...) for entry in self.outputs}
        config = ConfigDict(coerce_numbers_to_str=True, allow_inf_nan=False, protected_namespaces=())
        try:
            with warnings.catch_warnings():  # an output may be called "json" or "copy", as a method of pydantic's is
                warnings.filterwarnings("ignore", message="Field name .* shadows an attribute")
                return create_model("Outputs", __config__=config, **fields)
        except PydanticUserError as error:
            reason = str(error).splitlines()[0]
            raise UsageError(
                f"signature {self.text!r}: pydantic can't validate its outputs ({reason}); use pydantic models, enums, dataclasses"
            ) from error

    @cached_property
    def json_schema(self) -> dict[str, Any] | None:
        """The outputs' JSON schema in the strict subset that endpoints enforce; None where it can't say a type (``Any``, an open dict)."""
        return strict_schema(self.output_model.model_json_schema())

    def inputs_of(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs in declared order, with defaults filled in. Types are not checked: whatever came is shown to the model.

        Raises:
            UsageError: an input is missing or unexpected.
        """
        missing = [entry.name for entry in self.inputs if entry.required and entry.name not in values]
        unexpected = [str(name) for name in values if name not in self.input_names]
        if missing or unexpected:
            parts = [f"missing {', '.join(map(repr, missing))}"] if missing else []
            parts += [f"unexpected {name!r}{_near(name, list(self.input_names))}" for name in unexpected]
            raise UsageError(f"inputs of {self.text!r}: {'; '.join(parts)}. Expected: {', '.join(self.input_names)}")
        return {entry.name: values[entry.name] if entry.name in values else copy.deepcopy(entry.default) for entry in self.inputs}


def as_signature(
    spec: str | Signature | tuple[type[BaseModel], type[BaseModel]],
    *,
    describe: Mapping[str, str] | None = None,
    types: Mapping[str, Any] | None = None,
) -> Signature:
    """A signature from whichever form a user gave: text, two pydantic models, or a signature.

    Raises:
        UsageError: none of these, or ``types`` given where there is no text to use them.
    """
    if isinstance(spec, str):
        return Signature.parse(spec, describe=describe, types=types)
    if types:
        raise UsageError(f"types={sorted(types)} is for signatures given as text, and this one is a {type(spec).__name__}: leave it out")
    if isinstance(spec, tuple) and len(spec) == 2:
        spec = Signature.of(*spec)
    if not isinstance(spec, Signature):
        raise UsageError(f"a signature: expected a text such as 'question -> answer' or two pydantic models, found {spec!r}")
    return spec.described(describe) if describe else spec


def _fields_of(model: type[BaseModel]) -> tuple[Field, ...]:
    return tuple(
        Field(
            name,
            annotated_field(info),
            info.description or "",
            REQUIRED if info.is_required() else info.get_default(call_default_factory=True),
        )
        for name, info in model.model_fields.items()
    )


def _near(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=2)
    return f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""


def _check_name(name: str, where: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name):
        raise UsageError(f"{where} {name!r}: expected a Python identifier such as 'question'")
    if name.startswith("_") or name in _RESERVED:
        raise UsageError(
            f"{where} {name!r} is a reserved name: expected one that starts with a letter and is none of pydantic's 'model_...'"
        )


_Piece = tuple[int, str]
"""Where a field starts in the text, from 0, and its text."""

_CLOSING = {")": "(", "]": "[", "}": "{"}


def _marks(spec: str) -> Iterator[tuple[int, str]]:
    """The commas and arrows outside brackets and quotes, with their places."""
    opened: list[tuple[str, int]] = []
    place = 0
    while place < len(spec):
        mark = spec[place]
        if mark in "'\"":
            end = place + 1
            while end < len(spec) and spec[end] != mark:
                end += 2 if spec[end] == "\\" else 1
            if end >= len(spec):
                raise UsageError(f"signature {spec!r}, character {place + 1}: the quote is never closed")
            place = end
        elif mark in "([{":
            opened.append((mark, place))
        elif mark in _CLOSING:
            if not opened or opened.pop()[0] != _CLOSING[mark]:
                raise UsageError(f"signature {spec!r}, character {place + 1}: {mark!r} closes nothing")
        elif not opened and (mark == "," or spec.startswith("->", place)):
            yield place, mark
            place += mark == "-"
        place += 1
    if opened:
        raise UsageError(f"signature {spec!r}, character {opened[-1][1] + 1}: {opened[-1][0]!r} is never closed")


def _split(spec: str) -> tuple[list[_Piece], list[_Piece]]:
    """The fields' texts on each side of the arrow."""
    if not isinstance(spec, str):
        raise UsageError(f"a signature: expected a text such as 'question -> answer', found {spec!r}")
    sides: list[list[_Piece]] = [[]]
    start = 0
    for place, mark in [*_marks(spec), (len(spec), "")]:
        sides[-1].append((start, spec[start:place]))
        start = place + (2 if mark == "-" else 1)
        if mark == "-":
            sides.append([])
    if len(sides) != 2:
        found = "no '->'" if len(sides) == 1 else f"{len(sides) - 1} times '->'"
        raise UsageError(f"signature {spec!r}: found {found}; expected inputs, one '->', and outputs, as in 'question -> answer'")
    for side, pieces in zip(("input", "output"), sides, strict=True):
        if len(pieces) == 1 and not pieces[0][1].strip():
            raise UsageError(f"signature {spec!r} has no {side}: expected at least one, as in 'question -> answer'")
    return sides[0], sides[1]


def _read_field(spec: str, side: str, number: int, piece: _Piece, types: Mapping[str, Any]) -> Field:
    start, text = piece
    start += len(text) - len(text.lstrip())
    raw_name, colon, source = text.strip().partition(":")
    name = raw_name.strip()
    where = f"signature {spec!r}, {side} {number}"
    if not name:
        raise UsageError(
            f"{where}, character {start + 1}: expected a field name, found {repr(text.strip()) if text.strip() else 'nothing'}"
        )
    _check_name(name, f"{where}, character {start + 1}:")
    if not colon:
        return Field(name)
    begins = start + len(raw_name) + 1 + len(source) - len(source.lstrip())
    if not source.strip():
        raise UsageError(f"{where} ({name!r}), character {begins + 1}: expected a type after the colon")
    try:
        return Field(name, read_annotation(source, types))
    except AnnotationProblem as problem:
        raise UsageError(f"{where} ({name!r}), character {begins + problem.offset + 1}: {problem}") from problem
