"""From whatever a user calls a program to what a run needs. No foreign library is imported to tell them apart."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from gepa_lite.adapters.dspy import is_dspy_module
from gepa_lite.adapters.native import NativeProgram
from gepa_lite.bundle import Prompts, load_prompts
from gepa_lite.errors import UsageError
from gepa_lite.program.optimizable import Optimizable
from gepa_lite.program.program import Program

P = TypeVar("P")


def adapt(program: Any) -> Optimizable:
    """The program as a run takes it.

    Args:
        program: a ``gl.Program``, a ``dspy.Module``, or one that is adapted already.

    Raises:
        UsageError: it is none of these; the message says what came.
    """
    if isinstance(program, Program):
        return NativeProgram(program)
    if is_dspy_module(program):
        from gepa_lite.adapters.dspy.program import DspyProgram

        return DspyProgram(program)
    if _is_adapted(program):
        return program  # type: ignore[no-any-return]
    kind = f"the class {program.__name__}; make an instance" if isinstance(program, type) else f"of type {type(program).__name__}"
    raise UsageError(f"program is {kind}; a gl.Program, a dspy.Module or a gl.wrap(fn, prompts=...) is needed.")


def apply_prompts(program: P, prompts: Prompts | str | os.PathLike[str] | Mapping[str, str]) -> P:
    """A program with the prompts of a bundle, of the type that it is: a dspy program stays one. The program itself is not changed.

    Args:
        program: a ``gl.Program``, a ``dspy.Module``, or one that is adapted already, e.g. ``gl.DspyProgram(program, fields=True)``.
        prompts: what ``gl.load_prompts`` read, or the path of a bundle: then the modules and their signatures must be the bundle's; or texts by module path, of which any may be missing.

    Raises:
        UsageError: the bundle does not fit the program; the message names the difference.

    Example:
        >>> import gepa_lite as gl
        >>> class Greet(gl.Program):
        ...     hello = gl.Module("name -> greeting", "Greet the person.")
        ...     def forward(self, name):
        ...         return self.hello(name=name)
        >>> apply_prompts(Greet(lm=len), {"hello": "Greet the person warmly."}).prompts
        {'hello': 'Greet the person warmly.'}
    """
    adapted = adapt(program)
    if isinstance(prompts, (str, os.PathLike)):
        prompts = load_prompts(prompts)
    if isinstance(prompts, Prompts):
        prompts.check_modules({path: part.fingerprint for path, part in adapted.parts.items()})
    return cast("P", adapted.with_prompts(prompts).deliverable)


def _is_adapted(program: Any) -> bool:
    """By what a run needs, so that adapters of other packages fit too."""
    return not isinstance(program, type) and all(hasattr(type(program), name) for name in ("parts", "deliverable", "judged_by", "sendable"))
