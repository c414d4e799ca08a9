"""A call that was made already, past the run: an ``LM`` that brings what came of it, so that it is booked."""

from __future__ import annotations

from dataclasses import dataclass

from gepa_lite.errors import ModelError
from gepa_lite.lm.protocol import Completion, LMInfo, Request


@dataclass(frozen=True, slots=True)
class MadeCall:
    """Implements ``LM``. ``ModelClient`` books it whatever the budget says, since its price is paid; then it refuses the next one.

    Attributes:
        info: of the model that was called.
        outcome: the reply, or why there is none.
        seconds: how long it took.
    """

    info: LMInfo
    outcome: Completion | ModelError
    seconds: float = 0.0

    def describe(self) -> LMInfo:
        """The model's."""
        return self.info

    def complete(self, request: Request) -> Completion:
        """What came of the call."""
        if isinstance(self.outcome, Completion):
            return self.outcome
        raise self.outcome
