"""Copies of a dspy program: deep, but for what can't or must not be copied, and with other LMs in the places of its own."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from gepa_lite.adapters.dspy import is_dspy_lm, is_dspy_module

_MOST = 20_000
"""Objects that are looked at when LMs and predictors are searched for; larger programs hold data, not LMs."""

# they hold numbers by the million, and no LM
_DATA = frozenset({"numpy", "torch", "pandas", "pyarrow", "scipy", "faiss", "jax", "tensorflow"})


def reachable(root: Any) -> Iterator[tuple[str, Any]]:
    """The modules, LMs and other objects that a program holds, each once, with a path; attributes before the items of what they hold."""
    waiting: list[tuple[str, Any]] = [("", root)]
    seen: set[int] = set()
    while waiting and len(seen) < _MOST:
        path, value = waiting.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        if not _holds_nothing(value):
            yield path, value
            waiting += [] if is_dspy_lm(value) else list(_held(path, value))


def _holds_nothing(value: Any) -> bool:
    atoms = (str, bytes, int, float, complex, bool, type(None), type, ModuleType)
    return isinstance(value, atoms) or type(value).__module__.partition(".")[0] in _DATA


def _held(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f"{path}[{key!r}]", item) for key, item in value.items())
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from ((f"{path}[{index}]", item) for index, item in enumerate(value))
    elif not callable(value) or is_dspy_module(value) or type(value).__name__ == "Tool":
        dot = "." if path else ""
        yield from ((f"{path}{dot}{name}", item) for name, item in getattr(value, "__dict__", {}).items())


def clone(program: Any, lms: Mapping[int, Any]) -> Any:
    """A copy of a program that shares nothing with it that a run of it could change, as far as Python can copy it.

    What can't be copied (locks, connections, sessions) is shared. Callbacks and LMs are never copied: callbacks are kept, and each LM is replaced.

    Args:
        program: a ``dspy.Module``; it is not changed.
        lms: what takes the place of each LM, by the ``id`` of the LM.
    """
    memo: dict[int, Any] = dict(lms)
    try:
        made = copy.deepcopy(program, memo)
    except Exception:  # whatever a user's object raises when it is copied
        memo = dict(lms)
        made = _part_by_part(program, memo)
    for _, value in reachable(program):
        if is_dspy_module(value) and id(value) in memo:
            memo[id(value)].callbacks = list(getattr(value, "callbacks", []))
            memo[id(value)].history = []
    return made


def _part_by_part(value: Any, memo: dict[int, Any]) -> Any:
    if id(value) in memo:
        return memo[id(value)]
    if is_dspy_module(value):
        cls: Any = type(value)
        made = cls.__new__(cls)
        memo[id(value)] = made
        vars(made).update({name: _part_by_part(item, memo) for name, item in vars(value).items()})
        return made
    if type(value) in (list, tuple):
        return type(value)(_part_by_part(item, memo) for item in value)
    if type(value) is dict:
        return {key: _part_by_part(item, memo) for key, item in value.items()}
    try:
        return copy.deepcopy(value, dict(memo))
    except Exception:
        return value
