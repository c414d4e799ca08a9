"""What ``python -m benchmarks search`` runs: our search under many rules, and upstream ``gepa``, on simulated landscapes, cell by cell, kept as each is done."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.search_code import code_hash
from gepa_lite import Budget, Search
from gepa_lite.core.feedback import Objective
from gepa_lite.search.state import RunState
from gepa_lite.search.stop_rules import Surroundings
from gepa_lite.testing import LANDSCAPES, Landscape, landscape, run_landscape

CHECKPOINTS = (200, 500, 1_000, 2_000)
ROLLOUTS = CHECKPOINTS[-1]
LONG = 6_000
"""Rollouts of a ``~long`` cell, for landscapes on which 2,000 don't get the peer to 90 %."""
SHARES = (0.9, 0.95)

NOISE: Mapping[str, Mapping[str, Any]] = {"quiet": {"wobble": 0.0, "label_noise": 0.0}, "loud": {"wobble": 1.0, "label_noise": 0.05}}
"""A landscape's name followed by ``~quiet`` or ``~loud`` is the same landscape without score noise, or with much; ``~long`` is the same one with a larger budget."""

PEER = {"peer": False, "peer-merge": True}
OURS: Mapping[str, Search] = {
    "defaults": Search(),
    "paper": Search.paper(),
    # one rule of the defaults changed
    "fan-1": Search(fan=1),
    "fan-2": Search(fan=2),
    "fan-4": Search(fan=4),
    "fan-8": Search(fan=8),
    "fan-16": Search(fan=16),
    "no-overlap": Search(overlap=False),
    "window-2": Search(window=2),
    "window-4": Search(window=4),
    "window-16": Search(window=16),
    "fan-1-window-4": Search(fan=1, window=4),
    "fan-1-window-16": Search(fan=1, window=16),
    "select-pareto": Search(selector="pareto"),
    "select-likely": Search(selector="likely"),
    "select-best": Search(selector="best"),
    "select-epsilon": Search(selector="epsilon_greedy"),
    "select-beam": Search(selector="beam"),
    "select-elite": Search(selector="elite"),
    "merge-none": Search(merge="none"),
    "merge-paper": Search(merge="paper"),
    "no-reuse": Search(reuse=False),
    "full-validation": Search(validation="full"),
    "non-strict": Search(accept="non_strict"),
    "paired": Search(accept="paired", minibatch=6),
    "edit": Search(proposer="edit"),
    "round-robin": Search(modules="round_robin"),
    "all-modules": Search(modules="all"),
    "batch-5": Search(minibatch=5),
    "hard": Search(sampling="hard"),
    # one rule added to the paper's loop
    "paper+fan-4": Search.paper(fan=4),
    "paper+overlap": Search.paper(overlap=True),
    "paper+top-k": Search.paper(selector="top_k_pareto"),
    "paper+blame": Search.paper(modules="blame"),
    "paper+staged": Search.paper(validation="staged"),
    "paper+merge": Search.paper(merge="complementary"),
    "paper+merge-paper": Search.paper(merge="paper"),
    "paper+edit": Search.paper(proposer="edit"),
    "paper-reuse": Search.paper(reuse=False),
}

Curve = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Enough:
    """A bound on proposals, skipped ones included, for landscapes where the best candidate leaves nothing to learn: skipping costs ours no rollout.

    It is one for two rollouts; the peer pays at least three for each proposal.
    """

    proposals: int

    def __call__(self, state: RunState, objective: Objective, around: Surroundings) -> str | None:
        """See ``StopRule``."""
        return f"{len(state.proposals)} proposals are made" if len(state.proposals) >= self.proposals else None


class Outcome(NamedTuple):
    """One search: the exact held-out score of what was best by validation at each of ``CHECKPOINTS``, and the rollouts until each of ``SHARES`` of the attainable score, or None."""

    at: tuple[float, ...]
    to: tuple[int | None, ...]


def made(name: str, seed: int) -> Landscape:
    """A landscape by name, or a variant of one."""
    name, _, variant = name.partition("~")
    return Landscape(dataclasses.replace(LANDSCAPES[name], **NOISE[variant]), seed) if variant in NOISE else landscape(name, seed)


def search(optimizer: str, name: str, seed: int) -> Outcome:
    """One search from scratch."""
    land, rollouts = made(name, seed), LONG if name.endswith("~long") else ROLLOUTS
    if optimizer in PEER:
        return outcome_of(peer_curve(land, PEER[optimizer], rollouts, seed), land.attainable, rollouts)
    rules = dataclasses.replace(OURS[optimizer], stop=(Enough(rollouts // 2),))
    return outcome_of(run_landscape(land, rules, Budget(rollouts=rollouts), seed=seed).curve, land.attainable, rollouts)


def outcome_of(curve: Curve, attainable: float, rollouts: int = ROLLOUTS) -> Outcome:
    """Read a curve of (rollouts spent, held-out score) at the checkpoints; the seed's score counts before it was validated."""
    at = (next((score for cost, score in reversed(curve) if cost <= spent), curve[0][1]) for spent in CHECKPOINTS)
    to = (next((cost for cost, score in curve if score >= share * attainable - 1e-12 and cost <= rollouts), None) for share in SHARES)
    return Outcome(tuple(round(score, 5) for score in at), tuple(to))


def peer_curve(land: Landscape, merge: bool, rollouts: int, seed: int) -> Curve:
    """One search of upstream gepa on the same landscape, by an adapter of its own protocol. It may pass its budget; ``outcome_of`` counts only what it found within."""
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
    curve, best = [], float("-inf")
    for texts, mean, spent in zip(result.candidates, result.val_aggregate_scores, result.discovery_eval_counts, strict=True):
        if mean > best:
            best = mean
            # the peer counts what was spent before a candidate's validation; it is known as the best only after it
            curve.append((int(spent) + len(land.validation), land.held_out(texts)))
    return curve


def changes_of(rules: Search) -> str:
    """What differs from the paper's settings, in words: it stays the same where a release adds a rule and leaves it off."""
    paper = Search.paper()
    changes = {item.name: getattr(rules, item.name) for item in dataclasses.fields(Search)}
    return ", ".join(f"{name}={value!r}" for name, value in changes.items() if value != getattr(paper, name)) or "the paper's"


class Cells:
    """The outcomes of one optimizer on disk: one file, a line a landscape. What was measured under other rules, or by another release of the peer, is dropped.

    Each cell keeps the state of the code that made it; one that another state made stays, and ``made_by`` tells.

    Args:
        folder: where the files lie; None keeps nothing.
        optimizer: its name.
    """

    def __init__(self, folder: Path | None, optimizer: str) -> None:
        self.optimizer = optimizer
        self._path = None if folder is None else folder / f"{optimizer}.json"
        self.rules = f"gepa {version('gepa')}" if optimizer in PEER else changes_of(OURS[optimizer])
        self._found: dict[str, dict[str, list[list[Any]]]] = {}
        self._code: dict[str, dict[str, str]] = {}
        if self._path is not None and self._path.exists():
            kept = json.loads(self._path.read_text())
            if kept["rules"] == self.rules:
                self._found, self._code = kept["cells"], kept.get("search_code", {})

    def lacking(self, names: Sequence[str], seeds: Sequence[int]) -> Iterator[tuple[str, int]]:
        """The cells that are not there yet."""
        return ((name, seed) for name in names for seed in seeds if str(seed) not in self._found.get(name, {}))

    def add(self, name: str, seed: int, outcome: Outcome) -> None:
        """Keep one more in memory; ``save`` writes."""
        self._found.setdefault(name, {})[str(seed)] = [list(outcome.at), list(outcome.to)]
        if self.optimizer not in PEER:
            self._code.setdefault(name, {})[str(seed)] = code_hash()

    def save(self) -> None:
        """Write the file, whole."""
        if self._path is None:
            return
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row, separators=(',', ':'))}" for name, row in sorted(self._found.items()))
        self._path.parent.mkdir(parents=True, exist_ok=True)
        head = {"optimizer": self.optimizer, "rules": self.rules, **({"search_code": self._code} if self._code else {})}
        scratch = self._path.with_suffix(".part")
        scratch.write_text(f'{json.dumps(head)[:-1]}, "cells": {{\n{lines}\n}}}}\n')
        scratch.replace(self._path)

    def made_by(self, names: Sequence[str], seeds: Sequence[int]) -> list[str | None]:
        """The state of the code behind each cell that is there, None where it was not kept; the peer's cells owe nothing to it."""
        there = [(name, str(seed)) for name in names for seed in seeds if str(seed) in self._found.get(name, {})]
        return [] if self.optimizer in PEER else [self._code.get(name, {}).get(seed) for name, seed in there]

    def get(self, name: str, seeds: Sequence[int]) -> list[Outcome]:
        """The outcomes of some seeds, in their order."""
        return [Outcome(tuple(at), tuple(to)) for at, to in (self._found[name][str(seed)] for seed in seeds)]


def fill(cells: Cells, names: Sequence[str], seeds: Sequence[int], until: float) -> int:
    """Run what is lacking until a moment of ``time.monotonic``; the number of cells left."""
    lacking = list(cells.lacking(names, seeds))
    saved = time.monotonic()
    for done, (name, seed) in enumerate(lacking):
        if time.monotonic() > until:
            cells.save()
            return len(lacking) - done
        cells.add(name, seed, search(cells.optimizer, name, seed))
        if time.monotonic() > saved + 10:
            cells.save()
            saved = time.monotonic()
    cells.save()
    return 0
