"""A study's page and plot in ``docs/studies``: the command rewrites the tables between the page's marks, and leaves the words around them to their author."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs" / "studies"
_TABLES = re.compile(r"<!-- tables -->.*<!-- end of tables -->", re.DOTALL)


def write_page(study: str, tables: str, folder: Path = DOCS) -> None:
    """Put the tables into the page of a study; a page that is not there is begun with them alone."""
    path = folder / f"{study}.md"
    block = f"<!-- tables -->\n{tables.strip()}\n<!-- end of tables -->"
    page = path.read_text("utf-8") if path.exists() else f"# {study}\n\n{block}\n"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(_TABLES.sub(lambda _: block, page), "utf-8")


def bars(path: Path, rows: Sequence[tuple[str, float, float, float]], title: str, label: str) -> None:
    """Differences with their intervals, one a line, around zero.

    Args:
        path: of the image.
        rows: name, value, lower and upper end.
        title: of the image.
        label: of the axis.
    """
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(6.5, 0.9 + 0.42 * len(rows)))
    places = range(len(rows))[::-1]
    for place, (_, value, low, high) in zip(places, rows, strict=True):
        colour = "#b5483a" if high < 0 else "#2f6f4f" if low > 0 else "#777777"
        axes.plot([low, high], [place, place], color=colour, linewidth=2)
        axes.plot([value], [place], "o", color=colour)
    axes.axvline(0, color="#333333", linewidth=0.8)
    axes.set_yticks(list(places), [name for name, *_ in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel(label)
    axes.set_title(title, fontsize=10)
    _finish(figure, path)


def lines(path: Path, panels: Mapping[str, Mapping[str, Mapping[str, float]]], label: str) -> None:
    """One panel a factor: a line a task over the factor's levels.

    Args:
        path: of the image.
        panels: by factor, by task, by level.
        label: of the vertical axis.
    """
    pyplot = _pyplot()
    figure, found = pyplot.subplots(1, len(panels), figsize=(3.3 * len(panels), 3.2), sharey=True)
    for axes, (factor, tasks) in zip(found, panels.items(), strict=True):
        for task, levels in tasks.items():
            bold = task == "all"
            axes.plot(
                list(levels),
                list(levels.values()),
                marker="o",
                label=task,
                color="#222222" if bold else None,
                linewidth=2.4 if bold else 1.2,
            )
        axes.set_title(factor, fontsize=10)
        axes.margins(x=0.12)
    found[0].set_ylabel(label)
    figure.legend(*found[0].get_legend_handles_labels(), loc="lower center", ncols=6, fontsize=8, frameon=False)
    _finish(figure, path, bottom=0.1)


def heat(path: Path, names: Sequence[str], values: Mapping[tuple[str, str], float], title: str, labels: tuple[str, str]) -> None:
    """A square table in colours, with its numbers.

    Args:
        path: of the image.
        names: of rows and columns.
        values: by row and column.
        title: of the image.
        labels: of the columns' axis and of the rows'.
    """
    pyplot = _pyplot()
    size = 1.6 + 0.95 * len(names)
    figure, axes = pyplot.subplots(figsize=(size + 1.2, size))
    grid = [[values[row, column] for column in names] for row in names]
    widest = max(0.01, *(abs(cell) for row in grid for cell in row))
    axes.imshow(grid, cmap="RdYlGn", vmin=-widest, vmax=widest)
    for y, row in enumerate(grid):
        for x, cell in enumerate(row):
            axes.text(x, y, f"{cell:+.3f}", ha="center", va="center", fontsize=9)
    axes.set_xticks(range(len(names)), names, rotation=25, ha="right", fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.set_title(title, fontsize=10)
    _finish(figure, path)


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _finish(figure: Any, path: Path, bottom: float = 0.0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout(rect=(0, bottom, 1, 1))
    # no date and no library version in the file: the same figures give the same bytes
    figure.savefig(path, dpi=110, metadata={"Software": None})
    _pyplot().close(figure)
