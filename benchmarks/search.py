"""Our search beside upstream ``gepa`` on the simulated landscapes: exact held-out scores at equal rollouts, and rollouts to 90 % and 95 % of the attainable score.

``python -m benchmarks search --seeds 0-49 [--tables peer,long,defaults,paper,noise] [--landscapes a,b] [--optimizers a,b] [--minutes 5] [--cells FOLDER]``. One search of 2,000 rollouts gives a cell; each optimizer's cells are
kept in a file of its own, under ``benchmarks/results/search/`` unless told otherwise, and what a file holds is not run again, so an interrupted table goes on where it ended (``--minutes`` ends it after so long). A report runs
one kept cell of each optimizer again, and says whether it came out the same: where it did not, the code has changed since, and the file is to be deleted.
Each cell keeps the state of the code that made it, and the report says how many another one did.

The tables: ``peer``, our defaults and the paper's settings beside the peer's; ``long``, rollouts to 90 % and 95 % with up to 6,000 of them; ``defaults``, one rule of the defaults changed at a time; ``paper``, one rule added to the paper's; ``noise``, fans,
windows and hard examples on the tuning landscapes without score noise and with much.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import Options, Report, Row
from benchmarks.search_code import MadeBy
from benchmarks.search_runs import CHECKPOINTS, LONG, NOISE, OURS, ROLLOUTS, Cells, fill, search
from benchmarks.search_tables import KEY, Entry, Outcomes, against, beside, markdown, rollouts_to
from gepa_lite.testing import LANDSCAPES, TUNING

RESULTS = Path(__file__).parent / "results" / "search"

_PAIRS = (("paper", "peer"), ("defaults", "peer"), ("defaults", "peer-merge"), ("defaults", "paper"))
_ORDER = list(OURS)
_CHANGES = _ORDER[_ORDER.index("fan-1") : _ORDER.index("paper+fan-4")]
_ADDITIONS = _ORDER[_ORDER.index("paper+fan-4") :]
_UNDER_NOISE = (
    "fan-1",
    "fan-2",
    "fan-4",
    "fan-8",
    "fan-16",
    "no-overlap",
    "window-4",
    "window-16",
    "fan-1-window-4",
    "fan-1-window-16",
    "hard",
)
TABLES: Mapping[str, tuple[str, ...]] = {
    "peer": ("defaults", "paper", "peer", "peer-merge"),
    "defaults": ("defaults", *_CHANGES),
    "paper": ("paper", *_ADDITIONS),
    "noise": ("defaults", *_UNDER_NOISE),
    "long": ("defaults", "paper", "peer"),
}
_SCORES = {
    "rule": "`{optimizer}`",
    "score": "{score:.3f}",
    "base": "{base:.3f}",
    "95 % interval": "[{low:+.3f}, {high:+.3f}]",
    "p (Holm)": "{holm:.3f}",
}
_BESIDE = {"landscape": "`{landscape}`", "": "{kind}", "rollouts": "{rollouts:,}", "ours": "{ours:.3f}", "peer": "{peer:.3f}"}
_BESIDE |= {"ours - peer": "[{low:+.3f}, {high:+.3f}]", "p (Holm)": "{holm:.3f}"}


def run(options: Options) -> Report:
    """Fill what is missing, then compare."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks search")
    parser.add_argument("--tables", default="peer")
    parser.add_argument("--landscapes", default=",".join(LANDSCAPES))
    parser.add_argument("--optimizers", help="run the cells of these alone")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end after so long; the next call goes on")
    parser.add_argument("--cells", type=Path, default=RESULTS, help="where the cells lie")
    parser.add_argument("--markdown", type=Path, help="write the tables there")
    chosen = parser.parse_args(list(options.rest))
    seeds = options.seeds[:4] if options.quick else options.seeds
    tables = ["peer"] if options.quick else chosen.tables.split(",")
    names = chosen.landscapes.split(",")[: 3 if options.quick else None]
    wanted: dict[str, list[str]] = {}
    for table in tables:
        for optimizer in TABLES[table]:
            wanted.setdefault(optimizer, []).extend(_landscapes(table, names))
    if chosen.optimizers:
        wanted = {optimizer: wanted[optimizer] for optimizer in chosen.optimizers.split(",")}
    cells = {optimizer: Cells(None if options.quick else chosen.cells, optimizer) for optimizer in wanted}
    made = MadeBy.of(made for optimizer in wanted for made in cells[optimizer].made_by(wanted[optimizer], seeds))
    made.tell()
    until = time.monotonic() + 60 * chosen.minutes
    left = sum(fill(cells[optimizer], wanted[optimizer], seeds, until) for optimizer in wanted)
    if left or chosen.optimizers:
        raise SystemExit(f"{left} cells of {sum(map(len, wanted.values())) * len(seeds)} are left; the same command goes on with them")
    made = MadeBy.of(made for optimizer in wanted for made in cells[optimizer].made_by(wanted[optimizer], seeds))
    rows, found = [made.row, *_repeats(cells, wanted, seeds)], {}
    for table in tables:
        more, found[table] = _table(table, cells, names, seeds)
        rows += more
    if chosen.markdown:
        chosen.markdown.write_text("\n\n".join([f"{made.words}.", *_pages(found)]))
    extra = {"rollouts": ROLLOUTS, "search_code": made.data, "tables": found}
    return Report("search", rows, n=len(seeds), seeds=seeds, model="simulated landscapes", extra=extra)


def _landscapes(table: str, names: Sequence[str]) -> list[str]:
    if table == "noise":
        return [f"{name}~{variant}" for variant in NOISE for name in names if name in TUNING]
    return [f"{name}~long" for name in names] if table == "long" else list(names)


def _repeats(cells: Mapping[str, Cells], wanted: Mapping[str, Sequence[str]], seeds: Sequence[int]) -> list[Row]:
    """Whether one kept cell of each optimizer comes out the same again."""
    differs = [
        optimizer
        for optimizer, kept in cells.items()
        if kept.get(wanted[optimizer][0], seeds[-1:]) != [search(optimizer, wanted[optimizer][0], seeds[-1])]
    ]
    goal = "0" + (f" (delete the files of {', '.join(differs)})" if differs else "")
    return [Row("optimizers whose kept cell comes out otherwise now", len(differs), goal=goal, met=not differs)]


def _table(table: str, cells: Mapping[str, Cells], names: Sequence[str], seeds: Sequence[int]) -> tuple[list[Row], dict[str, Any]]:
    """The rows and the entries of one table."""
    if table == "noise":
        rows, found = [], {}
        for variant in NOISE:
            noisy = [f"{name}~{variant}" for name in names if name in TUNING]
            found[variant] = against(_of(cells["defaults"], noisy, seeds), {name: _of(cells[name], noisy, seeds) for name in _UNDER_NOISE})
            rows += _change_rows(f"{variant}, defaults with", found[variant], "all")
        return rows, found
    outcomes = {optimizer: _of(cells[optimizer], _landscapes(table, names), seeds) for optimizer in TABLES[table]}
    if table == "long":
        return _long_table(outcomes)
    if table == "peer":
        return _peer_table(outcomes)
    base = "defaults" if table == "defaults" else "paper"
    entries = against(outcomes.pop(base), outcomes)
    rows = [row for kind in ("tuning", "held back") for row in _change_rows(f"{kind}, {base} with", entries, kind)]
    return rows, {"changes": entries}


def _of(cells: Cells, names: Sequence[str], seeds: Sequence[int]) -> Outcomes:
    return {name: cells.get(name, seeds) for name in names}


def _peer_table(outcomes: Mapping[str, Outcomes]) -> tuple[list[Row], dict[str, Any]]:
    rows: list[Row] = []
    found: dict[str, Any] = {}
    for ours, theirs in _PAIRS:
        entries, label = beside(outcomes[ours], outcomes[theirs]), f"{ours} beside {theirs}"
        found[label] = {"scores": entries}
        for budget in CHECKPOINTS:
            at = [entry for entry in entries if entry["rollouts"] == budget]
            a, b = (sum(entry[side] for entry in at) / len(at) for side in ("ours", "peer"))
            rows.append(Row(f"{label}: mean held-out score at {budget:,}", a, b, a / b))
        below = [f"{e['landscape']} at {e['rollouts']:,}" for e in entries if e["high"] < 0]
        above = sum(entry["low"] > 0 for entry in entries)
        if ours == "paper":
            differs = [f"{e['landscape']} at {e['rollouts']:,}" for e in entries if e["holm"] < 0.05]
            rows.append(Row(f"{label}: differs after Holm, of {len(entries)}", len(differs), goal=f"0 {differs or ''}", met=not differs))
        rows.append(Row(f"{label}: interval wholly above, of {len(entries)}", above))
        rows.append(Row(f"{label}: interval wholly below, of {len(entries)}", len(below), goal=f"0 {below or ''}", met=not below))
        more, shares = _shares(label, outcomes[ours], outcomes[theirs], ROLLOUTS)
        rows += more
        found[label] |= shares
    return rows, found


def _long_table(outcomes: Mapping[str, Outcomes]) -> tuple[list[Row], dict[str, Any]]:
    rows: list[Row] = []
    found = {}
    for ours in ("defaults", "paper"):
        more, found[f"{ours} beside peer"] = _shares(f"{ours} beside peer, {LONG:,} rollouts", outcomes[ours], outcomes["peer"], LONG)
        rows += more
    return rows, found


def _shares(label: str, ours: Outcomes, theirs: Outcomes, budget: int) -> tuple[list[Row], dict[str, Any]]:
    """Rollouts to 90 % and 95 %."""
    rows, found = [], {}
    for place, share in enumerate(("90", "95")):
        ratio = found[f"to {share} %"] = rollouts_to(ours, theirs, place, budget)
        middle, goal = ratio["median ratio"], f"[{_cell(ratio['low'])}, {_cell(ratio['high'])}]"
        aim = label.startswith("defaults beside peer,") and share == "90"
        goal += f"; got there on {ratio['reached by'][0]} and {ratio['reached by'][1]} landscapes" + ("; <= 0.5" if aim else "")
        met = (middle is not None and middle <= 0.5) if aim else None
        rows.append(Row(f"{label}: rollouts to {share} %, median landscape", _cell(middle), None, middle, goal, met))
    return rows, found


def _change_rows(label: str, entries: Sequence[Entry], kind: str) -> list[Row]:
    return [
        Row(
            f"{label} {e['optimizer']} at {KEY:,}",
            e["score"],
            e["base"],
            e["score"] / e["base"],
            f"[{e['low']:+.3f}, {e['high']:+.3f}], Holm p {e['holm']:.3f}",
        )
        for e in entries
        if e["rollouts"] == KEY and e["kind"] == kind
    ]


def _cell(value: float | None) -> str:
    return "never" if value is None else f"{value:.2f}"


def _pages(found: Mapping[str, Any]) -> list[str]:
    """All tables in Markdown, each after its heading."""
    pages = []
    for table, parts in found.items():
        for part, entries in parts.items():
            if table in ("peer", "long"):
                pages += [f"## {table} {part}", markdown(entries.get("scores", ()), _BESIDE)]
                pages += [str(entries[key]) for key in entries if key != "scores"]
                continue
            for kind in ("tuning", "held back", "all"):
                for budget in CHECKPOINTS:
                    chosen = [entry for entry in entries if entry["kind"] == kind and entry["rollouts"] == budget]
                    if chosen:
                        pages += [f"## {table} {part}: {kind} at {budget:,}", markdown(chosen, _SCORES)]
    return pages
