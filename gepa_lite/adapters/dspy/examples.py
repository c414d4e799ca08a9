"""dspy's examples as ours: inputs by ``with_inputs``, else by what the program takes. Values stay the objects they are."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from gepa_lite.core.example import Example, make_example
from gepa_lite.data import load_rows
from gepa_lite.errors import UsageError


def dspy_examples(program: Any, source: Any, what: str) -> list[Example]:
    """The examples of a set.

    Args:
        program: a ``dspy.Module``.
        source: ``dspy.Example`` objects, or whatever ``gl.optimize`` takes.
        what: the set's name.

    Raises:
        UsageError: no inputs are declared where the program names none, or they are not the program's.
    """
    required, optional, takes_any = input_names(program)
    rows, declared = _rows(source, what)
    if declared is None:
        if not required and not optional:
            raise UsageError(
                f"{what}: the program's forward takes any input, so the examples must say theirs: dspy.Example(...).with_inputs('question')."
            )
        return [make_example(row, required, optional, what) for row in rows]
    missing = [name for name in required if name not in declared]
    unknown = [name for name in declared if name not in (*required, *optional)] if not takes_any else []
    if missing or unknown:
        problem = (
            f"lack the program's input {missing[0]!r}" if missing else f"declare the input {unknown[0]!r}, which the program does not take"
        )
        raise UsageError(
            f"{what}: the examples {problem}; it takes {', '.join(map(repr, (*required, *optional)))}. Change with_inputs(...) or the field's name."
        )
    return [make_example(row, declared, (), what) for row in rows]


def _rows(source: Any, what: str) -> tuple[list[dict[str, Any]], tuple[str, ...] | None]:
    if isinstance(source, (list, tuple)) and source and all(_is_example(item) for item in source):
        declared = [getattr(item, "_input_keys", None) for item in source]
        for number, keys in enumerate(declared):
            if keys != declared[0]:
                raise UsageError(
                    f"{what}: row {number + 1} declares the inputs {_shown(keys)}, the first row {_shown(declared[0])}: make them agree."
                )
        # not by toDict, which would turn images and pydantic objects into dicts
        rows = load_rows([dict(item.items()) for item in source], what).rows
        names = declared[0]
    else:
        read = load_rows(source, what)
        rows, names = read.rows, read.input_keys
    # in the rows' own order, the same in every process
    return rows, None if names is None else (*[name for name in rows[0] if name in names], *sorted(set(names) - set(rows[0])))


def _is_example(value: Any) -> bool:
    return any(cls.__name__ == "Example" and cls.__module__ == "dspy.primitives.example" for cls in type(value).__mro__)


def _shown(keys: Any) -> str:
    return "(none)" if keys is None else ", ".join(map(repr, sorted(keys)))


def input_names(program: Any) -> tuple[Sequence[str], Sequence[str], bool]:
    """The inputs that a program's ``forward`` must get, those it may get, and whether it takes any others.

    Where it takes ``**kwargs``, they are the inputs of the signature that it was made with, or of its only predictor.
    """
    cls = type(program)
    forward = getattr(cls, "forward", None) or getattr(cls, "aforward", None)
    if forward is None:
        raise UsageError(f"{cls.__name__} has no forward.")
    parameters = list(inspect.signature(forward).parameters.values())[1:]
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    required = [p.name for p in named if p.default is p.empty]
    optional = [p.name for p in named if p.default is not p.empty]
    if takes_any and not required:
        signature = _signature_of(program)
        if signature is not None:
            required = list(signature.input_fields)
    return required, optional, takes_any


def _signature_of(program: Any) -> Any:
    own = vars(program).get("signature")
    if own is not None and hasattr(own, "input_fields"):
        return own
    predictors = program.named_predictors()
    return predictors[0][1].signature if len(predictors) == 1 else None
