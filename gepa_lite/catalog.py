"""Finds ready-made programs and feedback functions: ours, and those that other packages register as entry points."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from importlib.metadata import entry_points
from typing import Any, Literal

from gepa_lite.errors import UsageError

Kind = Literal["programs", "feedback"]


def names(kind: Kind) -> list[str]:
    """The modules of ``gepa_lite.programs`` or ``gepa_lite.feedback``, and the names that entry points of the group ``gepa_lite.<kind>`` register."""
    package = importlib.import_module(f"gepa_lite.{kind}")
    ours = {module.name for module in pkgutil.iter_modules(package.__path__)}
    return sorted(ours | {point.name for point in entry_points(group=f"gepa_lite.{kind}")})


def load(kind: Kind, name: str) -> Any:
    """A ready-made thing by ``"module:attribute"`` of ours (``"match:exact_match"``), or by the name of an entry point.

    Raises:
        UsageError: there is none of that name; near matches are named.
    """
    for point in entry_points(group=f"gepa_lite.{kind}"):
        if point.name == name:
            return point.load()
    module, _, attribute = name.partition(":")
    known = names(kind)
    if module not in known or not attribute:
        near = difflib.get_close_matches(module, known, n=2)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise UsageError(f"no ready-made {kind} {name!r}: give 'module:name'; the modules are {', '.join(known)}.{hint}")
    found = getattr(importlib.import_module(f"gepa_lite.{kind}.{module}"), attribute, None)
    if found is None:
        raise UsageError(f"gepa_lite.{kind}.{module} has no {attribute!r}.")
    return found
