"""``gepa-lite diff``: two bundles side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gepa_lite.cli.options import Json


def diff(
    before: Annotated[Path, typer.Argument(metavar="A", help="A *.prompts.json file, or a registry's folder: its current version.")],
    after: Annotated[Path, typer.Argument(metavar="B", help="Likewise.")],
    as_json: Json = False,
) -> None:
    """Compare two bundles: words, scores and cost. Nothing is called or paid for."""
    from gepa_lite.aftercare.bundle_diff import diff_bundles
    from gepa_lite.bundle import load_prompts
    from gepa_lite.cli.output import answer, answer_json

    found = diff_bundles(load_prompts(before), load_prompts(after))
    if as_json:
        answer_json(found.to_data())
    else:
        answer(str(found))
