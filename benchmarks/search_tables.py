"""The statistics of ``python -m benchmarks search``: paired intervals, Holm's correction, ratios of rollouts, and their tables in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.search_runs import CHECKPOINTS, Outcome
from gepa_lite.search.verdict import compare, mean_interval
from gepa_lite.testing import TUNING

Outcomes = Mapping[str, Sequence[Outcome]]
"""By landscape, one outcome a seed, in the seeds' order."""
Entry = dict[str, Any]

KEY = 1_000
RESAMPLES = 2_000


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's step-down correction: p-values that may be read as if there were one comparison, in the order given.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    corrected, highest = [0.0] * len(ps), 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=lambda place: ps[place])):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[place]))
        corrected[place] = highest
    return corrected


def beside(ours: Outcomes, theirs: Outcomes) -> list[Entry]:
    """Held-out scores of two optimizers at every budget on every landscape; Holm's correction is over all of them."""
    found: list[Entry] = []
    for name in ours:
        for place, budget in enumerate(CHECKPOINTS):
            mine, other = ([outcome.at[place] for outcome in row[name]] for row in (ours, theirs))
            paired = compare(other, mine)
            _, *interval, _ = mean_interval(mine)
            kind = "tuning" if name in TUNING else "held back"
            found.append(
                {
                    "landscape": name,
                    "kind": kind,
                    "rollouts": budget,
                    "ours": paired.after,
                    "interval": interval,
                    "peer": paired.before,
                    "low": paired.low,
                    "high": paired.high,
                    "p": paired.p,
                }
            )
    return _correct(found)


def rollouts_to(ours: Outcomes, theirs: Outcomes, place: int, budget: int) -> Entry:
    """Rollouts until a share of the attainable score: medians over seeds, a landscape each, and the median landscape's ratio with its interval.

    A search that does not get there within the budget counts as infinitely late, so a median is known where more than half get there. Where only ours gets there, the peer's median is taken to be the whole
    budget, which is too low, so the ratio is an upper bound; where only the peer's does, the ratio is infinite; where neither does, there is none.
    """
    names = list(ours)
    mine, other = (np.array([[_rollouts(outcome, place) for outcome in row[name]] for name in names]) for row in (ours, theirs))
    draws = np.random.default_rng(0).integers(0, mine.shape[1], size=(RESAMPLES, mine.shape[1]))
    medians = np.median(mine, axis=1), np.median(other, axis=1)
    resampled = [_middle(np.median(mine[:, draw], axis=1), np.median(other[:, draw], axis=1), budget) for draw in draws]
    known = [ratio for ratio in resampled if not np.isnan(ratio)]
    low, high = np.quantile(known, [0.025, 0.975], method="nearest") if known else (np.nan, np.nan)
    return {
        "landscapes": [
            {"landscape": name, "ours": _finite(a), "peer": _finite(b), "ratio": _finite(_ratio(a, b, budget))}
            for name, a, b in zip(names, *medians, strict=True)
        ],
        "median ratio": _finite(_middle(*medians, budget)),
        "low": _finite(low),
        "high": _finite(high),
        "reached by": [int(np.isfinite(row).sum()) for row in medians],
    }


def against(base: Outcomes, changed: Mapping[str, Outcomes]) -> list[Entry]:
    """Each changed search beside one base: per seed the mean over landscapes of a kind, at every budget, paired by seed; Holm's correction is over all changes at one budget and kind."""
    found: list[Entry] = []
    for kind in ("tuning", "held back", "all"):
        names = [name for name in base if kind == "all" or (name.partition("~")[0] in TUNING) == (kind == "tuning")]
        for place, budget in enumerate(CHECKPOINTS) if names else ():
            entries: list[Entry] = []
            for optimizer, outcomes in changed.items():
                mine, other = (np.mean([[o.at[place] for o in row[name]] for name in names], axis=0) for row in (outcomes, base))
                paired = compare(other.tolist(), mine.tolist())
                below = sum(_wholly_below(base[name], outcomes[name], place) for name in names)
                entries.append(
                    {
                        "optimizer": optimizer,
                        "kind": kind,
                        "rollouts": budget,
                        "score": paired.after,
                        "base": paired.before,
                        "low": paired.low,
                        "high": paired.high,
                        "p": paired.p,
                        "landscapes": len(names),
                        "wholly below on": below,
                    }
                )
            found += _correct(entries)
    return found


def markdown(entries: Sequence[Entry], columns: Mapping[str, str]) -> str:
    """A table of entries: ``columns`` gives each heading a template filled in from the entry."""
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(template.format(**entry) for template in columns.values()) + " |" for entry in entries]
    return "\n".join(lines)


def _correct(entries: list[Entry]) -> list[Entry]:
    ps: list[float] = [entry["p"] for entry in entries]
    for entry, p in zip(entries, holm(ps), strict=True):
        entry["holm"] = p
    return entries


def _wholly_below(base: Sequence[Outcome], changed: Sequence[Outcome], place: int) -> bool:
    return compare([o.at[place] for o in base], [o.at[place] for o in changed]).high < 0


def _rollouts(outcome: Outcome, place: int) -> float:
    spent = outcome.to[place]
    return float("inf") if spent is None else float(spent)


def _ratio(ours: float, theirs: float, budget: int) -> float:
    if not np.isfinite(ours):
        return float("nan") if not np.isfinite(theirs) else float("inf")
    return ours / min(theirs, budget)


def _middle(ours: np.ndarray, theirs: np.ndarray, budget: int) -> float:
    ratios = [ratio for a, b in zip(ours, theirs, strict=True) if not np.isnan(ratio := _ratio(a, b, budget))]
    return float(np.median(ratios)) if ratios else float("nan")


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    return round(float(value), 5) if np.isfinite(value) else None
