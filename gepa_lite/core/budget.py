"""The budget and the spend: one ledger for task, reflection, judge and training calls (design decision 7)."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Literal

from gepa_lite.core.call import Usage
from gepa_lite.core.money import dollars
from gepa_lite.errors import UsageError

Role = Literal["task", "reflection", "judge", "training"]
ROLES: tuple[Role, ...] = ("task", "reflection", "judge", "training")


@dataclass(frozen=True, slots=True)
class Budget:
    """Upper bounds; None is no bound. The first one reached ends the search with the best so far.

    Attributes:
        rollouts: runs of the program on one example, validation and test set included.
        tokens: input and output tokens of all calls.
        usd: dollars of all calls.
        seconds: wall time of the run, over all its sessions.
        proposals: texts asked of the reflection model.
    """

    rollouts: int | None = None
    tokens: int | None = None
    usd: float | None = None
    seconds: float | None = None
    proposals: int | None = None

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
                raise UsageError(f"Budget({item.name}={value!r}): a positive number is needed, or None for no bound.")

    @property
    def bounded(self) -> bool:
        """Whether anything at all is bounded."""
        return any(getattr(self, item.name) is not None for item in dataclasses.fields(self))

    def describe(self) -> str:
        """The bounds in words, e.g. ``"500 rollouts, 2.00 USD"``."""
        parts = []
        if self.rollouts is not None:
            parts.append(f"{self.rollouts:,} rollouts")
        if self.tokens is not None:
            parts.append(f"{self.tokens:,} tokens")
        if self.usd is not None:
            parts.append(f"{dollars(self.usd)} USD")
        if self.seconds is not None:
            parts.append(f"{self.seconds:,.0f} s")
        if self.proposals is not None:
            parts.append(f"{self.proposals:,} proposals")
        return ", ".join(parts) or "no bound"


@dataclass(frozen=True, slots=True)
class Spend:
    """What was spent: rollouts, proposals, and calls, tokens and dollars by role."""

    rollouts: int = 0
    proposals: int = 0
    task: Usage = field(default_factory=Usage)
    reflection: Usage = field(default_factory=Usage)
    judge: Usage = field(default_factory=Usage)
    training: Usage = field(default_factory=Usage)

    def __add__(self, other: Spend) -> Spend:
        return Spend(
            self.rollouts + other.rollouts,
            self.proposals + other.proposals,
            self.task + other.task,
            self.reflection + other.reflection,
            self.judge + other.judge,
            self.training + other.training,
        )

    @property
    def total(self) -> Usage:
        """Calls, tokens and dollars of all roles."""
        return self.task + self.reflection + self.judge + self.training

    @property
    def tokens(self) -> int:
        """Tokens of all roles."""
        return self.total.tokens

    @property
    def usd(self) -> float | None:
        """Dollars of all roles, None where a price is unknown."""
        return self.total.usd
