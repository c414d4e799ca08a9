"""Two studies on real models, of the suite's tasks: what feedback's words are worth, and whether prompts that one model found serve another.

``python -m benchmarks study feedback --task trec-local,fernpost-local --lm local/qwen2.5-coder-1.5b --budget 200 --seeds 0,1,2`` runs a search for each task, seed and degree of the same feedback (score alone, noisy words, full words; the scores are
the same); one file a run, and what is there is not run again. A search with full words that ``python -m benchmarks run`` has made with the same state of the code is taken from there.

``python -m benchmarks study transfer-models --task trec-local,fernpost-local --models local/a,local/b --budget 200 --seeds 0,1,2`` takes the winners that ``python -m benchmarks run`` found on each model, runs what is lacking, and scores the prompts of each on the other's
test rows.

``--quick`` tries the command on a scripted model, and keeps nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args
from unittest import mock

from gepa_lite.feedback.degrees import Degree, degrade

import gepa_lite as gl
from benchmarks import cells, study_pages
from benchmarks.cells import SLOTS, Cell, keep, model_slug, surroundings
from benchmarks.local_tasks import find_task
from benchmarks.replies import RememberingLM
from benchmarks.report import Options, Report, Row
from benchmarks.run import MODEL, scripted
from benchmarks.search_tables import markdown
from benchmarks.study_runs import RESULTS
from gepa_lite.adapters.adapt import adapt
from gepa_lite.errors import RunError, UsageError
from gepa_lite.search.verdict import compare
from gepa_lite.store.folders import runs_root
from gepa_lite.testing import ScriptedLM

DEGREES: tuple[Degree, ...] = get_args(Degree)
_OPTIMIZER = "gepa_lite"
Open = Callable[[str], RememberingLM]


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes:
        tasks: names of the suite.
        models: names.
        seeds: of the searches.
        budget: rollouts of a search.
        results: of this study.
        runs: of ``python -m benchmarks run``.
        open: a model by name.
        docs: the folder of the page and the plot; None writes none.
    """

    tasks: Sequence[str]
    models: Sequence[str]
    seeds: Sequence[int]
    budget: int
    results: Path = RESULTS
    runs: Path = cells.RESULTS
    open: Open = cells.open_model
    docs: Path | None = study_pages.DOCS
    _opened: dict[str, RememberingLM] = field(default_factory=dict)

    def model(self, name: str) -> RememberingLM:
        """A model, opened once."""
        return self._opened.get(name) or self._opened.setdefault(name, self.open(name))


def run(study: str, options: Options, rest: Sequence[str]) -> Report:
    """One of the two studies."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks study {study}")
    parser.add_argument("--task", default="trec-local,fernpost-local")
    parser.add_argument("--lm", default=MODEL)
    parser.add_argument("--models", default="local/qwen2.5-coder-1.5b,local/smollm2-360m")
    parser.add_argument("--budget", type=int, default=200)
    asked = parser.parse_args(rest)
    os.environ.setdefault("GEPA_LITE_PROGRESS", "0")
    if options.quick:
        with _scripted() as plan:
            return STUDIES[study](plan)
    models = (asked.lm,) if study == "feedback" else tuple(asked.models.split(","))
    plan = Plan(asked.task.split(","), models, options.seeds, asked.budget)
    report = STUDIES[study](plan)
    (RESULTS / f"{study}.json").write_text(report.json() + "\n")
    return report


def feedback_study(plan: Plan) -> Report:
    """Score alone, noisy and full words on one model: held-out scores beside those of full words, paired by test example over all tasks and seeds.

    Raises:
        UsageError: an unknown task or model.
        RunError: a run was stopped by hand; the same command goes on with it.
    """
    model = plan.models[0]
    found: dict[str, dict[tuple[str, int], dict[str, Any]]] = {degree: {} for degree in DEGREES}
    for seed in plan.seeds:
        for task in plan.tasks:
            for degree in DEGREES:
                found[degree][task, seed] = _degree_cell(plan, model, task, degree, seed)
    rows: list[Row] = []
    entries: list[dict[str, Any]] = []
    bars: list[tuple[str, float, float, float]] = []
    for degree in DEGREES:
        beside = _paired(found["full"], found[degree])
        entries.append({"degree": degree, **beside, "by task": {task: _mean(found[degree], task) for task in plan.tasks}})
        if degree != "full":
            rows.append(
                Row(
                    f"{degree} beside full words: test",
                    beside["score"],
                    beside["base"],
                    None,
                    f"[{beside['low']:+.3f}, {beside['high']:+.3f}]",
                )
            )
            bars.append((degree, beside["score"] - beside["base"], beside["low"], beside["high"]))
    seed_score = sum(row["seed_test"] for row in found["full"].values()) / len(found["full"])
    rows.append(Row("seed prompts: test", seed_score))
    columns = {
        "degree": "{degree}",
        "test score": "{score:.3f}",
        "full words": "{base:.3f}",
        "difference, 95 %": "[{low:+.3f}, {high:+.3f}]",
    }
    columns |= {task: "{" + task + ":.3f}" for task in plan.tasks}
    table = markdown([{**entry, **entry["by task"]} for entry in entries], columns)
    _publish(plan, "feedback", f"{_scope(plan)} The seed prompts score {seed_score:.3f}.\n\n{table}")
    if plan.docs is not None:
        study_pages.bars(plan.docs / "feedback.png", bars, "Fewer words beside full words", "held-out score, 95 % interval")
    return Report(
        "study-feedback", rows, n=len(plan.seeds), seeds=plan.seeds, model=model, extra={"tasks": list(plan.tasks), "degrees": entries}
    )


def transfer_study(plan: Plan) -> Report:
    """The winners of each model on each model: held-out scores beside the seed's on the model that runs them.

    Raises:
        UsageError: an unknown task or model, or only one model.
        RunError: a run was stopped by hand; the same command goes on with it.
    """
    if len(plan.models) < 2:
        raise UsageError("transfer-models: at least two models are needed, e.g. --models local/qwen2.5-coder-1.5b,local/smollm2-360m.")
    winners = {(task, seed, model): _winner(plan, task, seed, model) for seed in plan.seeds for task in plan.tasks for model in plan.models}
    entries: list[dict[str, Any]] = []
    for origin in plan.models:
        for target in plan.models:
            seeds: list[float | None] = []
            values: list[float | None] = []
            for seed in plan.seeds:
                for task in plan.tasks:
                    seeds += winners[task, seed, target]["test_values"]["seed"]
                    values += _moved(plan, task, seed, winners[task, seed, origin], target)
            paired = compare(seeds, values)
            names = {"from": model_slug(origin), "to": model_slug(target)}
            entries.append({**names, "seed": paired.before, "score": paired.after, "low": paired.low, "high": paired.high})
    rows = [
        Row(f"prompts of {e['from']} on {e['to']}: test", e["score"], e["seed"], None, f"[{e['low']:+.3f}, {e['high']:+.3f}]")
        for e in entries
    ]
    columns = {"prompts found on": "{from}", "run on": "{to}", "test score": "{score:.3f}", "seed prompts there": "{seed:.3f}"}
    table = markdown(entries, {**columns, "gain, 95 %": "[{low:+.3f}, {high:+.3f}]"})
    _publish(plan, "transfer-models", f"{_scope(plan)}\n\n{table}")
    if plan.docs is not None:
        bars = [(f"{e['from']} on {e['to']}", e["score"] - e["seed"], e["low"], e["high"]) for e in entries]
        study_pages.bars(
            plan.docs / "transfer-models.png", bars, "Prompts of one model on another", "gain over the seed's prompts, 95 % interval"
        )
    return Report(
        "study-transfer-models", rows, n=len(plan.seeds), seeds=plan.seeds, model=", ".join(plan.models), extra={"transfer": entries}
    )


STUDIES: Mapping[str, Callable[[Plan], Report]] = {"feedback": feedback_study, "transfer-models": transfer_study}


def _degree_cell(plan: Plan, model: str, name: str, degree: Degree, seed: int) -> dict[str, Any]:
    file = plan.results / "feedback" / model_slug(model) / f"{name}--{degree}--{seed}.json"
    if file.is_file() and (kept := json.loads(file.read_text("utf-8")))["budget"] == plan.budget:
        return dict(kept)
    if degree == "full" and (suites := _from_suite(plan, Cell(name, _OPTIMIZER, seed, model, plan.budget))) is not None:
        keep(file, suites)
        return suites
    task, lm = find_task(name), plan.model(model)
    splits, program = task.splits(), task.program(lm=lm)
    optimizer = cells.optimizer_of(_OPTIMIZER)
    optimizer = dataclasses.replace(optimizer, search=dataclasses.replace(optimizer.search, **{**cells.SMALL_MODEL, "milestones": 1}))
    result = optimizer(
        program,
        splits["train"],
        splits["validation"],
        testset=splits["test"],
        feedback=degrade(task.feedback or adapt(program).judged_by(None), degree),
        budget=gl.Budget(rollouts=plan.budget + 2 * len(splits["test"])),
        seed=seed,
        workers=SLOTS,
        run=runs_root() / "bench" / model_slug(model) / f"{name}-{plan.budget}-feedback" / f"{degree}-{seed}",
    )
    if not result.finished:
        raise RunError(f"{file.stem} was stopped before its end; the same command goes on with it.")
    tested = result.state.tested
    assert tested is not None
    assert result.test is not None
    found = {
        "task": name,
        "degree": degree,
        "seed": seed,
        "model": model,
        "budget": plan.budget,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **surroundings(model),
        "seed_test": result.test.before,
        "test": result.test.after,
        "test_values": {"seed": tested.seed_values, "winner": tested.winner_values},
        "rollouts": result.costs.logical.rollouts,
        "prompts": result.winner_prompts,
    }
    keep(file, found)
    return found


def _from_suite(plan: Plan, cell: Cell) -> dict[str, Any] | None:
    """The same search as the suite ran it, where it was this state of the code."""
    if not cell.done(plan.runs):
        return None
    kept = json.loads(cell.file(plan.runs).read_text("utf-8"))
    around = surroundings(cell.model)
    if kept["search_code"] != around["search_code"]:
        return None
    figures = kept["figures"]
    return {
        **{key: kept[key] for key in ("task", "seed", "model", "budget", "date", "test_values", "prompts", *around)},
        "degree": "full",
        "seed_test": figures["seed_test"],
        "test": figures["test"],
        "rollouts": figures["rollouts_with_test"],
    }


def _winner(plan: Plan, task: str, seed: int, model: str) -> dict[str, Any]:
    cell = Cell(task, _OPTIMIZER, seed, model, plan.budget)
    if not cell.done(plan.runs):
        cells.run_cell(cell, plan.model(model), plan.runs, f"python -m benchmarks study transfer-models --task {task} --models {model}")
    return dict(json.loads(cell.file(plan.runs).read_text("utf-8")))


def _moved(plan: Plan, name: str, seed: int, winner: Mapping[str, Any], target: str) -> list[float | None]:
    """The test values of prompts on another model, or on their own."""
    if winner["model"] == target:
        return list(winner["test_values"]["winner"])
    file = plan.results / "transfer-models" / f"{name}--{model_slug(winner['model'])}--{model_slug(target)}--{seed}.json"
    if file.is_file() and (kept := json.loads(file.read_text("utf-8")))["prompts"] == winner["prompts"]:
        return list(kept["values"])
    task = find_task(name)
    program = adapt(task.program(lm=plan.model(target))).with_prompts(winner["prompts"]).deliverable
    scored = gl.evaluate(program, task.splits()["test"], feedback=task.feedback, workers=SLOTS)
    values = [rollout.value for rollout in scored.rollouts]
    keep(
        file,
        {
            "task": name,
            "seed": seed,
            "from": winner["model"],
            "to": target,
            **surroundings(target),
            "prompts": winner["prompts"],
            "values": values,
        },
    )
    return values


def _paired(base: Mapping[Any, Mapping[str, Any]], other: Mapping[Any, Mapping[str, Any]]) -> dict[str, float]:
    before = [value for key in base for value in base[key]["test_values"]["winner"]]
    after = [value for key in base for value in other[key]["test_values"]["winner"]]
    paired = compare(before, after)
    return {"base": paired.before, "score": paired.after, "low": paired.low, "high": paired.high, "p": paired.p}


def _mean(found: Mapping[tuple[str, int], Mapping[str, Any]], task: str) -> float:
    values = [row["test"] for (name, _), row in found.items() if name == task]
    return float(sum(values) / len(values))


def _scope(plan: Plan) -> str:
    return f"Models {', '.join(plan.models)}; tasks {', '.join(plan.tasks)}; seeds {', '.join(map(str, plan.seeds))}; {plan.budget} rollouts a search."


def _publish(plan: Plan, study: str, tables: str) -> None:
    if plan.docs is not None:
        study_pages.write_page(study, tables, plan.docs)


@contextmanager
def _scripted() -> Iterator[Plan]:
    """The demo's task on two scripted models, in a folder that vanishes."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, GEPA_LITE_RUNS=f"{folder}/runs"):
        root, opened = Path(folder), []

        def open_one(name: str) -> RememberingLM:
            opened.append(RememberingLM(ScriptedLM(scripted, name=name), root / f"{name}.db"))
            return opened[-1]

        try:
            yield Plan(("fernpost-local",), ("scripted-a", "scripted-b"), (0,), 100, root / "results", root / "cells", open_one, None)
        finally:
            for lm in opened:
                lm.close()
