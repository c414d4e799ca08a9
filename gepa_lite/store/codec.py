"""Records to JSON text and back, exactly.

Each record type is compiled once, from its type hints, into an encoder and a decoder. What is written is checked, so that what is on
disk can be read: a NaN or a field of the wrong type is refused when it is saved, not found when the run is resumed. What is read is
checked too, against damage.

- Floats come back bit for bit; NaN and infinities are refused. Tuples come back as tuples, records compare equal after a round trip.
- A field declared ``Any`` (inputs, outputs, settings) is user data: ``jsonable`` brings it to JSON types, and it comes back as these.
- A record within a record is left out where it equals its default: most events cost nothing in most roles.
- Texts may hold lone surrogates, as cut-off replies do: they are kept as JSON escapes. A high one followed by a low one comes back as
  the one character they spell.
- Every record carries the version of its form, every event a kind that is independent of its class name. A kind, version or field
  that this release does not know is an error that says to upgrade; it is never skipped.
"""

from __future__ import annotations

import dataclasses
import operator
import types
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Generic, Literal, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from gepa_lite.core.events import (
    BudgetChanged,
    Deferred,
    Event,
    Merged,
    MilestoneScored,
    Proposed,
    RunStarted,
    SealOpened,
    SeedValidated,
    SetAside,
    Shortened,
    StepEnded,
    Stopped,
    Tested,
    Twin,
    Unjoined,
    Validated,
    Vetoed,
)
from gepa_lite.core.example import Example
from gepa_lite.core.ids import jsonable
from gepa_lite.core.rollout import Rollout
from gepa_lite.errors import StoreError
from gepa_lite.lm.protocol import Completion
from gepa_lite.store.json_text import read_json, to_json

T = TypeVar("T")
_Step = Callable[[Any], Any]
_NoneType = type(None)


class _Form(NamedTuple):
    """How values of one type hint become JSON types and come back. A value whose exact type is in ``*_as_is`` needs no step."""

    encode: _Step
    decode: _Step
    written_as_is: frozenset[type[Any]]
    read_as_is: frozenset[type[Any]]


class _Mismatch(Exception):
    """A value is not of the declared form. The message starts with the path of the field."""


def encode_value(value: Any) -> str:
    """JSON text of any value, by way of ``jsonable``."""
    return to_json(jsonable(value))


class Codec(Generic[T]):
    """The form of one record type on disk.

    Attributes:
        kind: its stable name.
        version: of the form; raised when a field changes its meaning or goes. A new field with a default needs no new version: records
            without it get the default.
    """

    def __init__(self, kind: str, record: type[T], version: int = 1) -> None:
        self.kind = kind
        self.version = version
        self._form = _form(record)

    def encode(self, record: T) -> str:
        """JSON text of a record.

        Raises:
            ValueError: a field is not of its declared type or not finite; the message names it.
        """
        try:
            return to_json(self._form.encode(record))
        except _Mismatch as error:
            raise ValueError(f"{self.kind}{error}") from None

    def decode(self, version: int, body: str) -> T:
        """The record of a JSON text.

        Raises:
            StoreError: a newer release wrote it, or it is damaged.
        """
        if version != self.version:
            raise _upgrade(f"{self.kind} records of version {version} (known: {self.version})")
        try:
            return cast("T", self._form.decode(read_json(body)))
        except (_Mismatch, ValueError) as error:
            raise StoreError(
                f"A {self.kind} record is damaged: {error}. Restore the run's folder from a copy, or start a new run."
            ) from error


def _upgrade(what: str) -> StoreError:
    return StoreError(f"The run holds {what}: another release of gepa_lite wrote it. Upgrade with `pip install -U gepa-lite`.")


def _form(hint: Any) -> _Form:
    """The form for a type hint of a record's field.

    Raises:
        TypeError: a hint of a kind that no record uses so far: add it here, with a test.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _LEAVES:
        return _LEAVES[hint]
    if dataclasses.is_dataclass(hint):
        return _record_form(cast("type[Any]", hint))
    if origin is Literal:
        return _literal_form(arguments)
    if origin in (Union, types.UnionType) and len(arguments) == 2 and arguments[1] is _NoneType:
        return _optional_form(_form(arguments[0]))
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _tuple_form(_form(arguments[0]))
    if origin is Mapping and arguments[0] is str:
        return _mapping_form(_form(arguments[1]))
    raise TypeError(f"no form on disk is known for {hint!r}")


def _text(value: Any) -> Any:
    if not isinstance(value, str):
        raise _Mismatch(f": a text is needed, got {value!r:.80}")
    return value


def _flag(value: Any) -> Any:
    if value is True or value is False:
        return value
    raise _Mismatch(f": a bool is needed, got {value!r:.80}")


def _integer(value: Any) -> Any:
    try:
        # numpy's integers and bools come in here and leave as plain numbers
        return int(operator.index(value))
    except TypeError:
        raise _Mismatch(f": an integer is needed, got {value!r:.80}") from None


def _number(value: Any) -> Any:
    if type(value) is float and isfinite(value):
        return value
    if not isinstance(value, (str, bytes)):
        try:
            number = float(value)
            if isfinite(number):
                return number
        except (TypeError, ValueError, OverflowError):
            pass
    raise _Mismatch(f": a finite number is needed, got {value!r:.80}")


def _same(value: Any) -> Any:
    return value


def _types(*members: type[Any]) -> frozenset[type[Any]]:
    return frozenset(members)


_MAYBE_FLOAT = _types(float, _NoneType)
_LEAVES: dict[Any, _Form] = {
    str: _Form(_text, _text, _types(str), _types(str)),
    bool: _Form(_flag, _flag, _types(bool), _types(bool)),
    int: _Form(_integer, _integer, _types(int), _types(int)),
    # a float must be looked at when it is written, for it may be a NaN; the JSON that is read holds none
    float: _Form(_number, _number, _types(), _types(float)),
    Any: _Form(jsonable, _same, _types(str, int, bool, _NoneType), _types(str, int, float, bool, list, dict, _NoneType)),
}


def _literal_form(allowed: tuple[Any, ...]) -> _Form:
    known = frozenset(allowed)

    def check(value: Any) -> Any:
        if isinstance(value, str) and value in known:
            return value
        raise _Mismatch(f": one of {', '.join(map(repr, allowed))} is needed, got {value!r:.80}")

    return _Form(check, check, _types(), _types())


def _optional_form(form: _Form) -> _Form:
    def encode(value: Any) -> Any:
        return None if value is None else form.encode(value)

    def decode(value: Any) -> Any:
        return None if value is None else form.decode(value)

    return _Form(encode, decode, form.written_as_is | {_NoneType}, form.read_as_is | {_NoneType})


def _tuple_form(form: _Form) -> _Form:
    # rows of scores: thousands of numbers, looked at without a step in Python for each
    numbers = form.written_as_is | {float} if form.read_as_is and form.read_as_is <= _MAYBE_FLOAT else frozenset()

    def encode(value: Any) -> Any:
        if not isinstance(value, (tuple, list)):
            raise _Mismatch(f": a tuple is needed, got {value!r:.80}")
        kinds = set(map(type, value))
        if kinds <= form.written_as_is or (kinds <= numbers and all(map(isfinite, filter(None, value)))):
            return list(value)
        return [form.encode(item) for item in value]

    def decode(value: Any) -> Any:
        if type(value) is not list:
            raise _Mismatch(f": a list is needed, got {value!r:.80}")
        return tuple(value) if form.read_as_is.issuperset(map(type, value)) else tuple([form.decode(item) for item in value])

    return _Form(encode, decode, _types(), _types())


def _mapping_form(form: _Form) -> _Form:
    # keys of user data may be anything, as jsonable has it
    key_step = str if form is _LEAVES[Any] else _text
    text_only = _types(str)

    def encode(value: Any) -> Any:
        if type(value) is dict and text_only.issuperset(map(type, value)) and form.written_as_is.issuperset(map(type, value.values())):
            return value
        if not isinstance(value, Mapping):
            raise _Mismatch(f": a mapping is needed, got {value!r:.80}")
        return {key_step(key): item if type(item) in form.written_as_is else form.encode(item) for key, item in value.items()}

    def decode(value: Any) -> Any:
        if type(value) is not dict:
            raise _Mismatch(f": an object is needed, got {value!r:.80}")
        return value if form.read_as_is.issuperset(map(type, value.values())) else {key: form.decode(item) for key, item in value.items()}

    return _Form(encode, decode, _types(), _types())


def _record_form(record: type[Any]) -> _Form:
    hints = get_type_hints(record)
    forms = {item.name: _form(hints[item.name]) for item in dataclasses.fields(record)}
    defaults = {item.name: _default(item) for item in dataclasses.fields(record) if dataclasses.is_dataclass(hints[item.name])}
    return _Form(_record_encoder(record, forms, defaults), _record_decoder(record, forms, defaults), _types(), _types())


def _default(item: dataclasses.Field[Any]) -> Any:
    """What a field holds where none is given; ``MISSING``, which equals no record, where one must be."""
    return item.default if item.default_factory is dataclasses.MISSING else item.default_factory()


def _record_encoder(record: type[Any], forms: Mapping[str, _Form], defaults: Mapping[str, Any]) -> _Step:
    """Straight-line code made for one record type, as the dataclass itself has it: several times a loop's speed, and every rollout passes here."""
    names: dict[str, Any] = {"record": record, "_Mismatch": _Mismatch, "isfinite": isfinite}
    lines = ["def encode(value):", " if type(value) is not record:"]
    lines += [f"  raise _Mismatch(f': a {record.__name__} is needed, got {{value!r:.80}}')", " fields, name = {}, ''", " try:"]
    # records within come last, and only where they are not the default
    for number, (name, form) in enumerate(sorted(forms.items(), key=lambda item: item[0] in defaults)):
        names[f"step{number}"], names[f"default{number}"] = form.encode, defaults.get(name)
        lines += [f"  name = {name!r}", f"  item = value.{name}"]
        if name in defaults:
            lines += [f"  if item != default{number}:"] if defaults[name] is not dataclasses.MISSING else ["  if True:"]
            lines += [f"   fields[name] = step{number}(item)"]
            continue
        kinds = sorted(form.written_as_is, key=lambda kind: kind.__name__)
        names |= {f"kind{number}_{place}": kind for place, kind in enumerate(kinds)}
        as_is = [f"kind is kind{number}_{place}" for place in range(len(kinds))]
        if float in form.read_as_is and form.read_as_is <= _MAYBE_FLOAT:
            as_is.append("(kind is float and isfinite(item))")
        lines += ["  kind = type(item)", f"  fields[name] = item if {' or '.join(as_is) or 'False'} else step{number}(item)"]
    lines += [" except _Mismatch as error:", "  raise _Mismatch(f'.{name}{error}') from None", " return fields"]
    # the source holds names of fields and classes of this package, nothing that came from outside
    exec("\n".join(lines), names)
    return cast("_Step", names["encode"])


def _record_decoder(record: type[Any], forms: Mapping[str, _Form], defaults: Mapping[str, Any]) -> _Step:
    decoders = {name: (form.decode, form.read_as_is) for name, form in forms.items()}
    # frozen, so all records can share them
    shared = tuple((name, default) for name, default in defaults.items() if default is not dataclasses.MISSING)

    def decode(value: Any) -> Any:
        if type(value) is not dict:
            raise _Mismatch(f": a {record.__name__} is needed, got {value!r:.80}")
        name = ""
        try:
            # in place: the dict was made by the parser for us alone
            for name, item in value.items():
                step, as_is = decoders[name]
                if type(item) not in as_is:
                    value[name] = step(item)
            for name, default in shared:
                if name not in value:
                    value[name] = default
            return record(**value)
        except KeyError:
            raise _upgrade(f"the field {name!r} of a {record.__name__}, which this release does not know") from None
        except _Mismatch as error:
            raise _Mismatch(f".{name}{error}") from None
        except TypeError as error:
            raise _Mismatch(f": {error}") from None

    return decode


ROLLOUT: Codec[Rollout] = Codec("rollout", Rollout)
COMPLETION: Codec[Completion] = Codec("completion", Completion)
EXAMPLE: Codec[Example] = Codec("example", Example)

EVENTS: Mapping[type[Any], Codec[Any]] = {
    RunStarted: Codec("run_started", RunStarted),
    SeedValidated: Codec("seed_validated", SeedValidated),
    Proposed: Codec("proposed", Proposed),
    Merged: Codec("merged", Merged),
    Validated: Codec("validated", Validated),
    Vetoed: Codec("vetoed", Vetoed),
    SetAside: Codec("set_aside", SetAside),
    Unjoined: Codec("unjoined", Unjoined),
    Twin: Codec("twin", Twin),
    Deferred: Codec("deferred", Deferred),
    StepEnded: Codec("step_ended", StepEnded),
    Stopped: Codec("stopped", Stopped),
    BudgetChanged: Codec("budget_changed", BudgetChanged),
    Shortened: Codec("shortened", Shortened),
    SealOpened: Codec("seal_opened", SealOpened),
    Tested: Codec("tested", Tested),
    MilestoneScored: Codec("milestone_scored", MilestoneScored),
}
"""The form of every event. The kinds are on disk: a renamed class keeps its kind."""

_EVENTS_BY_KIND = {codec.kind: codec for codec in EVENTS.values()}


def encode_event(event: Event) -> tuple[str, int, str]:
    """Kind, version and JSON text of an event.

    Raises:
        ValueError: not an event, or a field that can't be kept.
    """
    codec = EVENTS.get(type(event))
    if codec is None:
        raise ValueError(f"{type(event).__name__} is not an event: one of {', '.join(cls.__name__ for cls in EVENTS)} is needed.")
    return codec.kind, codec.version, codec.encode(event)


def decode_event(kind: str, version: int, body: str) -> Event:
    """The event of a kind, version and JSON text.

    Raises:
        StoreError: a newer release wrote it, or it is damaged.
    """
    codec = _EVENTS_BY_KIND.get(kind)
    if codec is None:
        raise _upgrade(f"events of the unknown kind {kind!r}")
    return cast("Event", codec.decode(version, body))
