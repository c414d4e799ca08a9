"""Our search beside upstream ``gepa`` on the simulated landscapes: held-out score at equal rollouts, and rollouts to 90 % and 95 % of the attainable score.

``python -m benchmarks search --seeds 0-49 [--landscapes a,b] [--optimizers paper,fan-4,peer] [--rollouts 1000]``. Each (landscape, optimizer) pair has a file of its own under
``benchmarks/results/search/``; seeds that it holds are not run again, so an interrupted table continues. Held-out scores are exact, not sampled.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import Options, Report, Row
from gepa_lite import Budget, Search
from gepa_lite.search.verdict import compare
from gepa_lite.testing import HELD_BACK, LANDSCAPES, TUNING, Landscape, landscape, run_landscape

RESULTS = Path(__file__).parent / "results" / "search"
CHECKPOINTS = (200, 500, 1_000, 2_000)

OURS: Mapping[str, Search] = {
    "defaults": Search(),
    "paper": Search.paper(),
    "best": Search.paper(selector="best"),
    "likely": Search.paper(selector="likely"),
    "epsilon": Search.paper(selector="epsilon_greedy"),
    "top-k": Search.paper(selector="top_k_pareto"),
    "beam": Search.paper(selector="beam"),
    "elite": Search.paper(selector="elite"),
    "fan-2": Search.paper(fan=2),
    "fan-4": Search.paper(fan=4),
    "fan-8": Search.paper(fan=8),
    "window-4": Search.paper(window=4),
    "merge-paper": Search.paper(merge="paper"),
    "merge": Search.paper(merge="complementary"),
    "no-reuse": Search.paper(reuse=False),
    "staged": Search.paper(validation="staged"),
    "paired": Search.paper(accept="paired", minibatch=6),
    "blame": Search.paper(modules="blame"),
    "all-modules": Search.paper(modules="all"),
    "hard": Search.paper(sampling="hard"),
    "edit": Search.paper(proposer="edit"),
    "defaults-fan-1": Search(fan=1),
    "defaults-fan-2": Search(fan=2),
    "defaults-fan-8": Search(fan=8),
    "defaults-fan-16": Search(fan=16),
    "defaults-pareto": Search(selector="pareto"),
    "defaults-round-robin": Search(modules="round_robin"),
    "defaults-no-merge": Search(merge="none"),
    "defaults-full": Search(validation="full"),
    "defaults-batch-5": Search(minibatch=5),
}
PEER = {"peer": False, "peer-merge": True}
Outcome = dict[str, Any]


def run_ours(land: Landscape, rules: Search, rollouts: int, seed: int) -> Outcome:
    """One search of ours."""
    found = run_landscape(land, rules, Budget(rollouts=rollouts, proposals=2 * rollouts), seed=seed)
    return _outcome(list(found.curve), found.attainable, rollouts)


def run_peer(land: Landscape, merge: bool, rollouts: int, seed: int) -> Outcome:
    """One search of upstream gepa on the same landscape, by an adapter of its own protocol. It may pass its budget; only what it found within counts."""
    import gepa.api
    from gepa.core.adapter import EvaluationBatch

    class Quiet:
        def log(self, message: str) -> None:
            """Nothing."""

    class Adapter:
        asked = 0

        def evaluate(self, batch: Sequence[Any], candidate: dict[str, str], capture_traces: bool = False) -> Any:
            scorer = land.scorer(candidate, 0)
            judged = [scorer.judge(example) if capture_traces else None for example in batch]
            scores = [feedback.score if feedback is not None else scorer(example) for feedback, example in zip(judged, batch, strict=True)]
            return EvaluationBatch(outputs=[None] * len(batch), scores=scores, trajectories=judged if capture_traces else None)

        def make_reflective_dataset(
            self, candidate: dict[str, str], eval_batch: Any, components: list[str]
        ) -> dict[str, list[dict[str, str]]]:
            return {name: [{"Feedback": feedback.for_module(name)} for feedback in eval_batch.trajectories] for name in components}

        def propose_new_texts(
            self, candidate: dict[str, str], dataset: Mapping[str, Sequence[Mapping[str, str]]], components: list[str]
        ) -> dict[str, str]:
            self.asked += 1
            return {
                name: land.reflect(name, candidate[name], [record["Feedback"] for record in dataset[name]], f"{seed}/{self.asked}")
                for name in components
            }

    result: Any = gepa.api.optimize(
        dict(land.seed_texts),
        list(land.train),
        list(land.validation),
        adapter=Adapter(),  # type: ignore[arg-type]  # the protocol's docstring allows any object with these methods
        max_metric_calls=rollouts,
        use_merge=merge,
        seed=seed,
        logger=Quiet(),
        track_best_outputs=False,
    )
    curve, best = [], -1.0
    for texts, mean, spent in zip(result.candidates, result.val_aggregate_scores, result.discovery_eval_counts, strict=True):
        if mean > best:
            best = mean
            curve.append((int(spent), land.held_out(texts)))
    return _outcome(curve, land.attainable, rollouts)


def _outcome(curve: list[tuple[int, float]], attainable: float, rollouts: int) -> Outcome:
    def at(spent: int) -> float:
        return next((score for cost, score in reversed(curve) if cost <= spent), curve[0][1])

    def reached(share: float) -> int | None:
        return next((cost for cost, score in curve if score >= share * attainable and cost <= rollouts), None)

    return {
        "at": {str(c): at(c) for c in CHECKPOINTS if c <= rollouts},
        "to90": reached(0.9),
        "to95": reached(0.95),
        "attainable": attainable,
    }


def run(options: Options) -> Report:
    """Fill what is missing, then compare."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks search")
    parser.add_argument("--landscapes", default=",".join(LANDSCAPES))
    parser.add_argument("--optimizers", default="defaults,paper,peer")
    parser.add_argument("--rollouts", type=int, default=1_000)
    chosen = parser.parse_args(list(options.rest))
    seeds = options.seeds[:4] if options.quick else options.seeds
    names = chosen.landscapes.split(",")[:3] if options.quick else chosen.landscapes.split(",")
    optimizers = chosen.optimizers.split(",")
    table: dict[str, dict[str, dict[int, Outcome]]] = {}
    for name in names:
        for optimizer in optimizers:
            table.setdefault(name, {})[optimizer] = _filled(name, optimizer, seeds, chosen.rollouts)
    return Report(
        "search",
        _rows(table, optimizers, chosen.rollouts),
        n=len(seeds),
        seeds=seeds,
        model="simulated landscapes",
        extra={"rollouts": chosen.rollouts},
    )


def _filled(name: str, optimizer: str, seeds: Sequence[int], rollouts: int) -> dict[int, Outcome]:
    path = RESULTS / f"{name}--{optimizer}--{rollouts}.json"
    kept: dict[int, Outcome] = {int(seed): outcome for seed, outcome in json.loads(path.read_text()).items()} if path.exists() else {}
    search: Callable[[Landscape, int], Outcome]
    if optimizer in PEER:
        search = lambda land, seed: run_peer(land, PEER[optimizer], rollouts, seed)  # noqa: E731, one of two short forms
    else:
        search = lambda land, seed: run_ours(land, OURS[optimizer], rollouts, seed)  # noqa: E731
    for seed in seeds:
        if seed not in kept:
            kept[seed] = search(landscape(name, seed), seed)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(kept, sort_keys=True))
    return {seed: kept[seed] for seed in seeds}


def _rows(table: Mapping[str, Mapping[str, Mapping[int, Outcome]]], optimizers: Sequence[str], rollouts: int) -> list[Row]:
    base = "peer" if "peer" in optimizers else optimizers[0]
    key = str(max(c for c in CHECKPOINTS if c <= rollouts))
    rows: list[Row] = []
    for optimizer in optimizers:
        if optimizer == base:
            continue
        below = 0
        means: list[tuple[float, float]] = []
        for name, cells in table.items():
            ours = [outcome["at"][key] for outcome in cells[optimizer].values()]
            theirs = [outcome["at"][key] for outcome in cells[base].values()]
            paired = compare(theirs, ours)
            below += paired.high < 0
            means.append((float(np.mean(ours)), float(np.mean(theirs))))
            kind = "held back" if name in HELD_BACK else "tuning" if name in TUNING else ""
            measure = f"{name} ({kind}): {optimizer} at {key}"
            rows.append(Row(measure, means[-1][0], means[-1][1], means[-1][0] / means[-1][1], f"[{paired.low:+.3f}, {paired.high:+.3f}]"))
        mine, other = np.mean(means, axis=0)
        rows.append(
            Row(f"ALL: {optimizer} at {key}", float(mine), float(other), float(mine / other), f"wholly below {base}: {below}", below == 0)
        )
        for share in ("to90", "to95"):
            pairs = [(_median(cells[optimizer], share, rollouts), _median(cells[base], share, rollouts)) for cells in table.values()]
            ratios = [a / b for a, b in pairs if a < 2 * rollouts or b < 2 * rollouts]
            if ratios:
                rows.append(
                    Row(
                        f"ALL: {optimizer}, rollouts {share}, median landscape",
                        float(np.median(ratios)),
                        1.0,
                        float(np.median(ratios)),
                        f"{len(ratios)} landscapes reached",
                    )
                )
    return rows


def _median(cells: Mapping[int, Outcome], share: str, rollouts: int) -> float:
    """The median over seeds; a search that never got there counts as twice its budget."""
    return float(np.median([outcome[share] if outcome[share] is not None else 2 * rollouts for outcome in cells.values()]))
