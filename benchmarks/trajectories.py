"""``python -m benchmarks trajectories``: the trajectory study's own analyses on simulated runs of ours: eight reflection models on six landscapes.

``python -m benchmarks trajectories -- FOLDER...`` measures the finished runs under some folders instead. It opens their files: give it copies of what must not be touched.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from benchmarks.report import Options, Report, Row
from benchmarks.trajectory_models import Fit, breakthroughs, within_task
from benchmarks.trajectory_recorded import recorded
from benchmarks.trajectory_runs import MODELS, run_row

TASKS = ("one-easy", "three-modules", "noisy", "deceptive", "overfitting", "mixed")
ROLLOUTS = 1_000

STUDY: Sequence[tuple[tuple[str, ...], str]] = (
    (("novelty",), "-.027 (.710)"),
    (("first_novelty",), "-.042 (.681)"),
    (("one_shot",), ".322 (.016)"),
    (("breakthrough",), ".445 (<.001)"),
    (("refinement",), ""),
    (("held_up",), ""),
    (("distance",), ""),
    (("one_shot", "breakthrough"), ".226, .389"),
    (("one_shot", "distance"), ".233 (.028), -.329 (.001)"),
    (("one_shot", "held_up", "distance"), ""),
    (("one_shot", "refinement", "distance"), ".144 (.112), .528 (<.001), -.024 (.838)"),
)
"""Sets of predictors, and what the study found with 15 language models on 8 tasks."""

STUDY_MIXED = {
    "h_fitness": ("-.073*", "-.074*"),
    "h_spatial": ("-.015", ".012"),
    "mean_novelty": (".070**", ".016"),
    "max_novelty": (".029", ".006"),
    "mean_novelty:h_spatial": ("-.090***", "-.051***"),
    "generation": ("-.250", "-.193"),
}


def run(options: Options) -> Report:
    """Play the runs and fit the models, or measure those that are there."""
    if options.rest:
        return recorded(options.rest)
    import pandas as pd

    tasks = TASKS[:3] if options.quick else TASKS
    seeds = options.seeds if len(options.seeds) > 1 else (0, 1) if options.quick else (0, 1, 2)
    rollouts = 300 if options.quick else ROLLOUTS
    rows: list[dict[str, Any]] = []
    generations: list[dict[str, Any]] = []
    for task in tasks:
        for model in MODELS:
            for seed in seeds:
                row, course = run_row(task, model, seed, rollouts)
                rows.append(row)
                generations += course
    runs, steps = pd.DataFrame(rows), pd.DataFrame(generations)
    measures = ["final", "one_shot", "breakthrough", "refinement", "held_up", "distance", "novelty", "first_novelty"]
    pairs = runs.groupby(["task", "model"], as_index=False)[measures].mean()
    table = _within(pairs) + _mixed(steps)
    return Report(
        "trajectories",
        table,
        n=len(runs),
        seeds=seeds,
        model="simulated reflection models",
        extra={
            "rollouts": rollouts,
            "pairs": len(pairs),
            "generations": len(steps),
            "models": json.loads(runs.groupby("model")[[*measures, "proposals"]].mean().round(4).to_json(orient="index")),
            "tasks": list(tasks),
        },
    )


def _within(pairs: Any) -> list[Row]:
    """Ours beside the study's: effects and the variance within tasks that they explain."""
    table = []
    for predictors, study in STUDY:
        fit = within_task(pairs, predictors)
        words = ", ".join(f"{effect.beta:+.3f} ({_p(effect.p)})" for effect in fit.effects)
        table.append(Row(f"OLS: {' + '.join(predictors)}", words, study or None))
        table.append(Row(f"  R2 within tasks, {' + '.join(predictors)}", fit.r2))
    return table


def _mixed(steps: Any) -> list[Row]:
    fits: list[Fit] = [breakthroughs(steps, lagged) for lagged in (False, True)]
    table = []
    for place, (title, fit) in enumerate(zip(("concurrent", "lagged"), fits, strict=True)):
        table += [Row(f"mixed, {title}: {effect.name}", str(effect), STUDY_MIXED[effect.name][place]) for effect in fit.effects]
        residual, intercept = fit.variances
        table.append(Row(f"mixed, {title}: n, log likelihood", f"{fit.n}, {fit.likelihood:.1f}"))
        table.append(Row(f"mixed, {title}: residual and intercept variance", f"{residual:.3f}, {intercept:.3f}"))
    return table


def _p(value: float) -> str:
    return "<.001" if value < 0.001 else f"{value:.3f}"
