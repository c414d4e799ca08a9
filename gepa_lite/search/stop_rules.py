"""Stop rules that users compose: ``Search(stop=(ScoreReached(0.9), NoImprovement(30)))`` ends at the first that holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gepa_lite.core.budget import Budget
from gepa_lite.core.feedback import Objective
from gepa_lite.search.state import RunState


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a rule may know of the world.

    Attributes:
        elapsed: seconds of the run so far, over all its sessions.
        stop_files: the stop files that exist, of those that the rules name.
        kept: seconds that must be left for what comes after the search.
        asked: why a person asked to end the search now; "" where nobody did.
        budget: the bounds that a person asked for; None leaves them as they are.
    """

    elapsed: float = 0.0
    stop_files: frozenset[str] = frozenset()
    kept: float = 0.0
    asked: str = ""
    budget: Budget | None = None


class StopRule(Protocol):
    """Says why the search should end, or None. A frozen dataclass, so that its settings are part of the run's fingerprint."""

    def __call__(self, state: RunState, objective: Objective, around: Surroundings) -> str | None:
        """The reason in words."""
        ...


@dataclass(frozen=True, slots=True)
class ScoreReached:
    """The best validation mean is at least as good as ``score``, in the user's own direction."""

    score: float

    def __call__(self, state: RunState, objective: Objective, around: Surroundings) -> str | None:
        """Compare."""
        mean = state.best.mean
        if mean is None or mean < objective.value(self.score):
            return None
        return f"the validation mean {objective.score(mean):g} has reached {self.score:g}"


@dataclass(frozen=True, slots=True)
class NoImprovement:
    """The best candidate is older than the last ``proposals`` proposals."""

    proposals: int

    def __call__(self, state: RunState, objective: Objective, around: Surroundings) -> str | None:
        """Count back to the step that made the best candidate."""
        made = state.best.step
        since = 0
        for proposal in reversed(state.proposals):
            if proposal.step <= made:
                break
            since += 1
        return f"no better candidate in the last {since} proposals" if since >= self.proposals else None


@dataclass(frozen=True, slots=True)
class Elapsed:
    """The run has taken ``seconds``, over all its sessions."""

    seconds: float

    def __call__(self, state: RunState, objective: Objective, around: Surroundings) -> str | None:
        """Look at the clock that the session hands in."""
        return f"{around.elapsed:,.0f} seconds are over" if around.elapsed >= self.seconds else None


@dataclass(frozen=True, slots=True)
class StopFile:
    """A file is made, or touched, while the search runs: ``touch stop`` ends it from outside. One that an earlier run left there is ignored, and a notice says so."""

    path: str

    def __call__(self, state: RunState, objective: Objective, around: Surroundings) -> str | None:
        """Look at what the session found."""
        return f"the stop file {self.path} exists" if self.path in around.stop_files else None


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every one of ``rules`` holds."""

    rules: tuple[StopRule, ...]

    def __call__(self, state: RunState, objective: Objective, around: Surroundings) -> str | None:
        """Ask all."""
        reasons = [rule(state, objective, around) for rule in self.rules]
        return " and ".join(reason for reason in reasons if reason) if all(reasons) else None


def stop_files_of(rules: tuple[StopRule, ...]) -> frozenset[str]:
    """The paths that the rules want to know of."""
    found: set[str] = set()
    for rule in rules:
        if isinstance(rule, StopFile):
            found.add(rule.path)
        elif isinstance(rule, AllOf):
            found |= stop_files_of(rule.rules)
    return frozenset(found)
