"""How often is a gain claimed that is not there, and how often is a real one shown?

Whole runs on scripted models: search, sealed test set, verdict. In the null runs no prompt can help: every prompt has the same true score, and prompts differ by luck alone.
In the power runs one sentence, which the reflection model finds, is worth 10 points. Beside them the verdict alone, on drawn pairs of scores.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import gepa_lite as gl
from benchmarks.report import Options, Report, Row
from gepa_lite import api
from gepa_lite.core.seeds import stream
from gepa_lite.search.verdict import compare, verdict_of
from gepa_lite.session import Session
from gepa_lite.store.memory import MemoryStore
from gepa_lite.testing import ScriptedLM

RUNS, QUICK_RUNS = 200, 12
TRAIN, VALIDATION, TEST = 40, 40, 100
ROLLOUTS = 600
RULE = "Mind the rule."
DRAWS, QUICK_DRAWS = 500, 60


@dataclass(frozen=True)
class World:
    """How answers depend on the prompt.

    Attributes:
        right: share of right answers with any prompt; graded scores have this mean.
        redrawn: share of the examples whose answer another prompt draws anew; the others depend on the example alone.
        won: share of the examples that the rule turns from wrong to right.
        lost: share that it turns from right to wrong.
        graded: scores are continuous.
    """

    right: float
    redrawn: float
    won: float = 0.0
    lost: float = 0.0
    graded: bool = False

    def score(self, prompt: str, example: str, seed: int) -> float:
        """The score of one rollout: the same for the same prompt, example and seed."""
        fate = stream(seed, "example", example)
        answer = stream(seed, "answer", prompt, example) if fate.random() < self.redrawn else stream(seed, "fixed", example)
        if self.graded:
            return min(1.0, max(0.0, answer.gauss(self.right, 0.25)))
        right = answer.random() < self.right
        if RULE in prompt:
            # shares of all examples, so of those that are wrong, or right, without the rule
            turned = fate.random() < (self.lost / self.right if right else self.won / (1 - self.right))
            right = right != turned
        return float(right)


NULLS: Mapping[str, World] = {
    "every answer drawn anew": World(0.5, 1.0),
    "one answer in five drawn anew": World(0.6, 0.2),
    "graded scores": World(0.5, 0.5, graded=True),
}
GAINS: Mapping[str, World] = {
    "10 won, 0 lost": World(0.6, 0.0, won=0.10),
    "15 won, 5 lost": World(0.6, 0.0, won=0.15, lost=0.05),
    "15 won, 5 lost, and one answer in five drawn anew": World(0.6, 0.2, won=0.15, lost=0.05),
    "every answer drawn anew": World(0.6, 1.0, won=0.10),
}


class Answer(gl.Program):
    """Answer a message."""

    say = gl.Module("message -> reply", "Answer the message.")

    def forward(self, message: str) -> gl.Outputs:
        return self.say(message=message)


def one_run(world: World, seed: int, reflect: Callable[[random.Random], str]) -> gl.Result[Answer]:
    """A whole run in memory."""
    draw = stream(seed, "reflection")

    def feedback(example: gl.Example, output: gl.Outputs, trace: gl.Trace) -> gl.Feedback:
        prompt = trace.calls[0].messages[0]["content"]
        return gl.Feedback(world.score(prompt, example["message"], seed), "It could be better.")

    def rows(split: str, count: int) -> list[dict[str, str]]:
        return [{"message": f"{split} {number}"} for number in range(count)]

    prepared = api.prepare(
        Answer(lm=ScriptedLM("done", name="task")),
        rows("train", TRAIN),
        rows("validation", VALIDATION),
        testset=rows("test", TEST),
        feedback=feedback,
        reflection_lm=ScriptedLM(lambda request: f"<prompt>{reflect(draw)}</prompt>", name="reflection"),
        budget=gl.Budget(rollouts=ROLLOUTS),
        search=gl.Search(seed=seed),
        workers=1,
    )
    return api.result_of(prepared.spec, Session(prepared.spec, MemoryStore()).run(), None)


def useless(draw: random.Random) -> str:
    """A prompt that is new and no better."""
    return f"Answer the message. Think of {draw.getrandbits(40):x}."


def helpful(draw: random.Random) -> str:
    """A prompt with the rule."""
    return f"{useless(draw)} {RULE}"


def verdicts(world: World, seeds: range, reflect: Callable[[random.Random], str]) -> tuple[Counter[str], int, float]:
    """Verdicts of whole runs, how many handed back another prompt than the seed, and the mean gain on the test set."""
    results = [one_run(world, seed, reflect) for seed in seeds]
    gains = [result.test.gain for result in results if result.test is not None]
    changed = sum(result.winner.prompts != result.seed.prompts for result in results)
    return Counter(result.verdict for result in results), changed, sum(gains) / len(gains)


def drawn_verdicts(world: World, n: int, draws: int) -> int:
    """How often the verdict alone says ``improved`` of a prompt with the rule."""
    shown = 0
    for seed in range(draws):
        before = [world.score("a", str(i), seed) for i in range(n)]
        after = [world.score(f"b {RULE}", str(i), seed) for i in range(n)]
        shown += verdict_of(compare(before, after)) == "improved"
    return shown


def interval(hits: int, n: int) -> tuple[float, float]:
    """The 95 % Wilson interval of a share."""
    z = NormalDist().inv_cdf(0.975)
    share, spread = hits / n, z * z / n
    half = z * (share * (1 - share) / n + spread / (4 * n)) ** 0.5
    return (share + spread / 2 - half) / (1 + spread), (share + spread / 2 + half) / (1 + spread)


def run(options: Options) -> Report:
    """The benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks null")
    parser.add_argument("--runs", type=int, default=QUICK_RUNS if options.quick else RUNS)
    chosen = parser.parse_args(list(options.rest))
    seeds = range(options.seeds[0], options.seeds[0] + chosen.runs)
    draws = QUICK_DRAWS if options.quick else DRAWS
    rows: list[Row] = []
    details: dict[str, Any] = {}
    for name, world in NULLS.items():
        counts, changed, gain = verdicts(world, seeds, useless)
        claimed = counts["improved"] / chosen.runs
        details[f"null: {name}"] = {"verdicts": dict(counts), "runs with another winner than the seed": changed, "mean test gain": gain}
        rows.append(_row(f"null, {name}: improved", counts["improved"], chosen.runs, "at most 5 %", claimed <= 0.05))
        rows.append(_row(f"null, {name}: worse", counts["worse"], chosen.runs, None, None))
    for name, world in GAINS.items():
        counts, changed, gain = verdicts(world, seeds, helpful)
        details[f"power: {name}"] = {"verdicts": dict(counts), "runs with another winner than the seed": changed, "mean test gain": gain}
        rows.append(_row(f"+10 points, n={TEST}, {name}: improved", counts["improved"], chosen.runs, None, None))
    for name, world in GAINS.items():
        for n in (30, 50, 100, 200, 300):
            rows.append(_row(f"verdict alone, n={n}, {name}", drawn_verdicts(world, n, draws), draws, None, None))
    extra = {"details": details, "sizes": {"train": TRAIN, "validation": VALIDATION, "test": TEST, "rollouts": ROLLOUTS}, "draws": draws}
    return Report("null", rows, n=chosen.runs, seeds=list(seeds), model="scripted", extra=extra)


def _row(measure: str, hits: int, n: int, goal: str | None, met: bool | None) -> Row:
    low, high = interval(hits, n)
    words = f"[{low:.3f}, {high:.3f}] of {n}"
    return Row(measure, hits / n, None, None, words if goal is None else f"{goal}; {words}", met)
