"""What the cells say together: means, intervals, the worst seed, and pairs of optimizers at equal rollouts and at equal tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.cells import RESULTS, SLOTS, UNOPTIMIZED, model_slug

DRAWS = 5_000
Found = Mapping[str, Any]


def read_cells(model: str, results: Path = RESULTS) -> list[dict[str, Any]]:
    """All results of a model, by file name."""
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted((results / model_slug(model)).glob("*.json"))]


def interval(rows: Sequence[Sequence[float | None]], seed: int = 0) -> tuple[float, float, float]:
    """Mean and 95 % bootstrap interval of values by run and example: runs are drawn, then examples, the same ones for every run, as the runs share them.

    Args:
        rows: one a run, the same examples in the same order; None is missing, and
            an example that one run lacks is left out of all.
        seed: of the draws.
    """
    table = np.array([[np.nan if value is None else value for value in row] for row in rows], dtype=float)
    table = table[:, ~np.isnan(table).any(axis=0)]
    generator = np.random.default_rng(seed)
    runs, examples = table.shape
    means = np.empty(DRAWS)
    for draw in range(DRAWS):
        means[draw] = table[generator.integers(runs, size=runs)][:, generator.integers(examples, size=examples)].mean()
    low, high = np.quantile(means, (0.025, 0.975))
    return float(table.mean()), float(low), float(high)


def summary(found: Sequence[Found]) -> dict[str, Any]:
    """One optimizer on one task, over its seeds."""
    mean, low, high = interval([each["test_values"]["winner"] for each in found])
    figures = [{**each["figures"], **_seconds(each)} for each in found]

    def of(name: str) -> float | None:
        values = [one[name] for one in figures if one.get(name) is not None]
        return fmean(values) if len(values) == len(figures) else None

    return {
        "seeds": [each["seed"] for each in found],
        "test": mean,
        "low": low,
        "high": high,
        "worst": min(one["test"] for one in figures),
        "seed_test": of("seed_test"),
        "validation": of("validation"),
        "gap": of("gap"),
        "rollouts": of("rollouts"),
        "tokens": of("tokens"),
        "usd": of("usd"),
        "seconds": of("seconds"),
        "prompt_words": of("prompt_words"),
        "verdicts": [one["verdict"] for one in figures if "verdict" in one],
    }


def _seconds(found: Found) -> dict[str, float]:
    """Wall time of the whole run, the test set and the curve included, as if no reply had been remembered: those that were took their share of the model's slots when they were first asked."""
    if "seconds" not in found["figures"]:
        return {}
    return {"seconds": found["figures"]["seconds"] + found["replies"]["remembered_seconds"] / SLOTS}


def at(found: Found, axis: str, most: float) -> float | None:
    """The score on the curve's examples of the candidate that led when so much was spent; None before the seed's validation had ended."""
    scores = [lead["curve"] for lead in found["leads"] if lead[axis] <= most and lead["curve"] is not None]
    return scores[-1] if scores else None


def pair(ours: Sequence[Found], theirs: Sequence[Found]) -> dict[str, Any] | None:
    """Two optimizers on one task, over the seeds that both ran.

    Returns:
        The difference on the sealed test set at equal rollouts, with its interval, and the differences on the curve's examples at equal rollouts and at equal tokens, where the one that
        spent more is read at what the other had spent in all; None where no seed is shared.
    """
    other = {each["seed"]: each for each in theirs}
    pairs = [(each, other[each["seed"]]) for each in ours if each["seed"] in other]
    if not pairs:
        return None
    rows = [
        [
            None if one is None or two is None else one - two
            for one, two in zip(a["test_values"]["winner"], b["test_values"]["winner"], strict=True)
        ]
        for a, b in pairs
    ]
    mean, low, high = interval(rows)
    return {
        "seeds": [a["seed"] for a, _ in pairs],
        "test": mean,
        "low": low,
        "high": high,
        **{f"curve at equal {axis}": _equal(pairs, axis) for axis in ("rollouts", "tokens")},
    }


def _equal(pairs: Sequence[tuple[Found, Found]], axis: str) -> float | None:
    differences = []
    for a, b in pairs:
        most = min(a["figures"][axis], b["figures"][axis])
        ours, theirs = at(a, axis, most), at(b, axis, most)
        if ours is not None and theirs is not None:
            differences.append(ours - theirs)
    return fmean(differences) if differences else None


def tables(cells: Sequence[Found], ours: str = "gepa_lite", peer: str = "gepa") -> dict[str, Any]:
    """Everything by task."""
    found: dict[str, Any] = {}
    for task in dict.fromkeys(each["task"] for each in cells):
        here = [each for each in cells if each["task"] == task]
        names = [name for name in UNOPTIMIZED if any(each["optimizer"] == name for each in here)]
        names += [name for name in dict.fromkeys(each["optimizer"] for each in here) if name not in names]
        groups = {name: [each for each in here if each["optimizer"] == name] for name in names}
        found[task] = {
            "optimizers": {name: summary(group) for name, group in groups.items()},
            "pair": pair(groups.get(ours, ()), groups.get(peer, ())),
        }
    return found


def markdown(found: Mapping[str, Any], ours: str = "gepa_lite", peer: str = "gepa") -> str:
    """The tables for a page."""
    lines = [
        "| task | optimizer | seeds | test, mean [95 %] | worst seed | gap | rollouts | tokens | USD | seconds | prompt words |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for task, parts in found.items():
        for name, row in parts["optimizers"].items():
            cells = [
                task,
                name,
                str(len(row["seeds"])),
                f"{row['test']:.3f} [{row['low']:.3f}, {row['high']:.3f}]",
                f"{row['worst']:.3f}",
                *(_number(row[key], form) for key, form in (("gap", "+.3f"), ("rollouts", ".0f"), ("tokens", ",.0f"), ("usd", ".2f"))),
                *(_number(row[key], ".0f") for key in ("seconds", "prompt_words")),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        f"| task | seeds | {ours} - {peer}: test at equal rollouts [95 %] | curve at equal rollouts | curve at equal tokens |",
        "| --- | --- | --- | --- | --- |",
    ]
    for task, parts in found.items():
        row = parts["pair"]
        if row is not None:
            both = f"{row['test']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]"
            curves = [_number(row[f"curve at equal {axis}"], "+.3f") for axis in ("rollouts", "tokens")]
            lines.append(f"| {task} | {len(row['seeds'])} | {both} | {' | '.join(curves)} |")
    return "\n".join(lines)


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
