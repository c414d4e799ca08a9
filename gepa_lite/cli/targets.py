"""From ``module:name`` on a command line to the object: programs and feedback functions."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gepa_lite.adapters.dspy import is_dspy_module
from gepa_lite.errors import GepaLiteError, UsageError


def import_from(folders: Sequence[Path]) -> None:
    """Let modules of these folders be imported, the first folder's first. For the rest of the process: programs import lazily too."""
    wanted = [str(folder.absolute()) for folder in folders]
    sys.path[:] = [*dict.fromkeys(wanted), *(path for path in sys.path if path not in wanted)]


def load_target(address: str, what: str) -> Any:
    """The object that ``module:name`` names.

    Args:
        address: e.g. ``"triage:Triage"`` or ``"my_package.judges:strict"``; the name may have dots.
        what: ``"program"`` or ``"feedback"``, for the message.

    Raises:
        UsageError: not of this form, no such module or name (with near matches), or the module fails when it is imported.
    """
    module_name, colon, name = address.partition(":")
    if not colon or not module_name or not name or module_name.endswith(".py") or "/" in module_name:
        raise UsageError(f"{what}={address!r}: write module:name, e.g. 'triage:Triage' for the class Triage in triage.py.")
    found: Any = _import(module_name, what, address)
    for part in name.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{what}={address!r}: {_named(found)} has no {part!r}.{_near(part, found)}")
        found = getattr(found, part)
    return found


def load_program(address: str, lm: str | None) -> Any:
    """The program that ``module:name`` names: a class, a function that makes one, or an instance.

    Args:
        address: where it is.
        lm: the model of all modules that name none; None leaves it to the program. Dspy programs and wrapped functions have their own.

    Raises:
        UsageError: as ``load_target``, or what is there makes no program.
    """
    from gepa_lite.adapters.function.wrapped import Wrapped
    from gepa_lite.program.program import Program

    target = load_target(address, "program")
    program = target if isinstance(target, (Program, Wrapped)) or is_dspy_module(target) else _made(target, address)
    if isinstance(program, Wrapped) or is_dspy_module(program):
        if lm is not None:
            own = (
                "a wrapped function asks its own models"
                if isinstance(program, Wrapped)
                else "a dspy program has its LM by dspy.configure(lm=...)"
            )
            raise UsageError(f"--lm is for a gl.Program; {own} in {address.partition(':')[0]}.")
        return program
    if not isinstance(program, Program):
        raise UsageError(
            f"program={address!r} is of type {type(program).__name__}; a gl.Program, a dspy.Module or a gl.wrap(...) is needed: a class, a function that makes one, or an instance."
        )
    return program if lm is None else program.with_lm(lm)


def _made(target: Any, address: str) -> Any:
    if not callable(target):
        return target
    try:
        return target()
    except GepaLiteError:
        raise
    except Exception as error:
        raise UsageError(
            f"program={address!r} can't be called without arguments ({type(error).__name__}: {error}). "
            f"Name a function that makes the program, e.g. 'triage:make', or an instance."
        ) from error


def _import(name: str, what: str, address: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise UsageError(f"{what}={address!r}: {name} imports {error.name}, which is not installed.") from error
        folders = [path for path in sys.path[:2] if path]
        here = sorted({file.stem for folder in folders for file in Path(folder).glob("*.py")})
        near = difflib.get_close_matches(name, here, n=3)
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise UsageError(
            f"{what}={address!r}: there is no module {error.name!r} in {' or '.join(folders)} or among what is installed.{hint}"
        ) from error
    except GepaLiteError:
        raise
    except Exception as error:
        raise UsageError(f"{what}={address!r}: importing {name} failed: {type(error).__name__}: {error}") from error


def _named(value: Any) -> str:
    return str(getattr(value, "__name__", type(value).__name__))


def _near(name: str, owner: Any) -> str:
    public = [known for known in dir(owner) if not known.startswith("_")]
    near = difflib.get_close_matches(name, public, n=3)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
