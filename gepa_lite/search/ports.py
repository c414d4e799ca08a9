"""What the loop asks of the world. It imports none of it: no clock, file, socket, thread or logger."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from gepa_lite.core.call import Message, Usage
from gepa_lite.core.candidate import Candidate
from gepa_lite.core.events import Event
from gepa_lite.core.rollout import Rollout
from gepa_lite.lm.protocol import Completion
from gepa_lite.search.gate import Gate
from gepa_lite.search.state import RunState
from gepa_lite.search.stop_rules import Surroundings

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class ProgramFacts:
    """What the search is told of the program.

    Attributes:
        purpose: the program's docstring.
        signatures: each module's inputs and outputs in words, by path.
        gate: what every new text must pass before a rollout is paid for.
    """

    purpose: str
    signatures: Mapping[str, str]
    gate: Gate = field(default_factory=Gate)


class Running(Protocol[T_co]):
    """A task that was started."""

    def ends_within(self, seconds: float) -> bool:
        """Wait for its end, so many seconds at most; whether it has ended."""
        ...

    def result(self) -> T_co:
        """Wait for its result, or raise its exception."""
        ...


@dataclass(frozen=True, slots=True)
class WhenAsked(Generic[T]):
    """A task that runs when its result is asked for: where nothing is to run beside it."""

    task: Callable[[], T]

    def ends_within(self, seconds: float) -> bool:
        """It keeps nobody waiting before it is asked."""
        return True

    def result(self) -> T:
        """Run it."""
        return self.task()


class Ports(Protocol):
    """The loop's way to the world."""

    def evaluate(
        self, candidate: Candidate, example_ids: Sequence[str], *, samples: Sequence[int], priority: tuple[int, ...]
    ) -> Sequence[Sequence[Rollout]]:
        """For each sample number the rollouts in the order of the ids, all at once; those already on disk are not paid again. Smaller priorities are served first.

        Raises:
            RunError: the run can't go on.
        """
        ...

    @property
    def models(self) -> Mapping[str, float]:
        """The reflection models by name, with their weights."""
        ...

    def reflect(self, messages: tuple[Message, ...], *, model: str, address: tuple[int, ...]) -> Completion:
        """Ask a reflection model. ``address`` names the proposal: the same one gets the same answer on a resume.

        Raises:
            ModelError: no reply after retries.
            RunError: the run can't go on.
        """
        ...

    def book(self, name: str, usage: Usage, seconds: float, address: tuple[int | str, ...]) -> None:
        """Enter work into the ledger that was done past the models: an update of weights, with its tokens and the seconds of its computing."""
        ...

    def gather(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """Run tasks at once and return their results in order; the first exception is raised when all have ended."""
        ...

    def start(self, task: Callable[[], T]) -> Running[T]:
        """Start a task beside others. With a window of one it may wait to be asked for its result."""
        ...

    def commit(self, events: Sequence[Event], state: RunState) -> None:
        """Make events durable, all or none, and tell who listens. ``state`` is the state after them."""
        ...

    def notice(self, text: str) -> None:
        """Tell who listens something a person should know. It is no event, and decides nothing."""
        ...

    def surroundings(self) -> Surroundings:
        """What stop rules may know of the world now."""
        ...
