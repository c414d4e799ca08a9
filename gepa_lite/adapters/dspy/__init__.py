"""dspy programs, without a wrapper. dspy is imported only where a user's own program has imported it already."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def load_dspy() -> Any:
    """The dspy package."""
    # by name, so that type checkers do not follow into it
    return import_module("dspy")


def is_dspy_module(value: Any) -> bool:
    """Whether a value is an instance of ``dspy.Module``, told by the names of its classes.

    >>> is_dspy_module(3)
    False
    """
    return any(cls.__name__ == "Module" and cls.__module__ == "dspy.primitives.module" for cls in type(value).__mro__)


def is_dspy_lm(value: Any) -> bool:
    """Whether a value is an instance of ``dspy.BaseLM``, told by the names of its classes."""
    return any(cls.__name__ == "BaseLM" and cls.__module__ == "dspy.clients.base_lm" for cls in type(value).__mro__)
