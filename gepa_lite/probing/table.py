"""A probe's outcome in words and as a table."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from gepa_lite.probing.outcome import LEVEL
from gepa_lite.probing.rounds import JUDGED

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
        "" if math.isnan(each.seconds) else f"{each.seconds:.1f}",
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
    lines = [f"{found.rounds} rounds on the same parents and minibatches ({found.stopped}); {found.run}", *_cautions(found)]
    if not found.rounds:
        return [*lines, "No round was made: there is nothing to tell, and nothing to recommend."]
    if found.recommended is None:
        return [*lines, "Nothing was refined in any round: the data can't tell them apart, and recommends none of them."]
    if found.told:
        worst = max(found.against, key=lambda row: row.p)
        return [
            *lines,
            f"Recommended: {found.leader}. It refines more often than every other one (nearest: {worst.name}, {worst.won} rounds to {worst.lost}, p = {worst.p:.3f}).",
        ]
    for row in (row for row in found.against if row.p >= LEVEL and found.of(row.name).asked):
        more = "" if row.needed is None else f"; a difference of this size would take about {row.needed} rounds to show"
        lines.append(f"The data can't tell {found.leader} from {row.name}: {row.won} rounds to {row.lost}, p = {row.p:.2f}{more}.")
    return [*lines, f"Recommended, for now: {found.recommended}, {_why(found, leader)}."]


def _why(found: ProbeResult, leader: Tried) -> str:
    if found.recommended != leader.name:
        return "the cheapest refinement of those"
    others = [each.rate for each in found.tried if each is not leader]
    if any(rate > leader.rate for rate in others):
        return "the highest rate that its rounds bear out"
    return "the cheapest of those with the highest rate" if leader.rate in others else "the highest rate"


def _cautions(found: ProbeResult) -> list[str]:
    """What the figures don't say by themselves."""
    lines = []
    if found.rounds and not found.judged:
        lines.append(
            "Judged on the examples that were shown, since the training set has no others: a text that only fits them counts as a refinement here."
        )
    elif found.rounds and found.judged < JUDGED:
        lines.append(
            f"Judged on {found.judged} other training examples a round, not {JUDGED}: the training set has no more. Rates are rougher for it."
        )
    for each in found.tried:
        if each.lost:
            rest = "it could not be compared" if not each.asked else "its figures rest on the others"
            lines.append(
                f"{each.name} was lost to outages in {each.lost} of {each.lost + each.asked} rounds: {rest} (last: {each.why_lost[:200]})."
            )
    return lines
