"""A probe's outcome in words and as a table."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from gepa_lite.probing.outcome import ProbeResult, Tried

_COLUMNS = ("", "refined", "rate [95 %]", "gain", "distance", "unusable", "seconds")


def probe_table(found: ProbeResult) -> str:
    """The table, and below it what it comes to."""
    table = Table(box=None, pad_edge=False)
    for place, name in enumerate((*_COLUMNS, f"{found.unit} a round", f"{found.unit} a refinement", "front")):
        table.add_column(name, justify="left" if place == 0 else "right")
    for each in found.tried:
        table.add_row(*_cells(each, found))
    out = io.StringIO()
    Console(file=out, width=160, no_color=True).print(table)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    return "\n".join([*lines, "", *_words(found)])


def _cells(each: Tried, found: ProbeResult) -> list[str]:
    unusable = ", ".join(f"{count} {code}" for code, count in each.unusable.items()) or "0"
    per = "never" if each.cost_per_refinement is None else _amount(each.cost_per_refinement, found.unit)
    return [
        each.name,
        f"{each.refined} of {each.asked}" + (f" ({each.lost} lost)" if each.lost else ""),
        f"{each.rate:.0%} [{each.low:.0%}, {each.high:.0%}]",
        f"{each.gain:+.3f}",
        "" if math.isnan(each.distance) else f"{each.distance:.2f}",
        unusable,
        f"{each.seconds:.1f}",
        _amount(each.cost, found.unit),
        per,
        "yes" if each.name in found.front else "",
    ]


def _amount(value: float, unit: str) -> str:
    if not math.isfinite(value):
        return ""
    return f"{value:.5f}" if unit == "USD" else f"{value:,.0f}"


def _words(found: ProbeResult) -> list[str]:
    leader = found.of(found.leader)
    lines = [f"{found.rounds} rounds on the same parents and minibatches ({found.stopped}); {found.run}"]
    if not any(each.refined for each in found.tried):
        return [*lines, "Nothing was refined in any round: the data can't tell them apart, and recommends none of them."]
    if found.told:
        worst = max(found.against, key=lambda row: row.p)
        return [
            *lines,
            f"Recommended: {found.leader}. It refines more often than every other one (nearest: {worst.name}, {worst.won} rounds to {worst.lost}, p = {worst.p:.3f}).",
        ]
    for row in (row for row in found.against if row.p >= 0.05):
        more = "" if row.needed is None else f"; a difference of this size would take about {row.needed} rounds to show"
        lines.append(f"The data can't tell {found.leader} from {row.name}: {row.won} rounds to {row.lost}, p = {row.p:.2f}{more}.")
    if found.recommended != leader.name:
        why = "the cheapest refinement of those"
    elif any(each.rate == leader.rate for each in found.tried if each.name != leader.name):
        why = "the cheapest of those with the highest rate"
    else:
        why = "the highest rate"
    return [*lines, f"Recommended, for now: {found.recommended}, {why}."]
