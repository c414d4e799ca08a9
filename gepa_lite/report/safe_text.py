"""Texts that models and users wrote, made fit to be shown. Escaping is the templates' work; this is what escaping does not do."""

from __future__ import annotations

import json
import re
from typing import Any

from gepa_lite.guard.detect import without_secrets

# they turn the letters around them: a prompt must not look like another one
_BIDI = re.compile("[\u202a-\u202e\u2066-\u2069]")
_SECRET_CHARS = 400
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff\ud800-\udfff]")


def clean(text: str) -> str:
    r"""A text whose control characters, direction overrides and lone surrogates are spelled out; line ends and tabs stay.

    >>> clean("a\x00b\u202ec\r\n")
    'a[U+0000]b[U+202E]c\n'
    """
    text = text.replace("\r\n", "\n")
    return _BIDI.sub(_spelled, _CONTROL.sub(_spelled, text))


def _spelled(match: re.Match[str]) -> str:
    return f"[U+{ord(match.group()):04X}]"


def cut(text: str, most: int) -> str:
    """A clean text of at most ``most`` characters, secrets struck out, and a note of how many are left out.

    >>> cut("abcdef", 4)
    'abcd… (2 more characters)'
    """
    # a secret that the cut would go through is found too
    kept = clean(without_secrets(text[: most + _SECRET_CHARS])[:most])
    return kept if len(text) <= most else f"{kept}… ({len(text) - most:,} more characters)"


def shown(value: Any, most: int) -> str:
    """A value of JSON types as a person reads it: a text as it is, the rest as JSON."""
    if isinstance(value, str):
        return cut(value, most)
    try:
        return cut(json.dumps(value, ensure_ascii=False, indent=1), most)
    except (TypeError, ValueError):
        return cut(repr(value), most)
