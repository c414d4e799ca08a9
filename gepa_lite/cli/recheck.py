"""``gepa-lite recheck``: shipped prompts on new data, with exit codes for a pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gepa_lite.cli.options import Json


def recheck(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A *.prompts.json file, or a registry's folder.")],
    *,
    program: Annotated[str, typer.Option(metavar="MODULE:NAME", help="The program that the prompts are for, as in `gepa-lite run`.")],
    data: Annotated[Path, typer.Option(metavar="FILE", help="Labelled examples, best such as the run never saw.")],
    feedback: Annotated[
        str | None, typer.Option(metavar="MODULE:NAME", help="The feedback function; without it the program's own.")
    ] = None,
    lm: Annotated[str | None, typer.Option(metavar="MODEL", help="Another model for the program.")] = None,
    workers: Annotated[str, typer.Option(metavar="N", help="Rollouts at once, in threads; or processes:4.")] = "16",
    as_json: Json = False,
) -> None:
    """Score shipped prompts beside the seed's on new data, a new model or a changed feedback function.

    Says whether to keep them (exit code 0), to roll back (7) or to optimize again (8), with intervals; 9 where too many examples have no score. Twice as many rollouts as examples are paid for.
    """
    from gepa_lite.aftercare import recheck as library
    from gepa_lite.cli.exit_codes import ExitCode
    from gepa_lite.cli.output import answer, answer_json, only_the_answer
    from gepa_lite.cli.targets import import_from, load_program, load_target

    import_from([Path.cwd()])
    judge = None if feedback is None else load_target(feedback, "feedback")
    with only_the_answer(as_json):
        count = int(workers) if workers.isdecimal() else workers
        found = library.recheck(bundle, load_program(program, lm), data, feedback=judge, workers=count)
    if as_json:
        answer_json(found.to_data())
    else:
        answer(str(found))
    codes = {
        "keep": ExitCode.OK,
        "roll back": ExitCode.ROLL_BACK,
        "optimize again": ExitCode.OPTIMIZE_AGAIN,
        "undecided": ExitCode.UNDECIDED,
    }
    raise typer.Exit(codes[found.decision])
