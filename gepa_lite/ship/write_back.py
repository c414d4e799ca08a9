"""``gl.write_back``: optimized prompts in place of those in the user's own files. A diff of a file shows the prompt's text and nothing else."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gepa_lite.bundle import Prompts, load_prompts
from gepa_lite.errors import UsageError
from gepa_lite.prompt_files.reading import Keys, PromptFiles, prompts_from, read_content
from gepa_lite.ship.atomic import write_atomically

if TYPE_CHECKING:
    from gepa_lite.ship.result import Result


@dataclass(frozen=True, slots=True)
class WrittenBack:
    """What ``write_back`` did. ``print`` it.

    Attributes:
        changed: names of the prompts whose text in the files was replaced.
        files: the files that were replaced.
        diff: of the files, in unified form; "" where nothing changed.
        written: False for ``dry_run``.
    """

    changed: tuple[str, ...]
    files: tuple[str, ...]
    diff: str
    written: bool

    def __str__(self) -> str:
        if not self.changed:
            return "nothing to write: the files hold these prompts already"
        done = "written" if self.written else "to be written"
        return f"{self.diff}{done}: {', '.join(self.changed)}, in {', '.join(self.files)}"


def write_back(
    source: Result[Any] | Prompts | str | os.PathLike[str], path: str | os.PathLike[str], *, keys: Keys | None = None, dry_run: bool = False
) -> WrittenBack:
    """Put shipped prompts back into the files that ``gl.prompts_from`` read them from.

    Only the prompts' texts change: line ends, comments, quotes and layout of the rest stay as they are, letter by letter. Each file is replaced in one move, once all of them are known to be writable.
    Where the run found nothing better, nothing changes.

    Args:
        source: a result, what ``gl.load_prompts`` read, or the path of a bundle.
        path: as ``gl.prompts_from`` took it; further prompts in it stay as they are.
        keys: likewise.
        dry_run: say what would change, and write nothing.

    Raises:
        UsageError: a prompt has no place in the files, or its text there is neither the one that the run started from nor the one to be written: it was changed since. Nothing is written then.

    Example:
        >>> print(gl.write_back(result, "prompts/"))  # doctest: +SKIP
    """
    seeds, texts = _texts(source)
    files = prompts_from(path, keys=keys)
    due = _due(files, seeds, texts)
    before = {file: read_content(file) for file in dict.fromkeys(files.slots[name].file for name in due)}
    after = dict(before)
    for name in due:
        slot = files.slots[name]
        after[slot.file] = slot.replaced(after[slot.file], texts[name])
    if not dry_run:
        for file, content in after.items():
            if read_content(file) != before[file]:
                raise UsageError(f"{file} was changed while it was being written to: run it again.")
            # what a link leads to is replaced, not the link
            write_atomically(file.resolve(), content)
    diff = "".join(_diff(file, before[file], after[file]) for file in after)
    return WrittenBack(tuple(due), tuple(map(str, after)), diff, not dry_run)


def _texts(source: Any) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """The texts that the run started from, and those to be written."""
    if isinstance(source, (str, os.PathLike)):
        source = load_prompts(source)
    if not isinstance(source, Prompts):
        return source.seed_prompts, source.prompts
    modules = source.data["modules"]
    if lacking := [name for name in modules if not isinstance(modules[name].get("seed"), str)]:
        raise UsageError(f"{source.source} does not say what {lacking[0]!r} was before, so nothing tells whether a file was changed since.")
    return {name: module["seed"] for name, module in modules.items()}, source


def _due(files: PromptFiles, seeds: Mapping[str, str], texts: Mapping[str, str]) -> list[str]:
    """The prompts whose text in the files is to be replaced.

    Raises:
        UsageError: one has no place there, or was changed by someone else.
    """
    if lacking := [name for name in texts if name not in files]:
        raise UsageError(
            f"{files.source} has no place for {', '.join(map(repr, lacking))}; it has {', '.join(map(repr, files))}. Give the path and keys that gl.prompts_from took."
        )
    if changed := [name for name in texts if files[name] not in (seeds[name], texts[name])]:
        raise UsageError(
            f"{', '.join(f'{name!r} in {files.slots[name].file}' for name in changed)}: changed since the run started, so nothing was written. "
            "Restore what the run started from, or take the new prompts by hand."
        )
    return [name for name in texts if files[name] != texts[name]]


def _diff(file: Path, before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), str(file), str(file))
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
