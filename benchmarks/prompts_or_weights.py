"""``python -m benchmarks prompts-or-weights --seeds 0,1,2``: prompt optimizers and GRPO on one program, one open model, one feedback and one ledger, cell by cell.

``--model`` runs the program and is what GRPO trains; ``--reflection`` rewrites prompts, its tokens in the ledger; ``--tasks`` and ``--optimizers`` name with commas between them; ``--rollouts N`` of each search, validation included and the
test set not; ``--proposals N`` at most, since a reply that holds no prompt costs no rollout; ``--rate X`` of GRPO, whose control ``grpo_shuffled`` has its rewards dealt anew among the rollouts of each update. Each cell is a file under
``benchmarks/results/rl/cells``; what is there already is not run again, what was interrupted goes on.
``--table`` runs nothing and prints what the cells say, ``--markdown FILE`` keeps it. ``--quick`` takes a model of letters, made here, and keeps nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gepa_lite as gl
from benchmarks.cell_tables import read_cells
from benchmarks.cells import Cell, found_in, keep, model_slug, surroundings
from benchmarks.report import Options, Report, Row
from benchmarks.rl import device
from benchmarks.rl_model import make_tiny
from benchmarks.weights_tables import BY_HAND, RL, markdown
from benchmarks.weights_tasks import TASKS, WeightsTask, splits
from gepa_lite import baselines
from gepa_lite.adapters.adapt import adapt
from gepa_lite.core.rollout import Rollout, RolloutKey
from gepa_lite.errors import UsageError
from gepa_lite.session import InterruptedRunError
from gepa_lite.store.folders import runs_root
from gepa_lite.store.run_store import RunStore

RESULTS = Path(__file__).parent / "results" / "rl" / "cells"
OPTIMIZERS = "grpo,gepa_lite,gepa,best_of_n,dspy_miprov2,grpo_shuffled"
_SIZES = (24, 12, 40)
"""Training, validation and test examples."""
_REFLECTION: Mapping[str, Any] = {"reflection_tokens": 200, "reflection_temperature": 0.7}
_GRPO: Mapping[str, Any] = {"steps": 1_000, "examples": 2, "group": 6, "micro_batch": 13, "validate_every": 4, "temperature": 0.7}
"""The rows of one example by two modules, and one of padding, in a batch."""
_TRAINED: Mapping[str, Mapping[str, Any]] = {RL: _GRPO, "grpo_shuffled": {**_GRPO, "shuffled": True}}
"""The control's rewards are dealt anew among the rollouts of each update."""


def run(options: Options) -> Report:
    """Run the cells that are missing, or print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks prompts-or-weights")
    parser.add_argument("--model", default="policy/smollm2-135m")
    parser.add_argument("--reflection", default="local/qwen2.5-coder-1.5b")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--optimizers", default=OPTIMIZERS)
    parser.add_argument("--rollouts", type=int, default=200)
    parser.add_argument("--proposals", type=int, default=24)
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--runs", type=Path, help="the folder of the runs; by default under the runs' root")
    parser.add_argument("--table", action="store_true", help="run nothing, print what the cells say")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    own = parser.parse_args(options.rest)
    if own.table:
        cells = read_cells(own.model, own.results)
    elif options.quick:
        with tempfile.TemporaryDirectory() as folder:
            cells = _quick(own, Path(folder))
    else:
        cells = run_all(own, options.seeds, _SIZES)
    if not cells:
        raise UsageError(f"no cell of {own.model} under {own.results}: the same command without --table runs them.")
    text = markdown(cells)
    print(text, flush=True)
    if own.markdown is not None:
        own.markdown.write_text(text + "\n", encoding="utf-8")
    seeds = sorted({cell["seed"] for cell in cells if cell["optimizer"] != BY_HAND})
    outcomes = [{**{name: cell[name] for name in ("task", "optimizer", "seed")}, **cell["figures"]} for cell in cells]
    rows = [_row(cell) for cell in cells]
    return Report("prompts-or-weights", rows, len(cells), seeds, own.model.rpartition("/")[2], {"outcomes": outcomes})


def _quick(own: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    own.model = own.reflection = f"policy/{make_tiny(folder / 'letters', ['Ann Omar', 'Lucia Peter', 'Mei Jonas', 'Nadia Tom'])}"
    own.runs = own.results = folder
    own.tasks, own.optimizers, own.rollouts, own.proposals, own.rate = "contacts", "grpo,best_of_n,few_shot", 40, 2, 3e-3
    return run_all(own, (0,), (8, 8, 16))


def run_all(own: argparse.Namespace, seeds: Sequence[int], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Every cell, seed by seed, each kept as it ends; those that are there are read.

    Args:
        own: the arguments.
        seeds: of the draws.
        sizes: training, validation and test examples.

    Raises:
        UsageError: an unknown task or optimizer, before anything is run.
        InterruptedRunError: it was stopped by hand; the same call goes on with it.
    """
    os.environ.setdefault("GEPA_LITE_PROGRESS", "0")
    names, tasks = own.optimizers.split(","), own.tasks.split(",")
    for name in names:
        optimizer_of(name, own.rate).check()
    if unknown := [task for task in tasks if task not in TASKS]:
        raise UsageError(f"no task {unknown[0]!r}; there are {', '.join(TASKS)}.")
    cells = [Cell(task, BY_HAND, 0, own.model, own.rollouts) for task in tasks]
    cells += [Cell(task, name, seed, own.model, own.rollouts) for seed in seeds for task in tasks for name in names]
    for cell in cells:
        if cell.done(own.results):
            continue
        begun = time.perf_counter()
        found = (_by_hand if cell.optimizer == BY_HAND else _optimized)(cell, TASKS[cell.task], sizes, own)
        found = {
            **dataclasses.asdict(cell),
            "command": f"python -m benchmarks prompts-or-weights --tasks {cell.task} --optimizers {cell.optimizer} --seeds {cell.seed}",
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            **surroundings(cell.model),
            "device": device(),
            "reflection": own.reflection.rpartition("/")[2],
            # training has updates, and no proposals that cost nothing
            "proposals": None if cell.optimizer in _TRAINED else own.proposals,
            "splits": list(sizes),
            "session_seconds": round(time.perf_counter() - begun, 1),
            **found,
        }
        keep(cell.file(own.results), found)
        print(cell.slug, found["figures"]["test"], f"{found['session_seconds']:.0f} s", flush=True)
    return [each for each in read_cells(own.model, own.results) if each["task"] in tasks]


def optimizer_of(name: str, rate: float) -> baselines.Optimizer:
    """An optimizer with the settings of this table: short replies of the reflection model for all."""
    each = baselines.optimizer(RL, name, learning_rate=rate, **_TRAINED[name]) if name in _TRAINED else baselines.optimizer(name)
    return dataclasses.replace(each, search=dataclasses.replace(each.search, **_REFLECTION))


def _by_hand(cell: Cell, task: WeightsTask, sizes: Sequence[int], own: argparse.Namespace) -> dict[str, Any]:
    program = adapt(task.program(lm=own.model)).with_prompts(dict(task.by_hand)).deliverable
    found = gl.evaluate(program, splits(sizes)[2], feedback=task.feedback, workers=32)
    values = [rollout.value for rollout in found.rollouts]
    return {"figures": {"test": found.mean, "form": form_of(found.rollouts)}, "test_values": {"winner": values}}


def _optimized(cell: Cell, task: WeightsTask, sizes: Sequence[int], own: argparse.Namespace) -> dict[str, Any]:
    train, validation, test = splits(sizes)
    optimizer = optimizer_of(cell.optimizer, own.rate)
    root = own.runs or runs_root() / "bench-prompts-or-weights"
    folder = root / model_slug(own.model) / f"{cell.task}-{own.rollouts}-{own.proposals}" / f"{cell.optimizer}-{cell.seed}"
    result = optimizer(
        task.program(lm=own.model),
        train,
        validation,
        testset=test,
        feedback=task.feedback,
        reflection_lm=own.reflection,
        budget=gl.Budget(rollouts=own.rollouts + 2 * len(test), proposals=None if cell.optimizer in _TRAINED else own.proposals),
        seed=cell.seed,
        workers=32,
        run=folder,
    )
    if not result.finished:
        raise InterruptedRunError(f"{cell.slug} was stopped before its end; the same command goes on with it.")
    found = found_in(result, optimizer, folder)
    assert result.state.started is not None
    with RunStore.read(folder) as store:
        forms = [
            form_of(
                store.rollouts_at(
                    [RolloutKey(result.candidates[index].candidate.id, example) for example in result.state.started.test_ids]
                ).values()
            )
            for index in (0, result.winner_index)
        ]
    found["figures"] |= {"seed_form": forms[0], "form": forms[1], "training_seconds": result.costs.seconds_by_role.get("training", 0.0)}
    return found


def form_of(rollouts: Any) -> float:
    """The share of rollouts whose answer has the form that was asked for; one that failed has none."""
    found: list[Rollout] = list(rollouts)
    return sum(rollout.feedback.objectives.get("form", 0.0) for rollout in found if rollout.feedback is not None) / len(found)


def _row(cell: Mapping[str, Any]) -> Row:
    label = f"{cell['task']}, {cell['optimizer']}, seed {cell['seed']}: test, of the seed"
    return Row(label, round(cell["figures"]["test"], 4), round(cell["figures"].get("seed_test", cell["figures"]["test"]), 4))
