"""``gepa-lite ui``: live pages over a folder of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def ui(
    folder: Annotated[
        Path | None, typer.Argument(metavar="FOLDER", help="The folder that the runs are in; without it the runs' folder.")
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; an address that others can reach needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="0 takes a free one.")] = 8411,
    token: Annotated[
        str | None, typer.Option(metavar="TEXT", envvar="GEPA_LITE_UI_TOKEN", help="What a visitor must bring; made where it is needed.")
    ] = None,
) -> None:
    """Look at runs in a browser, live while they go on; needs pip install 'gepa-lite[ui]'.

    A list with states and filters, runs side by side, and for each run the views of `gepa-lite report` and more: every candidate, proposal and rollout, with what can be asked of a run that
    goes on: to pause, to finish now, or to go on with a larger budget. It follows the files by reading. On this machine alone unless --host says otherwise; then a token is needed.
    """
    from gepa_lite.cli.output import say
    from gepa_lite.store.folders import runs_root
    from gepa_lite.ui.serve import serve

    serve(folder or runs_root(), host, port, token, say)
