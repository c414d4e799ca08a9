"""Options that several commands share, each written once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from gepa_lite.errors import UsageError

BudgetRollouts = Annotated[int | None, typer.Option("--budget-rollouts", metavar="N", help="At most N runs of the program on one example.")]
BudgetTokens = Annotated[int | None, typer.Option("--budget-tokens", metavar="N", help="At most N input and output tokens, all models.")]
BudgetUsd = Annotated[float | None, typer.Option("--budget-usd", metavar="USD", help="At most so many dollars, all models.")]
BudgetSeconds = Annotated[float | None, typer.Option("--budget-seconds", metavar="S", help="At most S seconds of wall time, all sessions.")]
BudgetProposals = Annotated[
    int | None, typer.Option("--budget-proposals", metavar="N", help="At most N texts asked of the reflection model.")
]
Prices = Annotated[
    list[str] | None,
    typer.Option(
        "--price", metavar="MODEL=IN,OUT", help="USD per million input and output tokens of a model without a known price; may be repeated."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on standard error.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, and nothing else there.")]


def price_table(pairs: Iterable[str]) -> dict[str, list[float]]:
    """The prices that ``--price MODEL=IN,OUT`` options give.

    >>> price_table(["openai/my-model=0.15,0.6"])
    {'openai/my-model': [0.15, 0.6]}

    Raises:
        UsageError: an option of another form.
    """
    table: dict[str, list[float]] = {}
    for pair in pairs:
        name, _, prices = pair.rpartition("=")
        try:
            table[name] = [float(number) for number in prices.split(",")]
        except ValueError:
            name = ""
        if not name or len(table[name]) != 2:
            raise UsageError(f"--price {pair!r}: write MODEL=IN,OUT, e.g. --price openai/my-model=0.15,0.6, in USD per million tokens.")
    return table


def budget_table(
    rollouts: int | None, tokens: int | None, usd: float | None, seconds: float | None, proposals: int | None
) -> dict[str, Any]:
    """The bounds that were given, by field of ``gl.Budget``."""
    bounds = {"rollouts": rollouts, "tokens": tokens, "usd": usd, "seconds": seconds, "proposals": proposals}
    return {name: bound for name, bound in bounds.items() if bound is not None}
