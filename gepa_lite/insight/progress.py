"""The live display of a run, on standard error: in a terminal a line that changes below one line a step, elsewhere one line a step."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from gepa_lite.core.budget import Budget, Spend
from gepa_lite.core.events import (
    Event,
    Merged,
    MilestoneScored,
    Proposed,
    SeedValidated,
    SetAside,
    Shortened,
    StepEnded,
    Stopped,
    Tested,
    Unjoined,
    Validated,
    Vetoed,
)
from gepa_lite.core.feedback import Objective
from gepa_lite.core.money import dollars
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


@dataclass(frozen=True, slots=True)
class _Baseline:
    """Where this session began to be timed: a resumed run has spent before."""

    spend: Spend
    at: float


class Progress:
    """Shows spend against budget, time left, the best so far, what was accepted and why the rest was not, and failures.

    A stream that can't be written to any more silences it: the display never ends a run.

    Args:
        objective: to show scores in the user's own direction.
        stream: where to write; standard error by default, since standard output is the user's.
        state: of a run that is resumed, to show what it has from the first moment.
    """

    def __init__(self, objective: Objective | None = None, stream: TextIO | None = None, state: RunState | None = None) -> None:
        self._objective = objective or Objective()
        self._console = Console(file=stream or sys.stderr, highlight=False, soft_wrap=True)
        self._changes = self._console.is_terminal and not self._console.is_dumb_terminal
        self._live: Live | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._started = time.monotonic()
        self._baseline = None if state is None else _Baseline(state.spend, self._started)
        self._state = state or RunState()
        self._now = "searching" if self._state.seed_validated else "validating the seed"
        self._step: list[Event] = []
        self._open_rollouts = 0
        self._outcomes: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._status = ""

    def on_event(self, event: Event, state: RunState) -> None:
        """Show what an event means for a person."""
        with self._lock:
            self._baseline = self._baseline or _Baseline(state.spend, time.monotonic())
            self._state = state
            self._open_rollouts = 0
            line = self._line(event, state)
            if line:
                self._say(line)
            self._refresh()

    def on_rollout(self, rollout: Rollout, saved: bool) -> None:
        """Count it."""
        with self._lock:
            self._open_rollouts += not saved
            if rollout.failure is not None and not saved:
                self._failures[rollout.failure.kind] += 1
            self._refresh()

    def on_notice(self, text: str) -> None:
        """Show it."""
        with self._lock:
            self._say(text)

    def close(self) -> None:
        """Leave the terminal as it was; safe to call twice."""
        with self._lock:
            self._closed = True
            if self._live is not None:
                self._written(self._live.stop)
                self._live = None

    def _line(self, event: Event, state: RunState) -> str:
        """What to say of an event; "" for nothing."""
        match event:
            case SetAside():
                return event.words
            case SeedValidated():
                count = len(state.waiting_starts)
                self._now = f"validating {count} other start{'s' if count > 1 else ''}" if count else "searching"
                idle = f"; never ran, so left alone: {', '.join(event.idle_modules)}" if event.idle_modules else ""
                return f"seed: {self._score(state.pool[0].mean)} on {len(event.values)} validation examples{idle}"
            case Validated() if event.step < 0:
                self._now = "searching"
                return f"another start: {self._child_words(event, state)}"
            case Vetoed() if event.step < 0:
                return f"another start scores less than the first program on {len(event.pin_ids)} pins: it takes no part"
            case Proposed() | Merged() | Validated() | Vetoed() | Unjoined():
                self._step.append(event)
            case StepEnded():
                self._now = "searching"
                events, self._step = self._step, []
                return f"step {event.step}: {self._step_words(events, state)}{self._bracket(state)}"
            case Stopped():
                self._now = "scoring the test set" if state.started and state.started.test_ids else "done"
                return f"search ended: {event.reason}; best: #{state.best.index} {self._score(state.best.mean)}"
            case Shortened():
                self._now = "shortening the winner"
                return f"{event.module} without {event.sentence.strip()[:60]!r}: {event.status} ({event.reason})"
            case MilestoneScored():
                return f"curve: #{event.member} scored on {len(event.values)} examples that the search never saw"
            case Tested():
                self._now = "done"
                return f"test set scored for the seed and #{event.winner}"
        return ""

    def _step_words(self, events: Sequence[Event], state: RunState) -> str:
        """A step in words: each proposal where there is one, counts where there are many, then the child."""
        proposals = [event for event in events if isinstance(event, Proposed)]
        for proposal in proposals:
            self._outcomes[_outcome(proposal)] += 1
        parts = []
        if len(proposals) == 1:
            (one,) = proposals
            parts.append(f"{one.module} of #{one.parent}: {_outcome(one)} ({one.reason})")
        elif proposals:
            counts = Counter(_outcome(proposal) for proposal in proposals)
            parts.append(f"{len(proposals)} proposals of #{proposals[0].parent}: {_counted(counts, len(counts))}")
        parts += [_merge_words(event) for event in events if isinstance(event, Merged)]
        parts += [f"a child broke {len(event.pin_ids)} pins: vetoed" for event in events if isinstance(event, Vetoed)]
        parts += [f"the best texts were not joined: {event.reason}" for event in events if isinstance(event, Unjoined)]
        parts += [self._child_words(event, state) for event in events if isinstance(event, Validated)]
        return "; ".join(parts)

    def _child_words(self, event: Validated, state: RunState) -> str:
        members = [member for member in state.pool if member.step == event.step and member.parents == event.parents]
        if not members:
            return "a child was validated"
        child = members[-1]
        rank = ", the best so far" if state.best.index == child.index else f", not above #{state.best.index} {self._score(state.best.mean)}"
        return f"#{child.index} validated: {self._score(child.mean)}{'' if child.mean is None else rank}"

    def _score(self, mean: float | None) -> str:
        return "no score (missing cells)" if mean is None else f"{self._objective.score(mean):.3f}"

    def _bracket(self, state: RunState) -> str:
        """Spend and time behind a line, where no line below shows them."""
        return "" if self._changes else f"  [{', '.join([*_spend_words(state.spend, state.budget), self._time_words()])}]"

    def _time_words(self) -> str:
        """Time so far, and an estimate of the rest from the share of the budget that this session has used."""
        now, baseline = time.monotonic(), self._baseline
        passed = _clock(now - self._started)
        if baseline is None or self._now == "done":
            return passed
        share = _share(baseline.spend, self._state.spend, self._state.budget)
        if self._state.budget.seconds:
            share = max(share, (now - self._started) / self._state.budget.seconds)
        return f"{passed}, at most {_clock((now - baseline.at) * (1 - share) / share)} left" if 0.05 <= share < 1 else passed

    def _say(self, line: str) -> None:
        # model text may hold what rich takes for markup or control sequences: it is printed as plain text
        text = Text("".join(c if c.isprintable() else " " for c in line))
        if self._changes:
            text.no_wrap, text.overflow = True, "ellipsis"
            self._written(lambda: self._console.print(text, soft_wrap=False))
        else:
            self._written(lambda: self._console.print(text))

    def _refresh(self) -> None:
        """Take a snapshot for the line that changes; the display's own thread draws it, so that the clock goes on between events."""
        if not self._changes or self._closed:
            return
        state = self._state
        spend = Spend(rollouts=self._open_rollouts) + state.spend
        best = f"best #{state.best.index} {self._score(state.best.mean)}" if state.seed_validated else ""
        failures = f"failures: {_counted(self._failures, 3)}" if self._failures else ""
        self._status = ", ".join(filter(None, [*_spend_words(spend, state.budget), best, failures, _counted(self._outcomes, 4)]))
        if self._live is None:
            # prints of the user's program go above the line if they share the terminal, and are left alone if they don't
            self._live = Live(
                console=self._console,
                get_renderable=self._draw,
                refresh_per_second=4,
                transient=True,
                redirect_stdout=sys.stdout.isatty(),
            )
            self._written(self._live.start)

    def _draw(self) -> Text:
        return Text(f"{self._now}: {self._time_words()}; {self._status}", no_wrap=True, overflow="ellipsis")

    def _written(self, write: Callable[[], None]) -> None:
        try:
            write()
        except (OSError, ValueError):
            # the terminal is gone or the stream was closed
            self._changes, self._closed = False, True
            self._console.quiet = True


def _outcome(proposal: Proposed) -> str:
    """A proposal's outcome in a word or two."""
    return (proposal.status if proposal.status in ("accepted", "skipped", "void") else proposal.code).replace("_", " ")


def _merge_words(event: Merged) -> str:
    return f"merge of {' and '.join(f'#{parent}' for parent in event.parents)}: {event.status} ({event.reason})"


def _counted(counts: Counter[str], most: int) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common(most))


def _spend_words(spend: Spend, budget: Budget) -> list[str]:
    """Spend against budget; what is neither bounded nor spent is left out."""
    parts = [f"{spend.rollouts:,}/{budget.rollouts:,} rollouts" if budget.rollouts else f"{spend.rollouts:,} rollouts"]
    if budget.proposals:
        parts.append(f"{spend.proposals:,}/{budget.proposals:,} proposals")
    if budget.tokens:
        parts.append(f"{spend.tokens:,}/{budget.tokens:,} tokens")
    if spend.usd is None or spend.usd > 0 or budget.usd:
        usd = "unknown" if spend.usd is None else dollars(spend.usd, 4)
        parts.append(f"{usd}/{dollars(budget.usd)} USD" if budget.usd else f"{usd} USD")
    return parts


def _share(before: Spend, now: Spend, budget: Budget) -> float:
    """The largest share, 0 to 1, of what was left of a bound at the start that has been spent since."""
    bounds = [(before.rollouts, now.rollouts, budget.rollouts), (before.proposals, now.proposals, budget.proposals)]
    bounds.append((before.tokens, now.tokens, budget.tokens))
    spent = [(a, b, bound) for a, b, bound in [*bounds, (before.usd, now.usd, budget.usd)] if a is not None and b is not None and bound]
    return max(((b - a) / (bound - a) for a, b, bound in spent if bound > a), default=0.0)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
