"""The matrix of candidates and examples: a picture of one pixel a cell, however many there are, with the hardest examples to the right."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from gepa_lite.insight.trail import Trail
from gepa_lite.report.svg import picture, tag, thin, tip

MOST_ROWS = 400
MOST_COLUMNS = 1_000
# worst to best, told apart by lightness alone, so that no colour need be seen; then what is missing
_RAMP = [(94, 36, 79), (140, 64, 96), (190, 103, 104), (226, 149, 110), (246, 200, 133), (252, 245, 196)]
_MISSING = (128, 128, 128)


@dataclass(frozen=True)
class Matrix:
    """Which cells are shown.

    Attributes:
        rows: candidates, by index.
        columns: places of the validation examples, the easiest first.
        levels: shape (rows, columns): 0 for the worst to ``len(_RAMP) - 1``; ``len(_RAMP)`` is missing.
        values: the same cells, in the user's own direction.
    """

    rows: Sequence[int]
    columns: Sequence[int]
    levels: NDArray[np.uint8]
    values: NDArray[np.float64]


def matrix_of(trail: Trail, rows: Sequence[int] | None = None) -> Matrix:
    """The cells of some candidates; of all, thinned evenly, without ``rows``."""
    places = list(rows) if rows is not None else thin(trail.nodes, MOST_ROWS)
    table = np.array([trail.rows[place] for place in places]) if places else np.zeros((0, 0))
    if not table.size:
        return Matrix([], [], np.zeros((0, 0), dtype=np.uint8), table)
    known = ~np.isnan(table)
    means = np.where(known, table, 0.0).sum(axis=0) / np.maximum(1, known.sum(axis=0))
    order = np.argsort(-means, kind="stable")
    columns = [int(order[place]) for place in thin(range(len(order)), MOST_COLUMNS)]
    table = table[:, columns]
    objective = trail.objective
    shares = (table - objective.worst) / (objective.best - objective.worst)
    levels = np.where(np.isnan(table), len(_RAMP), np.clip(np.nan_to_num(shares) * (len(_RAMP) - 1), 0, len(_RAMP) - 1).round())
    return Matrix(places, columns, levels.astype(np.uint8), table if objective.direction == "maximize" else -table)


def matrix_picture(matrix: Matrix, words: str) -> Markup:
    """The whole matrix as a picture of one pixel a cell; the page's style scales it without smoothing."""
    height, width = matrix.levels.shape
    if not height:
        return Markup("")
    source = f"data:image/png;base64,{base64.b64encode(_png(matrix.levels)).decode()}"
    return tag("img", class_="matrix", src=source, alt=words, width=max(300, min(720, 6 * width)), height=max(60, min(480, 4 * height)))


def matrix_chart(matrix: Matrix, trail: Trail) -> Markup:
    """A few candidates with a label each and a cell for each example; hovering says which."""
    if not len(matrix.rows) or not len(matrix.columns) or trail.started is None:
        return Markup("")
    width = 860
    cell = (width - 110) / len(matrix.columns)
    ids = trail.started.validation_ids
    parts = []
    for row, index in enumerate(matrix.rows):
        y = 4 + 16 * row
        mean = trail.nodes[index].mean
        label = f"#{index}" if mean is None else f"#{index} {trail.objective.score(mean):.3f}"
        parts.append(tag("text", label, class_="tick", x=100, y=y + 12, text_anchor="end"))
        for place, column in enumerate(matrix.columns):
            level, value = int(matrix.levels[row, place]), matrix.values[row, place]
            word = "not run" if np.isnan(value) else f"{value:g}"
            kind = f"cell level{level}"
            parts.append(
                tag(
                    "rect",
                    tip(f"#{index} on {ids[column]}: {word}"),
                    class_=kind,
                    x=108 + place * cell,
                    y=y,
                    width=max(0.5, cell - 0.6),
                    height=15,
                )
            )
    words = f"Values of {len(matrix.rows)} candidates on {len(matrix.columns)} validation examples"
    return picture(width, 8 + 16 * len(matrix.rows), words, *parts)


def ramp() -> list[tuple[str, str]]:
    """Class and colour of each level, for the style sheet."""
    return [(f"level{place}", "#{:02x}{:02x}{:02x}".format(*colour)) for place, colour in enumerate([*_RAMP, _MISSING])]


def _png(levels: NDArray[np.uint8]) -> bytes:
    """A PNG with a palette (its specification: ISO/IEC 15948)."""
    height, width = levels.shape
    palette = bytes(channel for colour in [*_RAMP, _MISSING] for channel in colour)
    lines = b"".join(b"\x00" + row.tobytes() for row in levels)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"PLTE", palette), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
