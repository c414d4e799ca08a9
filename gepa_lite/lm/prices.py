"""Prices that a user gives by hand: for models that no map knows, and for one's own terms."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gepa_lite.core.call import Usage
from gepa_lite.errors import UsageError
from gepa_lite.lm.protocol import LM, Completion, LMInfo

PriceSpec = Mapping[str, Sequence[float]]
"""USD per million input tokens and per million output tokens, by the model's name: ``{"openai/my-model": (0.15, 0.60)}``."""

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices by model name. They come before any that are known otherwise, and they price every token alike, cached or not.

    Attributes:
        prices: USD per million input and output tokens.

    Example:
        >>> from gepa_lite.core.call import Usage
        >>> table = read_prices({"my/model": (1.0, 4.0)})
        >>> table.priced("my/model", Usage(1, 1_000, 500, None)).usd
        0.003
    """

    prices: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def describe(self, lm: LM) -> LMInfo:
        """What is known of a model, with its price by hand where there is one."""
        info = lm.describe()
        if info.name not in self.prices:
            return info
        into, out = self.prices[info.name]
        return dataclasses.replace(info, usd_per_input_token=into / _MILLION, usd_per_output_token=out / _MILLION)

    def priced(self, name: str, usage: Usage) -> Usage:
        """What calls of a model consumed, in dollars by hand where there is a price."""
        if name not in self.prices:
            return usage
        into, out = self.prices[name]
        return dataclasses.replace(usage, usd=(usage.input_tokens * into + usage.output_tokens * out) / _MILLION)

    def settle(self, name: str, completion: Completion) -> Completion:
        """A reply with its price by hand where there is one."""
        return dataclasses.replace(completion, usage=self.priced(name, completion.usage)) if name in self.prices else completion

    def check_names(self, known: Collection[str]) -> None:
        """Refuse a name that is nearly that of a model of the run; others may be a judge's.

        Raises:
            UsageError: naming both.
        """
        for name in self.prices:
            if name not in known and (near := difflib.get_close_matches(name, known, n=1, cutoff=0.75)):
                raise UsageError(f"prices: no model is named {name!r}. Did you mean {near[0]!r}?")


def read_prices(spec: PriceSpec | None) -> PriceTable:
    """The table that a user means.

    Raises:
        UsageError: not two prices of at least 0; names the model.
    """
    if spec is None:
        return PriceTable()
    if not isinstance(spec, Mapping):
        raise UsageError(f"prices={spec!r}: a dict is needed, e.g. {{'openai/my-model': (0.15, 0.60)}}, in USD per million tokens.")
    return PriceTable({str(name): _pair(str(name), value) for name, value in spec.items()})


def _pair(name: str, value: Any) -> tuple[float, float]:
    numbers = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []
    if len(numbers) != 2 or not all(_is_price(number) for number in numbers):
        raise UsageError(
            f"prices[{name!r}]={value!r}: two numbers of at least 0 are needed, USD per million input tokens and per million output tokens."
        )
    return float(numbers[0]), float(numbers[1])


def _is_price(number: Any) -> bool:
    return isinstance(number, (int, float)) and not isinstance(number, bool) and math.isfinite(number) and number >= 0
