"""``gl.export``: shipped prompts in another tool's form, verified before anything is put in place."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gepa_lite.bundle import Prompts, load_prompts
from gepa_lite.core.example import Example
from gepa_lite.core.rollout import Rollout
from gepa_lite.errors import UsageError
from gepa_lite.exports.formats import FORMATS, Format
from gepa_lite.exports.live import Live, score_live
from gepa_lite.exports.source import Reading, Source
from gepa_lite.exports.verify import Verified, recorded, verify
from gepa_lite.ship.bundle import bundle_data
from gepa_lite.ship.result import Result

EXAMPLES = 10
"""Recorded examples that an export is verified on where nothing else is said."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What ``export`` did.

    Attributes:
        format: its name.
        path: what was written.
        verified: what was held against the run; None where there was no run, so nothing is known but that the texts were read back equal.
        live: scores outside beside those inside; None without ``live``.
    """

    format: str
    path: str
    verified: Verified | None = None
    live: Live | None = None

    def __str__(self) -> str:
        held = (
            "not verified: there is no run to hold it against; the texts were read back equal"
            if self.verified is None
            else str(self.verified)
        )
        return "\n".join([f"{self.format}: {self.path}", held, *([] if self.live is None else [str(self.live)])])


@dataclass(frozen=True, slots=True)
class _Check:
    """What is checked before the export is put in place."""

    cases: list[tuple[Example, Rollout]] = field(default_factory=list)
    live: bool = False
    feedback: Callable[..., Any] | None = None


def export(
    source: Result[Any] | Prompts | str | os.PathLike[str],
    format: str,  # noqa: A002 - what a reader looks for
    path: str | os.PathLike[str],
    *,
    program: Any = None,
    run: str | os.PathLike[str] | None = None,
    verify_on: int | None = None,
    live: bool = False,
    feedback: Callable[..., Any] | None = None,
) -> Exported:
    """Write shipped prompts in another form, once it is known that it sends what was sent inside the run.

    A result is verified by its own run: what was written is read back by the tool it is for, and on recorded examples its messages, and those of the program with the texts that came back, must be
    byte-equal to those inside. A difference is shown as a diff, and nothing is left in place.

    Args:
        source: a result, what ``gl.load_prompts`` read, or the path of a bundle.
        format: ``"markdown"``, ``"py"``, ``"messages"``, ``"langchain"``, ``"dspy"`` or ``"mlflow"``; see ``docs/export.md``.
        path: a file, or a folder for ``markdown`` and ``langchain``; replaced where it exists. For ``mlflow`` its tracking URI.
        program: the pipeline that will use the prompts; a result has its own. A changed pipeline shows here.
        run: the folder of the run that a bundle is of; with it the bundle is verified too.
        verify_on: recorded examples to verify on, 10 by default; 0 verifies nothing.
        live: also call the models: the scores of the program with the exported prompts on these examples must not be below those inside by more than chance.
        feedback: for ``live``: the feedback function; None for the program's own.

    Returns:
        What was written and what was verified.

    Raises:
        UnfaithfulExportError: what would be sent differs from what was sent inside.
        UsageError: an argument is wrong, a library is not installed, or ``live`` scores are lower.

    Example:
        >>> gl.export(result, "py", "triage_prompts.py")  # doctest: +SKIP
        >>> gl.export("triage.prompts.json", "markdown", "prompts/", run="gepa_runs/triage-1")  # doctest: +SKIP
    """
    if format not in FORMATS:
        raise UsageError(f"format={format!r}: one of {', '.join(map(repr, FORMATS))} is needed.")
    if verify_on is not None and verify_on < 0:
        raise UsageError(f"verify_on={verify_on}: 0 or more recorded examples are needed.")
    what = _source(source, program, run)
    if what.code and not FORMATS[format].code:
        carry = " or ".join(repr(name) for name, each in FORMATS.items() if each.code)
        raise UsageError(
            f"{next(iter(what.code))} is code, not a prompt, and {format!r} holds prompts alone: use {carry}, or the bundle as it is."
        )
    asked = verify_on if verify_on is not None else EXAMPLES if what.run is not None else 0
    if live and (what.program is None or not asked):
        raise UsageError("live=True needs the program and recorded examples to run it on: give program= and run=.")
    check = _Check(recorded(what, asked) if asked else [], live, feedback)
    chosen, target = FORMATS[format], os.fspath(path)
    verified, scored = _in_place(chosen, what, target, check) if chosen.in_place else _moved(chosen, what, Path(target), check)
    return Exported(format, target, verified, scored)


def _source(source: Any, program: Any, run: Any) -> Source:
    if isinstance(source, Result):
        return Source(
            Prompts(bundle_data(source), "the result"),
            source.source if program is None else program,
            source.run if run is None else Path(run),
        )
    prompts = source if isinstance(source, Prompts) else load_prompts(source)
    return Source(prompts, program, None if run is None else Path(run))


def _moved(chosen: Format, what: Source, target: Path, check: _Check) -> tuple[Verified | None, Live | None]:
    """Written beside the target, verified, and moved."""
    if not target.absolute().parent.is_dir():
        raise UsageError(f"{target} can't be written: the folder {target.absolute().parent} does not exist.")
    with tempfile.TemporaryDirectory(dir=target.absolute().parent, prefix=f".{target.name}.") as folder:
        fresh = Path(folder, target.name)
        chosen.write(what, str(fresh))
        found = _checked(chosen, what, str(fresh), check)
        if fresh.is_dir():
            # files of other modules stay what they are; those that were written are replaced one by one
            target.mkdir(exist_ok=True)
            for file in sorted(fresh.iterdir()):
                shutil.move(str(file), target / file.name)
        else:
            fresh.replace(target)
    return found


def _in_place(chosen: Format, what: Source, target: str, check: _Check) -> tuple[Verified | None, Live | None]:
    """Verified in a store of its own first, then written where it stays."""
    with tempfile.TemporaryDirectory() as folder:
        chosen.write(what, folder)
        found = _checked(chosen, what, folder, check)
    chosen.write(what, target)
    return found


def _checked(chosen: Format, what: Source, written: str, check: _Check) -> tuple[Verified | None, Live | None]:
    reading = chosen.read(what, written)
    _same_texts(what, reading)
    verified = verify(what, reading, check.cases) if check.cases else None
    return verified, score_live(what, reading, check.cases, check.feedback) if check.live else None


def _same_texts(what: Source, reading: Reading) -> None:
    for module, text in what.prompts.items():
        if reading.prompts.get(module) != text:
            raise UsageError(
                f"the prompt of {module!r} does not come back from this format as it is: {reading.prompts.get(module)!r:.200} came instead. Nothing was exported; use another format."
            )
