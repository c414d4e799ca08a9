"""dspy's own state file: what ``program.save`` writes and ``program.load`` reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gepa_lite.adapters.adapt import adapt, apply_prompts
from gepa_lite.errors import UsageError
from gepa_lite.exports.source import Reading, Source

if TYPE_CHECKING:
    from gepa_lite.adapters.dspy.program import DspyProgram


def write_dspy(source: Source, path: Path) -> None:
    """By dspy itself, from a copy of the program with these prompts."""
    _adapted(source)
    if not path.parent.is_dir():
        raise UsageError(f"{path} can't be written: the folder {path.parent} does not exist.")
    apply_prompts(source.program, source.prompts).save(str(path))


def read_dspy(source: Source, path: Path) -> Reading:
    """By dspy itself, into a copy of the program with other prompts: what the file does not hold does not come back."""
    adapted = _adapted(source)
    fresh = adapted.with_prompts(dict.fromkeys(source.prompts, "-")).deliverable
    fresh.load(str(path))
    return Reading(adapted.texts_of(fresh))


def _adapted(source: Source) -> DspyProgram:
    hint = "the dspy format needs the dspy program: gl.export(..., program=MyProgram()), or --program module:name"
    if source.program is None:
        raise UsageError(f"{hint}.")
    from gepa_lite.adapters.dspy.program import DspyProgram

    adapted = adapt(source.program)
    if not isinstance(adapted, DspyProgram):
        raise UsageError(f"{hint}; {adapted.name} is no dspy program.")
    return adapted
