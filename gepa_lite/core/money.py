"""Dollars in words."""

from __future__ import annotations

import math


def dollars(amount: float, places: int = 2) -> str:
    """An amount of USD, below one cent with two significant digits.

    Args:
        amount: USD.
        places: decimals from one cent on.

    Example:
        >>> [dollars(amount) for amount in (1234.5, 2.0, 0.01, 0.00149, 0.001, 0.00001234, 0.0)]
        ['1,234.50', '2.00', '0.01', '0.0015', '0.0010', '0.000012', '0.00']
        >>> dollars(0.0234, 4), dollars(0.00003, 4)
        ('0.0234', '0.000030')
    """
    if not 0 < abs(amount) < 0.01:
        return f"{amount:,.{places}f}"
    return f"{amount:.{1 - math.floor(math.log10(abs(amount)))}f}"
