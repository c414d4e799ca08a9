"""The splits of the GEPA paper (arXiv 2507.19457, as in its artifact), as functions of the rows in the order of their public files."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from gepa_lite.errors import UsageError

BUDGETS = {"hotpotqa": 6871, "ifbench": 3593, "hover": 7051, "pupa": 2426, "aime": 1839, "livebench_math": 1839}
"""Rollouts of each benchmark: what MIPROv2 (heavy) used there."""

TEST_GRID = {"hotpotqa": 300, "hover": 300, "aime": 150}
"""Test scores are multiples of one over this."""

Rows = Sequence[Any]
Split = dict[str, list[Any]]
"""``train``, ``val`` and ``test``."""


def hotpotqa(rows: Rows) -> Split:
    """150/300/300: the first 40 % are test, the next 40 % validation, the rest training; each trimmed by ``Random(1).sample``."""
    return _trimmed(_forty_forty_twenty(rows))


def hover(rows: Rows) -> Split:
    """150/300/300 of the rows with exactly three gold titles, shuffled by ``Random(0)``, then as HotpotQA."""
    kept = [row for row in rows if len(set(row["gold_titles"])) == 3]
    random.Random(0).shuffle(kept)
    return _trimmed(_forty_forty_twenty(kept))


def ifbench(train_file: Rows, test_file: Rows) -> Split:
    """150/300/294: validation is the first 300 rows of the training file, training 150 of the next 300; test is the official file."""
    _need("ifbench", train_file, 600)
    return {"train": random.Random(1).sample(list(train_file[300:600]), 150), "val": list(train_file[:300]), "test": list(test_file)}


def pupa(rows: Rows) -> Split:
    """111/111/221 of PUPA-New, in the file's order."""
    _need("pupa", rows, 443)
    return {"train": list(rows[:111]), "val": list(rows[111:222]), "test": list(rows[222:443])}


def aime(problems_2022_2024: Rows, problems_2025: Rows) -> Split:
    """45/45/150: the 90 problems of three years, shuffled by ``Random(0)``; test is each problem of 2025 five times, a repeat with its number."""
    _need("aime", problems_2022_2024, 90)
    shuffled = list(problems_2022_2024)
    random.Random(0).shuffle(shuffled)
    half = len(shuffled) // 2
    return {"train": shuffled[:half], "val": shuffled[half:], "test": [(row, repeat) for repeat in range(5) for row in problems_2025]}


def livebench_math(rows: Rows) -> Split:
    """121/121/126 of 368: shuffled by ``Random(0)``, 33 %, 33 % and the rest."""
    shuffled = list(rows)
    random.Random(0).shuffle(shuffled)
    third = int(0.33 * len(shuffled))
    return {"train": shuffled[:third], "val": shuffled[third : 2 * third], "test": shuffled[2 * third :]}


def bbeh(rows: Rows) -> Split:
    """15/10/the rest of one BBEH task, in the file's order (learning loops, arXiv 2603.23994)."""
    _need("bbeh", rows, 26)
    return {"train": list(rows[:15]), "val": list(rows[15:25]), "test": list(rows[25:])}


def _forty_forty_twenty(rows: Rows) -> Split:
    _need("hotpotqa and hover", rows, 750)
    first, second = int(0.4 * len(rows)), int(0.8 * len(rows))
    return {"test": list(rows[:first]), "val": list(rows[first:second]), "train": list(rows[second:])}


def _trimmed(split: Split) -> Split:
    return {name: random.Random(1).sample(split[name], size) for name, size in (("train", 150), ("val", 300), ("test", 300))}


def _need(what: str, rows: Rows, count: int) -> None:
    if len(rows) < count:
        raise UsageError(
            f"the paper's split of {what} needs at least {count} rows, and there are {len(rows)}: use the sets named *-local instead."
        )
