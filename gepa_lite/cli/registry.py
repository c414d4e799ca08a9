"""``gepa-lite registry``: versions of shipped prompts in a folder, and which of them is current."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from gepa_lite.cli.options import Json

app = typer.Typer(
    help="Keep versions of shipped prompts in a folder, of which one is current.\n\nA process in production reads the folder with gl.load_prompts or gl.LivePrompts, and needs no lock.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The registry's folder.")]
Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="Why, for the history.")]
By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who; without it the user of this process.")]


@app.command("add")
def add(
    folder: Folder,
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A *.prompts.json file.")],
    why: Why,
    by: By = None,
    promote: Annotated[bool, typer.Option("--promote", help="Make it the current version, in the same move.")] = False,
) -> None:
    """Keep a bundle as a new version, and print its number."""
    from gepa_lite.cli.output import answer
    from gepa_lite.ship.registry import Registry

    answer(str(Registry(folder).add(bundle, why=why, by=by, promote=promote)))


@app.command("promote")
def promote(
    folder: Folder, version: Annotated[int, typer.Argument(metavar="VERSION", help="Its number.")], why: Why, by: By = None
) -> None:
    """Make a version the current one."""
    from gepa_lite.cli.output import answer
    from gepa_lite.ship.registry import Registry

    registry = Registry(folder)
    registry.promote(version, why=why, by=by)
    answer(f"current: {registry.current}")


@app.command("rollback")
def rollback(folder: Folder, why: Why, by: By = None) -> None:
    """Go back to the version that was promoted before the current one."""
    from gepa_lite.cli.output import answer
    from gepa_lite.ship.registry import Registry

    registry = Registry(folder)
    registry.rollback(why=why, by=by)
    answer(f"current: {registry.current}")


@app.command("history")
def history(folder: Folder, as_json: Json = False) -> None:
    """Show the current version and what was done: when, by whom and why."""
    from gepa_lite.cli.output import answer, answer_json
    from gepa_lite.ship.registry import Registry

    registry = Registry(folder)
    changes, current = registry.history, registry.current
    if as_json:
        answer_json({"current": current, "history": [dataclasses.asdict(change) for change in changes]})
    else:
        answer("\n".join([f"current: {'none' if current is None else current}", *map(str, changes)]))
