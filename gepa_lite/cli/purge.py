"""``gepa-lite purge``: drop what was said in a run."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gepa_lite.cli.options import Json


def purge(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A name under the runs' folder, or the path of a run's folder.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    as_json: Json = False,
) -> None:
    """Drop the messages, replies, inputs and examples of a run for good; keep scores, prompts, costs and the log.

    Refused while a process works on the run. The file is written anew, so the bytes are gone from it; copies elsewhere are not reached. docs/privacy.md says what still works afterwards.
    """
    from gepa_lite.cli.output import answer, answer_json
    from gepa_lite.errors import UsageError
    from gepa_lite.store.folders import find_run
    from gepa_lite.store.purge import purge as drop
    from gepa_lite.store.purge import purged_data

    folder = find_run(run)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"What purge drops from {folder} can't be brought back: say --yes.")
        typer.confirm(f"Drop all messages and inputs of {folder} for good?", abort=True, err=True)
    done = drop(folder)
    if as_json:
        answer_json(purged_data(done))
    else:
        answer(str(done))
