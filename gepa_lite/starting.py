"""Several starts of one run: ``gl.optimize([a, b], ...)`` and ``Search(start=...)``, read and checked before anything is paid for."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gepa_lite.adapters.adapt import adapt
from gepa_lite.bundle import REGISTRY_FILE, Prompts, load_prompts
from gepa_lite.core.candidate import Start
from gepa_lite.core.contract import Contracts
from gepa_lite.errors import UsageError
from gepa_lite.exports.folder import BUNDLE, import_prompts
from gepa_lite.insight.stored import read_run
from gepa_lite.program.optimizable import Optimizable, check_parts
from gepa_lite.prompt_files.reading import TEXT_ENDINGS, YAML_ENDINGS, PromptFiles, prompts_from
from gepa_lite.ship.bundle import lineage_of
from gepa_lite.store.folders import find_run
from gepa_lite.store.schema import FILE_NAME

PromptSet = Mapping[str, str] | str | os.PathLike[str]
"""Texts by module path, of which any may be missing; what ``gl.load_prompts`` or ``gl.prompts_from`` read; or a path that ``read_start`` takes."""

_ORIGIN = ("program", "candidate", "verdict", "date", "made_by")
_TAKEN = (
    "a bundle (*.prompts.json), a registry's folder, a run's name or folder, a folder that `gepa-lite export --format markdown` wrote, or prompt files: "
    f"one that ends in {', '.join((*TEXT_ENDINGS, *YAML_ENDINGS))}, or a folder of such"
)


def read_start(path: str | os.PathLike[str]) -> Start | Prompts | PromptFiles:
    """What lies at a path, as prompts to start from.

    Args:
        path: a bundle; a registry's folder: its current version; a run's folder, ``run.db`` or name: its winner, or the best so far, whatever the test set said of it; a folder that
            ``gl.export(..., "markdown", ...)`` wrote, edited or not; or a prompt file or a folder of them, as ``gl.prompts_from`` reads them.

    Returns:
        Prompts with signatures to check where they are known, else texts by module path.

    Raises:
        UsageError: it is none of these, or can't be read; names what was found and what is taken.
    """
    place = Path(os.fspath(path)).expanduser()
    if not place.exists():
        return _winner_of(_run_named(os.fspath(path)))
    if place.is_dir():
        return _read_folder(place)
    if place.name == FILE_NAME:
        return _winner_of(place.parent)
    if place.suffix.lower() in (*TEXT_ENDINGS, *YAML_ENDINGS):
        return prompts_from(place)
    if place.suffix.lower() == ".json":
        return load_prompts(place)
    raise UsageError(
        f"{place} is a file that ends in {place.suffix or 'nothing'}: no prompts to start from are read from it. Give {_TAKEN}."
    )


def _run_named(name: str) -> Path:
    if Path(name).suffix.lower() in (".json", *TEXT_ENDINGS, *YAML_ENDINGS):
        raise UsageError(f"{name} can't be read: there is no such file. Give {_TAKEN}.")
    try:
        return find_run(name)
    except UsageError as error:
        raise UsageError(f"{name} can't be read: there is no such file or folder, and no such run ({error}) Give {_TAKEN}.") from None


def _read_folder(folder: Path) -> Start | Prompts | PromptFiles:
    if (folder / FILE_NAME).is_file():
        return _winner_of(folder)
    if (folder / REGISTRY_FILE).is_file():
        return load_prompts(folder)
    if (folder / BUNDLE).is_file():
        return import_prompts(folder)
    names = sorted(file.name for file in folder.iterdir())
    bundles = [name for name in names if name.endswith(".prompts.json")]
    if bundles:
        raise UsageError(f"{folder} is a folder with bundles and no registry: name one of them, {', '.join(bundles[:5])}.")
    try:
        return prompts_from(folder)
    except UsageError as error:
        listed = f"it holds {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}" if names else "it is empty"
        raise UsageError(f"no prompts to start from are in the folder {folder}: {listed} ({error}) Give {_TAKEN}.") from None


def _winner_of(folder: Path) -> Start:
    stored = read_run(folder)
    result = stored.result()
    index = result.winner_index
    member = result.candidates[index]
    candidate = {"id": member.candidate.id, "is_seed": index == 0, "lineage": lineage_of(result, index)}
    origin = {"run": folder.name, "candidate": candidate, "verdict": result.verdict, "date": stored.written.date().isoformat()}
    return Start(f"run {folder.name}, #{index}", result.winner_prompts, origin)


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


def read_starts(program: Optimizable, others: Sequence[Any], start: Any, contracts: Contracts) -> tuple[tuple[Start, ...], list[str]]:
    """The starts beside a program's own prompts, and what a person should know of them.

    Args:
        program: the first one.
        others: programs that differ from it in their prompts alone, or prompt sets.
        start: of ``Search(start=)``; None for none.
        contracts: of the run.

    Raises:
        UsageError: one does not fit the program, breaks the contract, or is the same as another.
    """
    starts = [_start(program, other, f"start {place}") for place, other in enumerate(others, 1)]
    known = {"the first program": program.prompts}
    for other in starts:
        twin = next((name for name, texts in known.items() if dict(other.texts) == dict(texts)), None)
        if twin is not None:
            raise UsageError(f"{other.name} has the same prompts as {twin}: leave it out, or change its prompts.")
        known[other.name] = dict(other.texts)
    notices = []
    if start is not None:
        shipped = _start(program, start, "Search(start=)")
        if any(dict(shipped.texts) == dict(texts) for texts in known.values()):
            notices.append(f"Search(start=): the prompts of {shipped.name} are those of the program already, so it is no start of its own.")
        else:
            starts.append(shipped)
    for other in starts:
        _hold(other, contracts)
    return _told_apart(starts), notices


def _told_apart(starts: Sequence[Start]) -> tuple[Start, ...]:
    """The starts with a number behind names that several have, such as those of files in different folders."""
    names = Counter(start.name for start in starts)
    return tuple(
        replace(start, name=f"{start.name} (start {place})") if names[start.name] > 1 else start for place, start in enumerate(starts, 1)
    )


def _start(program: Optimizable, other: Any, name: str) -> Start:
    if isinstance(other, (str, os.PathLike)):
        other = read_start(other)
    if isinstance(other, Start):
        check_parts(program, other.texts, other.name)
        return Start(other.name, {**program.prompts, **other.texts}, other.origin)
    if isinstance(other, PromptFiles):
        check_parts(program, other, str(other.source))
        return Start(other.source.name, {**program.prompts, **other})
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
