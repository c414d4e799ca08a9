"""``gepa-lite resume``: go on with a run from what its folder holds."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gepa_lite.cli.options import BudgetProposals, BudgetRollouts, BudgetSeconds, BudgetTokens, BudgetUsd, Json, Quiet, budget_table

if TYPE_CHECKING:
    from gepa_lite.api import Prepared
    from gepa_lite.cli.recipe import Recipe
    from gepa_lite.core.budget import Budget


def resume(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A name under the runs' folder, or the path of a run's folder.")],
    budget_rollouts: BudgetRollouts = None,
    budget_tokens: BudgetTokens = None,
    budget_usd: BudgetUsd = None,
    budget_seconds: BudgetSeconds = None,
    budget_proposals: BudgetProposals = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Go on with a run where it stopped.

    What was paid is not paid again. The examples come from the run itself; the program and the feedback function are imported as they were when
    it was started, and a run whose program, feedback or models have changed since is refused. A run that a Python script started goes on too if
    its program and feedback can be imported and its models were given by name; otherwise the command to run is printed.

    A finished run costs nothing: its result is printed again. A bound replaces the run's own and leaves the others.
    """
    from gepa_lite.cli.output import answer, answer_json, only_the_answer, result_data
    from gepa_lite.cli.recipe import read_recipe
    from gepa_lite.cli.running import check_out, execute_run, finish
    from gepa_lite.insight.stored import read_run
    from gepa_lite.store.folders import find_run

    folder = find_run(run)
    stored = read_run(folder)
    bounds = budget_table(budget_rollouts, budget_tokens, budget_usd, budget_seconds, budget_proposals)
    if stored.finished and not bounds and not _lacks_file(stored.recipe):
        result = stored.result()
        if as_json:
            answer_json(result_data(result))
        else:
            answer(str(result))
        return
    recipe = read_recipe(stored.recipe, folder)
    if stored.state.started is not None:
        recipe = recipe.begun_with(stored.state.started.settings["search"])
    check_out(recipe.out)
    with only_the_answer(as_json):
        prepared = _prepared(recipe, folder, dataclasses.replace(stored.state.budget, **bounds))
        result = execute_run(prepared, folder, recipe, quiet=quiet, state=stored.state)
    raise typer.Exit(finish(result, recipe.out, as_json=as_json))


def _lacks_file(recipe: Any) -> bool:
    """Whether a finished run was stopped before it could write its prompts."""
    out = recipe.get("out") if isinstance(recipe, dict) else None
    return isinstance(out, str) and not Path(out).exists()


def _prepared(recipe: Recipe, folder: Path, budget: Budget) -> Prepared:
    from gepa_lite.errors import UsageError
    from gepa_lite.store.run_store import RunStore

    if recipe.obstacle is None:
        with RunStore.read(folder) as store:
            splits = ("train", "validation", "test", "curve")
            train, validation, test, curve = ([dict(example) for example in store.examples(split)] for split in splits)
        if not train:
            raise UsageError(
                f"The run in {folder} keeps no examples, so it can't be built again from here.\n{_how_to_go_on(recipe, folder)}"
            )
        try:
            return recipe.prepare(train, validation, test or None, budget, curve or None)
        except UsageError as error:
            if recipe.kind == "cli":
                raise
            raise UsageError(f"{error}\n{_how_to_go_on(recipe, folder)}") from error
    raise UsageError(f"This run can't be built again from here: {recipe.obstacle}.\n{_how_to_go_on(recipe, folder)}")


def _how_to_go_on(recipe: Recipe, folder: Path) -> str:
    command = recipe.command()
    started = "in a notebook or an interactive session" if command is None else f"by:\n    {command}"
    return f"It was started {started}\nRun that again, with run={str(folder)!r} in its call of optimize: the same call goes on where it stopped."
