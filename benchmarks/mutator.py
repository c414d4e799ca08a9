"""``python -m benchmarks mutator``: train a small model on the runs of some tasks, and try it as a reflection model on others, beside the same model untrained and the simulated teacher.

``--base smollm2-135m`` the model; ``--tasks 4`` tasks to train on and ``--tried 2`` held out, with ``--proposals 8`` on each; ``--epochs 2``; ``--preferences`` trains on pairs too; ``--from RUN`` adds
runs or files of transitions of your own, and may be repeated; ``--reward N`` makes N updates by the child's gain afterwards (GRPO); ``--runs DIR`` keeps all, and the same command goes on where it stopped.
``--quick`` takes a model of letters, made here, which can't rewrite prompts: it shows that all parts run.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import gepa_lite as gl
from benchmarks.mutator_reward import train_by_reward
from benchmarks.mutator_task import RuleTask, run_task, teacher
from benchmarks.report import Options, Report, Row
from gepa_lite.lm.policy import Lora
from gepa_lite.mutator.settings import Tuning

_TRIED = 1000
"""Number of the first task held out: training never sees its like by number, and its rules are drawn anew."""


def run(options: Options) -> Report:
    """Train, and compare."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks mutator")
    parser.add_argument("--base", default="smollm2-135m")
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--tried", type=int, default=2)
    parser.add_argument("--proposals", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--max-length", type=int, default=1024)
    parser.add_argument("--preferences", action="store_true")
    parser.add_argument("--from", dest="given", action="append", default=[])
    parser.add_argument("--reward", type=int, default=0)
    parser.add_argument("--runs", type=Path, default=Path("gepa_runs") / "bench-mutator")
    own = parser.parse_args(options.rest)
    if not options.quick:
        return study(own, options.seeds)
    from benchmarks.rl_task import letter_model

    with tempfile.TemporaryDirectory() as folder:
        own.runs, own.tasks, own.tried, own.proposals, own.epochs = Path(folder), 2, 1, 4, 1
        own.max_length = 500
        own.base = letter_model(own.runs / "letters")
        return study(own, options.seeds)


def study(own: argparse.Namespace, seeds: tuple[int, ...]) -> Report:
    """The runs of the training tasks, the training, and the runs of the tasks held out under each reflection model."""
    taught = [own.runs / f"taught-{number}" for number in range(own.tasks)]
    for number, folder in enumerate(taught):
        run_task(RuleTask(number), teacher(number), folder, number, 14)
    tuning = Tuning(epochs=own.epochs, max_length=own.max_length, preferences=own.preferences, lora=Lora(rank=16, alpha=32, dropout=0.0))
    started = time.process_time()
    trained = gl.train_mutator([*map(str, taught), *own.given], own.runs / "mutator", base=own.base, tuning=tuning, progress=_tell)
    training = {"cpu_seconds_of_this_call": time.process_time() - started, **_facts(trained)}
    print(trained, flush=True)
    base = own.base if own.base.startswith("policy/") else f"policy/{own.base}"
    models: dict[str, Any] = {"base": base, "trained": f"policy/{trained.folder}"}
    if own.reward:
        folder, rewards = train_by_reward(trained.folder, taught, own.reward, own.runs / "rewarded")
        models["rewarded"], training["rewards"] = f"policy/{folder}", rewards
    found: dict[str, list[dict[str, float]]] = {}
    for name, model in {**models, "teacher": None}.items():
        for seed in seeds:
            for number in range(_TRIED, _TRIED + own.tried):
                folder = own.runs / f"{name}-{number}-{seed}"
                result = run_task(RuleTask(number), model or teacher(seed), folder, seed, own.proposals)
                found.setdefault(name, []).append({"task": number, "seed": seed, **figures(result)})
                print(name, found[name][-1], flush=True)
    rows = _table(found)
    held = [Row("loss of a token held out: trained, base", _known(trained.loss_after), _known(trained.loss_before))]
    extra = {"command": _command(own, seeds), "training": training, "outcomes": found, "replies": _samples(own.runs, found)}
    return Report("mutator", [*held, *rows], own.tried * len(seeds), seeds, own.base.rpartition("/")[2], extra)


def figures(result: gl.Result[Any]) -> dict[str, float]:
    """What a reflection model brought in one run. All shares are of its proposals."""
    records = [record for record in gl.transitions(result) if record.op == "mutation"]
    assert result.test is not None
    valid = [record for record in records if record.delta is not None]
    return {
        "proposals": len(records),
        "usable": len([record for record in records if record.child_text]) / len(records),
        "compared": len(valid) / len(records),
        "refined": len([record for record in records if record.label == "improved"]) / len(records),
        "before": result.test.before,
        "after": result.test.after,
    }


def _table(found: dict[str, list[dict[str, float]]]) -> list[Row]:
    names = {
        "usable": "replies that hold a prompt",
        "compared": "replies that make a new prompt",
        "refined": "replies that improve it (refinement)",
        "after": "test score of the winner",
    }
    mean = {name: {key: sum(each[key] for each in runs) / len(runs) for key in (*names, "before")} for name, runs in found.items()}
    rows = [
        Row(f"{text}: {name}, base", mean[name][key], mean["base"][key])
        for key, text in names.items()
        for name in mean
        if name not in ("base", "teacher")
    ]
    rows += [Row(f"{text}: teacher, base", mean["teacher"][key], mean["base"][key]) for key, text in names.items()]
    return [*rows, Row("test score of the seed", mean["base"]["before"])]


def _samples(runs: Path, found: dict[str, list[dict[str, float]]]) -> dict[str, str]:
    """A reply of each model, the first of its first run, so that a reader sees what the rates are of."""
    made = {}
    for name, outcomes in found.items():
        records = gl.transitions(runs / f"{name}-{outcomes[0]['task']}-{outcomes[0]['seed']}")
        made[name] = next((record.response[:600] for record in records if record.response), "")
    return made


def _facts(trained: Any) -> dict[str, Any]:
    return {
        name: getattr(trained, name) for name in ("records", "dropped", "rows", "held_out", "pairs", "loss_before", "loss_after", "adapter")
    }


def _command(own: argparse.Namespace, seeds: tuple[int, ...]) -> str:
    pairs = " --preferences" if own.preferences else ""
    pairs += f" --reward {own.reward}" if own.reward else ""
    sizes = f"--tasks {own.tasks} --tried {own.tried} --proposals {own.proposals} --epochs {own.epochs}"
    return f"python -m benchmarks mutator --seeds {','.join(map(str, seeds))} {sizes}{pairs}"


def _known(value: float | None) -> float | str:
    return "-" if value is None else value


def _tell(stage: str, step: int, steps: int, loss: float) -> None:
    print(f"{stage} {step}/{steps}: loss {loss:.3f}", flush=True)
