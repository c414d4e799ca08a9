"""Content hashes. An id says what a thing is, never where it stood in a list (design decision 3)."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import math
from collections.abc import Mapping, Sequence, Set
from typing import Any

_DIGEST_BYTES = 10
_canonical = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode
_PLAIN = frozenset((str, int, bool, type(None)))


def jsonable(value: Any) -> Any:
    """Turn a value into plain JSON types, the same way in every process and under every hash seed.

    Dataclasses, pydantic models, mappings, sequences, sets (sorted), dates, numpy and enum scalars are taken; a value that has no plain form is
    represented by its type's name and ``str`` of it. Non-finite floats become the strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    # exact types first: nearly all there is, at a fraction of the cost of asking an abstract class
    if kind is dict:
        return {key if type(key) is str else str(key): item if type(item) in _PLAIN else jsonable(item) for key, item in value.items()}
    if kind is list or kind is tuple:
        return [item if type(item) in _PLAIN else jsonable(item) for item in value]
    return _jsonable_instance(value)


def _jsonable_instance(value: Any) -> Any:
    """Floats, and instances of subclasses and abstract classes."""
    if isinstance(value, enum.Enum):
        return jsonable(value.value)
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, Mapping):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, Set):
        return sorted((jsonable(v) for v in value), key=canonical_json)
    if isinstance(value, Sequence):
        return [jsonable(v) for v in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: jsonable(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return _jsonable_object(value)


def _jsonable_object(value: Any) -> Any:
    """Objects known by a method of theirs: pydantic models, numpy scalars and arrays, dates, dspy predictions; else ``Type: str(value)``."""
    for method in ("model_dump", "tolist", "isoformat", "toDict"):
        dump = getattr(value, method, None)
        if callable(dump) and not isinstance(value, type):
            return jsonable(dump())
    return f"{type(value).__name__}: {value}"


def canonical_json(value: Any) -> str:
    """Compact JSON with sorted keys: equal values give equal text."""
    return _canonical(jsonable(value))


def content_hash(value: Any) -> str:
    """A 20-digit hexadecimal id of a value's content (BLAKE2b, 80 bits).

    >>> content_hash({"a": 1, "b": [2.0]}) == content_hash({"b": [2.0], "a": 1})
    True
    """
    return text_hash(canonical_json(value))


def text_hash(text: str) -> str:
    """A 20-digit hexadecimal id of a text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()
