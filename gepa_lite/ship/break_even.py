"""When the search has paid for itself: a shorter prompt or a cheaper model, call by call."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gepa_lite.core.call import Usage
from gepa_lite.errors import UsageError
from gepa_lite.search.state import Member


@dataclass(frozen=True, slots=True)
class BreakEven:
    """What one run of the program costs, before and after, and what follows.

    Attributes:
        search_usd: what the search was paid.
        before_usd: dollars of one run of the program before.
        after_usd: dollars of one run with the winner's prompts.
        runs: runs in production after which the search is paid back; None where a run costs no less than before.
    """

    search_usd: float
    before_usd: float
    after_usd: float
    runs: int | None

    def __str__(self) -> str:
        change = f"a run of the program costs {self.after_usd:.6f} USD, {self.before_usd:.6f} before; the search {self.search_usd:.4f}"
        if self.runs is None:
            return f"{change}: it is never paid back in dollars"
        return f"{change}: paid back after {self.runs:,} runs"


def break_even_of(
    paid: Usage, seed: Member, winner: Member, before_usd: float | None, input_price: float | None, output_price: float | None
) -> BreakEven:
    """From what the validation rollouts of seed and winner took.

    Args:
        paid: what the search was paid.
        seed: the candidate before.
        winner: the candidate after.
        before_usd: dollars of one run today, where today's is another model or prompt than the seed's; None for the seed's.
        input_price: dollars of an input token, for models whose price is not known.
        output_price: dollars of an output token.

    Raises:
        UsageError: a price is needed.
    """
    prices = input_price, output_price
    after = _per_run(winner.took.task, winner.took.rollouts, prices, "the winner")
    before = _per_run(seed.took.task, seed.took.rollouts, prices, "the seed") if before_usd is None else before_usd
    search = _per_run(paid, 1, prices, "the search")
    saving = before - after
    # a rounding error is no saving
    runs = math.ceil(search / saving) if saving > 1e-12 else None
    return BreakEven(search, before, after, runs)


def _per_run(usage: Usage, rollouts: int, prices: tuple[float | None, float | None], what: str) -> float:
    input_price, output_price = prices
    if input_price is not None and output_price is not None:
        return (usage.input_tokens * input_price + usage.output_tokens * output_price) / max(1, rollouts)
    if usage.usd is None:
        raise UsageError(f"break_even: the price of what {what} used is not known: give usd_per_input_token and usd_per_output_token.")
    return usage.usd / max(1, rollouts)
