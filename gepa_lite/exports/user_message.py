"""The user message of a ``gl.Program`` module, by the standard library alone: its source goes into ``--format py`` as it stands, so it imports nothing of ours.

It says the same as ``program/templates/user.j2`` for values of JSON types; a test holds the two together.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def user_message(inputs: Mapping[str, Any]) -> str:
    """The inputs as the model saw them when the prompts were made: short ones inline, others between tags that their text does not hold.

    Args:
        inputs: texts and other values of JSON types, by name, in order.
    """
    return "\n".join(_shown(name, value) for name, value in inputs.items())


def _shown(name: str, value: Any) -> str:
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    if len(text) <= 200 and text == text.strip() and len(text.splitlines()) == 1:
        return f"{name}: {text}"
    tag, number = name, 1
    while f"<{tag}>" in text or f"</{tag}>" in text:
        number += 1
        tag = f"{name}-{number}"
    return f"<{tag}>\n{text}\n</{tag}>"
