"""What a function is: a hash of its code, so that a changed one is told from the one that ran before."""

from __future__ import annotations

import functools
import inspect
from types import CodeType, FunctionType, MethodType
from typing import Any

from gepa_lite.core.ids import content_hash

_PLAIN = (str, bytes, int, float, bool, type(None))
_DEEPEST = 6


def code_id(function: Any) -> str:
    """A hash of a function's code and of the fixed values that it is bound to, the same in every process.

    Counted are its source (its byte code where there is none, and for a lambda both); its default arguments and closure values, and the arguments of a
    ``functools.partial``; of a callable object its class and its attributes, and of a method the public ones of its owner. Of such values the
    texts, numbers, booleans, tuples of these and functions count by content, all others by their type: a function that collects into a list stays the same one.

    >>> scale = [lambda x, by=by: x * by for by in (2, 3)]
    >>> code_id(scale[0]) == code_id(scale[1])
    False
    """
    return content_hash(_described(function, _DEEPEST))


def _described(thing: Any, depth: int) -> Any:
    if isinstance(thing, _PLAIN):
        return [type(thing).__name__, thing]
    if depth == 0 or isinstance(thing, type):
        return getattr(thing, "__qualname__", type(thing).__qualname__)
    if isinstance(thing, tuple):
        return ["tuple", [_described(part, depth - 1) for part in thing]]
    if isinstance(thing, functools.partial):
        arguments = {name: _described(value, depth - 1) for name, value in thing.keywords.items()}
        return ["partial", _described(thing.func, depth - 1), [_described(value, depth - 1) for value in thing.args], arguments]
    if isinstance(thing, MethodType):
        public = {name: value for name, value in _attributes(thing.__self__).items() if not name.startswith("_")}
        return ["method", _described(thing.__func__, depth - 1), _each(public, depth)]
    if isinstance(thing, FunctionType):
        return _function(thing, depth)
    if not callable(thing):
        return type(thing).__qualname__
    if (wrapped := getattr(thing, "__wrapped__", None)) is not None:
        return _class(wrapped) if isinstance(wrapped, type) else _described(wrapped, depth - 1)
    return ["object", type(thing).__qualname__, _described(type(thing).__call__, depth - 1), _each(_attributes(thing), depth)]


def _function(function: FunctionType, depth: int) -> Any:
    bound = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    bound += [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
    try:
        # by its code object: of a decorated function the wrapper counts too, not only what it wraps
        code: Any = inspect.getsource(function.__code__)
    except (OSError, TypeError):
        code = _byte_code(function.__code__)
    if function.__name__ == "<lambda>":
        # the source is its whole line, which may hold several
        code = [code, _byte_code(function.__code__)]
    return ["function", function.__qualname__, code, [_described(value, depth - 1) for value in bound if value is not function]]


def _class(kind: type) -> str:
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        return kind.__qualname__


def _filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _byte_code(code: CodeType) -> list[Any]:
    return [code.co_code, list(code.co_names), [_constant(value) for value in code.co_consts]]


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _byte_code(value)
    if isinstance(value, frozenset):
        return sorted(map(repr, value))
    return repr(value)


def _attributes(owner: Any) -> dict[str, Any]:
    return dict(getattr(owner, "__dict__", {}))


def _each(values: dict[str, Any], depth: int) -> dict[str, Any]:
    return {name: _described(value, depth - 1) for name, value in values.items()}
