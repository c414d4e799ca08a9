"""The live display of a run, on standard error: one line that changes in a terminal, one line a step elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from gepa_lite.core.events import Event, Proposed, RunStarted, SeedValidated, Stopped, Tested, Validated
from gepa_lite.core.feedback import Objective
from gepa_lite.core.rollout import Rollout
from gepa_lite.search.state import RunState

EventCallback = Callable[[Event], None]


class CallbackObserver:
    """Hands every committed event to a function of the user's."""

    def __init__(self, callback: EventCallback) -> None:
        self._callback = callback

    def on_event(self, event: Event, state: RunState) -> None:
        """Call the function."""
        self._callback(event)

    def on_rollout(self, rollout: Rollout, saved: bool) -> None:
        """Rollouts are no events."""

    def on_notice(self, text: str) -> None:
        """Notices are no events."""

    def close(self) -> None:
        """Nothing is held."""


class Progress:
    """Shows spend against budget, time left, the best so far, what was accepted and why the rest was not, and errors.

    Args:
        objective: to show scores in the user's own direction.
        stream: where to write; standard error by default, since standard output is the user's.
    """

    def __init__(self, objective: Objective | None = None, stream: TextIO | None = None) -> None:
        self._objective = objective or Objective()
        self._console = Console(file=stream or sys.stderr, highlight=False, soft_wrap=True)
        self._live: Live | None = None
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._state = RunState()
        self._now = "starting"
        self._new_rollouts = 0
        self._at_start = 0
        self._outcomes: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()

    def on_event(self, event: Event, state: RunState) -> None:
        """Show what an event means for a person."""
        with self._lock:
            if isinstance(event, RunStarted) or not self._state.started:
                self._at_start = state.spend.rollouts
            self._state = state
            line = self._line(event, state)
            if line:
                self._say(line)
            if isinstance(event, (Stopped, Tested)):
                self._end()
            else:
                self._refresh()

    def on_rollout(self, rollout: Rollout, saved: bool) -> None:
        """Count it."""
        with self._lock:
            self._new_rollouts += not saved
            if rollout.failure is not None and not saved:
                self._failures[rollout.failure.kind] += 1
            self._refresh()

    def on_notice(self, text: str) -> None:
        """Show it."""
        with self._lock:
            self._say(text)

    def _line(self, event: Event, state: RunState) -> str:
        if isinstance(event, SeedValidated):
            self._now = "searching"
            idle = f"; never ran, so left alone: {', '.join(event.idle_modules)}" if event.idle_modules else ""
            return f"seed: {self._mean(state.pool[0].mean)} on {len(event.values)} validation examples{idle}"
        if isinstance(event, Proposed):
            self._outcomes[event.status if event.status in ("accepted", "skipped", "void") else event.code] += 1
            model = f" by {event.model}" if event.model else ""
            return f"step {event.step}: {event.module} of #{event.parent}{model}: {event.status} ({event.reason}){self._where(state)}"
        if isinstance(event, Validated):
            member = next(m for m in reversed(state.pool) if m.step == event.step)
            mark = (
                " - the best so far" if state.best.index == member.index else f" (best: #{state.best.index} {self._mean(state.best.mean)})"
            )
            return f"step {event.step}: candidate #{member.index} validated: {self._mean(member.mean)}{mark}"
        if isinstance(event, Stopped):
            self._now = "scoring the test set" if state.started and state.started.test_ids else "done"
            return f"search ended: {event.reason}; best: #{state.best.index} {self._mean(state.best.mean)}"
        if isinstance(event, Tested):
            self._now = "done"
            return f"test set scored for the seed and #{event.winner}"
        return ""

    def _mean(self, mean: float | None) -> str:
        return "no score (missing cells)" if mean is None else f"{self._objective.score(mean):.3f}"

    def _where(self, state: RunState) -> str:
        """Spend against budget, and time left where it can be told."""
        spend, budget = state.spend, state.budget
        parts = [f"{spend.rollouts:,}/{budget.rollouts:,} rollouts" if budget.rollouts else f"{spend.rollouts:,} rollouts"]
        if budget.tokens:
            parts.append(f"{spend.tokens:,}/{budget.tokens:,} tokens")
        if spend.usd is None or spend.usd > 0 or budget.usd:
            usd = "unknown" if spend.usd is None else f"{spend.usd:.4f}"
            parts.append(f"{usd}/{budget.usd:.2f} USD" if budget.usd else f"{usd} USD")
        seconds = time.monotonic() - self._started
        parts.append(f"{_clock(seconds)}{self._left(state, seconds)}")
        return f"  [{', '.join(parts)}]"

    def _left(self, state: RunState, seconds: float) -> str:
        """An estimate from the share of the budget that this session has used."""
        spend, budget = state.spend, state.budget
        shares = []
        if budget.rollouts and budget.rollouts > self._at_start:
            shares.append((spend.rollouts - self._at_start) / (budget.rollouts - self._at_start))
        if budget.tokens:
            shares.append(spend.tokens / budget.tokens)
        if budget.usd and spend.usd is not None:
            shares.append(spend.usd / budget.usd)
        if budget.seconds:
            shares.append(seconds / budget.seconds)
        share = max(shares, default=0.0)
        return f", about {_clock(seconds * (1 - share) / share)} left" if share >= 0.05 else ""

    def _say(self, line: str) -> None:
        # model text may hold what rich takes for markup or control sequences: it is printed as plain text
        text = Text("".join(c if c.isprintable() else " " for c in line))
        if self._live is not None:
            self._live.console.print(text)
        else:
            self._console.print(text)

    def _refresh(self) -> None:
        if not self._console.is_terminal:
            return
        if self._live is None:
            self._live = Live(console=self._console, refresh_per_second=8, transient=True)
            self._live.start()
        outcomes = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in self._outcomes.most_common(4))
        failures = ", ".join(f"{count} {kind}" for kind, count in self._failures.most_common(3))
        best = self._mean(self._state.best.mean) if self._state.seed_validated else "-"
        status = f"{self._now}: {self._new_rollouts:,} rollouts run, best {best}{'; ' + outcomes if outcomes else ''}{'; failures: ' + failures if failures else ''}"
        self._live.update(Text(f"{status}{self._where(self._state)}", no_wrap=True, overflow="ellipsis"))

    def close(self) -> None:
        """Leave the terminal as it was; safe to call twice."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
