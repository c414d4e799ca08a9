"""``gepa-lite run``: start a run from a config file, from options, or from both."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gepa_lite.cli.options import (
    BudgetProposals,
    BudgetRollouts,
    BudgetSeconds,
    BudgetTokens,
    BudgetUsd,
    Json,
    Prices,
    Quiet,
    budget_table,
    price_table,
)


def run(  # noqa: PLR0913 - a command has as many parameters as options
    config: Annotated[Path | None, typer.Argument(metavar="CONFIG", help="A .toml or .yaml file with the long options as keys.")] = None,
    *,
    program: Annotated[
        str | None, typer.Option(metavar="MODULE:NAME", help="A gl.Program class, a function that makes one, or an instance.")
    ] = None,
    feedback: Annotated[
        str | None, typer.Option(metavar="MODULE:NAME", help="The feedback function; without it the program's own method.")
    ] = None,
    train: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Examples to learn from: .jsonl, .json, .csv, .tsv or .parquet.")
    ] = None,
    val: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Examples to compare candidates on; without it half of the train set.")
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(metavar="FILE|SHARE", help="Sealed examples, scored once for the seed and the winner; or a share to seal, e.g. 0.3."),
    ] = None,
    curve: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|SHARE", help="Examples the search never sees, on which its course is scored once it has ended; or a share."
        ),
    ] = None,
    lm: Annotated[
        str | None, typer.Option(metavar="MODEL", help="The program's model, e.g. openai/gpt-4.1-mini or local/qwen2.5-coder-1.5b.")
    ] = None,
    reflection_lm: Annotated[str | None, typer.Option(metavar="MODEL", help="Who rewrites; without it the program's model.")] = None,
    budget_rollouts: BudgetRollouts = None,
    budget_tokens: BudgetTokens = None,
    budget_usd: BudgetUsd = None,
    budget_seconds: BudgetSeconds = None,
    budget_proposals: BudgetProposals = None,
    search: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A field of gl.Search, e.g. fan=4; may be repeated.")
    ] = None,
    price: Prices = None,
    name: Annotated[
        str | None, typer.Option("--run", metavar="NAME", help="A name under the runs' folder, or a path; an existing run goes on.")
    ] = None,
    replies_from: Annotated[
        str | None, typer.Option(metavar="RUN", help="Another run whose paid model replies are taken where they answer a call of this one.")
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(metavar="N", help="Rollouts at once, in threads; 16 by default. processes or processes:4 for programs that compute."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the prompts of the finished run, e.g. to triage.prompts.json.")
    ] = None,
    require_improved: Annotated[
        bool, typer.Option("--require-improved", help="Exit with 5 unless the sealed test set shows a gain.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Improve the prompts of a program.

    Everything can be given as an option, or in a config file whose keys are the long options:

    \b
        program = "triage:Triage"          # class Triage in triage.py
        train = "train.jsonl"              # relative to this file
        test = "test.jsonl"
        lm = "openai/gpt-4.1-mini"
        reflection_lm = "openai/gpt-5"
        out = "triage.prompts.json"
        [budget]                           # rollouts, tokens, usd, seconds, proposals
        usd = 2.0
        [search]                           # the fields of gl.Search
        seed = 1
        fan = 4
        [contract.route]                   # the fields of gl.Contract for a module
        max_tokens = 400

    Options win over the file. In a file reflection_lm may be a table of models and weights, which mixes them. Modules are imported from the current folder and from the config file's. All that can be checked for free is
    checked before the first call is paid for. The result goes to standard output, progress to standard error. Ctrl-C stops after the calls in
    flight and prints the best so far; `gepa-lite resume` goes on at no cost for what was paid.
    """  # noqa: D301 - the mark that keeps the lines below it apart is a backspace itself
    from gepa_lite.cli.config import make_config, make_record, read_settings
    from gepa_lite.cli.output import only_the_answer
    from gepa_lite.cli.recipe import recipe_of
    from gepa_lite.cli.running import check_out, execute_run, finish
    from gepa_lite.core.budget import Budget
    from gepa_lite.store.folders import find_run, run_folder

    options = {
        "program": program,
        "feedback": feedback,
        "train": train,
        "val": val,
        "test": _share_or_file(test),
        "curve": _share_or_file(curve),
        "lm": lm,
        "reflection_lm": reflection_lm,
        "budget": budget_table(budget_rollouts, budget_tokens, budget_usd, budget_seconds, budget_proposals),
        "search": read_settings(search or []),
        "prices": price_table(price or []),
        "run": name,
        "replies_from": replies_from,
        "workers": workers,
        "out": out,
    }
    settings = make_config(config, options)
    check_out(settings.out)
    recipe = recipe_of(settings, config)
    budget = make_record(Budget, settings.budget, "budget") if settings.budget else None
    with only_the_answer(as_json):
        prepared = recipe.prepare(settings.train, settings.val, settings.test, budget, settings.curve)
        folder = run_folder(settings.run, prepared.spec.program.name)
        donor = None if settings.replies_from is None else find_run(settings.replies_from)
        result = execute_run(prepared, folder, recipe, quiet=quiet, donor=donor)
    raise typer.Exit(finish(result, settings.out, as_json=as_json, require_improved=require_improved))


def _share_or_file(text: str | None) -> float | Path | None:
    """An option that is a number is a share of the data, any other is a file."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return Path(text)
