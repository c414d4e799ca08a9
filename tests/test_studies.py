"""The studies: their statistics against known tables, cells that go on, and the two that need a model on scripted ones."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import cells, study, study_local, study_pages, study_runs
from benchmarks.report import Options
from benchmarks.search_code import code_hash
from benchmarks.study_runs import Cells, LateLandscape, Variant, play, starting_texts
from benchmarks.study_tables import beside_base, over_starts, rank_correlations, transfer_table, variance_table
from gepa_lite import Search
from gepa_lite.testing import LANDSCAPES, landscape
from gepa_lite.testing.landscape_words import sentences_of

pytest.importorskip("matplotlib")
SEEDS = range(8)


def scores_of(effect: Any, tasks: tuple[str, ...] = ("a", "b"), noise: float = 0.01) -> dict[str, dict[str, list[float]]]:
    """Scores of all 27 settings by a known rule, with noise and a level for each task and seed."""
    dice = np.random.default_rng(0)
    blocks = {(task, seed): dice.normal() for task in tasks for seed in SEEDS}
    return {
        name: {task: [blocks[task, seed] + effect(levels, task) + noise * dice.normal() for seed in SEEDS] for task in tasks}
        for name, levels in study.SETTINGS.items()
    }


def test_planted_effects_and_interactions_are_found_and_no_others() -> None:
    def effect(levels: dict[str, str], task: str) -> float:
        return (levels["start"] == "half") * 1.0 + (levels["horizon"] == "1" and levels["minibatch"] == "3") * 0.5

    table = {entry["term"]: entry for entry in variance_table(scores_of(effect), study.SETTINGS)}
    assert table["start"]["share"] > 0.8
    assert table["horizon x minibatch"]["p"] < 1e-6
    assert table["start x horizon"]["p"] > 0.001
    assert sum(entry["share"] for entry in table.values()) == pytest.approx(1)
    assert (table["start"]["df"], table["start x horizon x minibatch"]["df"]) == (2, 8)
    assert table["Residual"]["df"] == 27 * 16 - 16 - 26


def test_the_variance_table_is_the_one_with_blocks_as_dummies() -> None:
    """Taking out the blocks' means is the same as fitting them."""
    import pandas as pd
    from statsmodels.formula.api import ols
    from statsmodels.stats.anova import anova_lm

    scores = scores_of(lambda levels, task: (levels["start"] == "half") * (0.1 + 0.2 * (task == "a")), noise=0.1)
    rows = [
        {**study.SETTINGS[name], "block": f"{task} {place}", "score": value}
        for name, row in scores.items()
        for task, values in row.items()
        for place, value in enumerate(values)
    ]
    full = anova_lm(ols("score ~ C(block) + C(start) * C(horizon) * C(minibatch)", data=pd.DataFrame(rows)).fit(), typ=2)
    ours = {entry["term"]: entry for entry in variance_table(scores, study.SETTINGS)}
    assert ours["start"]["F"] == pytest.approx(full.loc["C(start)", "F"])
    assert ours["horizon x minibatch"]["p"] == pytest.approx(full.loc["C(horizon):C(minibatch)", "PR(>F)"])
    crossed = {entry["term"]: entry for entry in variance_table(scores, study.SETTINGS, by_task=True)}
    assert crossed["task x start"]["p"] < 0.01 < crossed["task x horizon"]["p"]


def test_a_setting_that_serves_one_task_alone_is_told_from_one_that_serves_both() -> None:
    def opposite(levels: dict[str, str], task: str) -> float:
        return float(levels["minibatch"] == ("1" if task == "a" else "5"))

    entries = {(e["from"], e["to"]): e for e in transfer_table(over_starts(scores_of(opposite), study.SETTINGS))}
    assert entries["a", "b"]["beside"] == pytest.approx(-1, abs=0.05)
    assert entries["a", "a"]["beside"] == 0
    alike = over_starts(scores_of(lambda levels, task: float(levels["minibatch"])), study.SETTINGS)
    assert len(alike) == 9
    assert all(abs(e["beside"]) < 0.05 for e in transfer_table(alike))
    assert rank_correlations(alike)[0]["rho"] > 0.8


def test_settings_beside_a_base_are_paired_by_seed() -> None:
    base = {"a": [0.1, 0.5, 0.9, 0.3], "b": [0.2, 0.4, 0.6, 0.8]}
    better = {task: [value + 0.05 for value in row] for task, row in base.items()}
    (entry,) = beside_base({"base": base, "better": better}, "base")
    assert (entry["low"], entry["high"]) == (pytest.approx(0.05), pytest.approx(0.05))
    assert (entry["above"], entry["below"]) == (["a", "b"], [])


def test_faults_are_told_late_and_few_reviews_are_read() -> None:
    land, late = landscape("six-modules", 1), LateLandscape(LANDSCAPES["six-modules"], 1)
    moved = same = 0
    for example in land.train:
        own, other = land.judge(land.seed_texts, example), late.judge(land.seed_texts, example)
        assert own.score == other.score
        assert sum(map(len, own.modules.values())) <= sum(map(len, other.modules.values())) + 2
        places = [max(map(land.modules.index, found.modules)) for found in (own, other) if found.modules]
        if len(places) == 2:
            assert places[1] >= places[0], "never earlier"
            moved, same = moved + (own.modules != other.modules), same + (own.modules == other.modules)
    assert moved > 3
    assert same > 3
    reviews = [late.judge(late.seed_texts, example).text for example in late.train][:10]
    assert late.reflect("read", late.seed_texts["read"], reviews, 1) == late.reflect("read", late.seed_texts["read"], reviews, 1)


def test_starting_artifacts() -> None:
    land = landscape("three-modules", 0)
    half = starting_texts(land, "half")
    assert all(len(sentences_of(text)) == 3 for text in half.values())
    assert land.held_out(land.seed_texts) < land.held_out(half) < land.attainable
    assert land.held_out(starting_texts(land, "wordy")) <= land.held_out(land.seed_texts)


def test_cells_go_on_and_other_rules_are_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cells.json"
    variants = {"one": Variant(Search.paper()), "other": Variant(Search.paper(minibatch=1))}
    assert Cells(path, variants, 200).fill(["one-easy"], [0, 1], until=0.0) == 4
    assert Cells(path, variants, 200).fill(["one-easy"], [0, 1]) == 0
    asked: list[str] = []
    monkeypatch.setattr(
        study_runs, "play", lambda variant, name, seed, rollouts: asked.append(variant.words) or play(variant, name, seed, rollouts)
    )
    kept = Cells(path, variants, 200)
    assert kept.fill(["one-easy"], [0, 1]) == 0
    assert asked == []
    assert kept.scores("one", "one-easy", [1], 200) == [play(variants["one"], "one-easy", 1, 200)[0]]
    changed = {**variants, "other": Variant(Search.paper(minibatch=2))}
    monkeypatch.setattr(study_runs, "code_hash", lambda: "another")
    assert Cells(path, changed, 200).fill(["one-easy"], [0, 1]) == 0
    assert Cells(path, changed, 200).made_by(["one-easy"], [0, 1]) == [code_hash()] * 2 + ["another"] * 2
    assert asked == [changed["other"].words] * 2


@pytest.mark.parametrize("name", study.STUDIES)
def test_each_study_has_its_page_its_plot_and_its_result(name: str) -> None:
    page = (study_pages.DOCS / f"{name}.md").read_text("utf-8")
    assert f"python -m benchmarks study {name}" in page
    assert (study_pages.DOCS / f"{name}.png").stat().st_size > 5_000
    found = json.loads((study_runs.RESULTS / f"{name}.json").read_text())
    assert found["n"] >= 12
    kept = json.loads((study_runs.RESULTS / f"{study.STUDIES[name].cells}-cells.json").read_text())
    own = study.STUDIES[name]
    assert kept["rules"] == {variant: one.words for variant, one in own.variants.items()}
    cells = Cells(study_runs.RESULTS / f"{own.cells}-cells.json", own.variants, own.rollouts)
    scores = {variant: {task: cells.scores(variant, task, own.seeds, own.rollouts) for task in own.tasks} for variant in own.variants}
    _, told, tables = own.conclude(scores, None)
    assert tables in page, "the page's tables are those of the kept cells"
    assert_alike(json.loads(json.dumps(told)), {key: found[key] for key in told})


def assert_alike(ours: Any, kept: Any) -> None:
    """The same data, but for the last digits, which depend on the machine's linear algebra."""
    if isinstance(kept, float):
        assert ours == pytest.approx(kept, rel=1e-6, abs=1e-12)
    elif isinstance(kept, dict):
        assert ours.keys() == kept.keys()
        for key, value in kept.items():
            assert_alike(ours[key], value)
    elif isinstance(kept, list):
        assert len(ours) == len(kept)
        for one, other in zip(ours, kept, strict=True):
            assert_alike(one, other)
    else:
        assert ours == kept


def test_a_page_keeps_the_words_around_its_tables(tmp_path: Path) -> None:
    study_pages.write_page("x", "old", tmp_path)
    page = tmp_path / "x.md"
    page.write_text(page.read_text() + "\nMine.\n")
    study_pages.write_page("x", r"new \1", tmp_path)
    assert "old" not in page.read_text()
    assert page.read_text().endswith("\nMine.\n")
    assert r"new \1" in page.read_text()


def test_the_studies_on_models_run_on_scripted_ones(tmp_path: Path) -> None:
    with study_local._scripted() as plan:
        report = study_local.feedback_study(plan)
        assert [row.measure for row in report.rows] == [
            "score beside full words: test",
            "noisy beside full words: test",
            "seed prompts: test",
        ]
        files = sorted(path.name for path in plan.results.rglob("*.json"))
        assert files == [f"fernpost-local--{degree}--0.json" for degree in ("full", "noisy", "score")]
        before = sum(lm.asked.calls for lm in plan._opened.values())
        assert study_local.feedback_study(plan).rows == report.rows
        assert sum(lm.asked.calls for lm in plan._opened.values()) == before, "kept runs are not run again"
        moved = study_local.transfer_study(plan)
        assert [entry["from"] for entry in moved.extra["transfer"]] == ["scripted-a", "scripted-a", "scripted-b", "scripted-b"]
        assert all(entry["score"] > entry["seed"] for entry in moved.extra["transfer"])


def test_the_study_of_feedback_takes_a_search_with_full_words_from_the_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    with study_local._scripted() as plan:
        cell = cells.Cell("fernpost-local", "gepa_lite", 0, "scripted-a", 100)
        cells.run_cell(cell, plan.model("scripted-a"), plan.runs)
        made = json.loads(cell.file(plan.runs).read_text("utf-8"))
        before = plan.model("scripted-a").asked.calls
        found = study_local._degree_cell(plan, "scripted-a", "fernpost-local", "full", 0)
        assert plan.model("scripted-a").asked.calls == before, "paid for once"
        assert (found["test"], found["test_values"], found["prompts"]) == (made["figures"]["test"], made["test_values"], made["prompts"])
        monkeypatch.setattr(cells, "code_hash", lambda: "another")
        assert study_local._from_suite(plan, cell) is None, "a search by another state of the code is another search"


def test_a_quick_study_writes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(study, "RESULTS", tmp_path)
    monkeypatch.setattr(study_pages, "DOCS", tmp_path)
    monkeypatch.setattr(study, "STUDIES", {"merge": dataclasses.replace(study.STUDIES["merge"], rollouts=200)})
    report = study.run(Options(quick=True, rest=("merge",)))
    assert report.n == 2
    assert list(tmp_path.iterdir()) == []
