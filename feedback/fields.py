"""Judge structured answers: against a JSON schema, and field by field against the right record."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback
from gepa_lite.core.ids import jsonable
from gepa_lite.errors import UsageError

from .match import FieldFeedback, normalized, shown

_SHOWN = 8


def json_schema(schema: Mapping[str, Any], field: str | None = None) -> FieldFeedback:
    """A feedback function: 1 where the output is valid under a JSON schema, else 0, with each breach in words and its place.

    Args:
        schema: a JSON schema; its own ``$schema`` says of which draft, the newest otherwise.
        field: the output field, a value or a JSON text; the whole output where it is None.

    Raises:
        UsageError: the schema is wrong, or ``jsonschema`` is not installed (the extra ``schema``).

    Example:
        >>> judge = json_schema({"type": "object", "required": ["days"], "properties": {"days": {"type": "integer"}}}, "ticket")
        >>> judge(Example("id", {}, {}), {"ticket": '{"days": "two"}'}).text
        "Not valid: at days: 'two' is not of type 'integer'."
    """
    validator = _validator(schema)

    def feedback(example: Example, output: Any) -> Feedback:
        value, problem = _record(output, field)
        if problem:
            return Feedback(0.0, problem)
        errors = sorted(validator.iter_errors(value), key=lambda error: list(map(str, error.absolute_path)))
        if not errors:
            return Feedback(1.0, "Valid.")
        words = [f"at {_path(error.absolute_path) or 'the top'}: {_cut(error.message)}" for error in errors[:_SHOWN]]
        more = f" And {len(errors) - _SHOWN} more." if len(errors) > _SHOWN else ""
        return Feedback(0.0, f"Not valid: {'; '.join(words)}.{more}")

    return feedback


def field_match(
    label: str, field: str | None = None, *, weights: Mapping[str, float] | None = None, strict: bool = False, extra: bool = True
) -> FieldFeedback:
    """A feedback function: the share of the right record's fields that the output has right, with what is wrong in each.

    Nested records are compared by the paths of their leaves (``buyer.name``, ``items[0].price``). Texts are compared up to case, punctuation and articles.

    Args:
        label: the label with the right record, a value or a JSON text.
        field: the output field, likewise; the whole output where it is None.
        weights: weights of single paths; the others weigh 1.
        strict: compare texts to the letter.
        extra: whether a field that the right record lacks counts as wrong.

    Example:
        >>> judge = field_match("record")
        >>> judge(Example("id", {}, {"record": {"name": "Ada", "age": 36}}), {"name": "Ada", "age": 35}).text
        'Right: name. Wrong: age should be 36, but was 35.'
    """
    weigh = dict(weights or {})

    def feedback(example: Example, output: Any) -> Feedback:
        gold, problem = _record(example, label)
        if problem:
            raise UsageError(f"field_match: the label {label!r} of an example is not JSON. {problem}")
        value, problem = _record(output, field)
        if problem:
            return Feedback(0.0, f"{problem} The right record is {shown(gold)}.")
        wanted, came = dict(_leaves(gold)), dict(_leaves(value))
        right = [path for path in wanted if path in came and _equal(wanted[path], came[path], strict)]
        missing = [path for path in wanted if path not in came]
        wrong = [path for path in wanted if path in came and path not in right]
        surplus = [path for path in came if path not in wanted] if extra else []
        total = sum(weigh.get(path, 1.0) for path in (*wanted, *surplus))
        score = sum(weigh.get(path, 1.0) for path in right) / total if total else 1.0
        text = " ".join(
            f"{head}: {'; '.join(words[:_SHOWN])}{f' and {len(words) - _SHOWN} more' if len(words) > _SHOWN else ''}."
            for head, words in (
                ("Right", [", ".join(right)] if right else []),
                ("Wrong", [f"{path} should be {shown(wanted[path])}, but was {shown(came[path])}" for path in wrong]),
                ("Missing", [f"{path} ({shown(wanted[path])})" for path in missing]),
                ("Not asked for", [f"{path} ({shown(came[path])})" for path in surplus]),
            )
            if words
        )
        return Feedback(score, text or "Right: the record is empty.")

    return feedback


def _validator(schema: Mapping[str, Any]) -> Any:
    try:
        import jsonschema
    except ImportError:
        raise UsageError("json_schema needs the package jsonschema: pip install 'gepa-lite[schema]'.") from None
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise UsageError(f"json_schema: this is no JSON schema: {error.message} (at {_path(error.absolute_path) or 'the top'}).") from None
    return kind(schema)


def _record(holder: Any, field: str | None) -> tuple[Any, str]:
    """The plain value of a field or of a whole output, read from JSON where it is a text; and what is wrong with the JSON."""
    value = holder if field is None else holder[field]
    value = dict(value) if isinstance(value, Mapping) else value
    if not isinstance(value, str):
        return jsonable(value), ""
    text = value.strip()
    fenced = text.startswith("```")
    if fenced:
        text = text.split("\n", 1)[-1].rsplit("```", 1)[0]
    try:
        return json.loads(text), ""
    except json.JSONDecodeError as error:
        return None, f"Not JSON: {error.msg} in line {error.lineno}, column {error.colno}: {shown(value)}."


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    elif path:
        yield path, value


def _equal(gold: Any, answer: Any, strict: bool) -> bool:
    if isinstance(gold, bool) or isinstance(answer, bool):
        return type(gold) is type(answer) and gold == answer
    if isinstance(gold, str) and isinstance(answer, str) and not strict:
        return normalized(gold) == normalized(answer)
    return bool(gold == answer)


def _path(parts: Any) -> str:
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _cut(message: str) -> str:
    return message if len(message) <= 200 else f"{message[:120]} […] {message[-70:]}"
