"""What ``run``, ``resume`` and ``demo`` share: the run itself, then its result, its file and the exit code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gepa_lite.cli.exit_codes import ExitCode
from gepa_lite.cli.output import answer, answer_json, result_data, say
from gepa_lite.cli.recipe import Recipe
from gepa_lite.errors import RunError, RunLockedError, UsageError

if TYPE_CHECKING:
    from gepa_lite.api import Prepared
    from gepa_lite.search.state import RunState
    from gepa_lite.session import Observer
    from gepa_lite.ship.result import Result


def check_out(out: Path | None) -> None:
    """Refuse a file that can't be written in the end, before anything is paid for.

    Raises:
        UsageError: its folder does not exist or takes no files.
    """
    if out is not None and not os.access(out.absolute().parent, os.W_OK | os.X_OK):
        raise UsageError(f"out={str(out)!r} can't be written: the folder {out.absolute().parent} does not exist or takes no new files.")


def execute_run(
    prepared: Prepared, folder: Path, recipe: Recipe, *, quiet: bool, state: RunState | None = None, donor: Path | None = None
) -> Result[Any]:
    """Run or resume, with progress on standard error; an error says how to go on.

    Args:
        prepared: the checked run.
        folder: where it is kept.
        recipe: kept there for a later resume.
        quiet: no progress.
        state: of a run that is resumed, for the progress.
        donor: the folder of a run whose paid replies are taken.

    Raises:
        UsageError: the folder holds a run of other settings, or a tracker is not known or not installed.
        RunError: the run can't go on.
    """
    from gepa_lite.api import execute
    from gepa_lite.insight.progress import Progress
    from gepa_lite.origin import ORIGIN_KEY
    from gepa_lite.trackers.opening import observers_of

    observers: list[Observer] = [*observers_of(recipe.trackers, folder, prepared.spec.search.objective)]
    if not quiet:
        say(f"Run: {folder}")
        observers.append(Progress(prepared.spec.search.objective, state=state))
    try:
        return execute(prepared, folder, observers, {ORIGIN_KEY: recipe.kept()}, donor)
    except RunLockedError:
        raise
    except RunError:
        say(resume_hint(folder))
        raise
    except KeyboardInterrupt:
        say(f"Stopped at once; calls in flight are lost, all else is kept. {resume_hint(folder)}")
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def resume_hint(folder: Path) -> str:
    """The command that goes on with a run."""
    return f"Resume it: gepa-lite resume {folder}"


def finish(result: Result[Any], out: Path | None, *, as_json: bool, require_improved: bool = False) -> ExitCode:
    """Print a result, write its prompts, and say how the command ended."""
    written = out is not None and result.finished
    if written and out is not None:
        result.save(out)
    if as_json:
        answer_json({**result_data(result), "out": str(out) if written else None})
    else:
        answer(str(result))
    if written:
        say(f"Prompts written to {out}.")
    elif out is not None:
        say(f"{out} is not written, since the run is not finished.")
    if not result.finished:
        if as_json and result.run is not None:
            say(resume_hint(result.run))
        return ExitCode.INTERRUPTED
    return ExitCode.NOT_IMPROVED if require_improved and not result.improved else ExitCode.OK
