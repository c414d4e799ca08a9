"""Records survive the disk exactly, and what does not fit is refused in words."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gepa_lite.core import events
from gepa_lite.core.budget import Budget, Spend
from gepa_lite.core.call import Call, Trace, Usage
from gepa_lite.core.events import (
    EVENT_TYPES,
    BudgetChanged,
    Event,
    RunStarted,
    SeedValidated,
    StepEnded,
    Stopped,
    Validated,
)
from gepa_lite.core.example import Example
from gepa_lite.core.rollout import Failure, Rollout, RolloutKey
from gepa_lite.errors import StoreError
from gepa_lite.lm.protocol import Completion
from gepa_lite.store.codec import COMPLETION, EVENTS, EXAMPLE, ROLLOUT, Codec, decode_event, encode_event, encode_value
from gepa_lite.store.json_text import decode_value

# Any text, lone surrogates included, but for a high one before a low one: these two are one character in JSON.
texts = st.text(max_size=30).map(lambda text: text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass"))
floats = st.floats(allow_nan=False, allow_infinity=False)
jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
positive = st.none() | st.floats(min_value=1e-300, allow_nan=False, allow_infinity=False)
whole = st.none() | st.integers(1, 10**9)

LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    str: texts,
    float: floats,
    int: st.integers(),
    bool: st.booleans(),
    type(None): st.none(),
    Any: jsons,
    Budget: st.builds(Budget, whole, whole, positive, positive, whole),
}


def strategy(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type hint, so that an event or a field that is new is tested without a word here."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in LEAVES:
        return LEAVES[hint]
    if dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint)
        some = st.fixed_dictionaries(
            {field.name: strategy(hints[field.name]) for field in dataclasses.fields(hint) if not has_default(field)},
            optional={field.name: strategy(hints[field.name]) for field in dataclasses.fields(hint) if has_default(field)},
        )
        return some.map(lambda fields: hint(**fields))  # type: ignore[operator]
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        assert arguments[1:] == (...,)
        return st.lists(strategy(arguments[0]), max_size=4).map(tuple)
    if origin is Mapping:
        return st.dictionaries(texts, strategy(arguments[1]), max_size=3)
    return st.one_of([strategy(argument) for argument in arguments])


def has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def there_and_back(event: Event) -> Event:
    kind, version, body = encode_event(event)
    body.encode()  # fits a UTF-8 column
    return decode_event(kind, version, body)


def test_every_event_type_has_a_form() -> None:
    assert set(EVENTS) == set(EVENT_TYPES)


def test_the_kinds_on_disk_do_not_change() -> None:
    kinds = {cls.__name__: codec.kind for cls, codec in EVENTS.items()}
    assert kinds == {name: re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower() for name in kinds}  # a renamed class keeps its kind: name it here


@pytest.mark.parametrize("event_type", EVENT_TYPES)
def test_events_round_trip(event_type: type[Any]) -> None:
    @settings(max_examples=40, deadline=None)
    @given(strategy(event_type))
    def check(event: Event) -> None:
        assert there_and_back(event) == event

    check()


@settings(max_examples=60, deadline=None)
@given(strategy(Rollout))
def test_rollouts_round_trip(rollout: Rollout) -> None:
    assert ROLLOUT.decode(1, ROLLOUT.encode(rollout)) == rollout


@settings(max_examples=60, deadline=None)
@given(strategy(Completion))
def test_completions_round_trip(completion: Completion) -> None:
    assert COMPLETION.decode(1, COMPLETION.encode(completion)) == completion


@settings(max_examples=60, deadline=None)
@given(strategy(Example))
def test_examples_round_trip_with_their_fields(example: Example) -> None:
    back = EXAMPLE.decode(1, EXAMPLE.encode(example))
    # an example's own equality is that of its id
    assert (back.id, back.inputs, back.labels) == (example.id, example.inputs, example.labels)


@settings(max_examples=200, deadline=None)
@given(floats)
def test_floats_come_back_bit_for_bit(value: float) -> None:
    event = there_and_back(SeedValidated((value,)))
    assert isinstance(event, SeedValidated)
    assert [item.hex() for item in event.values if item is not None] == [value.hex()]


def test_tuples_come_back_as_tuples_and_numbers_as_their_declared_types() -> None:
    numpy = pytest.importorskip("numpy")
    event = there_and_back(SeedValidated((1, True, numpy.float32(0.5), None), ("a",)))
    assert event == SeedValidated((1.0, 1.0, 0.5, None), ("a",))
    assert isinstance(event, SeedValidated)
    assert [type(item) for item in event.values] == [float, float, float, type(None)]
    assert type(event.idle_modules) is tuple
    assert there_and_back(StepEnded(numpy.int64(3))) == StepEnded(3)


def test_surrogates_are_kept_and_a_pair_of_them_becomes_its_character() -> None:
    assert there_and_back(Stopped("x", "cut \ud83d")) == Stopped("x", "cut \ud83d")
    assert there_and_back(Stopped("x", "\ud83d\ude00")) == Stopped("x", "\U0001f600")
    assert there_and_back(Stopped("x", "nul \x00 \u2028")) == Stopped("x", "nul \x00 \u2028")


def test_user_data_comes_back_as_json_types() -> None:
    class Colour(enum.Enum):
        RED = "red"

    started = RunStarted({"a": (1, 2), 3: {4}, "nan": math.nan, "c": Colour.RED}, {}, (), (), (), Budget())  # type: ignore[dict-item]
    event = there_and_back(started)
    assert isinstance(event, RunStarted)
    assert event.settings == {"a": [1, 2], "3": [4], "nan": "NaN", "c": "red"}


def test_what_a_defaulted_record_leaves_out_comes_back() -> None:
    _, _, body = encode_event(SeedValidated((0.5,), ("m",)))
    assert "spend" not in json.loads(body)
    assert there_and_back(SeedValidated((0.5,), ("m",))) == SeedValidated((0.5,), ("m",))
    assert COMPLETION.decode(1, COMPLETION.encode(Completion("x", usage=Usage()))).usage == Usage()


@pytest.mark.parametrize(
    ("event", "names"),
    [
        (SeedValidated((0.1, math.nan)), [".values", "nan", "finite"]),
        (SeedValidated((math.inf,)), [".values", "inf"]),
        (SeedValidated((10**400,)), [".values", "finite"]),
        (events.Tested(0, (), (), Spend(task=Usage(usd=math.nan))), [".spend.task.usd", "nan"]),
        (Stopped("x", None), [".reason", "text", "None"]),  # type: ignore[arg-type]
        (StepEnded(1.5), [".step", "integer", "1.5"]),  # type: ignore[arg-type]
        (SeedValidated("0.5"), [".values", "tuple"]),  # type: ignore[arg-type]
        (SeedValidated(("0.5",)), [".values", "number"]),  # type: ignore[arg-type]
        (Validated(0, (), {"m": 1}, ()), [".texts", "text", "1"]),  # type: ignore[dict-item]
        (Validated(0, (), [], ()), [".texts", "mapping"]),  # type: ignore[arg-type]
        (BudgetChanged(None), [".budget", "Budget", "None"]),  # type: ignore[arg-type]
        ("not an event", ["str is not an event", "Proposed"]),
    ],
)
def test_what_cannot_be_kept_is_refused_with_its_field(event: Any, names: list[str]) -> None:
    with pytest.raises(ValueError, match=re.escape(names[0])) as caught:
        encode_event(event)
    assert all(name in str(caught.value) for name in names)


def test_flags_and_choices_must_be_such() -> None:
    rollout = Rollout(RolloutKey("c", "e"), 1.0, None)
    call = Call("m", {}, (), retry="yes")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"\.trace\.calls\.retry.*bool"):
        ROLLOUT.encode(dataclasses.replace(rollout, trace=Trace((call,))))
    with pytest.raises(ValueError, match=r"\.failure\.fault: one of 'candidate', 'world' is needed, got 'mine'"):
        ROLLOUT.encode(dataclasses.replace(rollout, failure=Failure("parse", "mine", "")))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "version", "body"),
    [
        ("dreamt", 1, "{}"),
        ("step_ended", 2, '{"step":0}'),
        ("step_ended", 1, '{"step":0,"mood":"good"}'),
        ("proposed", 1, '{"spend":{"task":{"calls":1,"carbon":3}}}'),
    ],
)
def test_what_a_later_release_wrote_says_to_upgrade(kind: str, version: int, body: str) -> None:
    with pytest.raises(StoreError, match="Upgrade"):
        decode_event(kind, version, body)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("step_ended", '{"step":'),
        ("step_ended", "{}"),
        ("step_ended", "[]"),
        ("step_ended", '{"step":"0"}'),
        ("stopped", '{"code":"x","reason":1}'),
        ("seed_validated", '{"values":[NaN]}'),
        ("seed_validated", '{"values":["1"]}'),
        ("seed_validated", '{"values":{}}'),
        ("seed_validated", '{"values":[],"spend":3}'),
        ("validated", '{"step":0,"parents":[],"texts":[],"values":[]}'),
        ("budget_changed", '{"budget":{"usd":-1.0}}'),
    ],
)
def test_damage_is_told_as_damage(kind: str, body: str) -> None:
    with pytest.raises(StoreError, match="damaged"):
        decode_event(kind, 1, body)


def test_a_new_field_with_a_default_reads_old_records() -> None:
    @dataclasses.dataclass(frozen=True)
    class Old:
        name: str

    @dataclasses.dataclass(frozen=True)
    class New:
        name: str
        size: int = 3

    # the two stand for one class before and after; hints of local classes need no names
    Old.__annotations__, New.__annotations__ = {"name": str}, {"name": str, "size": int}
    assert Codec("thing", New).decode(1, Codec("thing", Old).encode(Old("a"))) == New("a", 3)


def test_a_hint_without_a_form_is_refused_at_once() -> None:
    @dataclasses.dataclass(frozen=True)
    class Odd:
        when: complex

    Odd.__annotations__ = {"when": complex}
    with pytest.raises(TypeError, match="complex"):
        Codec("odd", Odd)


def test_deep_nesting_and_odd_texts_survive() -> None:
    class Name(str):
        __slots__ = ()

    deep: Any = "end"
    for _ in range(400):
        deep = [deep]
    for value in (deep, {"a": "cut \ud83d", "b": [1e22, -0.0, 5e-324, 2**70]}, [Name("x"), {Name("k"): Name("v")}]):
        assert decode_value(encode_value(value), "x") == value


@pytest.mark.parametrize("row", [(0.5, None), (0.5, math.nan), (0.5, "1"), (None,)])
def test_rows_of_scores_are_looked_at_cell_by_cell_where_they_must_be(row: Any) -> None:
    merged = events.Merged(0, (0, 1), 0, {}, {}, ("e",), (row,), "rejected", "not_better", "")
    with pytest.raises(ValueError, match=r"merged\.before: a finite number is needed"):
        encode_event(merged)
    assert there_and_back(dataclasses.replace(merged, before=((0.5, 1.0),))) == dataclasses.replace(merged, before=((0.5, 1.0),))


def test_values_round_trip_and_damage_is_named() -> None:
    value = {"a": [1, 2.5, None, "ü\udc80"], "b": True}
    assert decode_value(encode_value(value), "x") == value
    with pytest.raises(StoreError, match="The entry is damaged"):
        decode_value("{", "The entry")
