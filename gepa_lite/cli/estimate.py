"""``gepa-lite estimate``: what a run will take, before it is paid for."""

from __future__ import annotations

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
    Curve,
    FeedbackName,
    Model,
    ProgramName,
    ReflectionModel,
    RunName,
    Samples,
    SearchFields,
    Test,
    Train,
    Val,
    WorkerCount,
    prepare_run,
    read_options,
)


def estimate(  # noqa: PLR0913 - a command has as many parameters as options
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
    samples: Samples = 3,
    as_json: Json = False,
) -> None:
    """Say what a run will take: calls, tokens, dollars, minutes and proposals, as ranges.

    Takes what `gepa-lite run` takes. Up to three rollouts of the program as it stands are run and kept; the run does not pay for them again if it is
    started with the same --run. Nothing else is paid for. Warns when few proposals fit or validation eats the budget, and says what to change.
    """
    from gepa_lite.cli.output import answer, answer_json, only_the_answer, say
    from gepa_lite.forecast.estimate import estimate_run
    from gepa_lite.store.folders import run_folder

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
        _, prepared = prepare_run(settings, config)
        folder = run_folder(settings.run, prepared.spec.program.name)
        found = estimate_run(prepared, folder, samples)
    if as_json:
        answer_json(found.to_dict())
        return
    answer(str(found))
    if settings.run is None:
        say(f"Start the run on these samples: gepa-lite run {config or '...'} --run {folder.name}")
