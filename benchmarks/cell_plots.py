"""Resource curves: the score on examples that no search sees, against rollouts, tokens and seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.cell_tables import at

AXES = ("rollouts", "tokens", "seconds")


def course(found: Sequence[Mapping[str, Any]], axis: str) -> tuple[list[float], list[float]]:
    """The mean over runs of the score on the curve's examples of the candidate that led: where any run rises, and to what; from where all have begun, to where the first has ended.

    Args:
        found: results of one optimizer on one task.
        axis: ``rollouts``, ``tokens`` or ``seconds``.
    """
    start = max(each["leads"][0][axis] for each in found)
    end = min(max(each["figures"][axis], each["leads"][-1][axis]) for each in found)
    places = sorted({start, end, *(lead[axis] for each in found for lead in each["leads"] if start <= lead[axis] <= end)})
    scores = [[score for each in found if (score := at(each, axis, place)) is not None] for place in places]
    return places, [fmean(row) for row in scores]


def plot(cells: Sequence[Mapping[str, Any]], names: Sequence[str], path: Path) -> Path:
    """Draw a row of three curves for each task to an image; needs matplotlib.

    Args:
        cells: results.
        names: the optimizers drawn.
        path: e.g. ``docs/images/local-suite.svg``.
    """
    from matplotlib.figure import Figure

    tasks = list(dict.fromkeys(cell["task"] for cell in cells if cell["optimizer"] in names))
    figure = Figure(figsize=(10, 2.6 * len(tasks)), layout="constrained")
    grid = figure.subplots(len(tasks), len(AXES), squeeze=False, sharey="row")
    for task, row in zip(tasks, grid, strict=True):
        for axis, axes in zip(AXES, row, strict=True):
            for name in names:
                found = [cell for cell in cells if (cell["task"], cell["optimizer"]) == (task, name)]
                if found:
                    places, scores = course(found, axis)
                    axes.step(places, scores, where="post", marker=".", label=f"{name} (n={len(found)})")
            axes.set_xlabel(axis)
        row[0].set_ylabel(task)
        row[0].legend(fontsize="small")
    figure.savefig(path)
    return path
