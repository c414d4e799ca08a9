"""The trajectory study's statistical models, on data whose truth is planted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gepa_lite as gl
from gepa_lite.testing import ScriptedLM
from tests import triage

pytest.importorskip("statsmodels")
pd = pytest.importorskip("pandas")

from benchmarks.trajectory_models import breakthroughs, standardized, within_task  # noqa: E402
from benchmarks.trajectory_recorded import recorded  # noqa: E402
from benchmarks.trajectory_runs import MODELS, run_row  # noqa: E402


def planted(seed: int = 0) -> Any:
    """15 models on 8 tasks: the final score rises with refinement alone, and refinement falls with distance."""
    draw = np.random.default_rng(seed)
    skill = draw.normal(size=15)
    rows = []
    for task in range(8):
        for model in range(15):
            refinement = 0.8 * skill[model] + 0.6 * draw.normal()
            distance = -0.8 * refinement + 0.6 * draw.normal()
            final = 0.6 * refinement + 0.6 * draw.normal() + 2.0 * task
            rows.append({"task": f"t{task}", "model": f"m{model}", "refinement": refinement, "distance": distance, "final": final})
    return pd.DataFrame(rows)


def test_distance_counts_alone_and_no_more_once_refinement_is_known() -> None:
    frame = planted()
    alone, both = within_task(frame, ["distance"]), within_task(frame, ["refinement", "distance"])
    assert alone.of("distance").beta < 0
    assert alone.of("distance").p < 0.001
    assert both.of("refinement").p < 0.001
    assert both.of("distance").p > 0.05
    assert both.r2 > alone.r2


def test_task_effects_and_clustered_errors_are_the_published_formulas() -> None:
    frame = standardized(planted(1), ["final", "refinement"])
    fit = within_task(planted(1), ["refinement"])
    # demeaned by task, by hand
    y = (frame["final"] - frame.groupby("task")["final"].transform("mean")).to_numpy()
    x = (frame["refinement"] - frame.groupby("task")["refinement"].transform("mean")).to_numpy()
    beta = x @ y / (x @ x)
    residual = y - beta * x
    meat = sum((x[rows] @ residual[rows]) ** 2 for rows in ((frame["model"] == model).to_numpy() for model in frame["model"].unique()))
    groups, count, parameters = 15, len(frame), 9
    factor = groups / (groups - 1) * (count - 1) / (count - parameters)
    effect = fit.of("refinement")
    assert effect.beta == pytest.approx(beta)
    assert effect.error == pytest.approx(np.sqrt(factor * meat) / (x @ x))
    assert fit.r2 == pytest.approx(1 - residual @ residual / (y @ y))
    assert (fit.n, fit.groups) == (120, 15)


def test_the_mixed_model_finds_what_is_planted_and_the_lag_drops_each_last_generation() -> None:
    draw = np.random.default_rng(2)
    rows = []
    for model in range(10):
        base = draw.normal() * 0.5
        for seed in range(4):
            for generation in range(12):
                novelty = draw.normal()
                outcome = base - 0.1 * generation + 0.5 * novelty + draw.normal()
                more = {name: draw.normal() for name in ("h_fitness", "h_spatial", "max_novelty")}
                where = {"task": "t", "model": f"m{model}", "seed": seed, "generation": generation}
                rows.append({**where, **more, "mean_novelty": novelty, "breakthrough": outcome})
    frame = pd.DataFrame(rows)
    now, later = breakthroughs(frame, lagged=False), breakthroughs(frame, lagged=True)
    assert (now.n, later.n) == (480, 440)
    assert now.of("mean_novelty").p < 0.001
    assert now.of("generation").beta < 0
    assert now.of("generation").p < 0.001
    assert now.of("h_fitness").p > 0.01
    assert later.of("mean_novelty").p > 0.01
    assert now.variances[1] > 0.05
    # an intercept without variance is no error
    flat = frame.assign(breakthrough=draw.normal(size=len(frame)))
    assert breakthroughs(flat, lagged=False).variances[1] >= 0


def test_a_simulated_run_is_one_row_and_its_generations() -> None:
    row, generations = run_row("one-easy", "steady", 0, 200)
    assert 0 < row["one_shot"] <= 1
    assert 0 < row["final"] <= 1
    assert 0 <= row["refinement"] <= 1
    assert [place["generation"] for place in generations] == list(range(len(generations)))
    assert run_row("one-easy", "steady", 0, 200)[0] == row
    assert set(MODELS) >= {"weak", "steady"}


def test_recorded_runs_are_measured_and_those_without_proposals_are_left_out(tmp_path: Path) -> None:
    results = {}
    for seed in range(5):
        results[seed] = gl.optimize(
            triage.program(),
            triage.rows(12, seed),
            triage.rows(12, 10 + seed),
            reflection_lm=triage.reflector(),
            budget=gl.Budget(proposals=4 + 2 * seed),
            search=gl.Search(seed=seed),
            run=tmp_path / f"run-{seed}",
        )
    gl.optimize(
        triage.program(),
        triage.rows(12, 1),
        triage.rows(12, 2),
        reflection_lm=ScriptedLM("nothing", name="mute"),
        budget=gl.Budget(proposals=4),
        run=tmp_path / "mute",
    )
    report = recorded([str(tmp_path)])
    assert report.n == 5
    for row, result in zip(report.extra["runs"], results.values(), strict=True):
        assert (
            row["validation"] - row["seed_validation"] == pytest.approx(result.validation.after - result.validation.before) == row["gain"]
        )
        assert row["refined"] <= row["valid"] <= row["proposals"] == len(result.state.proposals)
    assert {found["n"] for found in report.extra["correlations"].values()} == {5}
    pooled = {row.measure: row.ours for row in report.rows}
    valid = sum(row["valid"] for row in report.extra["runs"])
    assert f" of {valid} = " in str(pooled["all: refined of the valid, on the minibatch"])
    json.loads(report.json())
    with pytest.raises(gl.UsageError, match="no finished run"):
        recorded([str(tmp_path / "mute")])
