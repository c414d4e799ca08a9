"""``python -m benchmarks study NAME [--seeds 0-11] [--quick] [--minutes 5]``: one question about the search, answered on simulated landscapes or on local models.

* ``pareto``: Pareto selection beside greedy, beam and elite selection, in the paper's loop.
* ``merge``: the paper's loop with its merge, with complementary merge, and without.
* ``loop``: starting artifact x credit horizon x minibatch, crossed, with their interactions.
* ``transfer``: of the same runs, whether the best setting of one task serves another.
* ``feedback``: score alone, noisy words and full words, on a model (see ``study_local``).
* ``transfer-models``: whether prompts found on one model serve another.

Cells are kept in ``benchmarks/results/studies``, and a command that was ended goes on with what is lacking; the tables and the plot go to ``docs/studies``. ``--quick`` runs a part and writes nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import study_local, study_pages
from benchmarks.report import Options, Report, Row
from benchmarks.search_code import MadeBy
from benchmarks.search_tables import markdown
from benchmarks.study_runs import RESULTS, STARTS, Cells, Variant
from benchmarks.study_tables import (
    FACTORS,
    Scores,
    beside_base,
    level_means,
    over_starts,
    rank_correlations,
    transfer_table,
    variance_table,
)
from gepa_lite import Search
from gepa_lite.testing import LANDSCAPES

_HORIZONS: Mapping[str, Any] = {"0": 0, "1": 1, "episode": "episode"}
_LOOP_TASKS = ("three-modules", "six-modules", "complementary", "graded")
_SHOWN = 5


@dataclass(frozen=True)
class Study:
    """One question.

    Attributes:
        variants: the settings, by name; the first is the base.
        tasks: landscapes.
        seeds: of the whole study.
        rollouts: of a search.
        cells: the file that keeps them, in ``RESULTS``.
        conclude: the rows, what the result file says, and the tables in Markdown; it draws the plot where it is given a path.
    """

    variants: Mapping[str, Variant]
    tasks: Sequence[str]
    seeds: Sequence[int]
    rollouts: int
    cells: str
    conclude: Callable[[Scores, Path | None], tuple[list[Row], dict[str, Any], str]]


SETTINGS = {
    f"{start}, horizon {horizon}, minibatch {batch}": {"start": start, "horizon": horizon, "minibatch": batch}
    for start in STARTS
    for horizon in _HORIZONS
    for batch in ("1", "3", "5")
}
"""The loop's settings, by name."""

_LOOP = {
    name: Variant(Search.paper(horizon=_HORIZONS[levels["horizon"]], minibatch=int(levels["minibatch"])), levels["start"], late=True)
    for name, levels in SETTINGS.items()
}


def run(options: Options) -> Report:
    """Run what is lacking, then conclude."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks study")
    parser.add_argument("study", choices=[*STUDIES, *study_local.STUDIES])
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end after so long; the next call goes on")
    asked, rest = parser.parse_known_args(list(options.rest))
    if asked.study in study_local.STUDIES:
        return study_local.run(asked.study, options, rest)
    study = STUDIES[asked.study]
    seeds = tuple(options.seeds) if options.seeds != (0,) else tuple(study.seeds)
    tasks = list(study.tasks)
    if options.quick:
        seeds, tasks = seeds[:2], tasks[:2]
    cells = Cells(None if options.quick else RESULTS / f"{study.cells}-cells.json", study.variants, study.rollouts)
    MadeBy.of(cells.made_by(tasks, seeds)).tell()
    if left := cells.fill(tasks, seeds, time.monotonic() + 60 * asked.minutes):
        raise SystemExit(f"{left} cells of {len(study.variants) * len(tasks) * len(seeds)} are left; the same command goes on with them")
    scores = {variant: {task: cells.scores(variant, task, seeds, study.rollouts) for task in tasks} for variant in study.variants}
    made = MadeBy.of(cells.made_by(tasks, seeds))
    rows, found, tables = study.conclude(scores, None if options.quick else study_pages.DOCS / f"{asked.study}.png")
    extra = {
        "rollouts": study.rollouts,
        "tasks": tasks,
        "command": f"python -m benchmarks study {asked.study}",
        "search_code": made.data,
        **found,
    }
    report = Report(f"study-{asked.study}", [made.row, *rows], n=len(seeds), seeds=seeds, model="simulated landscapes", extra=extra)
    if not options.quick:
        study_pages.write_page(
            asked.study, f"n = {len(seeds)} seeds, {len(tasks)} tasks, {study.rollouts:,} rollouts a search. {made.words}.\n\n{tables}"
        )
        (RESULTS / f"{asked.study}.json").write_text(report.json() + "\n")
    return report


def _beside(base: str, title: str) -> Callable[[Scores, Path | None], tuple[list[Row], dict[str, Any], str]]:
    def conclude(scores: Scores, image: Path | None) -> tuple[list[Row], dict[str, Any], str]:
        entries = beside_base(scores, base)
        if image is not None:
            bars = [(e["setting"], e["score"] - e["base"], e["low"], e["high"]) for e in entries]
            study_pages.bars(image, bars, title, f"held-out score beside {base!r}, 95 % interval")
        rows = [
            Row(
                f"{e['setting']} beside {base}",
                e["score"],
                e["base"],
                e["score"] / e["base"],
                f"[{e['low']:+.3f}, {e['high']:+.3f}], Holm p {e['holm']:.3f}",
            )
            for e in entries
        ]
        told = [{**e, "below": _names(e["below"]), "above": _names(e["above"])} for e in entries]
        columns = {
            "setting": "`{setting}`",
            "score": "{score:.3f}",
            f"`{base}`": "{base:.3f}",
            "difference, 95 %": "[{low:+.3f}, {high:+.3f}]",
            "p (Holm)": "{holm:.3f}",
            "worst seed": "{worst seed:.3f}",
            "wholly below on": "{below}",
            "wholly above on": "{above}",
        }
        return rows, {"settings": entries, "by task": _by_task(scores)}, f"{markdown(told, columns)}\n\n{_task_table(scores)}"

    return conclude


def _loop(scores: Scores, image: Path | None) -> tuple[list[Row], dict[str, Any], str]:
    settings = {name: SETTINGS[name] for name in scores}
    table, crossed = variance_table(scores, settings), variance_table(scores, settings, by_task=True)
    means = {factor: level_means(scores, settings, factor) for factor in FACTORS}
    if image is not None:
        panels = {
            factor: {task: {level: row[task] for level, row in levels.items()} for task in [*next(iter(scores.values())), "all"]}
            for factor, levels in means.items()
        }
        study_pages.lines(image, panels, "held-out score")
    rows = [Row(f"share of variance: {entry['term']}", entry["share"], goal=_p(entry["p"])) for entry in table]
    parts = []
    for head, entries in (("The three factors crossed, tasks and seeds as blocks", table), ("With the task crossed as well", crossed)):
        told = [{**e, "p": _p(e["p"]), "F": "" if e["F"] is None else f"{e['F']:.1f}"} for e in entries]
        parts.append(
            f"### {head}\n\n{markdown(told, {'term': '{term}', 'df': '{df}', 'F': '{F}', 'p': '{p}', 'share of variance': '{share:.3f}'})}"
        )
    heads = [*next(iter(scores.values())), "all"]
    levels = [{"level": f"{factor} {level}", **row} for factor in FACTORS for level, row in means[factor].items()]
    parts.append(f"### Means\n\n{markdown(levels, {'level': '{level}', **{task: '{' + task + ':.3f}' for task in heads}})}")
    return rows, {"variance": table, "variance with tasks": crossed, "means": means}, "\n\n".join(parts)


def _transfer(scores: Scores, image: Path | None) -> tuple[list[Row], dict[str, Any], str]:
    chosen = over_starts(scores, SETTINGS)
    entries, ranks = transfer_table(chosen), rank_correlations(chosen)
    tasks = list(next(iter(scores.values())))
    if image is not None:
        beside = {(e["from"], e["to"]): e["beside"] for e in entries}
        study_pages.heat(image, tasks, beside, "another task's best setting beside the own choice", ("tried on", "best setting of"))
    others = [e for e in entries if e["from"] != e["to"]]
    lost = sum(e["own"] - e["score"] for e in others) / len(others)
    rows = [Row("mean loss by another task's best setting", lost), Row("mean lead of the own choice over all settings", _lead(entries))]
    rows += [Row(f"best of {task}", next(e["setting"] for e in entries if e["from"] == task)) for task in tasks]
    rows += [Row(f"rank correlation, {e['one']} and {e['other']}", e["rho"]) for e in ranks]
    columns = {
        "best of": "{from}",
        "setting": "{setting}",
        "tried on": "{to}",
        "score": "{score:.3f}",
        "own choice": "{own:.3f}",
        "all settings": "{mean:.3f}",
        "beside the own choice": "{beside:+.3f}",
    }
    correlations = markdown(ranks, {"task": "{one}", "and": "{other}", "rank correlation of the 9 settings": "{rho:.2f}"})
    return rows, {"transfer": entries, "correlations": ranks}, f"{markdown(entries, columns)}\n\n{correlations}"


def _lead(entries: Sequence[Mapping[str, Any]]) -> float:
    own = [e for e in entries if e["from"] == e["to"]]
    return float(sum(e["own"] - e["mean"] for e in own) / len(own))


def _by_task(scores: Scores) -> dict[str, dict[str, float]]:
    return {name: {task: sum(values) / len(values) for task, values in row.items()} for name, row in scores.items()}


def _task_table(scores: Scores) -> str:
    means = _by_task(scores)
    rows = [{"task": task, **{name: row[task] for name, row in means.items()}} for task in next(iter(means.values()))]
    return markdown(rows, {"task": "`{task}`", **{name: "{" + name + ":.3f}" for name in means}})


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "") or "-"


def _p(value: float | None) -> str:
    return "" if value is None else "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


_ALL = tuple(LANDSCAPES)
STUDIES: Mapping[str, Study] = {
    "pareto": Study(
        {
            "pareto": Variant(Search.paper()),
            "greedy": Variant(Search.paper(selector="best")),
            "beam": Variant(Search.paper(selector="beam")),
            "elite": Variant(Search.paper(selector="elite")),
        },
        _ALL,
        range(12),
        1_000,
        "pareto",
        _beside("pareto", "Other selectors beside Pareto, the paper's loop"),
    ),
    "merge": Study(
        {
            "none": Variant(Search.paper()),
            "paper": Variant(Search.paper(merge="paper")),
            "complementary": Variant(Search.paper(merge="complementary")),
        },
        _ALL,
        range(12),
        1_000,
        "merge",
        _beside("none", "Merge beside none, the paper's loop"),
    ),
    "loop": Study(_LOOP, _LOOP_TASKS, range(16), 500, "loop", _loop),
    "transfer": Study(_LOOP, _LOOP_TASKS, range(16), 500, "loop", _transfer),
}
