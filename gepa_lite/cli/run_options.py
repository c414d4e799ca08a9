"""The options that say what a run is, shared by ``run``, ``estimate`` and ``check``, and the config that they make."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gepa_lite.cli.options import price_table

if TYPE_CHECKING:
    from gepa_lite.api import Prepared
    from gepa_lite.cli.config import RunConfig
    from gepa_lite.cli.recipe import Recipe

Config = Annotated[Path | None, typer.Argument(metavar="CONFIG", help="A .toml or .yaml file with the long options as keys.")]
ProgramName = Annotated[
    str | None, typer.Option(metavar="MODULE:NAME", help="A gl.Program class, a function that makes one, or an instance.")
]
Starts = Annotated[
    list[Path] | None,
    typer.Option(
        "--start",
        metavar="PATH",
        help="Prompts to start from beside the program's: a bundle, a registry's folder, a run's name or folder (its winner), an exported Markdown folder, a prompt file or a folder of them; may be repeated.",
    ),
]
FeedbackName = Annotated[
    str | None, typer.Option(metavar="MODULE:NAME", help="The feedback function; without it the program's own method.")
]
Train = Annotated[Path | None, typer.Option(metavar="FILE", help="Examples to learn from: .jsonl, .json, .csv, .tsv or .parquet.")]
Val = Annotated[Path | None, typer.Option(metavar="FILE", help="Examples to compare candidates on; without it half of the train set.")]
Test = Annotated[
    str | None,
    typer.Option(metavar="FILE|SHARE", help="Sealed examples, scored once for the seed and the winner; or a share to seal, e.g. 0.3."),
]
Curve = Annotated[
    str | None,
    typer.Option(metavar="FILE|SHARE", help="Examples the search never sees, on which its course is scored once it has ended; or a share."),
]
Model = Annotated[
    str | None, typer.Option(metavar="MODEL", help="The program's model, e.g. openai/gpt-4.1-mini or local/qwen2.5-coder-1.5b.")
]
ReflectionModel = Annotated[str | None, typer.Option(metavar="MODEL", help="Who rewrites; without it the program's model.")]
SearchFields = Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A field of gl.Search, e.g. fan=4; may be repeated.")]
RunName = Annotated[
    str | None, typer.Option("--run", metavar="NAME", help="A name under the runs' folder, or a path; an existing run goes on.")
]
WorkerCount = Annotated[
    str | None,
    typer.Option(
        metavar="N",
        help="Rollouts at once, in threads; 16 by default. processes or processes:4 for programs that compute. With ,timeout:60 after it a rollout is given up after 60 s; after an hour by default.",
    ),
]
Trackers = Annotated[
    list[str] | None,
    typer.Option(
        "--tracker",
        metavar="NAME",
        help="Tell mlflow, wandb or opentelemetry of the run, and of the sessions that resume it; may be repeated.",
    ),
]
Samples = Annotated[int, typer.Option(metavar="N", min=1, max=3, help="Sample rollouts.")]


def read_options(config: Path | None, options: Mapping[str, Any]) -> RunConfig:
    """The config from a file and the options on top.

    Args:
        config: the file, or None.
        options: by field of ``RunConfig``, as the command line gives them; ``search`` and ``price`` are lists of texts.

    Raises:
        UsageError: names the option or key.
    """
    from gepa_lite.cli.config import make_config, read_settings

    values = {**options, "search": read_settings(options["search"] or []), "prices": price_table(options["price"] or [])}
    values.pop("price")
    return make_config(config, {**values, "test": _share_or_file(options["test"]), "curve": _share_or_file(options["curve"])})


def prepare_run(settings: RunConfig, config: Path | None) -> tuple[Recipe, Prepared]:
    """The recipe of a config, and its checked run, which has cost nothing yet.

    Raises:
        UsageError: something is wrong with it.
    """
    from gepa_lite.cli.config import make_record
    from gepa_lite.cli.recipe import recipe_of
    from gepa_lite.core.budget import Budget

    recipe = recipe_of(settings, config)
    budget = make_record(Budget, settings.budget, "budget") if settings.budget else None
    prepared = recipe.prepare(settings.train, settings.val, settings.test, budget, settings.curve)
    return recipe.fixed(start.texts for start in prepared.spec.starts), prepared


def _share_or_file(text: str | None) -> float | Path | None:
    """An option that is a number is a share of the data, any other is a file."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return Path(text)
