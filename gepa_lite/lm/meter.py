"""The hard guard of the budget: a call is sent only if its worst case fits in what is left (design decision 7)."""

from __future__ import annotations

import threading

from gepa_lite.core.budget import Budget
from gepa_lite.core.call import Usage
from gepa_lite.core.money import dollars
from gepa_lite.errors import BudgetSpentError, UsageError
from gepa_lite.lm.protocol import LMInfo, Request

_TOKENS_PER_MESSAGE = 16
"""Room for a chat template's role marks around each message."""

_NO_PRICE = "dollars are bounded, and a model that the feedback or program asks has no known price: give it by prices={'its name': (USD per million input tokens, per million output tokens)}, or bound rollouts or tokens instead."


def call_bound(info: LMInfo, request: Request) -> Usage:
    """The most that one call can consume.

    A byte-level tokenizer never makes more tokens than the text has UTF-8 bytes, so the bytes bound the input; ``max_tokens`` bounds the reply.
    """
    texts = [message["content"] for message in request.messages]
    size = sum(len(text.encode("utf-8", "surrogatepass")) + _TOKENS_PER_MESSAGE for text in texts)
    if request.json_schema is not None:
        size += len(str(request.json_schema))
    usd = None
    if info.usd_per_input_token is not None and info.usd_per_output_token is not None:
        usd = size * info.usd_per_input_token + request.params.max_tokens * info.usd_per_output_token
    return Usage(1, size, request.params.max_tokens, usd)


class Meter:
    """Holds tokens and dollars to the budget at any concurrency.

    A call whose bound does not fit waits while calls in flight may still give back what they reserved and did not use; when none is in flight, it is refused.

    Args:
        budget: the bounds; only ``tokens`` and ``usd`` are held here.
        spent: what earlier sessions paid, their crash losses included.
    """

    def __init__(self, budget: Budget, spent: Usage) -> None:
        self._tokens = budget.tokens
        self._usd = budget.usd
        self._spent = spent
        # known dollars: one call of unknown price must not make the rest unknown
        self._spent_usd = spent.usd or 0.0
        self._reserved_tokens = 0
        self._reserved_usd = 0.0
        self._flying = 0
        self._changed = threading.Condition()

    @property
    def spent(self) -> Usage:
        """Paid so far, earlier sessions included."""
        with self._changed:
            return self._spent

    def rebound(self, budget: Budget) -> None:
        """Hold to other bounds from now on; calls that wait look again."""
        with self._changed:
            self._tokens, self._usd = budget.tokens, budget.usd
            self._changed.notify_all()

    def reserve(self, bound: Usage) -> None:
        """Wait until the bound fits, and hold it.

        Raises:
            BudgetSpentError: it does not fit and no call in flight can make room.
            UsageError: dollars are bounded and the call's price is not known.
        """
        if self._usd is not None and bound.usd is None:
            raise UsageError(_NO_PRICE)
        with self._changed:
            while (lacking := self._lacking(bound)) is not None:
                if not self._flying:
                    raise BudgetSpentError(lacking)
                self._changed.wait()
            self._flying += 1
            self._reserved_tokens += bound.tokens
            self._reserved_usd += bound.usd or 0.0

    def settle(self, bound: Usage, spent: Usage) -> None:
        """Give back what was held and book what was consumed."""
        with self._changed:
            self._flying -= 1
            self._reserved_tokens -= bound.tokens
            self._reserved_usd -= bound.usd or 0.0
            self._spent = self._spent + spent
            self._spent_usd += spent.usd or 0.0
            self._changed.notify_all()

    def book(self, spent: Usage) -> None:
        """Book what a call consumed that was made without asking.

        Raises:
            BudgetSpentError: the budget is passed by it; it is booked all the same.
            UsageError: dollars are bounded and the call's price is not known.
        """
        with self._changed:
            self._spent = self._spent + spent
            self._spent_usd += spent.usd or 0.0
            self._changed.notify_all()
            passed = self._passed()
        if self._usd is not None and spent.usd is None:
            raise UsageError(_NO_PRICE)
        if passed is not None:
            raise BudgetSpentError(passed)

    def _passed(self) -> str | None:
        if self._tokens is not None and self._spent.tokens > self._tokens:
            return f"{self._spent.tokens:,} tokens were taken of {self._tokens:,}"
        if self._usd is not None and self._spent_usd > self._usd + 1e-12:
            return f"{dollars(self._spent_usd, 4)} USD were taken of {dollars(self._usd)}"
        return None

    def _lacking(self, bound: Usage) -> str | None:
        if self._tokens is not None and self._spent.tokens + self._reserved_tokens + bound.tokens > self._tokens:
            return f"{self._tokens - self._spent.tokens:,} of {self._tokens:,} tokens are left; the next call may take {bound.tokens:,}"
        if self._usd is not None and self._spent_usd + self._reserved_usd + (bound.usd or 0.0) > self._usd + 1e-12:
            left = self._usd - self._spent_usd
            return f"{dollars(left, 4)} of {dollars(self._usd)} USD are left; the next call may take {dollars(bound.usd or 0.0, 4)}"
        return None
