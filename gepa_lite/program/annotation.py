"""Types of fields: read from text without ``eval``, written back as text, put in words for a model, and hashed by structure."""

from __future__ import annotations

import ast
import dataclasses
import datetime
import difflib
import enum
import json
import types as python_types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

_PLAIN: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "list": list,
    "dict": dict,
    "tuple": tuple,
    "set": set,
    "Any": Any,
    "date": datetime.date,
    "datetime.date": datetime.date,
    "datetime.datetime": datetime.datetime,
}
_ONLY_WITH_BRACKETS = {"Literal": "Literal['a', 'b']", "Optional": "Optional[int]", "Union": "Union[int, str]"}
_TEXTS: dict[Any, str] = {
    Any: "Any",
    type(None): "None",
    None: "None",
    datetime.date: "datetime.date",
    datetime.datetime: "datetime.datetime",
}
_WORDS: dict[Any, str] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    list: "list",
    tuple: "list",
    set: "list without repeats",
    dict: "JSON object",
    Any: "any JSON value",
    type(None): "null",
    None: "null",
    datetime.date: "date as YYYY-MM-DD",
    datetime.datetime: "date and time in ISO 8601",
}
_UNION: Any = Union  # ``X | Y`` is no expression over types that are only known at run time: None has no ``|``
_LIMITS = {
    "ge": "at least {}",
    "gt": "more than {}",
    "le": "at most {}",
    "lt": "less than {}",
    "multiple_of": "a multiple of {}",
    "min_length": "length at least {}",
    "max_length": "length at most {}",
    "pattern": "matching {}",
}


class AnnotationProblem(ValueError):
    """A type in a signature's text can't be read.

    Attributes:
        offset: where in the type's own text, in characters from 0.
    """

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


def read_annotation(source: str, types: Mapping[str, Any]) -> Any:
    """The type that a text names. Only names of a fixed list and of ``types`` are looked up; nothing is evaluated.

    Args:
        source: a type as in Python source, e.g. ``"list[Literal['a', 'b']] | None"``.
        types: further names, e.g. pydantic models, enums and dataclasses.

    Raises:
        AnnotationProblem: not a type of the list, with the place and the nearest names.
    """
    line = "".join(" " if mark.isspace() else mark for mark in source.strip())  # one line, so that a column is a place
    try:
        tree = ast.parse(line, mode="eval")
        return _resolve(tree.body, types)
    except AnnotationProblem as problem:  # ast counts columns in bytes
        raise AnnotationProblem(str(problem), len(line.encode()[: problem.offset].decode(errors="ignore"))) from None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise AnnotationProblem(f"{line[:80]!r} is not a type", 0) from error


def _resolve(node: ast.expr, types: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant) and node.value is None:
        return None
    if isinstance(node, (ast.Name, ast.Attribute)):
        return _named(node, types)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _UNION[_resolve(node.left, types), _resolve(node.right, types)]
    if isinstance(node, ast.Subscript):
        return _generic(node, types)
    hint = "; write types without quotes" if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    raise AnnotationProblem(f"{ast.unparse(node)} is not a type{hint}", node.col_offset)


def _plain_name(node: ast.expr) -> str:
    return ast.unparse(node).removeprefix("typing.")


def _named(node: ast.expr, types: Mapping[str, Any]) -> Any:
    name = _plain_name(node)
    if name in types:
        return types[name]
    if name in _PLAIN:
        return _PLAIN[name]
    if name in _ONLY_WITH_BRACKETS:
        raise AnnotationProblem(f"{name} needs brackets, as in {_ONLY_WITH_BRACKETS[name]}", node.col_offset)
    known = [*_PLAIN, *_ONLY_WITH_BRACKETS, *types]
    by_lower = {known_name.lower(): known_name for known_name in known}
    near = [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)]
    guess = f"did you mean {' or '.join(near)}? " if near else ""
    raise AnnotationProblem(
        f"unknown type {name!r}; {guess}Known: {', '.join(known)}; pass your own classes as types={{{name!r}: ...}}", node.col_offset
    )


def _generic(node: ast.Subscript, types: Mapping[str, Any]) -> Any:
    name = _plain_name(node.value)
    items = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    if name in types:
        raise AnnotationProblem(f"{name} takes no brackets", node.col_offset)
    if name == "Literal":
        return _literal(items, node.col_offset)
    if name == "tuple" and len(items) == 2 and isinstance(items[1], ast.Constant) and items[1].value is Ellipsis:
        return tuple[_resolve(items[0], types), ...]  # type: ignore[misc]  # built at run time
    wanted = {"list": 1, "set": 1, "dict": 2, "Optional": 1}.get(name)
    if wanted is not None and len(items) != wanted:
        raise AnnotationProblem(f"{name}[...] takes {wanted} type{'s' if wanted > 1 else ''}, found {len(items)}", node.col_offset)
    if wanted is None and (name not in ("tuple", "Union") or not items):
        _named(node.value, types)
        raise AnnotationProblem(f"{name} takes no brackets", node.col_offset)
    arguments = tuple(_resolve(item, types) for item in items)
    if name == "Optional":
        return _UNION[arguments[0], None]
    if name == "Union":
        return _UNION[arguments]
    generic: Any = _PLAIN[name]
    return generic[arguments]


def _literal(items: list[ast.expr], offset: int) -> Any:
    values: list[str | int | bool | None] = []
    for item in items:
        try:
            value = ast.literal_eval(item)
        except (ValueError, TypeError, SyntaxError):
            value = ...
        if value is not None and not isinstance(value, (str, int, bool)):
            raise AnnotationProblem(f"Literal takes quoted texts, integers, True, False and None, not {ast.unparse(item)}", item.col_offset)
        values.append(value)
    if not values:
        raise AnnotationProblem("Literal needs at least one value", offset)
    return Literal[tuple(values)]


def unwrapped(annotation: Any) -> Any:
    """The type without ``Annotated``'s extras."""
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def is_union(annotation: Any) -> bool:
    """Whether the type is ``X | Y``, in either spelling."""
    return get_origin(annotation) in (Union, python_types.UnionType)


def annotation_text(annotation: Any) -> str:
    """The type as signature text, the same for both spellings of a union; ``Annotated``'s extras are left out."""
    annotation = unwrapped(annotation)
    try:
        if annotation in _TEXTS:
            return _TEXTS[annotation]
    except TypeError:  # unhashable: not one of the fixed types
        pass
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return f"Literal[{', '.join(repr(value) for value in arguments)}]"
    if is_union(annotation):
        return " | ".join(annotation_text(argument) for argument in arguments)
    if origin is not None:
        inner = ", ".join("..." if argument is Ellipsis else annotation_text(argument) for argument in arguments)
        return f"{getattr(origin, '__name__', origin)}[{inner}]"
    return str(getattr(annotation, "__name__", annotation))


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """One field of a structured type: the name it has in JSON, its type and its description."""

    name: str
    annotation: Any
    description: str = ""


def annotated_field(info: FieldInfo) -> Any:
    """The type of a pydantic field with its constraints, so that they hold wherever the type goes."""
    annotation: Any = info.annotation
    return Annotated[(annotation, *info.metadata)] if info.metadata else annotation


def members(annotation: Any) -> tuple[Member, ...] | None:
    """The fields of a pydantic model, dataclass or TypedDict; None for any other type."""
    if not isinstance(annotation, type):
        return None
    if issubclass(annotation, BaseModel):
        return tuple(
            Member(info.alias or name, annotated_field(info), info.description or "") for name, info in annotation.model_fields.items()
        )
    if dataclasses.is_dataclass(annotation) or typing.is_typeddict(annotation):
        try:
            hints = typing.get_type_hints(annotation)
        except NameError:  # a forward reference that can't be resolved from here: its text will do
            hints = dict(annotation.__annotations__)
        return tuple(Member(name, hint) for name, hint in hints.items())
    return None


def choice_values(annotation: Any) -> dict[str, Any] | None:
    """The texts a reply may hold and the value each stands for: a Literal of texts, an Enum of texts, or bool; None for any other type."""
    annotation = unwrapped(annotation)
    if annotation is bool:
        return {"true": True, "false": False}
    if get_origin(annotation) is Literal:
        values = get_args(annotation)
        return {value: value for value in values} if all(type(value) is str for value in values) else None
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        by_text = {member.value: member for member in annotation}
        return dict(by_text) if by_text and all(isinstance(text, str) for text in by_text) else None
    return None


def annotation_words(annotation: Any, *, _inside: tuple[Any, ...] = ()) -> str:
    """The type in few words for a model, e.g. ``one of "low", "high"`` or ``list of {"title": text, "votes": integer}``."""
    limits = _limit_words(get_args(annotation)[1:]) if get_origin(annotation) is Annotated else ""
    return _unlimited_words(unwrapped(annotation), _inside) + limits


def _unlimited_words(annotation: Any, inside: tuple[Any, ...]) -> str:
    try:
        if annotation in _WORDS:
            return _WORDS[annotation]
    except TypeError:  # unhashable: not one of the fixed types
        pass
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _one_of([member.value for member in annotation])
    fields = members(annotation)
    if fields is not None:
        if annotation in inside:
            return annotation_text(annotation)
        described = (
            f"{json.dumps(field.name)}: {annotation_words(field.annotation, _inside=(*inside, annotation))}"
            + (f" ({field.description})" if field.description else "")
            for field in fields
        )
        return "{" + ", ".join(described) + "}"
    return _generic_words(annotation, inside)


def _generic_words(annotation: Any, inside: tuple[Any, ...]) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return _one_of(list(arguments))
    words = [annotation_words(argument, _inside=inside) for argument in arguments if argument is not Ellipsis]
    if is_union(annotation):
        return " or ".join(words)
    if origin is dict:
        return f"JSON object with {words[1]} as each value"
    if origin is tuple and Ellipsis not in arguments:
        return f"list of exactly [{', '.join(words)}]"
    if origin in (list, tuple, set, frozenset) and words:
        each = f"({words[0]})" if words[0].startswith("one of ") or " or " in words[0] else words[0]
        return f"list of {'different ' if origin in (set, frozenset) else ''}{each}"
    return annotation_text(annotation)


def _one_of(values: list[Any]) -> str:
    texts = [json.dumps(value, ensure_ascii=False, default=str) for value in values]
    return texts[0] if len(texts) == 1 else f"one of {', '.join(texts)}"


def _limit_words(extras: tuple[Any, ...]) -> str:
    found = []
    for extra in extras:
        for name, words in _LIMITS.items():
            limit = getattr(extra, name, None)
            if limit is not None:
                found.append(words.format(limit))
    return "".join(f", {words}" for words in found)


def structure(annotation: Any, *, _inside: tuple[Any, ...] = ()) -> Any:
    """What a type is, in plain JSON for hashing: a changed field or choice of a named class changes it, a changed description does not."""
    annotation = unwrapped(annotation)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return {"enum": [member.value for member in annotation]}
    fields = members(annotation)
    if fields is not None:
        if annotation in _inside:
            return {"again": annotation.__name__}
        inside = (*_inside, annotation)
        return {"object": {field.name: structure(field.annotation, _inside=inside) for field in fields}}
    arguments = get_args(annotation)
    if get_origin(annotation) is None or get_origin(annotation) is Literal:
        return annotation_text(annotation)
    parts = ["..." if argument is Ellipsis else structure(argument, _inside=_inside) for argument in arguments]
    if is_union(annotation):
        return {"union": parts}
    return {annotation_text(get_origin(annotation)): parts}
