"""Every name that ``python -m benchmarks`` offers is a benchmark."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.search_runs import Cells, Outcome, fill, outcome_of, search
from benchmarks.search_tables import beside, holm, rollouts_to
from benchmarks.utilization import OURS, peer_settings
from benchmarks.utilization_task import Course, measure


def test_every_benchmark_that_is_offered_can_be_run() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--help"], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True
    ).stdout
    names = re.search(r"\{(.+?)\}", shown, re.DOTALL)
    assert names is not None
    for name in re.sub(r"\s", "", names[1]).split(","):
        assert callable(importlib.import_module(f"benchmarks.{name.replace('-', '_')}").run), name


def test_holms_correction_is_holms() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_curve_is_read_at_its_checkpoints() -> None:
    curve = [(40, 0.2), (200, 0.5), (1_500, 0.9), (2_100, 0.95)]
    assert outcome_of(curve, 1.0) == Outcome((0.5, 0.5, 0.5, 0.9), (1_500, None))
    assert outcome_of([(300, 0.1)], 1.0).at[0] == 0.1, "the seed's, before it was validated"


def test_a_search_that_never_gets_there_is_late_and_not_left_out() -> None:
    def outcomes(*spent: int | None) -> list[Outcome]:
        return [Outcome((0.0,) * 4, (rollouts, None)) for rollouts in spent]

    never = outcomes(None, None, None)
    found = rollouts_to(
        {"a": outcomes(100, 100, None), "b": outcomes(500, 500, 500), "c": never, "d": never},
        {"a": outcomes(400, 200, 400), "b": never, "c": never, "d": outcomes(9, 9, 9)},
        0,
        2_000,
    )
    ratios = {entry["landscape"]: entry["ratio"] for entry in found["landscapes"]}
    assert ratios == {"a": 0.25, "b": 500 / 2_000, "c": None, "d": None}
    assert found["median ratio"] == 0.25, "of 0.25, 0.25 and infinity"
    assert found["reached by"] == [2, 2]


def test_the_benchmark_tells_a_search_from_itself_by_nothing() -> None:
    outcomes = {"one-easy": [search("paper", "one-easy", 0), search("paper", "one-easy", 1)]}
    for entry in beside(outcomes, outcomes):
        assert (entry["low"], entry["high"], entry["holm"]) == (0, 0, 1)


def test_cells_are_kept_and_dropped_with_their_rules(tmp_path: Path) -> None:
    cells = Cells(tmp_path, "peer")
    assert fill(cells, ["graded"], [0, 1], until=float("inf")) == 0
    again = Cells(tmp_path, "peer")
    assert not list(again.lacking(["graded"], [0, 1]))
    assert list(again.lacking(["graded", "noisy"], [1, 2])) == [("graded", 2), ("noisy", 1), ("noisy", 2)]
    assert again.get("graded", [1]) == cells.get("graded", [1]) == [search("peer", "graded", 1)]
    text = (tmp_path / "peer.json").read_text()
    (tmp_path / "peer.json").write_text(text.replace(cells.rules, "gepa 0.0.1"))
    assert list(Cells(tmp_path, "peer").lacking(["graded"], [0])) == [("graded", 0)]
    assert fill(again, ["noisy"], [0], until=0.0) == 1, "out of time"


@pytest.mark.parametrize("side", ["ours", "peer", "best"])
def test_utilization_is_measured_over_real_http(side: str) -> None:
    rules = OURS["fan 2 window 1"] if side == "ours" else peer_settings("default" if side == "peer" else "best")
    found = measure(Course("peer" if side == "best" else side, "", 8, 0.01, 40), rules, seconds=0.01)
    assert found["calls"] >= 14
    assert found["reflections"] >= 1
    assert 0 < found["busy"] < 1
