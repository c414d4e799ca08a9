"""The commands put together, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import os
import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gepa_lite.cli import (
    blame,
    check,
    compare,
    demo,
    diff,
    estimate,
    export,
    measures,
    models,
    probe,
    purge,
    recheck,
    registry,
    report,
    resume,
    run,
    show,
    train_mutator,
    ui,
    write_back,
)
from gepa_lite.cli.exit_codes import MEANINGS, ExitCode, code_of
from gepa_lite.cli.output import say
from gepa_lite.errors import GepaLiteError

TRACEBACK_VARIABLE = "GEPA_LITE_TRACEBACK"

_HELP = f"""Improve the prompts of a program by reflection, with evidence.

A run is one folder on disk: it can be stopped with Ctrl-C, resumed at no cost for what was paid, and looked at while it goes on. Runs that are
known by name live in ./gepa_runs, or where GEPA_LITE_RUNS says.

Start with `gepa-lite demo`.

Exit codes: {"; ".join(f"{code.value}: {meaning}" for code, meaning in MEANINGS.items())}.

{TRACEBACK_VARIABLE}=1 shows the traceback of every error.
"""


class _Commands(TyperGroup):
    """The group of all commands."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; an error of ours is one line on standard error, without a traceback."""
        try:
            return super().invoke(ctx)
        except GepaLiteError as error:
            if os.environ.get(TRACEBACK_VARIABLE, "0") not in ("", "0"):
                say(traceback.format_exc())
            code = code_of(error)
            say(str(error) if code is ExitCode.INTERRUPTED else f"error: {error}")
            raise typer.Exit(code) from None
        except KeyboardInterrupt:
            say("Stopped. What was paid is kept; `gepa-lite show` lists the runs, `gepa-lite resume RUN` goes on.")
            raise typer.Exit(ExitCode.INTERRUPTED) from None


app = typer.Typer(
    cls=_Commands,
    help=_HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        import gepa_lite

        typer.echo(f"gepa-lite {gepa_lite.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    """Options of the group itself; Typer takes its help from ``_HELP``."""


app.command("run")(run.run)
app.command("check")(check.check)
app.command("estimate")(estimate.estimate)
app.command("compare")(compare.compare)
app.command("resume")(resume.resume)
app.command("show")(show.show)
app.command("blame")(blame.blame)
app.command("measures")(measures.measures)
app.command("report")(report.report)
app.command("plot")(report.plot)
app.command("ui")(ui.ui)
app.command("export")(export.export)
app.command("import")(export.import_folder)
app.command("write-back")(write_back.write_back)
app.command("diff")(diff.diff)
app.command("recheck")(recheck.recheck)
app.command("probe")(probe.probe)
app.command("train-mutator")(train_mutator.train_mutator)
app.command("purge")(purge.purge)
app.command("demo")(demo.demo)
app.add_typer(models.app, name="models")
app.add_typer(registry.app, name="registry")
