"""``gepa-lite models``: the local models that can be named as ``local/NAME``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gepa_lite.cli.options import Json

app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A model of the catalogue, with or without local/ in front.")]


@app.callback()
def models(ctx: typer.Context, as_json: Json = False) -> None:
    """List, fetch and remove the local models, which run on this machine: no key, no account, no cost.

    Without a command: the catalogue, with each model's licence, size and checksum, and where its file is, once fetched. A copy that you have
    already is used in place if GEPA_LITE_MODEL_<NAME> holds its path; GEPA_LITE_CACHE says where models are kept. Copies that training unpacked
    from .gguf files are named with what they take.
    """
    from gepa_lite.cli.output import answer, answer_json
    from gepa_lite.lm.local import fetch
    from gepa_lite.lm.local.catalogue import MODELS
    from gepa_lite.lm.local.unpacked import unpacked_bytes, unpacked_root

    if ctx.invoked_subcommand is not None:
        return
    states = [fetch.status(name) for name in MODELS]
    if as_json:
        rows = [
            {
                "name": f"local/{state.spec.name}",
                "title": state.spec.title,
                "licence": state.spec.licence,
                "bytes": state.spec.size,
                "sha256": state.spec.sha256,
                "context": state.spec.context,
                "present": state.present,
                "path": str(state.path) if state.present else None,
            }
            for state in states
        ]
        answer_json({"models": rows, "unpacked": {"path": str(unpacked_root()), "bytes": unpacked_bytes()}})
        return
    lines = []
    for state in states:
        spec = state.spec
        where = str(state.path) if state.present else f"not here; fetch it: gepa-lite models fetch {spec.name}"
        if state.partial_bytes and not state.present:
            where += f" ({_size(state.partial_bytes)} of it came already)"
        lines.append(f"local/{spec.name}\n  {spec.title}; {spec.licence}; {_size(spec.size)}; sha256 {spec.sha256[:12]}\n  {where}")
    if taken := unpacked_bytes():
        lines.append(f"unpacked for PyTorch: {_size(taken)} in {unpacked_root()}; to free it: gepa-lite models clean")
    answer("\n".join(lines))


@app.command()
def fetch(name: Name) -> None:
    """Fetch a model, unless it is here, and print its path.

    What an interrupted download left is used again. The file counts only once its checksum is right.
    """
    from gepa_lite.cli.output import answer

    answer(str(fetch_with_notice(_bare(name))))


@app.command()
def remove(name: Name) -> None:
    """Delete a fetched model, and what was unpacked of it, from the cache; a copy of yours elsewhere is never touched."""
    from gepa_lite.cli.output import answer
    from gepa_lite.lm.local.fetch import remove as remove_file

    freed = remove_file(_bare(name))
    answer(f"{_size(freed)} freed." if freed else f"{_bare(name)} is not in the cache: nothing to remove.")


@app.command()
def clean() -> None:
    """Delete the copies that training unpacked from .gguf files, also of files elsewhere; the next load unpacks them again."""
    from gepa_lite.cli.output import answer
    from gepa_lite.lm.local.unpacked import remove_unpacked

    answer(f"{_size(remove_unpacked())} freed.")


def fetch_with_notice(name: str) -> Path:
    """A model's file; where it must be fetched, say so and how large it is, and show a bar.

    Raises:
        UsageError: no model has this name.
        FetchError: no source had it.
    """
    from gepa_lite.cli.output import say
    from gepa_lite.lm.local.fetch import ensure_model, status

    state = status(name)
    if not state.present:
        left = f", of which {_size(state.partial_bytes)} came already" if state.partial_bytes else ""
        say(
            f"{state.spec.title} ({state.spec.licence}) is not on this machine yet: fetching {_size(state.spec.size)}{left}, once, to {state.path}."
        )
    return ensure_model(name, progress=True)


def _bare(name: str) -> str:
    return name.removeprefix("local/")


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
