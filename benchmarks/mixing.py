"""``python -m benchmarks mixing``: the share of a weak reflection model falls from 100 % to 0; what becomes of refinement and of the final score."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from benchmarks.report import Options, Report, Row
from benchmarks.trajectory_runs import MODELS, play

TASKS = ("one-easy", "three-modules", "noisy", "deceptive", "overfitting", "mixed")
SHARES = (1.0, 0.8, 0.6, 0.4, 0.2, 0.0)
STRONG, WEAK = "steady", "weak"
ROLLOUTS = 1_000
STUDY = "r .99, .45, .96 on three of its tasks"


def run(options: Options) -> Report:
    """Play the mixes."""
    tasks = TASKS[:2] if options.quick else TASKS
    seeds = options.seeds if len(options.seeds) > 1 else (0, 1) if options.quick else (0, 1, 2, 3)
    rollouts = 300 if options.quick else ROLLOUTS
    cells: list[dict[str, Any]] = []
    for task in tasks:
        for share in SHARES:
            for seed in seeds:
                found = play(
                    task, {WEAK: share, STRONG: 1 - share} if 0 < share < 1 else {WEAK if share else STRONG: 1.0}, MODELS, seed, rollouts
                )
                rates = {name: rates.rate for name, rates in found.measures.models.items()}
                cells.append(
                    {
                        "task": task,
                        "weak": share,
                        "seed": seed,
                        "final": found.final,
                        "refinement": found.measures.all.rate,
                        "by_model": rates,
                    }
                )
    rows = [row for share in SHARES for row in _rows(share, [cell for cell in cells if cell["weak"] == share])]
    means = {task: [_mean(cells, "final", share, task) for share in SHARES] for task in tasks}
    refining = {task: [_mean(cells, "refinement", share, task) for share in SHARES] for task in tasks}
    for task in tasks:
        rows.append(
            Row(f"r(final, refinement) over the shares, {task}", _pearson(means[task], refining[task]), STUDY if task == tasks[0] else None)
        )
    finals, refinements = ([_mean(cells, name, share) for share in SHARES] for name in ("final", "refinement"))
    rising = all(later >= earlier for earlier, later in pairwise(refinements))
    rows.append(Row("r(final, refinement) over the shares, all", _pearson(finals, refinements)))
    rows.append(Row("refinement rises with each step", str(rising), goal="monotone", met=rising))
    higher = finals[-1] > finals[0]
    rows.append(Row("final: none of the weak one less all of it", finals[-1] - finals[0], goal="above 0", met=higher))
    if options.rest:
        draw(cells, tasks, Path(options.rest[0]))
    return Report(
        "mixing", rows, n=len(cells), seeds=seeds, model=f"simulated: {WEAK} in {STRONG}", extra={"rollouts": rollouts, "cells": cells}
    )


def _rows(share: float, cells: Sequence[dict[str, Any]]) -> list[Row]:
    finals = [cell["final"] for cell in cells]
    error = stdev(finals) / len(finals) ** 0.5 if len(finals) > 1 else 0.0
    return [
        Row(f"weak share {share:.0%}: refinement rate", fmean(cell["refinement"] for cell in cells)),
        Row(f"weak share {share:.0%}: final, of the attainable (SE {error:.3f})", fmean(finals)),
    ]


def _mean(cells: Sequence[dict[str, Any]], name: str, share: float, task: str | None = None) -> float:
    return fmean(cell[name] for cell in cells if cell["weak"] == share and task in (None, cell["task"]))


def _pearson(one: Sequence[float], other: Sequence[float]) -> float:
    return float(np.corrcoef(one, other)[0, 1])


def draw(cells: Sequence[dict[str, Any]], tasks: Sequence[str], path: Path) -> None:
    """Refinement rate and final score against the share of the weak model, a thin line a landscape and a thick one for their mean."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    places = [100 * share for share in SHARES]
    for axes, name, title in zip(
        figure.subplots(1, 2), ("refinement", "final"), ("refinement rate", "final score, of the attainable"), strict=True
    ):
        for task in tasks:
            axes.plot(places, [_mean(cells, name, share, task) for share in SHARES], linewidth=0.8, alpha=0.6, label=task)
        axes.plot(places, [_mean(cells, name, share) for share in SHARES], "ko-", linewidth=2, label="mean")
        axes.set(xlabel="share of the weak reflection model, %", title=title)
        axes.invert_xaxis()
    figure.axes[0].legend(fontsize=7)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
