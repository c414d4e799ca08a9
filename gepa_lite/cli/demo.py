"""``gepa-lite demo``: the whole way on one's own machine, from a naive prompt to a file that ships."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gepa_lite.cli.options import Json, Quiet
from gepa_lite.cli.run_options import Trackers

if TYPE_CHECKING:
    from gepa_lite.api import Prepared

PROGRAM = "gepa_lite.demo.task:Fernpost"
BUNDLE_NAME = "fernpost.prompts.json"

SECONDS_PER_ROLLOUT = 1.3
"""Of the default model on two CPU cores, reflection included: what ``python -m benchmarks demo-seeds`` saw. Only the estimate that is printed depends on it; the progress line
goes by what it measures."""


def demo(
    lm: Annotated[str, typer.Option(metavar="MODEL", help="Who runs the program.")] = "local/qwen2.5-coder-1.5b",
    reflection_lm: Annotated[str | None, typer.Option(metavar="MODEL", help="Who rewrites; without it the same model.")] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Of every random draw.")] = 0,
    rollouts: Annotated[int | None, typer.Option(metavar="N", min=1, help="The budget, instead of the demo's own.")] = None,
    run: Annotated[
        str | None, typer.Option(metavar="NAME", help="A name under the runs' folder, or a path; an existing run goes on.")
    ] = None,
    tracker: Trackers = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Try it: improve a two-module program that sorts a plant shop's post by house rules its first prompts do not know.

    By default a small model runs on this machine's CPU: no key, no account and no cost. It is fetched once. Any other model can be named; dollars
    are then capped. The prompts are saved in the run's folder.
    """
    from gepa_lite.cli.output import only_the_answer, say
    from gepa_lite.cli.recipe import Recipe
    from gepa_lite.cli.running import execute_run, finish
    from gepa_lite.demo.task import demo_settings, load_splits
    from gepa_lite.origin import search_table
    from gepa_lite.store.folders import run_folder
    from gepa_lite.trackers.opening import open_tracker

    for name in tracker or ():
        # refused before a model is fetched
        open_tracker(name)
    train, validation, test = load_splits()
    budget, search = demo_settings(seed)
    if rollouts is not None:
        budget = dataclasses.replace(budget, rollouts=rollouts)
    recipe = Recipe(
        kind="cli", program=PROGRAM, lm=lm, reflection_lm=reflection_lm, search=search_table(search), workers=8, trackers=tracker or []
    )
    with only_the_answer(as_json):
        _fetch_missing([lm, *([reflection_lm] if reflection_lm else [])])
        prepared = _capped(recipe.prepare(train, validation, test, budget))
        folder = run_folder(run, "demo")
        bundle = folder.absolute() / BUNDLE_NAME
        if not quiet:
            say(_plan(prepared, lm, reflection_lm))
        result = execute_run(prepared, folder, recipe.model_copy(update={"out": bundle}), quiet=quiet)
    code = finish(result, bundle, as_json=as_json)
    if result.finished and not quiet:
        say(_next_steps(folder, bundle))
    raise typer.Exit(code)


def _fetch_missing(names: list[str]) -> None:
    """Fetch the local models of the catalogue that are not here yet."""
    from gepa_lite.cli.models import fetch_with_notice
    from gepa_lite.lm.local.catalogue import MODELS

    for name in dict.fromkeys(name.removeprefix("local/") for name in names if name.startswith("local/")):
        if name in MODELS:
            fetch_with_notice(name)


def _capped(prepared: Prepared) -> Prepared:
    """The run with a dollar cap where a model has a price above zero."""
    from gepa_lite.budgeting import DEFAULT_USD, costs_dollars

    spec = prepared.spec
    if not costs_dollars(spec):
        return prepared
    return dataclasses.replace(prepared, spec=spec.with_budget(dataclasses.replace(spec.budget, usd=DEFAULT_USD)))


def _plan(prepared: Prepared, lm: str, reflection_lm: str | None) -> str:
    """What is about to happen, in lines."""
    from gepa_lite.core.money import dollars

    spec = prepared.spec
    budget = spec.budget
    rewrites = f"{reflection_lm} rewrites them" if reflection_lm else "rewrites them too"
    lines = [
        "The demo: sort the post of Fernpost, a shop that sends house plants, by house rules that the first prompts do not know.",
        f"Models:   {lm} runs the prompts; {rewrites}.",
        f"Examples: {len(spec.train)} to learn from, {len(spec.validation)} to compare candidates on, {len(spec.test)} sealed for the test.",
        f"Budget:   {budget.describe()}.",
    ]
    if budget.usd is not None:
        lines.append(f"Cost:     at most {dollars(budget.usd)} USD: the run stops before a call that might pass it.")
    elif not all(spec.describe(lm).priced for lm in spec.models):
        lines.append(f"Cost:     a model's price is not known, so dollars are not capped; {budget.describe()} is what bounds it.")
    if lm.startswith("local/") and budget.rollouts is not None:
        lines.append(
            f"Time:     about {max(1, round(budget.rollouts * SECONDS_PER_ROLLOUT / 60))} minutes on two free CPU cores. Ctrl-C stops it; it can be resumed."
        )
    return "\n".join(lines)


def _next_steps(folder: Path, bundle: Path) -> str:
    return "\n".join(
        [
            "",
            "What to try next:",
            f"  gepa-lite show {folder}",
            f"  gepa-lite show {folder} --candidate 0     # the prompts it started from",
            f"  python -c 'import gepa_lite as gl; print(dict(gl.load_prompts(\"{bundle}\")))'",
        ]
    )
