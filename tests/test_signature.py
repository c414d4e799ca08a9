"""Signatures: reading them from text and from models, refusing what is wrong, and what they derive."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import datetime
import enum
import pickle
import subprocess
import sys
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic import Field as ModelField

from gepa_lite.errors import UsageError
from gepa_lite.program.annotation import annotation_text, annotation_words
from gepa_lite.program.signature import Field, Signature, as_signature


class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"


class Grade(enum.Enum):
    ONE = 1
    TWO = 2


class Ticket(BaseModel):
    title: str = ModelField(description="a few words")
    votes: Annotated[int, ModelField(ge=0)] = 0
    parts: list[Ticket] = []


@dataclasses.dataclass
class Point:
    x: float
    y: float


class Query(BaseModel):
    message: str = ModelField(description="what the customer wrote")
    limit: int = 3


class Answer(BaseModel):
    score: float = ModelField(ge=0, le=1, description="how sure")
    note: str | None = None


class Aliased(BaseModel):
    score: float = ModelField(alias="Score")


NAMES = {"Ticket": Ticket, "Level": Level, "Grade": Grade, "Point": Point}


@pytest.mark.parametrize(
    ("source", "annotation"),
    [
        ("str", str),
        ("list", list),
        ("list[int]", list[int]),
        ("dict[str, list[float]]", dict[str, list[float]]),
        ("tuple[int, str]", tuple[int, str]),
        ("tuple[int, ...]", tuple[int, ...]),
        ("set[bool]", set[bool]),
        ("Any", Any),
        ("typing.Any", Any),
        ("int | None", int | None),
        ("None | int | str", None | int | str),
        ("Optional[list[int]]", list[int] | None),
        ("Union[int, str]", int | str),
        ("Literal['a', \"b\"]", Literal["a", "b"]),
        ("Literal['->', 'a, b', 'c: d', '[']", Literal["->", "a, b", "c: d", "["]),
        ("Literal[-1, 1, True, None]", Literal[-1, 1, True, None]),
        ("datetime.date", datetime.date),
        ("date", datetime.date),
        ("datetime.datetime", datetime.datetime),
        ("Ticket", Ticket),
        ("list[Level | None]", list[Level | None]),
    ],
)
def test_types_are_read(source: str, annotation: Any) -> None:
    signature = Signature.parse(f"question -> answer: {source}", types=NAMES)
    assert signature.outputs == (Field("answer", annotation),)
    assert Signature.parse(signature.text, types=NAMES) == signature
    assert Signature.parse(f"answer: {source} -> other", types=NAMES).inputs[0].annotation == annotation


def test_the_text_is_normal() -> None:
    spec = """
        message,gist :str
        -> urgency:Literal["low",'high'],   reason: None|str
    """
    assert Signature.parse(spec).text == "message, gist -> urgency: Literal['low', 'high'], reason: None | str"


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ("question", ["no '->'", "question -> answer"]),
        ("", ["no '->'"]),
        ("a -> b -> c", ["2 times '->'"]),
        ("a ->", ["no output"]),
        ("-> b", ["no input"]),
        ("a, -> b", ["input 2", "character 4", "found nothing"]),
        ("a, : int -> b", ["input 2", "character 4", "': int'"]),
        ("a, b, a -> c", ["'a'", "twice among the inputs"]),
        ("a -> b, b", ["'b'", "twice among the outputs"]),
        ("a, b -> c, b", ["'b'", "both an input and an output"]),
        ("a b -> c", ["input 1", "'a b'", "identifier"]),
        ("a -> 1b", ["output 1", "character 6", "'1b'"]),
        ("a -> class", ["'class'", "identifier"]),
        ("a -> _b", ["'_b'", "reserved"]),
        ("a -> model_config", ["'model_config'", "reserved"]),
        ("a -> b:", ["output 1 ('b')", "expected a type"]),
        ("a -> b: Litral['x']", ["character 9", "'Litral'", "did you mean Literal"]),
        ("a -> b: list[Tikcet]", ["character 14", "did you mean Ticket"]),
        ("a -> b: wombat", ["unknown type 'wombat'", "Known: str, int", "types={'wombat': ...}"]),
        ("a -> b: List[int]", ["did you mean list"]),
        ("a -> b: Literal", ["Literal['a', 'b']"]),
        ("a -> b: Literal[1.5]", ["not 1.5"]),
        ("a -> b: Literal['é', 1.5]", ["character 22"]),
        ("a -> b: Literal[str]", ["not str"]),
        ("a -> b: Literal[()]", ["at least one value"]),
        ("a -> b: Union[()]", ["Union needs brackets"]),
        ("a -> b: dict[str]", ["takes 2 types, found 1"]),
        ("a -> b: list[int, str]", ["takes 1 type, found 2"]),
        ("a -> b: str[int]", ["str takes no brackets"]),
        ("a -> b: Ticket[int]", ["Ticket takes no brackets"]),
        ("a -> b: 'Ticket'", ["without quotes"]),
        ("a -> b: __import__('os')", ["not a type"]),
        ("a -> b: (int, str)", ["not a type"]),
        ("a -> b: lambda: 0", ["not a type"]),
        ("a -> b: int int", ["not a type"]),
        ("a -> b: list[int", ["character 13", "never closed"]),
        ("a -> b: int]", ["character 12", "closes nothing"]),
        ("a -> b: Literal['x]", ["character 17", "quote is never closed"]),
    ],
)
def test_a_wrong_text_is_refused_with_the_place(spec: str, parts: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        Signature.parse(spec, types=NAMES)
    assert all(part in str(caught.value) for part in parts), str(caught.value)


@settings(deadline=None)
@given(st.text(alphabet="ab ,:->[]()'\"|\\intsrlLe\n.é1", max_size=40))
def test_any_text_is_read_or_refused(spec: str) -> None:
    try:
        signature = Signature.parse(spec)
    except UsageError:
        return
    assert Signature.parse(signature.text) == signature


@pytest.mark.parametrize("source", ["list[" * 400 + "int" + "]" * 400, "int | " * 5000 + "int"])
def test_a_deep_type_is_refused_or_read(source: str) -> None:
    with contextlib.suppress(UsageError):
        assert Signature.parse(f"a -> b: {source}").reply_form == "json"


def test_a_type_that_cannot_be_validated_is_refused() -> None:
    class Opaque:
        pass

    with pytest.raises(UsageError, match="can't validate"):
        Signature.parse("a -> b: Opaque", types={"Opaque": Opaque})
    assert Signature.parse("a: Opaque -> b", types={"Opaque": Opaque}).input_names == ("a",)


def test_descriptions() -> None:
    signature = Signature.parse("a -> b", describe={"b": "the answer"})
    assert [field.description for field in (*signature.inputs, *signature.outputs)] == ["", "the answer"]
    assert signature != Signature.parse("a -> b")
    with pytest.raises(UsageError, match=r"'answr'.*did you mean 'answer'"):
        Signature.parse("question -> answer", describe={"answr": "x"})


def test_of_models() -> None:
    signature = Signature.of(Query, Answer)
    assert signature.text == "message, limit: int -> score: float, note: str | None"
    assert signature.inputs[0].description == "what the customer wrote"
    assert [field.required for field in (*signature.inputs, *signature.outputs)] == [True, False, True, False]
    assert signature.output_model is Answer
    assert annotation_words(signature.outputs[0].annotation) == "number, at least 0, at most 1"
    assert signature.inputs_of({"message": "hi"}) == {"message": "hi", "limit": 3}


def test_of_refuses_what_is_no_model_and_aliases() -> None:
    with pytest.raises(UsageError, match="pydantic model class"):
        Signature.of(Query, dict)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"'score' of Aliased has an alias"):
        Signature.of(Query, Aliased)


def test_as_signature() -> None:
    signature = Signature.parse("a -> b")
    assert as_signature("a -> b") == as_signature(signature) == signature
    assert as_signature(signature, describe={"a": "x"}).inputs[0].description == "x"
    assert as_signature((Query, Answer)) == Signature.of(Query, Answer)
    with pytest.raises(UsageError, match="leave it out"):
        as_signature(signature, types={"Ticket": Ticket})
    for wrong in (5, None, (Query,)):
        with pytest.raises(UsageError, match="expected a text"):
            as_signature(wrong)  # type: ignore[arg-type]


def test_inputs_of() -> None:
    signature = Signature.parse("message, gist -> answer")
    assert list(signature.inputs_of({"gist": 1, "message": 2})) == ["message", "gist"]
    with pytest.raises(UsageError, match=r"missing 'gist'; unexpected 'gits' \(did you mean 'gist'\?\)"):
        signature.inputs_of({"message": "x", "gits": "y"})


def test_a_default_is_not_shared() -> None:
    class Tagged(BaseModel):
        tags: list[str] = []

    signature = Signature.of(Tagged, Answer)
    signature.inputs_of({})["tags"].append("x")
    assert signature.inputs_of({}) == {"tags": []}


@pytest.mark.parametrize(
    ("spec", "form", "choices"),
    [
        ("a -> b", "text", ()),
        ("a -> b: Literal['x', 'y']", "choice", ("x", "y")),
        ("a -> b: Level", "choice", ("low", "high")),
        ("a -> b: bool", "choice", ("true", "false")),
        ("a -> b: Literal[1, 2]", "json", ()),
        ("a -> b: Grade", "json", ()),
        ("a -> b: int", "json", ()),
        ("a -> b: str | None", "json", ()),
        ("a -> b, c", "json", ()),
    ],
)
def test_reply_form(spec: str, form: str, choices: tuple[str, ...]) -> None:
    signature = Signature.parse(spec, types=NAMES)
    assert (signature.reply_form, signature.choices) == (form, choices)


def test_fingerprint_holds_names_types_and_directions() -> None:
    base = Signature.parse("a -> b: int").fingerprint
    assert Signature.parse("a->b:int", describe={"a": "x"}).fingerprint == base
    others = ["a -> c: int", "a -> b: float", "b: int -> a", "a, c -> b: int"]
    assert len({base, *(Signature.parse(spec).fingerprint for spec in others)}) == 5


def test_fingerprint_holds_the_fields_of_named_types() -> None:
    def point(*fields: str) -> Signature:
        made = dataclasses.make_dataclass("Point", [(name, float) for name in fields])
        return Signature.parse("a -> b: list[Point]", types={"Point": made})

    assert point("x", "y").fingerprint == point("x", "y").fingerprint != point("x", "z").fingerprint
    assert len({Signature.parse("a -> b: T", types={"T": t}).fingerprint for t in (Level, Grade, Ticket, Point)}) == 4


def test_pickle_copy_and_hash() -> None:
    signature = Signature.parse("a: Ticket -> b: Level, c: list[int | None], d: Literal['x']", types=NAMES, describe={"a": "x"})
    for twin in (pickle.loads(pickle.dumps(signature)), copy.deepcopy(signature)):
        assert twin == signature
        assert hash(twin) == hash(signature)
        assert twin.fingerprint == signature.fingerprint
        assert twin.json_schema == signature.json_schema
    models = Signature.of(Query, Answer)
    assert pickle.loads(pickle.dumps(models)) == models


def test_fingerprint_is_the_same_in_another_process() -> None:
    spec = "a: dict[str, int] -> b: Literal['x', 'y'], c: set[str] | None"
    code = f"from gepa_lite.program.signature import Signature; print(Signature.parse({spec!r}).fingerprint)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert printed == Signature.parse(spec).fingerprint


def _objects(schema: Any) -> list[dict[str, Any]]:
    if isinstance(schema, list):
        return [found for item in schema for found in _objects(item)]
    if not isinstance(schema, dict):
        return []
    own = [schema] if schema.get("type") == "object" else []
    return own + [found for item in schema.values() for found in _objects(item)]


def test_json_schema_is_strict() -> None:
    signature = Signature.parse("a -> t: Ticket, p: Point | None, pair: tuple[int, str], s: set[Level], d: date, g: Grade", types=NAMES)
    schema = signature.json_schema
    assert schema is not None
    assert len(_objects(schema)) == 3
    for found in _objects(schema):
        assert found["additionalProperties"] is False
        assert found["required"] == list(found["properties"])
    text = str(schema)
    assert not any(word in text for word in ("prefixItems", "uniqueItems", "'default'", "'title': 'T", "allOf"))
    assert schema["properties"]["t"] == {"$ref": "#/$defs/Ticket"}
    jsonschema = pytest.importorskip("jsonschema")
    good = {"t": {"title": "x", "votes": 1, "parts": []}, "p": None, "pair": [1, "x"], "s": ["low"], "d": "2024-01-31", "g": 1}
    jsonschema.validate(good, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**good, "more": 1}, schema)


@pytest.mark.parametrize("source", ["dict[str, int]", "dict", "Any", "list", "list[Any]", "int | dict"])
def test_json_schema_is_none_where_strict_can_not_say_it(source: str) -> None:
    assert Signature.parse(f"a -> b: {source}").json_schema is None


def test_outputs_may_be_called_as_methods_of_pydantic(recwarn: pytest.WarningsRecorder) -> None:
    signature = Signature.parse("a -> json, copy, schema: int, dict")
    assert dict(signature.output_model.model_validate({"json": "1", "copy": "2", "schema": 3, "dict": "4"}))["schema"] == 3
    assert not recwarn.list


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (str, "text"),
        (Literal["a"], '"a"'),
        (list[Literal["a", "b"]], 'list of (one of "a", "b")'),
        (int | None, "integer or null"),
        (tuple[int, str], "list of exactly [integer, text]"),
        (tuple[int, ...], "list of integer"),
        (set[str], "list of different text"),
        (dict[str, int], "JSON object with integer as each value"),
        (Grade, "one of 1, 2"),
        (Point, '{"x": number, "y": number}'),
        (Ticket, '{"title": text (a few words), "votes": integer, at least 0, "parts": list of Ticket}'),
    ],
)
def test_types_in_words(annotation: Any, words: str) -> None:
    assert annotation_words(annotation) == words


def test_annotation_text_of_an_unknown_form() -> None:
    assert annotation_text(frozenset[int]) == "frozenset[int]"
