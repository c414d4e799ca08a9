"""``gepa-lite write-back``: shipped prompts in place of those in the user's own files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from gepa_lite.cli.options import Json


def write_back(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A *.prompts.json file, or a registry's folder: its current version.")],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The folder of prompt files, or the YAML file, that gl.prompts_from read.")],
    *,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="[NAME=]KEY", help="Where a YAML file holds prompts, as a dotted path; may be given several times."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the diff, and write nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Put shipped prompts back into the files they came from, and show the diff: nothing but the prompts' texts changes.

    A prompt that someone changed since the run started is refused, and nothing is written. See docs/howto/prompt-files.md.
    """
    from gepa_lite.cli.output import answer, answer_json
    from gepa_lite.ship.write_back import write_back as write

    done = write(bundle, path, keys=_keys(key), dry_run=dry_run)
    if as_json:
        answer_json(dataclasses.asdict(done))
    else:
        answer(str(done))


def _keys(given: list[str] | None) -> list[str] | dict[str, str] | None:
    if not given:
        return None
    if not any("=" in entry for entry in given):
        return given
    pairs = [entry.partition("=")[::2] if "=" in entry else (entry.rpartition(".")[2], entry) for entry in given]
    return dict(pairs)
