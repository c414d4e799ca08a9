"""An estimate as text for a person and as data for a machine."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gepa_lite.core.money import dollars

if TYPE_CHECKING:
    from gepa_lite.forecast.estimate import Estimate, Range, RoleEstimate

_PURPOSES = {
    "seed": "the seed's validation",
    "minibatches": "minibatches",
    "children": "the validation of children",
    "after": "after the search",
}


def estimate_text(estimate: Estimate) -> str:
    """The whole estimate, in lines."""
    sections = [_head(estimate), _table(estimate), _course(estimate), _warnings(estimate), _foot(estimate)]
    return "\n\n".join(section for section in sections if section)


def estimate_data(estimate: Estimate) -> dict[str, Any]:
    """The estimate as JSON types."""
    cost = estimate.sample_cost
    return {
        "program": estimate.program,
        "budget": dataclasses.asdict(estimate.budget),
        "default_budget": estimate.default_budget,
        "proposals": _range_data(estimate.proposals),
        "rollouts": _range_data(estimate.rollouts),
        "tokens": _range_data(estimate.tokens),
        "usd": None if estimate.usd is None else _range_data(estimate.usd),
        "minutes": _range_data(estimate.minutes),
        "roles": {role: _role_data(row) for role, row in estimate.roles.items()},
        "ended_by": estimate.ended_by,
        "shares": dict(estimate.shares),
        "samples": {
            "rollouts": estimate.samples,
            "scores": list(estimate.sample_scores),
            "paid": {"calls": cost.calls, "input_tokens": cost.input_tokens, "output_tokens": cost.output_tokens, "usd": cost.usd},
        },
        "warnings": [{"code": advice.code, "what": advice.what, "do": list(advice.do)} for advice in estimate.warnings],
        "assumed": list(estimate.assumed),
        "notices": list(estimate.notices),
        "run": str(estimate.run),
    }


def _head(estimate: Estimate) -> str:
    whose = ", by default" if estimate.default_budget else ""
    return f"Estimate for {estimate.program}, with a budget of {estimate.budget.describe()}{whose}"


def _table(estimate: Estimate) -> str:
    rows = [f"{'':<22}{'low':>12}{'likely':>12}{'high':>12}"]
    rows.append(_row("proposals", estimate.proposals, _whole))
    rows.append(_row("rollouts", estimate.rollouts, _whole))
    for role, row in estimate.roles.items():
        rows += [_row(f"calls, {role}", row.calls, _whole), _row(f"tokens, {role}", row.tokens, _whole)]
        rows.append(_row(f"USD, {role}", row.usd, _dollars))
    rows.append(_row("USD in all", estimate.usd, _dollars))
    rows.append(_row("minutes", estimate.minutes, _minutes))
    return "\n".join(rows)


def _row(name: str, row: Range | None, form: Callable[[float], str]) -> str:
    if row is None:
        return f"{name:<22}{'unknown':>12}{'unknown':>12}{'unknown':>12}"
    return f"{name:<22}{form(row.low):>12}{form(row.likely):>12}{form(row.high):>12}"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _dollars(value: float) -> str:
    return dollars(value, 2 if value >= 1 else 4)


def _minutes(value: float) -> str:
    return f"{value:,.1f}"


def _course(estimate: Estimate) -> str:
    shares = ", ".join(f"{share:.0%} {_PURPOSES[name]}" for name, share in estimate.shares.items() if share)
    bound = f"The bound on {estimate.ended_by} likely ends the search." if estimate.ended_by else "No bound ends it within 5,000 steps."
    return f"Of the rollouts: {shares}.\n{bound} A candidate that is perfect ends it before, for less."


def _warnings(estimate: Estimate) -> str:
    lines = []
    for advice in estimate.warnings:
        lines.append(f"Warning: {advice.what}")
        lines += [f"  {'Or: ' if place else ''}{words}" for place, words in enumerate(advice.do)]
    return "\n".join(lines)


def _foot(estimate: Estimate) -> str:
    scores = ", ".join("missing" if score is None else f"{score:g}" for score in estimate.sample_scores)
    cost = estimate.sample_cost
    usd = "a price that is not known" if cost.usd is None else f"{cost.usd:.4f} USD"
    paid = f"{cost.calls:,} calls, {cost.tokens:,} tokens and {usd}" if cost.calls else "nothing: they were on disk"
    lines = [
        f"Measured on {estimate.samples} sample rollouts (scores {scores}), for {paid}. They are in {estimate.run}: "
        f"start the run with run={str(estimate.run)!r}, and they are not paid for again.",
        f"Assumed: {'; '.join(estimate.assumed)}.",
        *(f"Note: {notice}" for notice in estimate.notices),
    ]
    return "\n".join(textwrap.fill(line, 140, break_long_words=False, break_on_hyphens=False) for line in lines)


def _range_data(row: Range) -> dict[str, float]:
    return {"low": row.low, "likely": row.likely, "high": row.high}


def _role_data(row: RoleEstimate) -> dict[str, Any]:
    return {
        "calls": _range_data(row.calls),
        "tokens": _range_data(row.tokens),
        "usd": None if row.usd is None else _range_data(row.usd),
    }
