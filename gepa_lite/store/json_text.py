"""JSON types to compact text and back, fast: pydantic-core does nearly all of it, and the standard library what it can't.

That is: texts with lone surrogates, as cut-off replies hold them, and nesting beyond a few hundred levels.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from pydantic_core import from_json as _parse
from pydantic_core import to_json as _write

from gepa_lite.errors import StoreError

_encode_plain = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_encode_ascii = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number that is ever written")


_decode_slowly = json.JSONDecoder(parse_constant=_no_constant).decode


def to_json(value: Any) -> str:
    """Compact JSON of JSON types, fit for a UTF-8 column whatever the texts hold. Floats are finite: who calls has looked."""
    try:
        return _write(value).decode()
    except ValueError:
        # a lone surrogate, or nested too deeply for it
        pass
    text = _encode_plain(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return _encode_ascii(value)
    return text


def read_json(text: str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return _parse(text, allow_inf_nan=False)
    except ValueError:
        # an escaped lone surrogate or deep nesting, which it reads too, or damage, which it names better
        return _decode_slowly(text)


def decode_value(body: str, what: str) -> Any:
    """The value of a JSON text in the store.

    Raises:
        StoreError: it is not JSON.
    """
    try:
        return read_json(body)
    except ValueError as error:
        raise StoreError(f"{what} is damaged: {error}. Restore the run's folder from a copy, or start a new run.") from error
