"""``python -m benchmarks rl``: train the weights behind a two-module program, beside a control whose rewards are shuffled.

``--smoke``: three updates, a broken-off run that goes on as the whole one, and the accounts. ``--task letters`` (a model of letters, made here) or ``smollm2``, whose ``--model`` may be any ``policy/`` model;
``--steps N`` updates of ``--examples N`` with ``--group N`` rollouts each, at the rate ``--rate X``, validated every ``--every N``; ``--vllm colocate`` hands sampling on a GPU to vLLM. ``--runs DIR`` keeps the runs, and the same command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import gepa_lite as gl
from benchmarks.report import Options, Report, Row
from benchmarks.rl_task import Marks, Words, feedback, letter_model, rows
from gepa_lite.baselines import optimizer
from gepa_lite.search.verdict import mean_interval

_SETTINGS: dict[str, dict[str, Any]] = {
    "letters": {"learning_rate": 3e-3, "examples": 4, "group": 8, "validate_every": 10},
    "smollm2": {"learning_rate": 1e-4, "examples": 2, "group": 6, "validate_every": 4},
}
_SIZES = {"letters": (60, 40, 100), "smollm2": (30, 20, 50)}
"""Training, validation and test examples."""


def run(options: Options) -> Report:
    """Train and control, for each seed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks rl")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--task", choices=sorted(_SETTINGS), default="letters")
    parser.add_argument("--model", default="policy/smollm2-135m", help="of the task smollm2")
    parser.add_argument("--steps", type=int, default=60)
    for name, field, kind in (
        ("rate", "learning_rate", float),
        ("examples", "examples", int),
        ("group", "group", int),
        ("every", "validate_every", int),
    ):
        parser.add_argument(f"--{name}", dest=field, type=kind)
    parser.add_argument("--control", action=argparse.BooleanOptionalAction, default=True, help="run each seed with shuffled rewards too")
    parser.add_argument("--vllm", choices=("colocate", "server"))
    parser.add_argument("--runs", type=Path, default=Path("gepa_runs") / "bench-rl")
    own = parser.parse_args(options.rest)
    if own.smoke or options.quick:
        with tempfile.TemporaryDirectory() as folder:
            return smoke(Path(folder))
    return study(own, options.seeds)


def study(own: argparse.Namespace, seeds: Sequence[int]) -> Report:
    """Training and control, for each seed."""
    model = letter_model(own.runs / "letters") if own.task == "letters" else own.model
    settings = {name: getattr(own, name) or default for name, default in _SETTINGS[own.task].items() if hasattr(own, name)}
    settings["vllm"] = own.vllm
    place = f"{own.task}-{own.steps}-{settings['learning_rate']:g}-{settings['examples']}x{settings['group']}"
    names = ("trained", "shuffled") if own.control else ("trained",)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    course: dict[str, list[list[float | None]]] = {name: [] for name in names}
    for seed in seeds:
        for name in names:
            folder = own.runs / f"{place}-{name}-{seed}"
            result = train(model, own.task, own.steps, seed, folder, **settings, shuffled=name == "shuffled")
            found[name].append(figures(result))
            course[name].append([member.mean for member in result.candidates])
            print(name, seed, found[name][-1], course[name][-1], flush=True)
    extra = {"task": own.task, "steps": own.steps, "settings": settings, "device": device(), "validation_course": course, "outcomes": found}
    return Report("rl", table(found), _SIZES[own.task][2], tuple(seeds), model.rpartition("/")[2], extra)


def device() -> str:
    """What computes."""
    import torch

    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} threads"


def train(
    model: str, task: str, steps: int, seed: int, folder: Path, on_event: Callable[[Any], None] | None = None, **settings: Any
) -> gl.Result[Any]:
    """One run of GRPO, gone on with where the folder has one."""
    train_count, val_count, test_count = sizes = _SIZES[task]
    data = rows(sum(sizes), 1)
    train_rows, val_rows, test_rows = data[:train_count], data[train_count : train_count + val_count], data[-test_count:]
    settings = {**_SETTINGS[task], **settings}
    # the rows of one example and a row of padding
    grpo = optimizer("grpo", steps=steps, **{"micro_batch": 2 * settings["group"] + 1, **settings})
    program = (Marks if task == "letters" else Words)(lm=model)
    given: dict[str, Any] = {"feedback": feedback, "testset": test_rows, "budget": gl.Budget(rollouts=100_000), "seed": seed, "run": folder}
    return grpo(program, train_rows, val_rows, workers=32, on_event=on_event, **given)


def figures(result: gl.Result[Any]) -> dict[str, float]:
    """Scores of seed and winner on the test set, and how much of the gain is form: answers that can be read at all, at the score that readable answers had before, or have now where there were none."""
    assert result.test is not None
    valid = [_in_form(result, index) for index in (0, result.winner_index)]
    before, after = result.test.before, result.test.after
    content = before / valid[0] if valid[0] else after / valid[1] if valid[1] else 0.0
    last = next(member.mean for member in reversed(result.candidates) if member.mean is not None)
    return {
        "before": before,
        "after": after,
        "gain": after - before,
        "form_before": valid[0],
        "form_after": valid[1],
        "gain_by_form": (valid[1] - valid[0]) * content,
        "gain_by_content": after - valid[1] * content,
        "validation_seed": result.candidates[0].mean or 0.0,
        "validation_last": last or 0.0,
        "rollouts": result.costs.logical.rollouts,
        "tokens": result.costs.logical.tokens,
        "training_tokens": result.costs.logical.training.tokens,
        "training_cpu_seconds": result.costs.seconds_by_role["training"],
        "seconds": result.costs.seconds,
    }


def _in_form(result: gl.Result[Any], index: int) -> float:
    from gepa_lite.core.rollout import RolloutKey
    from gepa_lite.store.run_store import RunStore

    assert result.run is not None
    assert result.state.started is not None
    name = result.candidates[index].candidate.id
    with RunStore.read(result.run) as store:
        found = store.rollouts_at([RolloutKey(name, example) for example in result.state.started.test_ids])
    return sum(rollout.failure is None for rollout in found.values()) / len(found)


def table(found: dict[str, list[dict[str, float]]]) -> list[Row]:
    """Trained beside shuffled, where that was run; means over the seeds."""
    made = []
    for measure in found["trained"][0]:
        means = {name: fmean(outcome[measure] for outcome in outcomes) for name, outcomes in found.items()}
        made.append(Row(measure, means["trained"], means.get("shuffled")))
    if len(found["trained"]) > 1:
        for name, outcomes in found.items():
            mean, low, high, _ = mean_interval([outcome["gain"] for outcome in outcomes])
            made.append(Row(f"gain, {name}: mean and 95 % interval over seeds", f"{mean:.3f} [{low:.3f}, {high:.3f}]"))
    return made


def smoke(folder: Path) -> Report:
    """Three updates; the same with a break after the second; and what must hold of both."""
    model = letter_model(folder / "letters")
    settings: dict[str, Any] = {"examples": 2, "group": 4, "validate_every": 1}
    whole = train(model, "letters", 3, 0, folder / "whole", **settings)
    broken = _broken_off(model, folder / "broken", settings)
    losses = [
        float(part)
        for proposal in whole.state.proposals
        for part in proposal.reason.rpartition("last ")[2].split(", ")
        if "updates" in proposal.reason
    ]
    weights = [[member.candidate.texts["weights"] for member in result.candidates] for result in (whole, broken)]
    spend = whole.costs.logical
    # the validation set for the seed and each candidate, the test set for seed and winner, and 2 x 4 rollouts an update
    expected = 3 * 8 + 40 * len(whole.candidates) + 100 * (2 if whole.winner_index else 1)
    checks = {
        "every loss is finite": bool(losses) and all(map(math.isfinite, losses)),
        "the adapter's weights changed": len(set(weights[0])) > 1,
        "broken off and resumed: the same weights": weights[0] == weights[1],
        "broken off and resumed: the same events": list(whole.state.proposals) == list(broken.state.proposals),
        "rollouts are charged once": spend.rollouts == expected == broken.costs.logical.rollouts,
        "training tokens are in the ledger": spend.training.calls == 3 and spend.training.tokens > 0,
        "training seconds are in the ledger": whole.costs.seconds_by_role["training"] > 0,
    }
    if failed := [name for name, held in checks.items() if not held]:
        raise SystemExit(
            f"the smoke test failed: {'; '.join(failed)} (losses {losses}, weights {weights}, rollouts {spend.rollouts}, expected {expected})"
        )
    return Report("rl-smoke", [Row(name, "yes", goal="yes", met=True) for name in checks], 3, (0,), "letters")


class _Break(Exception):  # the smoke test's own
    pass


def _broken_off(model: str, folder: Path, settings: dict[str, Any]) -> gl.Result[Any]:
    """A run that an error ends after its second update, and its resume."""
    from gepa_lite.lm.policy import engine_of

    def stop(event: Any) -> None:
        if getattr(event, "step", None) == 1 and type(event).__name__ == "StepEnded":
            raise _Break

    data = rows(200, 1)
    grpo = optimizer("grpo", steps=3, **{**_SETTINGS["letters"], **settings, "micro_batch": 2 * settings["group"] + 1})
    given: dict[str, Any] = {"feedback": feedback, "testset": data[-100:], "budget": gl.Budget(rollouts=100_000), "seed": 0, "run": folder}
    try:
        grpo(Marks(lm=model), data[:60], data[60:100], workers=32, on_event=stop, **given)
    except _Break:
        # another process would load the model anew
        engine_of.cache_clear()
        from gepa_lite.lm.policy import open_policy

        open_policy.cache_clear()
    return train(model, "letters", 3, 0, folder, **settings)
