"""``python -m benchmarks prompts-or-weights``: prompt optimizers and GRPO on one program, one open model, one feedback and one ledger (``gl.compare``).

``--model`` runs the program and is what GRPO trains; ``--reflection`` rewrites prompts; ``--optimizers`` names with commas between them; ``--rollouts N`` of each search, validation included and the test set not; ``--proposals N`` at most, since a
reply that holds no prompt costs no rollout; ``--rate X`` of GRPO; ``--runs DIR`` keeps the runs, and the same command goes on where it stopped. ``--quick`` takes a model of letters, made here.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import gepa_lite as gl
from benchmarks.report import Options, Report, Row
from benchmarks.rl import device
from benchmarks.rl_task import Marks, Words, feedback, letter_model, rows
from gepa_lite import baselines
from gepa_lite.baselines.compare import Comparison, Outcome
from gepa_lite.search.verdict import mean_interval

OPTIMIZERS = "grpo,gepa_lite,gepa,best_of_n,few_shot,dspy_miprov2"
_SIZES = (12, 12, 24)
"""Training, validation and test examples."""
_REFLECTION: Mapping[str, Any] = {"reflection_tokens": 128, "reflection_temperature": 0.7}


def run(options: Options) -> Report:
    """One table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks prompts-or-weights")
    parser.add_argument("--model", default="policy/smollm2-135m")
    parser.add_argument("--reflection", help="the model itself where it is left out")
    parser.add_argument("--optimizers", default=OPTIMIZERS)
    parser.add_argument("--rollouts", type=int, default=84)
    parser.add_argument("--proposals", type=int, default=8)
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--runs", type=Path, default=Path("gepa_runs") / "bench-prompts-or-weights")
    own = parser.parse_args(options.rest)
    if not options.quick:
        return table(own, options.seeds, Words)
    with tempfile.TemporaryDirectory() as folder:
        own.runs, own.model, own.optimizers, own.rollouts = (
            Path(folder),
            letter_model(Path(folder) / "letters"),
            "grpo,best_of_n,few_shot",
            48,
        )
        own.rate, own.proposals = 3e-3, 2
        return table(own, options.seeds, Marks)


def table(own: argparse.Namespace, seeds: Sequence[int], kind: type[gl.Program]) -> Report:
    """Run, or go on, and compare."""
    train_count, val_count, test_count = _SIZES
    data = rows(sum(_SIZES), 2)
    found = gl.compare(
        kind(lm=own.model),
        data[:train_count],
        data[train_count : train_count + val_count],
        testset=data[-test_count:],
        feedback=feedback,
        reflection_lm=own.reflection or own.model,
        optimizers=[named(name, own.rate) for name in own.optimizers.split(",")],
        seeds=seeds,
        budget=gl.Budget(rollouts=own.rollouts + 2 * test_count, proposals=own.proposals),
        workers=32,
        folder=own.runs,
        on_outcome=lambda outcome: print(outcome.optimizer, outcome.seed, outcome.before, outcome.after, outcome.stopped, flush=True),
    )
    print(found, flush=True)
    outcomes = [{**dataclasses.asdict(outcome), "run": Path(outcome.run).name} for outcome in found.outcomes]
    extra = {
        "reflection": (own.reflection or own.model).rpartition("/")[2],
        "budget": {"rollouts": own.rollouts, "proposals": own.proposals},
        "grpo": {"learning_rate": own.rate},
        "device": device(),
        "outcomes": outcomes,
    }
    return Report("prompts-or-weights", list(measures(found)), test_count, tuple(seeds), own.model.rpartition("/")[2], extra)


def named(name: str, rate: float) -> baselines.Optimizer:
    """An optimizer with the settings of this table: short replies of the reflection model for all."""
    settings: dict[str, Any] = {}
    if name == "grpo":
        settings = {"steps": 1_000, "examples": 2, "group": 6, "validate_every": 4, "micro_batch": 13, "learning_rate": rate}
    each = baselines.optimizer(name, **settings)
    return dataclasses.replace(each, search=dataclasses.replace(each.search, **_REFLECTION))


def measures(found: Comparison) -> list[Row]:
    """One row an optimizer and measure: means over the seeds."""
    made = []
    for name in found.names:
        outcomes = found.of(name)
        gain, low, high, _ = mean_interval([outcome.gain for outcome in outcomes])
        made += [Row(f"{name}: test score, of the seed", mean(outcomes, "after"), mean(outcomes, "before"))]
        made += [Row(f"{name}: gain, 95 % interval over seeds", f"{gain:.3f} [{low:.3f}, {high:.3f}]")] if len(outcomes) > 1 else []
        made += [Row(f"{name}: {measure}", mean(outcomes, measure)) for measure in ("rollouts", "tokens", "seconds", "training_seconds")]
    return made


def mean(outcomes: Sequence[Outcome], measure: str) -> float:
    """Of a measure over the seeds."""
    return fmean(getattr(outcome, measure) for outcome in outcomes)
