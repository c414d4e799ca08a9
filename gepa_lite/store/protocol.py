"""What a store of a run offers; ``RunStore`` keeps it in a file, ``MemoryStore`` in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from gepa_lite.core.budget import Role
from gepa_lite.core.call import Message, Usage
from gepa_lite.core.events import Event
from gepa_lite.core.example import Example
from gepa_lite.core.rollout import Rollout, RolloutKey
from gepa_lite.lm.protocol import Completion
from gepa_lite.store.paid import Paid


class Store(Protocol):
    """The journal, the rollouts, the completions and the paid calls of one run. Every method may be called from any thread.

    A method that saves returns once what it saved is durable, but for ``begin_call`` and ``end_call``, which only queue, and
    ``hand_in_rollout``, which gives back what waits. Rollouts and completions are written once: a second one under the same key
    changes nothing, since the first may have been used already. A method that can't do its work raises ``StoreError``; nothing of what it
    was to save is then there, and the store works again as soon as the cause has passed.
    """

    def commit(self, events: Sequence[Event]) -> None:
        """Append events to the journal, all or none of them.

        Raises:
            ValueError: an event holds what can't be kept exactly, such as a NaN, or scores the sealed test set for one winner again; none is written.
        """
        ...

    def events(self) -> list[Event]:
        """The journal from its start."""
        ...

    def events_since(self, seq: int) -> list[tuple[int, Event]]:
        """The events after the one with number ``seq``, each with its own; 0 is before the first."""
        ...

    def completion(self, key: str) -> Completion | None:
        """The reply that was kept under a key, or None."""
        ...

    def save_completion(self, key: str, completion: Completion, role: Role, seconds: float, call_id: str | None = None) -> None:
        """Keep a reply, and settle the call that brought it in the same transaction.

        Args:
            key: content hash of what was asked.
            completion: the reply.
            role: what it was for.
            seconds: how long it took; an observation.
            call_id: the call of ``begin_call`` to settle with the reply's usage; None where none was begun.

        Raises:
            ValueError: ``call_id`` was not begun or is settled already.
        """
        ...

    def note_reflection(self, address: Sequence[int], model: str, key: str, messages: Sequence[Message]) -> None:
        """Note what a reflection model is asked, so that the course of a run can be read, and learnt from. Does not wait: it is durable before any event that is committed after it.

        Args:
            address: of the proposal: step, place in the fan, module, and 1 where a breach is named.
            model: who is asked.
            key: under which the reply is kept.
            messages: what is sent; the first of an address stay.
        """
        ...

    def rollout(self, key: RolloutKey) -> Rollout | None:
        """The rollout that was kept under a key, or None."""
        ...

    def rollouts_at(self, keys: Sequence[RolloutKey]) -> dict[RolloutKey, Rollout]:
        """Those of some rollouts that were kept: many look-ups at the cost of a few."""
        ...

    def hand_in_rollout(self, rollout: Rollout) -> Callable[[], None]:
        """Keep a rollout with the next group of writes, so that its thread can go on meanwhile.

        Returns:
            Waits until the rollout is durable, and raises ``StoreError`` where it is not kept. May be called again, from any thread.

        Raises:
            ValueError: it is missing (the world's fault): such a one must be run again, never kept.
        """
        ...

    def save_rollout(self, rollout: Rollout) -> None:
        """Keep a rollout.

        Raises:
            ValueError: it is missing (the world's fault): such a one must be run again, never kept. Or its example is sealed (``seal.Seal``).
        """
        ...

    def rollouts(self) -> Iterator[Rollout]:
        """All rollouts, in the order they were saved."""
        ...

    def rollouts_of(self, candidate_id: str) -> Iterator[Rollout]:
        """The rollouts of one candidate, in the order they were saved."""
        ...

    def begin_call(self, call_id: str, role: Role, model: str, bound: Usage) -> None:
        """Note that a call is about to be sent and what it may cost at most, so that a crash's losses are known. Does not wait.

        Raises:
            ValueError: a call of this id is open already.
        """
        ...

    def end_call(self, call_id: str, usage: Usage, seconds: float, attempts: int, outcome: str) -> None:
        """Settle a call that brought no reply to keep, e.g. with outcome ``"rate_limit"``. Does not wait: lost, it counts at its bound.

        Raises:
            ValueError: the call was not begun or is settled already.
        """
        ...

    def paid(self) -> Paid:
        """What was really paid so far: settled calls, and apart those that a crash lost."""
        ...

    def save_examples(self, split: str, examples: Sequence[Example]) -> None:
        """Keep the examples of a split, in place of any it had."""
        ...

    def examples(self, split: str) -> list[Example]:
        """The examples of a split, in order; none for an unknown split."""
        ...

    def put_meta(self, key: str, value: Any) -> None:
        """Keep a value, as JSON types, under a name, in place of any it had."""
        ...

    def meta(self, key: str) -> Any:
        """The value under a name, or None."""
        ...

    def begin_session(self, info: Mapping[str, Any]) -> int:
        """Note that a process works on the run from now on; its clock starts.

        Returns:
            The session's number, from 1.
        """
        ...

    def end_session(self, seconds: float, reason: str) -> None:
        """Close the current session.

        Raises:
            ValueError: no session is open.
        """
        ...

    def seconds(self) -> float:
        """Wall seconds of the sessions before the current one; a crashed session counts up to its last commit."""
        ...

    def close(self) -> None:
        """Make everything durable and let go of the run. A second call does nothing; any other use afterwards raises ``StoreError``."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None: ...
