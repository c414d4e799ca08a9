"""The paper's splits on synthetic rows, and the loaders where the data is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import data_sets, paper_splits
from gepa_lite.errors import UsageError

ROWS = list(range(5000))


@pytest.mark.parametrize(
    ("split", "sizes"),
    [
        (lambda: paper_splits.hotpotqa(ROWS), (150, 300, 300)),
        (lambda: paper_splits.hover([{"n": n, "gold_titles": "abcd"[: 2 + n % 3]} for n in ROWS]), (150, 300, 300)),
        (lambda: paper_splits.ifbench(ROWS, range(294)), (150, 300, 294)),
        (lambda: paper_splits.pupa(ROWS[:664]), (111, 111, 221)),
        (lambda: paper_splits.aime(range(90), range(1000, 1030)), (45, 45, 150)),
        (lambda: paper_splits.livebench_math(range(368)), (121, 121, 126)),
    ],
)
def test_split_sizes_are_the_papers(split: Any, sizes: tuple[int, int, int]) -> None:
    found = split()
    assert tuple(len(found[name]) for name in ("train", "val", "test")) == sizes
    assert found == split()


def test_splits_are_cut_where_the_paper_cuts_them() -> None:
    hotpot = paper_splits.hotpotqa(ROWS)
    assert max(hotpot["test"]) < 2000 <= min(hotpot["val"]) <= max(hotpot["val"]) < 4000 <= min(hotpot["train"])
    hover = paper_splits.hover([{"n": n, "gold_titles": "abcd"[: 2 + n % 3]} for n in ROWS])
    assert all(len(row["gold_titles"]) == 3 for rows in hover.values() for row in rows)
    assert len({row["n"] for rows in hover.values() for row in rows}) == 750
    assert paper_splits.pupa(ROWS)["val"] == ROWS[111:222]
    ifbench = paper_splits.ifbench(ROWS, [])
    assert ifbench["val"] == ROWS[:300]
    assert set(ifbench["train"]) <= set(ROWS[300:600])
    aime = paper_splits.aime(range(90), range(1000, 1030))
    assert sorted(aime["train"] + aime["val"]) == list(range(90))
    assert len(set(aime["test"])) == 150


def test_budgets_and_grids() -> None:
    assert sum(paper_splits.BUDGETS.values()) / 6 == 3936.5
    for name, score in (("hotpotqa", 62.33), ("hover", 52.33), ("aime", 32.00)):
        grid = paper_splits.TEST_GRID[name]
        assert abs(round(score / 100 * grid) / grid - score / 100) < 1e-4


def test_too_few_rows_and_unknown_sets_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least 750 rows"):
        paper_splits.hotpotqa(range(495))
    with pytest.raises(UsageError, match="there are hotpotqa-local"):
        data_sets.load("hotpot")
    monkeypatch.setenv("GEPA_LITE_DATA", str(tmp_path))
    with pytest.raises(UsageError, match="Set GEPA_LITE_DATA"):
        data_sets.load("trec-local")


@pytest.mark.parametrize("name", data_sets.DATA_SETS)
def test_every_set_loads_where_the_data_is(name: str) -> None:
    if not data_sets.data_folder().is_dir():
        pytest.skip("the data is not here")
    rows = data_sets.load(name)
    assert rows
    assert sum(map(len, data_sets.load_splits(name).values())) == len(rows)
