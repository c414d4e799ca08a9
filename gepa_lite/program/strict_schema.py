"""JSON schemas in the form that endpoints which hold a reply to a schema accept (OpenAI's "strict" subset)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LIMITS = frozenset({"pattern", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "minItems", "maxItems"})
_KEPT = _LIMITS | {"type", "enum", "const", "description"}
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})


class _Open(Exception):
    """The schema has a part that takes any object or any value, which the strict subset can't say."""


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema in the strict subset: every object closed, every key required, only keywords that endpoints take.

    What the subset has no keyword for (e.g. a text's length) is dropped here and checked when the reply is validated. Returns None where
    the schema has an open object (``dict[str, X]``) or an unrestricted value (``Any``): a reply can't be held to it.
    """
    try:
        return _strict(schema)
    except _Open:
        return None


def _strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:  # endpoints refuse keywords beside a $ref
        return {"$ref": schema["$ref"]}
    if len(schema.get("allOf", ())) == 1:
        return _strict({**{key: value for key, value in schema.items() if key != "allOf"}, **schema["allOf"][0]})
    if "allOf" in schema:
        raise _Open
    strict = {key: value for key, value in schema.items() if key in _KEPT}
    if schema.get("format") in _FORMATS:
        strict["format"] = schema["format"]
    alternatives = schema.get("anyOf") or schema.get("oneOf")
    if alternatives:
        strict["anyOf"] = [_strict(alternative) for alternative in alternatives]
    elif schema.get("type") == "object":
        strict.update(_closed_object(schema))
    elif schema.get("type") == "array":
        strict["items"] = _items(schema)
    elif not strict.keys() & {"type", "enum", "const"}:
        raise _Open
    if "$defs" in schema:
        strict["$defs"] = {name: _strict(definition) for name, definition in schema["$defs"].items()}
    return strict


def _closed_object(schema: Mapping[str, Any]) -> dict[str, Any]:
    if "properties" not in schema:
        raise _Open
    properties = {name: _strict(value) for name, value in schema["properties"].items()}
    return {"properties": properties, "required": list(properties), "additionalProperties": False}


def _items(schema: Mapping[str, Any]) -> dict[str, Any]:
    """One schema for all items. The order of types in a tuple can't be said; it is checked when the reply is validated."""
    if "prefixItems" in schema:
        kinds: list[dict[str, Any]] = []
        for item in map(_strict, schema["prefixItems"]):
            if item not in kinds:
                kinds.append(item)
        return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    if not isinstance(schema.get("items"), Mapping):
        raise _Open
    return _strict(schema["items"])
