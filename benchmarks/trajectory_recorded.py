"""What the trajectory study measures, of runs with real models that lie in folders: part of ``python -m benchmarks trajectories``. Descriptive: no test of anything."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gepa_lite as gl
from benchmarks.report import Report, Row
from gepa_lite.errors import UsageError
from gepa_lite.insight.stored import StoredRun, read_run
from gepa_lite.insight.trajectory import share_interval

GENERATION = 4
"""Valid proposals in a generation: one fan of our defaults, since a real run of 200 rollouts has few."""
PREDICTORS = ("refinement", "held_up", "breakthrough", "distance", "novelty")
LEAST = 5
"""Runs that a correlation needs."""


def recorded(folders: Sequence[str]) -> Report:
    """The measures of every finished run under some folders whose proposals had minibatches, and how they go together over the runs.

    Raises:
        UsageError: there is none.
    """
    rows = [row for folder in folders for file in sorted(Path(folder).rglob("run.db")) if (row := _row(Path(folder), file.parent))]
    if not rows:
        raise UsageError(f"There is no finished run with proposals under {', '.join(folders)}.")
    table = [Row(row["run"], _words(row)) for row in rows]
    table += [Row(f"all: {name}", words) for name, words in _pooled(rows)]
    correlations = _correlations(rows)
    table += [Row(f"rank correlation with the gain: {name}", rho, goal=f"n {n}") for name, (rho, n) in correlations.items()]
    models = sorted({model for row in rows for model in row["models"]})
    extra = {
        "generation": GENERATION,
        "runs": rows,
        "correlations": {name: {"rho": rho, "n": n} for name, (rho, n) in correlations.items()},
    }
    return Report("trajectories-recorded", table, n=len(rows), model=", ".join(models), extra=extra)


def _row(root: Path, folder: Path) -> dict[str, Any] | None:
    """A run's measures; None for one that is not finished, and for one whose proposals were not compared on minibatches."""
    stored = read_run(folder)
    if not stored.finished or not stored.state.seed_validated:
        return None
    found = gl.measures(folder, generation=GENERATION)
    rates = found.all
    if not rates.valid:
        return None
    seed, winner = _validation(stored)
    return {
        "run": str(folder.relative_to(root)),
        "models": sorted(found.models),
        "proposals": rates.proposals,
        "valid": rates.valid,
        "refined": rates.refined,
        "refinement": rates.rate,
        "validated": rates.validated,
        "validated_better": rates.validated_better,
        "held_up": rates.validated_better / rates.valid,
        "generations": rates.generations,
        "breakthrough": rates.breakthrough_rate,
        "distance": rates.distance,
        "novelty": found.mean_novelty,
        "reasons": dict(found.reasons),
        "seed_validation": seed,
        "validation": winner,
        "gain": winner - seed,
        "test": found.test,
    }


def _validation(stored: StoredRun) -> tuple[float, float]:
    result = stored.result()
    return result.validation.before, result.validation.after


def _words(row: dict[str, Any]) -> str:
    test = "" if row["test"] is None else f", test {row['test']:.3f}"
    return (
        f"refined {row['refined']} of {row['valid']} valid of {row['proposals']}, on validation {row['validated_better']} of {row['validated']}, "
        f"breakthroughs {row['breakthrough']:.2f} of {row['generations']}, distance {row['distance']:.2f}, novelty {row['novelty']:.2f}, "
        f"validation {row['seed_validation']:.3f} to {row['validation']:.3f}{test}"
    )


def _pooled(rows: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    def share(count: str, total: str) -> str:
        counted, of = sum(row[count] for row in rows), sum(row[total] for row in rows)
        low, high = share_interval(counted, of)
        return f"{counted} of {of} = {counted / of if of else math.nan:.2f} [{low:.2f}, {high:.2f}]"

    reasons = Counter({reason: 0 for row in rows for reason in row["reasons"]})
    for row in rows:
        reasons.update(row["reasons"])
    return [
        ("valid of the proposals", share("valid", "proposals")),
        ("refined of the valid, on the minibatch", share("refined", "valid")),
        ("better on validation of the validated", share("validated_better", "validated")),
        ("outcomes", ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())),
    ]


def _correlations(rows: Sequence[dict[str, Any]]) -> dict[str, tuple[float, int]]:
    """Spearman's rho of each measure with the winner's gain on the validation set, and over how many runs."""
    from scipy.stats import spearmanr

    found = {}
    for name in PREDICTORS:
        pairs = [(row[name], row["gain"]) for row in rows if not math.isnan(row[name])]
        if len(pairs) >= LEAST and len({x for x, _ in pairs}) > 1 and len({y for _, y in pairs}) > 1:
            found[name] = float(spearmanr(*zip(*pairs, strict=True)).statistic), len(pairs)
    return found
