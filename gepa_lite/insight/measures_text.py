"""The measures and the advice as plain text, for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gepa_lite.insight.advice import Advice
from gepa_lite.insight.generations import Rates
from gepa_lite.insight.measures import Measures

_SHOWN = 12
"""Generations in the table: the latest."""


def measures_text(measures: Measures, advice: Sequence[Advice]) -> str:
    """Rates, generations, rejections, spend and advice, in that order."""
    sections = [_rates(measures), _generations(measures), _reasons(measures), _spend(measures), _advice(advice)]
    return "\n\n".join(section for section in sections if section)


def _rates(measures: Measures) -> str:
    head = f"{'':<24}{'proposals':>10}{'valid':>7}{'refined':>9}{'rate':>7}   {'95 % interval':<15}{'distance':>9}{'novelty':>9}{'best yet':>9}{'USD each':>10}"
    rows = [head, _rate_row("all", measures.all)]
    if len(measures.modules) > 1:
        rows += [_rate_row(f"module {path}", rates) for path, rates in measures.modules.items()]
    if len(measures.models) > 1:
        rows += [_rate_row(f"model {name}", rates) for name, rates in measures.models.items()]
    better = measures.all
    rows.append(f"breakthrough rate {_breakthroughs(better)}; mean novelty {number(measures.mean_novelty, '.3f')}")
    if len(measures.models) > 1:
        rows += [f"  by {name}: {_breakthroughs(rates)} of its own" for name, rates in measures.models.items()]
    if better.validated:
        rows.append(f"{better.validated_better} of {better.validated} accepted children were better on the validation set too")
    return "\n".join(rows)


def _breakthroughs(rates: Rates) -> str:
    interval = f"95 % interval {rates.breakthrough_low:.2f} to {rates.breakthrough_high:.2f}"
    return f"{number(rates.breakthrough_rate, '.2f')} ({interval}) over {rates.generations} generation{'s' * (rates.generations != 1)}"


def _rate_row(name: str, rates: Rates) -> str:
    interval = f"{rates.low:.2f} to {rates.high:.2f}"
    usd = "unknown" if rates.usd is None else "-" if not rates.usd_per_refinement else f"{rates.usd_per_refinement:.4f}"
    return (
        f"{name[:23]:<24}{rates.proposals:>10}{rates.valid:>7}{rates.refined:>9}{number(rates.rate, '.2f'):>7}   "
        f"{interval:<15}{number(rates.distance, '.3f'):>9}{number(rates.novelty, '.3f'):>9}{rates.breakthroughs:>9}{usd:>10}"
    )


def _generations(measures: Measures) -> str:
    rows = [
        f"{'generation':>10}{'best':>8}{'rate':>7}{'distance':>10}{'novelty':>9}{'H_spatial':>11}{'of ln n':>9}{'H_fitness':>11}{'spread':>8}"
    ]
    for place in measures.generations[-_SHOWN:]:
        marks = "".join([" breakthrough" * place.breakthrough, " surge" * place.surge])
        best = "-" if place.best is None else f"{place.best:.3f}"
        cells = [(place.rate, ".2f", 7), (place.distance, ".3f", 10), (place.novelty, ".3f", 9), (place.h_spatial, ".3f", 11)]
        cells += [(place.evenness, ".3f", 9), (place.h_fitness, ".3f", 11), (place.spread, ".3f", 8)]
        rows.append(f"{place.index:>10}{best:>8}" + "".join(f"{number(value, form):>{width}}" for value, form, width in cells) + marks)
    return "\n".join(rows) if measures.generations else ""


def _reasons(measures: Measures) -> str:
    outcomes = [f"{count} {reason.replace('_', ' ')}" for reason, count in measures.reasons.items()]
    return f"outcomes: {', '.join(outcomes)}" if outcomes else ""


def _spend(measures: Measures) -> str:
    lines = [f"rollouts: {', '.join(f'{count:,} {purpose}' for purpose, count in measures.rollouts.items() if count)}"]
    for role, spend in measures.spend.items():
        usd = f"{spend['usd']:.4f} USD" if spend["priced"] else "price unknown"
        lines.append(f"{role}: {spend['calls']:,} calls, {spend['input_tokens'] + spend['output_tokens']:,} tokens, {usd}")
    if measures.gap is not None:
        lines.append(
            f"validation {measures.validation:.3f}, test {measures.test:.3f}: better by {measures.gap:.3f} where it was chosen, {number(measures.optimism, '.3f')} of it more than the seed is"
        )
    if measures.utilization is not None:
        lines.append(f"workers: {measures.utilization:.0%} of their time in model calls")
    lines.append(
        f"texts compared by {measures.embedding}, the latest {measures.measured} valid proposals; kernel width {measures.sigma:.3f}"
    )
    return "\n".join(lines)


def _advice(advice: Sequence[Advice]) -> str:
    return "\n".join(["Advice:", *(f"{'ALARM ' if item.alarm else ''}{item}" for item in advice)]) if advice else ""


def number(value: float | None, form: str) -> str:
    """A number in a form, ``-`` where there is none."""
    return "-" if value is None or math.isnan(value) else format(value, form)
