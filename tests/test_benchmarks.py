"""Every name that ``python -m benchmarks`` offers is a benchmark."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import search as search_bench
from benchmarks import search_runs
from benchmarks.report import Options
from benchmarks.search_code import code_hash
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


def test_a_cell_keeps_the_state_of_the_code_that_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "paper.json"
    fill(Cells(tmp_path, "paper"), ["one-easy"], [0], until=float("inf"))
    kept = json.loads(path.read_text())
    assert kept["search_code"] == {"one-easy": {"0": code_hash()}}
    # as files were before they kept it
    del kept["search_code"]
    old = json.dumps(kept)
    path.write_text(old)
    assert fill(Cells(tmp_path, "paper"), ["one-easy"], [0], until=float("inf")) == 0
    assert json.loads(path.read_text()) == json.loads(old), "a kept cell is not claimed by the code as it is"
    monkeypatch.setattr(search_runs, "code_hash", lambda: "another")
    fill(Cells(tmp_path, "paper"), ["one-easy"], [1], until=float("inf"))
    assert Cells(tmp_path, "paper").made_by(["one-easy", "noisy"], [0, 1, 2]) == [None, "another"]


def test_a_report_says_which_kept_cells_another_state_of_the_code_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for optimizer in ("defaults", "paper", "peer", "peer-merge"):
        cells = Cells(tmp_path, optimizer)
        for seed in (0, 1):
            cells.add("one-easy", seed, search(optimizer, "one-easy", seed))
        cells.save()
    kept = json.loads((tmp_path / "paper.json").read_text())
    kept["search_code"]["one-easy"] = {"0": "another"}
    (tmp_path / "paper.json").write_text(json.dumps(kept))
    report = search_bench.run(Options(seeds=(0, 1), rest=("--landscapes", "one-easy", "--cells", str(tmp_path))))
    told = "kept cells of another or an unknown state of the search code, of 4"
    assert (report.rows[0].measure, report.rows[0].ours, report.rows[0].goal) == (told, 2, "1 by another, 1 unknown")
    assert report.extra["search_code"]["cells"] == {code_hash(): 2, "another": 1, "unknown": 1}
    assert (
        "2 of 4 kept cells were made by another or an unknown state of the search code: 1 by another, 1 unknown." in capsys.readouterr().err
    )


@pytest.mark.parametrize("side", ["ours", "peer", "best"])
def test_utilization_is_measured_over_real_http(side: str) -> None:
    rules = OURS["fan 2 window 1"] if side == "ours" else peer_settings("default" if side == "peer" else "best")
    found = measure(Course("peer" if side == "best" else side, "", 8, 0.01, 40), rules, seconds=0.01)
    assert found["calls"] >= 14
    assert found["reflections"] >= 1
    assert 0 < found["busy"] < 1
