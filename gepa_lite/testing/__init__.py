"""Test doubles that are public: scripted models and a local OpenAI-like server, for our tests and for yours."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gepa_lite.testing.openai_server import OpenAIServer, Reply, fault
    from gepa_lite.testing.scripted import ScriptedLM, count_words

__all__ = ["OpenAIServer", "Reply", "ScriptedLM", "count_words", "fault"]

_HOMES = {
    "OpenAIServer": "gepa_lite.testing.openai_server",
    "Reply": "gepa_lite.testing.openai_server",
    "ScriptedLM": "gepa_lite.testing.scripted",
    "count_words": "gepa_lite.testing.scripted",
    "fault": "gepa_lite.testing.openai_server",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
