"""Several starts of one run: ``gl.optimize([a, b], ...)`` and ``Search(start=bundle)``, checked before anything is paid for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gepa_lite.adapters.adapt import adapt
from gepa_lite.bundle import Prompts, load_prompts
from gepa_lite.core.candidate import Start
from gepa_lite.core.contract import Contracts
from gepa_lite.errors import UsageError
from gepa_lite.program.optimizable import Optimizable, check_parts

PromptSet = Mapping[str, str] | str | os.PathLike[str]
"""Texts by module path, of which any may be missing; what ``gl.load_prompts`` or ``gl.prompts_from`` read; or the path of a bundle."""

_ORIGIN = ("program", "candidate", "verdict", "date", "made_by")


def first_of(program: Any) -> tuple[Any, Sequence[Any]]:
    """The program to compare with, and the further starts.

    Raises:
        UsageError: an empty list.
    """
    if not isinstance(program, (list, tuple)):
        return program, ()
    if not program:
        raise UsageError("program is an empty list; a program is needed, and beside it programs or prompts to start from.")
    return program[0], program[1:]


def read_starts(program: Optimizable, others: Sequence[Any], bundle: Any, contracts: Contracts) -> tuple[tuple[Start, ...], list[str]]:
    """The starts beside a program's own prompts, and what a person should know of them.

    Args:
        program: the first one.
        others: programs that differ from it in their prompts alone, or prompt sets.
        bundle: of ``Search(start=)``: a path or what ``gl.load_prompts`` read; None for none.
        contracts: of the run.

    Raises:
        UsageError: one does not fit the program, breaks the contract, or is the same as another.
    """
    starts = [_start(program, other, f"start {place}") for place, other in enumerate(others, 1)]
    known = {"the first program": program.prompts}
    for start in starts:
        twin = next((name for name, texts in known.items() if dict(start.texts) == dict(texts)), None)
        if twin is not None:
            raise UsageError(f"{start.name} has the same prompts as {twin}: leave it out, or change its prompts.")
        known[start.name] = dict(start.texts)
    notices = []
    if bundle is not None:
        shipped = _start(program, load_prompts(bundle) if not isinstance(bundle, Prompts) else bundle, "the bundle")
        if any(dict(shipped.texts) == dict(texts) for texts in known.values()):
            notices.append(f"Search(start=): the prompts of {shipped.name} are those of the program already, so it is no start of its own.")
        else:
            starts.append(shipped)
    for start in starts:
        _hold(start, contracts)
    return tuple(starts), notices


def _start(program: Optimizable, other: Any, name: str) -> Start:
    if isinstance(other, (str, os.PathLike)):
        other = load_prompts(other)
    if isinstance(other, Prompts):
        other.check_modules({path: part.fingerprint for path, part in program.parts.items()})
        origin = {key: other.data[key] for key in _ORIGIN if key in other.data}
        return Start(Path(other.source).name, {path: other[path] for path in program.parts}, origin)
    if isinstance(other, Mapping):
        check_parts(program, other, name)
        return Start(name, {**program.prompts, **other})
    second = adapt(other)
    _check_same_program(program, second, name)
    return Start(name, second.prompts)


def _check_same_program(first: Optimizable, second: Optimizable, name: str) -> None:
    """Refuse a program that differs in more than its prompts: they would be run by the first one's code and models."""
    own, other = first.parts, second.parts
    problems = [f"it has no module {path!r}" for path in own if path not in other]
    problems += [f"it has a module {path!r}, which the first has not" for path in other if path not in own]
    problems += [
        f"the signature of {path!r} is {other[path].signature}, and the first's {part.signature}"
        for path, part in own.items()
        if path in other and other[path].fingerprint != part.fingerprint
    ]
    if not problems and first.fingerprint != second.fingerprint:
        problems.append(f"its code or settings differ from those of {first.name}")
    if not problems and _models(first) != _models(second):
        problems.append(f"it asks {_models(second)}, and the first {_models(first)}")
    if problems:
        raise UsageError(
            f"{name} ({second.name}) is not the first program with other prompts: {'; '.join(problems)}. Optimize it in a run of its own."
        )


def _models(program: Optimizable) -> dict[str, str]:
    return {path: lm.describe().name for path, lm in program.models.items()}


def _hold(start: Start, contracts: Contracts) -> None:
    broken = [f"{path}: {breach.words}" for path, text in start.texts.items() for breach in contracts.of(path).breaches(text)]
    broken += [breach.words for breach in contracts.program_breaches(start.texts)]
    if broken:
        raise UsageError(
            f"the prompts of {start.name} break the contract that holds for the first program: {'; '.join(broken)}. Change them or the contract."
        )
