"""``python -m benchmarks gpu-rl``: the training of ``python -m benchmarks rl`` at a GPU's size, in slices of time: one command, which goes on where it stopped.

    python -m benchmarks gpu-rl --model smollm2.gguf --steps 300 --examples 8 --group 12 --rates 1e-4,3e-4 --minutes 9 --runs DIR --out gpu-rl.json

``--model`` is a name of the catalogue, a ``.gguf`` file or a folder of transformers; nothing is fetched for a file or a folder. Each rate is one run; ``--control`` runs each with shuffled rewards too; ``--vllm colocate`` samples by vLLM. After
``--minutes`` the next validation ends the slice, the result file says how far it came, and the same command goes on from the checkpoint. The file has the device, the speed of sampling, seconds an update and the most memory that was taken.
``--quick`` runs four updates of a model of letters in two slices, on whatever is there. It needs the extra ``rl`` and no network.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import Options, Report, Row
from benchmarks.rl import device, figures, train
from benchmarks.rl_task import letter_model
from gepa_lite.core.events import StepEnded
from gepa_lite.lm.policy import Draw, engine_of

_REPLIES, _TOKENS = 32, 32
"""What the speed of sampling is measured on."""


class _SliceEnded(Exception):  # an internal signal
    """The time of this call is over."""


def run(options: Options) -> Report:
    """One slice."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks gpu-rl")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--examples", type=int, default=8)
    parser.add_argument("--group", type=int, default=12)
    parser.add_argument("--every", type=int, default=20, help="updates between validations, each a checkpoint")
    parser.add_argument("--rates", default="1e-4")
    parser.add_argument("--control", action="store_true")
    parser.add_argument("--vllm", choices=("colocate", "server"))
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--runs", type=Path, default=Path("gepa_runs") / "bench-gpu-rl")
    own = parser.parse_args(options.rest)
    if not options.quick:
        return piece(own, options.seeds, "smollm2")
    with tempfile.TemporaryDirectory() as folder:
        own.runs, own.steps, own.examples, own.group, own.every, own.minutes = Path(folder), 4, 2, 4, 2, 0.0
        own.model = letter_model(own.runs / "letters")
        first = piece(own, options.seeds, "letters")
        own.minutes = 10.0
        report = piece(own, options.seeds, "letters")
    if first.extra["finished"] or not report.extra["finished"]:
        raise SystemExit("the first slice was to end early, and the second to go on to the end")
    return report


def piece(own: argparse.Namespace, seeds: Sequence[int], task: str) -> Report:
    """Run what fits in the time, and say how far it came."""
    import torch

    until = time.monotonic() + 60 * own.minutes
    model = f"policy/{own.model.removeprefix('policy/')}"
    speed = sampled_a_second(model)
    settings = {"examples": own.examples, "group": own.group, "validate_every": own.every, "vllm": own.vllm}
    jobs = list(itertools.product(own.rates.split(","), seeds, (False, True) if own.control else (False,)))
    found: list[dict[str, Any]] = []
    for rate, seed, shuffled in jobs:
        name = f"{task}-{own.steps}-{own.examples}x{own.group}-{rate}-{'shuffled' if shuffled else 'trained'}-{seed}"
        told = {**settings, "learning_rate": float(rate), "shuffled": shuffled}
        try:
            result = train(model, task, own.steps, seed, own.runs / name, watch(until), **told)
        except _SliceEnded:
            break
        course = [member.mean for member in result.candidates]
        found.append({"run": name, **told, "seed": seed, "validation_course": course, **figures(result)})
    memory = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else None
    rows = [Row("tokens sampled a second", speed), Row("runs that are done", f"{len(found)} of {len(jobs)}")]
    for row in found:
        rows.append(Row(f"{row['run']}: test score, of the seed", row["after"], row["before"]))
        rows.append(Row(f"{row['run']}: seconds of computing an update", row["training_cpu_seconds"] / own.steps))
    extra = {"device": device(), "peak_memory_gib": memory, "finished": len(found) == len(jobs), "outcomes": found}
    return Report("gpu-rl", rows, len(jobs), tuple(seeds), own.model.rpartition("/")[2], extra)


def watch(until: float) -> Callable[[Any], None]:
    """Ends a run at the first validated step after a time on the monotonic clock; it is on disk by then."""

    def told(event: Any) -> None:
        if isinstance(event, StepEnded) and time.monotonic() > until:
            raise _SliceEnded

    return told


def sampled_a_second(model: str) -> float:
    """Tokens a second, sampled in one batch after one that is not counted."""
    engine = engine_of(model.removeprefix("policy/"))
    prompt = engine.encode([{"role": "user", "content": "Count from one to one hundred, in words."}])
    engine.load()
    from gepa_lite.lm.policy.draws import sample

    for seed in (0, _REPLIES):
        draws = [Draw(prompt, _TOKENS, 1.0, 1.0, seed + place) for place in range(_REPLIES)]
        begun = time.perf_counter()
        tokens = sum(len(found.completion_ids) for found in sample(engine.model, draws, engine.ends, engine.tokenizer.pad_token_id))
    return tokens / (time.perf_counter() - begun)
