"""From whatever a user calls a program to what a run needs. No foreign library is imported to tell them apart."""

from __future__ import annotations

from typing import Any

from gepa_lite.adapters.native import NativeProgram
from gepa_lite.errors import UsageError
from gepa_lite.program.optimizable import Optimizable
from gepa_lite.program.program import Program


def adapt(program: Any) -> Optimizable:
    """The program as a run takes it.

    Args:
        program: a ``gl.Program``, or one that is adapted already.

    Raises:
        UsageError: it is none of these; the message says what came.
    """
    if isinstance(program, Program):
        return NativeProgram(program)
    if isinstance(program, NativeProgram):
        return program
    kind = f"the class {program.__name__}; make an instance" if isinstance(program, type) else f"of type {type(program).__name__}"
    raise UsageError(f"program is {kind}; a gl.Program is needed.")
