"""``gepa-lite compare``: several optimizers on one program, side by side."""

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
    budget_table,
)
from gepa_lite.cli.run_options import (
    Config,
    FeedbackName,
    Model,
    ProgramName,
    ReflectionModel,
    SearchFields,
    Test,
    Train,
    Val,
    WorkerCount,
    prepare_run,
    read_options,
)


def compare(  # noqa: PLR0913 - a command has as many parameters as options
    config: Config = None,
    *,
    optimizers: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Names with commas between them: gepa_lite, gepa_lite_paper, best_of_n, random_rewrite, few_shot, gepa, dspy_gepa, dspy_miprov2, textgrad, trace.",
        ),
    ] = "gepa_lite,best_of_n,few_shot",
    seeds: Annotated[
        str, typer.Option(metavar="NUMBERS", help="Seeds with commas between them; each optimizer runs once with each.")
    ] = "0",
    program: ProgramName = None,
    feedback: FeedbackName = None,
    train: Train = None,
    val: Val = None,
    test: Test = None,
    lm: Model = None,
    reflection_lm: ReflectionModel = None,
    budget_rollouts: BudgetRollouts = None,
    budget_tokens: BudgetTokens = None,
    budget_usd: BudgetUsd = None,
    budget_seconds: BudgetSeconds = None,
    budget_proposals: BudgetProposals = None,
    search: SearchFields = None,
    price: Prices = None,
    folder: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where the runs are kept; the same one goes on.")] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the best score so far against rollouts, e.g. to compare.svg.")
    ] = None,
    workers: WorkerCount = None,
    as_json: Json = False,
) -> None:
    """Run several optimizers on one program, with the same data, feedback, models and budget.

    Takes what `gepa-lite run` takes; a budget is needed and holds for each run. Each optimizer has runs of its own, which can be shown, reported and
    resumed like any other. Fields of gl.Search hold for gepa_lite; the others take its objective alone.
    """
    from gepa_lite.baselines.compare import Comparison, outcome_of, read_seeds
    from gepa_lite.baselines.optimizer import fitted, optimizer
    from gepa_lite.cli.output import answer, answer_json, only_the_answer, say
    from gepa_lite.errors import UsageError
    from gepa_lite.store.folders import runs_root

    options = {
        "program": program,
        "feedback": feedback,
        "train": train,
        "val": val,
        "test": test,
        "curve": None,
        "lm": lm,
        "reflection_lm": reflection_lm,
        "budget": budget_table(budget_rollouts, budget_tokens, budget_usd, budget_seconds, budget_proposals),
        "search": search,
        "price": price,
        "workers": workers,
    }
    chosen = [optimizer(name.strip()) for name in optimizers.split(",") if name.strip()]
    for each in chosen:
        each.check()
    settings = read_options(config, options)
    if not settings.budget:
        raise UsageError("compare needs a budget, the same for each optimizer, e.g. --budget-rollouts 300.")
    outcomes = []
    with only_the_answer(as_json):
        _, prepared = prepare_run(settings, config)
        root = folder or runs_root() / f"compare-{prepared.spec.program.name}"
        for each in chosen:
            for seed in read_seeds(seeds):
                run = root / f"{each.name}-{seed}"
                say(f"{each.name}, seed {seed}: {run}")
                outcomes.append(outcome_of(each.name, seed, each.run(fitted(each, prepared, seed), run)))
        found = Comparison(outcomes, all(outcome.verdict != "validated only" for outcome in outcomes))
        if plot is not None:
            found.plot(plot)
    if as_json:
        answer_json(found.to_data())
    else:
        answer(str(found))
