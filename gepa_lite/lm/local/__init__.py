"""Language models on this machine: llama.cpp in a child process, a catalogue of models, and how their files get here."""

from gepa_lite.lm.local.cache import FetchError
from gepa_lite.lm.local.lm import LocalLM, open_local

__all__ = ["FetchError", "LocalLM", "open_local"]
