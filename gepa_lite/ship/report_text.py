"""The result as plain text: verdict first, then before and after, cost, and what changed."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from gepa_lite.core.call import Usage
from gepa_lite.guard.detect import without_secrets
from gepa_lite.search.verdict import Comparison
from gepa_lite.ship.findings import findings_text
from gepa_lite.ship.starts import starts_text
from gepa_lite.ship.verdict_text import curve_text, flips_text, objectives_text, prompt_cost_text, verdict_text
from gepa_lite.ship.words import word_diff

if TYPE_CHECKING:
    from gepa_lite.ship.result import Costs, Result


def report_text(result: Result[Any]) -> str:
    """The whole report, in lines of at most about 100 characters but for sentences and the diffs' own."""
    sections = [
        verdict_text(result),
        _scores(result),
        starts_text(result),
        objectives_text(result),
        flips_text(result),
        curve_text(result),
        _costs(result.costs),
        prompt_cost_text(result),
        findings_text(result.findings),
        _changes(result),
        _foot(result),
    ]
    return "\n\n".join(section for section in sections if section)


def _scores(result: Result[Any]) -> str:
    head = f"{'':<12}{'before':>9}{'after':>9}{'gain':>9}   {'95 % interval':<20}{'won':>5}{'lost':>6}{'n':>6}{'p':>8}{'sign test':>11}"
    rows = [head, _score_row("validation", result.validation, result)]
    if result.test is not None:
        rows.append(_score_row("test", result.test, result))
    return "\n".join(rows)


def _score_row(name: str, row: Comparison, result: Result[Any]) -> str:
    objective = result.objective
    sign = 1 if objective.direction == "maximize" else -1
    low, high = sorted((sign * row.low, sign * row.high))
    interval = f"[{low:+.3f}, {high:+.3f}]"
    missing = f" ({row.missing} missing)" if row.missing else ""
    before, after = objective.score(row.before), objective.score(row.after)
    return f"{name:<12}{before:>9.3f}{after:>9.3f}{sign * row.gain:>+9.3f}   {interval:<20}{row.won:>5}{row.lost:>6}{row.n:>6}{p_text(row.p):>8}{p_text(row.sign_p):>11}{missing}"


def p_text(value: float) -> str:
    """A p-value is never zero."""
    return f"{value:.4f}" if value >= 0.00005 else "<.0001"


def _costs(costs: Costs) -> str:
    rows = [f"{'cost':<12}{'calls':>9}{'tokens in':>12}{'tokens out':>12}{'USD':>11}{'seconds':>10}"]
    for role, usage in costs.roles.items():
        rows.append(_cost_row(role, usage, costs.seconds_by_role.get(role)))
    rows.append(_cost_row("paid", costs.paid, None))
    spend = costs.logical
    rows.append(f"{spend.rollouts:,} rollouts, {spend.proposals:,} proposals, {costs.seconds:,.0f} s of wall time")
    return "\n".join(rows)


def _cost_row(name: str, usage: Usage, seconds: float | None) -> str:
    usd = "unknown" if usage.usd is None else f"{usage.usd:.4f}"
    time = "" if seconds is None else f"{seconds:,.0f}"
    return f"{name:<12}{usage.calls:>9,}{usage.input_tokens:>12,}{usage.output_tokens:>12,}{usd:>11}{time:>10}"


def _changes(result: Result[Any]) -> str:
    sections = []
    # the detectors take a moment to load, so only where a run was warned of a secret
    shown = without_secrets if any(item.finding.rule == "secret" for item in result.findings) else str
    for path, after in result.winner_prompts.items():
        before = result.seed_prompts[path]
        if before != after:
            sections.append(f"{path}:\n{textwrap.indent(word_diff(shown(before), shown(after)), '  ')}")
    unchanged = [path for path, text in result.winner_prompts.items() if text == result.seed_prompts[path]]
    if sections and unchanged:
        sections.append(f"unchanged: {', '.join(unchanged)}")
    return "\n\n".join(["What changed, [-removed-] and {+added+}:", *sections]) if sections else ""


def _foot(result: Result[Any]) -> str:
    lines = [f"Note: {notice}" for notice in result.notices]
    if (aside := result.state.set_aside) is not None:
        lines.append(f"Note: {aside.words}")
    if result.run is not None:
        lines.append(f"Run: {result.run}")
        if not result.finished:
            lines.append(f"Resume it: gepa-lite resume {result.run}, or run the same call again with run={str(result.run)!r}")
    return "\n".join(lines)
