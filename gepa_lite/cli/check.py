"""``gepa-lite check``: a few rollouts that tell whether a run could work at all."""

from __future__ import annotations

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
    Test,
    Train,
    Val,
    WorkerCount,
    prepare_run,
    read_options,
)


def check(  # noqa: PLR0913 - a command has as many parameters as options
    config: Config = None,
    *,
    program: ProgramName = None,
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
    workers: WorkerCount = None,
    examples: Annotated[int, typer.Option(metavar="N", min=1, max=10, help="Validation examples that the program is run on.")] = 4,
    repeats: Annotated[int, typer.Option(metavar="N", min=2, max=10, help="Runs of each, to see how much scores vary.")] = 3,
    proposals: Annotated[int, typer.Option(metavar="N", min=1, max=10, help="Texts asked of the reflection model.")] = 2,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Look whether a run could work at all.

    Takes what `gepa-lite run` takes and costs a few rollouts; how many at most is said first. Looks whether each prompt reaches the model, whether the
    feedback has words and tells good from bad, how much scores vary by themselves and so which gain the sets can show, whether labels stand in the inputs
    and splits share twins, whether the reflection model answers in the asked form, and at keys, prices and context windows. Exits with 6 where something
    would waste a run. With --run, the run of that name does not pay again for what was tried.
    """
    from gepa_lite.cli.exit_codes import ExitCode
    from gepa_lite.cli.output import answer, answer_json, only_the_answer, say
    from gepa_lite.doctor.check import Effort, check_run

    options = {
        "program": program,
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
        "workers": workers,
    }
    settings = read_options(config, options)
    with only_the_answer(as_json):
        effort = Effort(examples, repeats, proposals)
        found = check_run(lambda: prepare_run(settings, config)[1], settings.run, effort, lambda text: None if quiet else say(text))
    if as_json:
        answer_json(found.to_dict())
    else:
        answer(str(found))
    if found.failed:
        raise typer.Exit(ExitCode.CHECK_FAILED)
