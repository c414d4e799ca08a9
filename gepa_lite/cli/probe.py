"""``gepa-lite probe``: which reflection model refines best, or which settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gepa_lite.cli.options import BudgetRollouts, BudgetTokens, BudgetUsd, Json, Prices, budget_table
from gepa_lite.cli.run_options import (
    Config,
    FeedbackName,
    Model,
    ProgramName,
    RunName,
    SearchFields,
    Train,
    Val,
    WorkerCount,
    prepare_run,
    read_options,
)


def probe(  # noqa: PLR0913 - a command has as many parameters as options
    config: Config = None,
    *,
    models: Annotated[str | None, typer.Option(metavar="NAMES", help="Reflection models to compare, with commas between them.")] = None,
    settings: Annotated[
        bool, typer.Option("--settings", help="Compare settings of the one reflection model: minibatch, horizon, proposer, temperature.")
    ] = False,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="AXIS=VALUES", help="Compare these settings, e.g. minibatch=3,6 or template=mine.j2 (a file); may be repeated."
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(metavar="N", min=1, help="Rounds on the same parents and minibatches.")] = 12,
    program: ProgramName = None,
    feedback: FeedbackName = None,
    train: Train = None,
    val: Val = None,
    lm: Model = None,
    budget_rollouts: BudgetRollouts = None,
    budget_tokens: BudgetTokens = None,
    budget_usd: BudgetUsd = None,
    search: SearchFields = None,
    price: Prices = None,
    run: RunName = None,
    workers: WorkerCount = None,
    as_json: Json = False,
) -> None:
    """Try several reflection models, or settings of one, on the same parents and minibatches, and say which refines best.

    Shows for each how often its rewrite was better than the parent, with an interval, how large its steps are, how many replies could not be used, and what a refinement cost; which of them no other beats in cost and
    rate at once; and which to take, or that the data can't tell. It is a run of its own: recorded, cached, held to a budget, and resumed by the same call with --run. See docs/probe.md.
    """
    from gepa_lite.cli.output import answer, answer_json, only_the_answer
    from gepa_lite.probing.probe import run_probe

    names = [name.strip() for name in (models or "").split(",") if name.strip()]
    options: dict[str, Any] = {
        "program": program,
        "feedback": feedback,
        "train": train,
        "val": val,
        "test": None,
        "curve": None,
        "lm": lm,
        "reflection_lm": dict.fromkeys(names, 1.0) if names else None,
        "budget": budget_table(budget_rollouts, budget_tokens, budget_usd, None, None),
        "search": search,
        "price": price,
        "workers": workers,
    }
    axes = _axes(vary or [], settings)
    with only_the_answer(as_json):
        _, prepared = prepare_run(read_options(config, options), config)
        found = run_probe(prepared, axes or (True if settings else None), rounds, run)
    if as_json:
        answer_json(found.to_data())
    else:
        answer(str(found))


def _axes(vary: list[str], settings: bool) -> dict[str, list[Any] | dict[str, str]]:
    from gepa_lite.errors import UsageError

    if vary and settings:
        raise UsageError(
            "--settings and --vary: one of them is needed; --settings compares the usual values of all axes, --vary those given."
        )
    axes: dict[str, list[Any] | dict[str, str]] = {}
    for name, values in map(_axis, vary):
        if name in axes:
            raise UsageError(f"--vary {name}: it is given twice; write all its values in one, e.g. --vary minibatch=3,6.")
        axes[name] = values
    return axes


def _axis(text: str) -> tuple[str, list[Any] | dict[str, str]]:
    """An axis and its values; those of ``template`` are files."""
    from gepa_lite.errors import UsageError

    axis, equals, values = text.partition("=")
    parts = [part.strip() for part in values.split(",") if part.strip()]
    if not equals or not parts:
        raise UsageError(f"--vary {text}: write AXIS=VALUES, e.g. --vary minibatch=3,6.")
    if axis != "template":
        return axis, [_value(part) for part in parts]
    try:
        return axis, {Path(part).stem: Path(part).read_text(encoding="utf-8") for part in parts}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--vary {text}: can't read a template: {error}.") from error


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
