"""One cell of the suite's table: a task, an optimizer, a seed, on a model; run or resumed, and kept as one JSON file."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
import json
import os
import platform
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gepa_lite as gl
from benchmarks.local_data import Splits
from benchmarks.local_tasks import LocalTask, find_task
from benchmarks.replies import RememberingLM
from benchmarks.search_code import code_hash
from gepa_lite import baselines
from gepa_lite.adapters.adapt import adapt
from gepa_lite.core.budget import ROLES, Spend
from gepa_lite.core.events import Proposed
from gepa_lite.core.ids import jsonable
from gepa_lite.errors import UsageError
from gepa_lite.lm.local.catalogue import MODELS
from gepa_lite.lm.protocol import LM
from gepa_lite.lm.resolve import open_lm
from gepa_lite.search.state import RunState
from gepa_lite.session import InterruptedRunError
from gepa_lite.ship.result import Result
from gepa_lite.store.browse import Browse
from gepa_lite.store.codec import decode_event
from gepa_lite.store.folders import runs_root

RESULTS = Path(__file__).parent / "results" / "runs"
UNOPTIMIZED = ("seed", "by_hand")
"""Prompts that are scored as they are: the naive ones, and those written by someone who knows the task."""

SETTINGS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "gepa_lite:paper": ("gepa_lite_paper", {}),
    "gepa_lite:paper-edit": ("gepa_lite_paper", {"proposer": "edit"}),
    "gepa_lite:edit": ("gepa_lite", {"proposer": "edit"}),
    "gepa_lite:unguarded": ("gepa_lite", {"guard": "off"}),
    "gepa:merge": ("gepa", {"options": {"use_merge": True}}),
}
"""Settings by name, beside each optimizer's own defaults: ``OPTIMIZER:SETTING``, as a name of ``baselines.OPTIMIZERS`` and its settings."""

SMALL_MODEL: Mapping[str, Any] = {"reflection_tokens": 300, "reflection_temperature": 0.7, "milestones": 3}
"""How reflections are sampled, the same for every optimizer: a small model's longer replies go astray, and minutes are few."""

SLOTS = 8
"""Requests that a local model works on at once, and rollouts at once."""

_CONTEXT = 4_096
_PACKAGES = ("gepa", "xllamacpp", "dspy", "textgrad", "trace-opt", "torch", "transformers", "trl", "peft")


@dataclass(frozen=True, order=True)
class Cell:
    """What is run.

    Attributes:
        task: its name.
        optimizer: its name, with a setting's after a colon where there is one.
        seed: of its draws.
        model: its name.
        budget: rollouts of the search; the test set and the curve come on top.
    """

    task: str
    optimizer: str
    seed: int
    model: str
    budget: int

    @property
    def slug(self) -> str:
        """Its name as a file."""
        return f"{self.task}--{self.optimizer.replace(':', '.')}--{self.seed}"

    def file(self, results: Path = RESULTS) -> Path:
        """Where its result is kept."""
        return results / model_slug(self.model) / f"{self.slug}.json"

    def done(self, results: Path = RESULTS) -> bool:
        """Whether its result is there, with this budget."""
        file = self.file(results)
        return file.is_file() and json.loads(file.read_text(encoding="utf-8"))["budget"] == self.budget


def model_slug(model: str) -> str:
    """A model's name as a folder."""
    return model.removeprefix("local/").replace("/", "_")


def open_model(name: str) -> RememberingLM:
    """A model by name with the suite's options, its greedy replies kept beside the runs."""
    inner: LM
    if name.startswith("local/"):
        from gepa_lite.lm.local import open_local

        inner = open_local(name.removeprefix("local/"), slots=SLOTS, context=_CONTEXT)
    else:
        inner = open_lm(name)
    return RememberingLM(inner, runs_root() / "bench" / model_slug(name) / "replies.db")


def optimizer_of(name: str) -> baselines.Optimizer:
    """An optimizer by name, ``OPTIMIZER`` or ``OPTIMIZER:SETTING``.

    Raises:
        UsageError: there is none.
    """
    if ":" in name and name not in SETTINGS:
        raise UsageError(f"no setting {name!r}; there are {', '.join(SETTINGS)}.")
    base, settings = SETTINGS.get(name, (name, {}))
    return baselines.optimizer(base, label=name, **settings)


def run_cell(cell: Cell, lm: RememberingLM, results: Path = RESULTS, command: str = "") -> dict[str, Any]:
    """Run, or resume, and keep the result.

    Args:
        cell: what.
        lm: the model that runs the program and reflects.
        results: the folder of results.
        command: what a reader types to get it.

    Raises:
        UsageError: an unknown name, or data that is not there.
        InterruptedRunError: it was stopped by hand; the same call goes on with it.
        RunError: the run can't go on.
    """
    task = find_task(cell.task)
    splits = task.splits()
    before, begun, load = lm.asked, time.perf_counter(), os.getloadavg()[0]
    found = (_scored if cell.optimizer in UNOPTIMIZED else _optimized)(task, cell, splits, lm)
    found = {
        **dataclasses.asdict(cell),
        "command": command,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **surroundings(cell.model),
        "load_average": [round(load, 2), round(os.getloadavg()[0], 2)],
        "splits": {name: len(rows) for name, rows in splits.items()},
        "replies": dataclasses.asdict(lm.asked - before),
        "session_seconds": round(time.perf_counter() - begun, 1),
        **found,
    }
    keep(cell.file(results), found)
    return found


def keep(file: Path, found: Mapping[str, Any]) -> None:
    """Write a result as JSON; its folder is made."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(jsonable(found), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def surroundings(model: str) -> dict[str, Any]:
    """Versions, the model's hash and the kind of machine; no host name and no path."""
    versions = {"gepa_lite": gl.__version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    known = MODELS.get(model.removeprefix("local/"))
    return {
        "versions": versions,
        "search_code": code_hash(),
        "model_sha256": None if known is None else known.sha256,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }


def _scored(task: LocalTask, cell: Cell, splits: Splits, lm: LM) -> dict[str, Any]:
    """Prompts as they are, on every split but the training one."""
    program: Any = task.program(lm=lm)
    if cell.optimizer == "by_hand":
        program = adapt(program).with_prompts(dict(task.by_hand)).deliverable
    scores: dict[str, gl.Evaluation] = {
        name: gl.evaluate(program, splits[name], feedback=task.feedback, workers=SLOTS) for name in ("validation", "curve", "test")
    }
    values = [rollout.value for rollout in scores["test"].rollouts]
    prompts = dict(adapt(program).prompts)
    return {
        "figures": {
            "test": scores["test"].mean,
            "validation": scores["validation"].mean,
            "curve": scores["curve"].mean,
            "failures": Counter(r.failure.kind for each in scores.values() for r in each.rollouts if r.failure is not None),
            "rollouts": 0,
            "tokens": 0,
            "prompt_words": sum(len(text.split()) for text in prompts.values()),
        },
        "test_values": {"winner": values},
        "prompts": prompts,
    }


def _optimized(task: LocalTask, cell: Cell, splits: Splits, lm: LM) -> dict[str, Any]:
    optimizer = optimizer_of(cell.optimizer)
    optimizer = dataclasses.replace(optimizer, search=dataclasses.replace(optimizer.search, **SMALL_MODEL))
    after = 2 * len(splits["test"]) + optimizer.search.milestones * len(splits["curve"])
    folder = (
        runs_root() / "bench" / model_slug(cell.model) / f"{cell.task}-{cell.budget}" / f"{cell.optimizer.replace(':', '.')}-{cell.seed}"
    )
    result = optimizer(
        task.program(lm=lm),
        splits["train"],
        splits["validation"],
        testset=splits["test"],
        curveset=splits["curve"],
        feedback=task.feedback,
        budget=gl.Budget(rollouts=cell.budget + after),
        seed=cell.seed,
        workers=SLOTS,
        run=folder,
    )
    if not result.finished:
        raise InterruptedRunError(f"{cell.slug} was stopped before its end; the same command goes on with it.")
    return found_in(result, optimizer, folder)


def found_in(result: Result[Any], optimizer: baselines.Optimizer, folder: Path) -> dict[str, Any]:
    """What a run that has ended with a test set found: its settings, figures, leads and scores by test example, and its prompts."""
    course = course_of(folder, result)
    tested, test, validation = result.state.tested, result.test, result.validation
    assert tested is not None
    assert test is not None
    search: Spend = course["spend"]
    seed_words, words = (sum(len(text.split()) for text in prompts.values()) for prompts in (result.seed_prompts, result.winner_prompts))
    curve = {milestone.member: milestone for milestone in result.curve}
    leads = [{**lead, "curve": curve[lead["member"]].score if lead["member"] in curve else None} for lead in course["leads"]]
    return {
        "settings": {
            "search": dict(optimizer.search.fingerprint()),
            "procedure": None if optimizer.procedure is None else dict(optimizer.procedure.settings()),
        },
        "figures": {
            "verdict": result.verdict,
            "seed_test": test.before,
            "test": test.after,
            "test_gain_interval": [test.low, test.high],
            "seed_validation": validation.before,
            "validation": validation.after,
            "gap": validation.after - test.after,
            "optimism": result.optimism,
            "rollouts": search.rollouts,
            "rollouts_with_test": result.costs.logical.rollouts,
            "tokens": search.tokens,
            "tokens_by_role": {role: getattr(search, role) for role in ROLES if getattr(search, role).calls},
            "usd": search.usd,
            "seconds": result.costs.seconds,
            "candidates": len(result.candidates),
            "proposals": course["proposals"],
            "seed_prompt_words": seed_words,
            "prompt_words": words,
        },
        "leads": leads,
        "test_values": {"seed": tested.seed_values, "winner": tested.winner_values},
        "stopped": result.stopped,
        "shipped_seed": result.shipped == 0,
        "prompts": result.winner_prompts,
    }


def course_of(folder: Path, result: Result[Any]) -> dict[str, Any]:
    """What a run's log says of its search: spend when it ended, proposals by outcome, and each candidate that led, with what it had taken by then."""
    state, begun = RunState(), None
    leads: list[dict[str, Any]] = []
    proposals: Counter[str] = Counter()
    spend = Spend()
    with Browse(folder) as browse:
        for row in browse.events():
            event = decode_event(row.kind, row.version, row.body)
            state = state.apply(event)
            at = datetime.datetime.fromisoformat(row.at)
            begun = begun or at
            if isinstance(event, Proposed):
                proposals[event.status if event.status == "accepted" else f"{event.status}: {event.code}"] += 1
            if state.stopped is None:
                spend = state.spend
            if state.seed_validated and state.best.mean is not None and len(leads) < len(state.leads):
                leads.append(
                    {
                        "member": state.leads[-1],
                        "validation": result.objective.score(state.best.mean),
                        "rollouts": state.spend.rollouts,
                        "tokens": state.spend.tokens,
                        "seconds": round((at - begun).total_seconds(), 1),
                    }
                )
    return {"spend": spend, "proposals": dict(proposals), "leads": leads}
