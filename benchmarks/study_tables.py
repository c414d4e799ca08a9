"""The statistics of the studies: settings beside a base, the loop's factors crossed, and whether one task's best setting serves another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.search_tables import holm
from gepa_lite.search.verdict import compare

Entry = dict[str, Any]
Scores = Mapping[str, Mapping[str, Sequence[float]]]
"""By setting and task, one score a seed, in the seeds' order."""

FACTORS = ("start", "horizon", "minibatch")


def beside_base(scores: Scores, base: str) -> list[Entry]:
    """Each other setting beside one: over all tasks (a seed's mean over tasks is one value), and on each task. Paired by seed, bootstrap intervals, Holm's correction over the settings over all tasks."""
    tasks = list(scores[base])
    overall = {name: np.mean([row[task] for task in tasks], axis=0) for name, row in scores.items()}
    entries: list[Entry] = []
    for name in scores:
        if name == base:
            continue
        paired = compare(overall[base].tolist(), overall[name].tolist())
        below: list[str] = []
        above: list[str] = []
        for task in tasks:
            one = compare(list(scores[base][task]), list(scores[name][task]))
            (below if one.high < 0 else above if one.low > 0 else []).append(task)
        entries.append(
            {
                "setting": name,
                "score": paired.after,
                "base": paired.before,
                "low": paired.low,
                "high": paired.high,
                "p": paired.p,
                "worst seed": float(overall[name].min()),
                "below": below,
                "above": above,
            }
        )
    for entry, p in zip(entries, holm([entry["p"] for entry in entries]), strict=True):
        entry["holm"] = p
    return entries


def variance_table(scores: Scores, settings: Mapping[str, Mapping[str, str]], *, by_task: bool = False) -> list[Entry]:
    """Analysis of variance (type II, ``statsmodels``) of the loop's three factors with all their interactions. Each seed of a task is a block: all settings ran on it.

    Args:
        scores: by setting and task, a full crossing.
        settings: of each setting the level of each of ``FACTORS``.
        by_task: cross the task with each factor as well.

    Returns:
        For each term its degrees of freedom, F, p, and its share of the sum of squares within blocks.
    """
    import pandas as pd
    from scipy.stats import f as f_distribution
    from statsmodels.formula.api import ols
    from statsmodels.stats.anova import anova_lm

    rows = [
        {**settings[name], "task": task, "block": f"{task} {place}", "score": score}
        for name, row in scores.items()
        for task, values in row.items()
        for place, score in enumerate(values)
    ]
    frame = pd.DataFrame(rows)
    # the crossing is full, so to take the blocks' means out is to fit them; their degrees of freedom are taken from the residual's
    frame["score"] -= frame.groupby("block")["score"].transform("mean")
    crossed = " * ".join(f"C({factor})" for factor in FACTORS)
    with_task = "".join(f" + C(task):C({factor})" for factor in FACTORS) if by_task else ""
    table = anova_lm(ols(f"score ~ {'C(task) + ' if by_task else ''}{crossed}{with_task}", data=frame).fit(), typ=2)
    table = table.drop(index="C(task)", errors="ignore")
    residual = table.loc["Residual", "sum_sq"]
    free = len(frame) - frame["block"].nunique() - float(table["df"].drop(index="Residual").sum())
    whole = float(table["sum_sq"].sum())
    entries: list[Entry] = []
    for term, row in table.iterrows():
        name = str(term).replace("C(", "").replace(")", "").replace(":", " x ")
        f = None if name == "Residual" else float(row["sum_sq"] / row["df"] / (residual / free))
        p = None if f is None else float(f_distribution.sf(f, row["df"], free))
        entries.append({"term": name, "df": int(free if f is None else row["df"]), "share": float(row["sum_sq"]) / whole, "F": f, "p": p})
    return entries


def over_starts(scores: Scores, settings: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, list[float]]]:
    """The scores of horizon and minibatch, averaged over the starting artifacts: one does not choose how good one's first prompt is."""
    merged: dict[str, list[str]] = {}
    for name in scores:
        merged.setdefault(", ".join(f"{factor} {settings[name][factor]}" for factor in FACTORS[1:]), []).append(name)
    tasks = list(next(iter(scores.values())))
    return {name: {task: np.mean([scores[one][task] for one in ones], axis=0).tolist() for task in tasks} for name, ones in merged.items()}


def transfer_table(scores: Scores) -> list[Entry]:
    """For each pair of tasks: the setting that is best on the first, tried on the second.

    The best is chosen on the first half of the seeds; all figures are from the second half, so that nobody's luck counts as skill.

    Returns:
        ``from``, ``to``, ``setting``, its score there (``score``), that of the setting chosen there (``own``), the mean of all settings (``mean``), and ``beside``: the score less the own
        choice's.
    """
    tasks = list(next(iter(scores.values())))
    half = len(next(iter(scores.values()))[tasks[0]]) // 2
    chosen = {task: max(scores, key=lambda name: float(np.mean(scores[name][task][:half]))) for task in tasks}
    entries: list[Entry] = []
    for origin in tasks:
        for task in tasks:
            later = {name: float(np.mean(row[task][half:])) for name, row in scores.items()}
            mean, own, there = float(np.mean(list(later.values()))), later[chosen[task]], later[chosen[origin]]
            entries.append(
                {"from": origin, "to": task, "setting": chosen[origin], "score": there, "own": own, "mean": mean, "beside": there - own}
            )
    return entries


def rank_correlations(scores: Scores) -> list[Entry]:
    """Spearman's correlation of the settings' means between each two tasks: 1 where they order the settings alike."""
    from scipy.stats import spearmanr

    tasks = list(next(iter(scores.values())))
    means = {task: [float(np.mean(row[task])) for row in scores.values()] for task in tasks}
    return [
        {"one": one, "other": other, "rho": float(spearmanr(means[one], means[other]).statistic)}
        for place, one in enumerate(tasks)
        for other in tasks[place + 1 :]
    ]


def level_means(scores: Scores, settings: Mapping[str, Mapping[str, str]], factor: str) -> dict[str, dict[str, float]]:
    """Mean score at each level of a factor, by task; ``"all"`` for all tasks."""
    tasks = list(next(iter(scores.values())))
    found: dict[str, dict[str, float]] = {}
    for level in dict.fromkeys(one[factor] for one in settings.values()):
        names = [name for name in scores if settings[name][factor] == level]
        by_task = {task: float(np.mean([scores[name][task] for name in names])) for task in tasks}
        found[level] = {**by_task, "all": float(np.mean(list(by_task.values())))}
    return found
