"""A rollout that does not end: what is known of it while it runs, and what becomes of it when it is given up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar

from gepa_lite.core.call import Usage, total_usage
from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback, Objective
from gepa_lite.core.rollout import Failure, Rollout, RolloutKey
from gepa_lite.errors import FeedbackError, RunError
from gepa_lite.program.shared_loop import BLOCKED, held_up, leave_loop

_ANY = Objective()


class Attempt:
    """One rollout as it runs. Safe to use from many threads.

    Attributes:
        objective: gives an overdue program the worst of its range; set by who runs the rollout.
        calls_held: whether every model call of the program is known here while it runs; set likewise.
        judging: the program has ended, and the feedback function runs.

    Args:
        told: told when the feedback function begins.
    """

    def __init__(self, told: Callable[[], None] = lambda: None) -> None:
        self.objective = _ANY
        self.calls_held = True
        self.judging = False
        self._told = told
        self._lock = threading.Lock()
        self._over = False
        self._calling = 0
        self._held_up = False
        self._usages: list[Usage] = []

    def judge(self) -> None:
        """The program has ended: what follows is the feedback function."""
        self.judging = True
        self._told()

    def end(self) -> bool:
        """Claim the outcome: true for the first who asks, be it the rollout itself or who gives it up."""
        with self._lock:
            first, self._over = not self._over, True
            return first

    @contextmanager
    def calling(self) -> Iterator[list[Usage]]:
        """Around a model call, of the program or of the feedback function; the program's usage goes into the list.

        Raises:
            RunError: the rollout was given up: nothing more is paid for it.
        """
        with self._lock:
            if self._over:
                raise RunError("this rollout was given up: it makes no more calls")
            self._calling += 1
        found: list[Usage] = []
        try:
            yield found
        finally:
            with self._lock:
                self._calling -= 1
                self._usages += found

    def given_up(self, example: Example, key: RolloutKey, seconds: float) -> Rollout:
        """What an overdue rollout comes to.

        A program that hangs is the candidate's failure, scored with the worst of the range. What waits for a model, the judge's included, or may wait for one that is not seen here, is missing; so is
        what waits for an event loop that another rollout blocks.

        Args:
            example: that it ran on.
            key: of the rollout.
            seconds: it had.

        Raises:
            FeedbackError: it is the feedback function that hangs.
        """
        outage = self._blocked()
        with self._lock:
            waiting, usage = self._calling > 0, total_usage(self._usages)
        if waiting:
            outage = "a model call was still running"
        elif not self.calls_held and not self.judging:
            outage = (
                outage or "whether a model call of its own was still running can't be seen from here (gl.wrap, lm= or record=gl.proxy())"
            )
        if outage is not None:
            message = f"the rollout did not end within {seconds:g} s; {outage}"
            return Rollout(key, None, None, failure=Failure("timeout", "world", message), usage=usage, seconds=seconds)
        if self.judging:
            raise FeedbackError(
                f"the feedback function did not return within {seconds:g} s (example {example.id}). Mend it, or give rollouts longer: workers=gl.Workers(..., timeout=). "
                "What was paid is kept: start a run of another name with replies_from= this one; its model replies are not paid for again.",
                example.id,
            )
        message = f"The program did not end within {seconds:g} s, and no model call was running."
        worst = Feedback(self.objective.score(self.objective.worst), message)
        failure = Failure("deadline", "candidate", message)
        return Rollout(key, self.objective.value(worst.score), worst, failure=failure, usage=usage, seconds=seconds)

    def _blocked(self) -> str | None:
        """Words where another rollout blocks the event loop that this one waits for. Where this one blocks it, the others get a new one."""
        holder = None if self._held_up else held_up(self._mine)
        if holder is None:
            return BLOCKED if self._held_up else None
        mine = holder.context is not None and self._mine(holder.context)
        if mine or holder.context is None:
            for context in leave_loop(self._mine):
                if (other := context.get(_RUNNING)) is not None:
                    other._held_up = True
        return None if mine else BLOCKED

    def _mine(self, context: Context) -> bool:
        return context.get(_RUNNING) is self


_RUNNING: ContextVar[Attempt | None] = ContextVar("gepa_lite_attempt", default=None)


def this_attempt() -> Attempt:
    """The rollout that runs here; a fresh one where nobody watches."""
    return _RUNNING.get() or Attempt()


def begin(attempt: Attempt) -> None:
    """Make an attempt the one that runs in this context from here on."""
    _RUNNING.set(attempt)


@contextmanager
def attempting(attempt: Attempt) -> Iterator[None]:
    """Make an attempt the one that runs here."""
    token = _RUNNING.set(attempt)
    try:
        yield
    finally:
        _RUNNING.reset(token)
