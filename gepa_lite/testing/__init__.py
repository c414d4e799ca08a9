"""Test doubles that are public: scripted models, a local OpenAI-like server and simulated landscapes, for our tests and for yours."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gepa_lite.testing.landscape_catalogue import HELD_BACK, LANDSCAPES, TUNING, landscape
    from gepa_lite.testing.landscape_reflector import Reflector
    from gepa_lite.testing.landscape_search import LANDSCAPE_TEMPLATE, LandscapeRun, run_landscape
    from gepa_lite.testing.landscapes import Landscape, LandscapeSpec
    from gepa_lite.testing.openai_server import OpenAIServer, Reply, fault
    from gepa_lite.testing.scripted import ScriptedLM, count_words

__all__ = [
    "HELD_BACK",
    "LANDSCAPES",
    "LANDSCAPE_TEMPLATE",
    "TUNING",
    "Landscape",
    "LandscapeRun",
    "LandscapeSpec",
    "OpenAIServer",
    "Reflector",
    "Reply",
    "ScriptedLM",
    "count_words",
    "fault",
    "landscape",
    "run_landscape",
]

_HOMES = {
    "HELD_BACK": "gepa_lite.testing.landscape_catalogue",
    "LANDSCAPES": "gepa_lite.testing.landscape_catalogue",
    "LANDSCAPE_TEMPLATE": "gepa_lite.testing.landscape_search",
    "TUNING": "gepa_lite.testing.landscape_catalogue",
    "Landscape": "gepa_lite.testing.landscapes",
    "LandscapeRun": "gepa_lite.testing.landscape_search",
    "LandscapeSpec": "gepa_lite.testing.landscapes",
    "OpenAIServer": "gepa_lite.testing.openai_server",
    "Reflector": "gepa_lite.testing.landscape_reflector",
    "Reply": "gepa_lite.testing.openai_server",
    "ScriptedLM": "gepa_lite.testing.scripted",
    "count_words": "gepa_lite.testing.scripted",
    "fault": "gepa_lite.testing.openai_server",
    "landscape": "gepa_lite.testing.landscape_catalogue",
    "run_landscape": "gepa_lite.testing.landscape_search",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
