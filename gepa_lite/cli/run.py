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
)
from gepa_lite.cli.run_options import (
    Config,
    Curve,
    FeedbackName,
    Model,
    ProgramName,
    ReflectionModel,
    RunName,
    SearchFields,
    Starts,
    Test,
    Trackers,
    Train,
    Val,
    WorkerCount,
    prepare_run,
    read_options,
)


def run(  # noqa: PLR0913 - a command has as many parameters as options
    config: Config = None,
    *,
    program: ProgramName = None,
    start: Starts = None,
    feedback: FeedbackName = None,
    train: Train = None,
    val: Val = None,
    test: Test = None,
    curve: Curve = None,
    lm: Model = None,
    reflection_lm: ReflectionModel = None,
    budget_rollouts: BudgetRollouts = None,
    budget_tokens: BudgetTokens = None,
    budget_usd: BudgetUsd = None,
    budget_seconds: BudgetSeconds = None,
    budget_proposals: BudgetProposals = None,
    search: SearchFields = None,
    price: Prices = None,
    name: RunName = None,
    replies_from: Annotated[
        str | None, typer.Option(metavar="RUN", help="Another run whose paid model replies are taken where they answer a call of this one.")
    ] = None,
    workers: WorkerCount = None,
    tracker: Trackers = None,
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
    from gepa_lite.cli.output import only_the_answer
    from gepa_lite.cli.running import check_out, execute_run, finish
    from gepa_lite.store.folders import find_run, run_folder

    options = {
        "program": program,
        "start": start or None,
        "feedback": feedback,
        "train": train,
        "val": val,
        "test": test,
        "curve": curve,
        "lm": lm,
        "reflection_lm": reflection_lm,
        "budget": budget_table(budget_rollouts, budget_tokens, budget_usd, budget_seconds, budget_proposals),
        "search": search,
        "price": price,
        "run": name,
        "replies_from": replies_from,
        "workers": workers,
        "trackers": tracker or None,
        "out": out,
    }
    settings = read_options(config, options)
    check_out(settings.out)
    with only_the_answer(as_json):
        recipe, prepared = prepare_run(settings, config)
        folder = run_folder(settings.run, prepared.spec.program.name)
        donor = None if settings.replies_from is None else find_run(settings.replies_from)
        result = execute_run(prepared, folder, recipe, quiet=quiet, donor=donor)
    raise typer.Exit(finish(result, settings.out, as_json=as_json, require_improved=require_improved))
