"""A store without a file: for simulations, which run a search many times over and keep only its result."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from gepa_lite.core.budget import Role
from gepa_lite.core.call import Message, Usage
from gepa_lite.core.events import Event
from gepa_lite.core.example import Example
from gepa_lite.core.ids import jsonable
from gepa_lite.core.rollout import Rollout, RolloutKey
from gepa_lite.errors import StoreError
from gepa_lite.lm.protocol import Completion
from gepa_lite.store.paid import CallBook, Paid
from gepa_lite.store.seal import Seal


class MemoryStore:
    """A run in memory; see ``protocol.Store`` for what each method promises, durability apart.

    Records are kept as the objects they are, since they are frozen: what a file would refuse (a NaN) or turn into JSON types is not
    seen here.

    Example:
        >>> from gepa_lite.core.events import StepEnded
        >>> store = MemoryStore()
        >>> store.commit([StepEnded(0), StepEnded(1)])
        >>> store.events_since(1)
        [(2, StepEnded(step=1))]
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._events: list[Event] = []
        self._seal = Seal()
        self._completions: dict[str, Completion] = {}
        self._rollouts: dict[RolloutKey, Rollout] = {}
        self._examples: dict[str, list[Example]] = {}
        self._meta: dict[str, Any] = {}
        self._book = CallBook(Paid(), 1, 0)
        self._ended_seconds = 0.0
        self._began: float | None = None

    def commit(self, events: Sequence[Event]) -> None:
        """See ``Store.commit``."""
        with self._open():
            self._seal.check(events)
            self._events.extend(events)
            self._seal.follow(events)

    def events(self) -> list[Event]:
        """See ``Store.events``."""
        with self._open():
            return list(self._events)

    def events_since(self, seq: int) -> list[tuple[int, Event]]:
        """See ``Store.events_since``."""
        with self._open():
            return list(enumerate(self._events[seq:], seq + 1))

    def completion(self, key: str) -> Completion | None:
        """See ``Store.completion``."""
        with self._open():
            return self._completions.get(key)

    def save_completion(self, key: str, completion: Completion, role: Role, seconds: float, call_id: str | None = None) -> None:
        """See ``Store.save_completion``."""
        with self._open():
            if call_id is not None:
                self._book.settle(call_id, completion.usage, seconds)
            self._completions.setdefault(key, completion)

    def note_reflection(self, address: Sequence[int], model: str, key: str, messages: Sequence[Message]) -> None:
        """See ``Store.note_reflection``; it is for the file's readers alone."""
        with self._open():
            return

    def rollout(self, key: RolloutKey) -> Rollout | None:
        """See ``Store.rollout``."""
        with self._open():
            return self._rollouts.get(key)

    def rollouts_at(self, keys: Sequence[RolloutKey]) -> dict[RolloutKey, Rollout]:
        """See ``Store.rollouts_at``."""
        with self._open():
            return {key: self._rollouts[key] for key in keys if key in self._rollouts}

    def hand_in_rollout(self, rollout: Rollout) -> Callable[[], None]:
        """See ``Store.hand_in_rollout``; there is nothing to wait for."""
        self.save_rollout(rollout)
        return lambda: None

    def save_rollout(self, rollout: Rollout) -> None:
        """See ``Store.save_rollout``."""
        key = rollout.key
        if rollout.missing:
            raise ValueError(f"the rollout of {key.candidate_id} on {key.example_id} is missing: only scored rollouts are kept.")
        with self._open():
            self._seal.admit(key)
            self._rollouts.setdefault(key, rollout)

    def rollouts(self) -> Iterator[Rollout]:
        """See ``Store.rollouts``."""
        with self._open():
            return iter(list(self._rollouts.values()))

    def rollouts_of(self, candidate_id: str) -> Iterator[Rollout]:
        """See ``Store.rollouts_of``."""
        return (rollout for rollout in self.rollouts() if rollout.key.candidate_id == candidate_id)

    def begin_call(self, call_id: str, role: Role, model: str, bound: Usage) -> None:
        """See ``Store.begin_call``; the model is for the file's readers alone."""
        with self._open():
            self._book.begin(call_id, role, bound)

    def end_call(self, call_id: str, usage: Usage, seconds: float, attempts: int, outcome: str) -> None:
        """See ``Store.end_call``; attempts and outcome are for the file's readers alone."""
        with self._open():
            self._book.settle(call_id, usage, seconds)

    def paid(self) -> Paid:
        """See ``Store.paid``."""
        with self._open():
            return self._book.paid()

    def save_examples(self, split: str, examples: Sequence[Example]) -> None:
        """See ``Store.save_examples``."""
        with self._open():
            self._examples[split] = list(examples)

    def examples(self, split: str) -> list[Example]:
        """See ``Store.examples``."""
        with self._open():
            return list(self._examples.get(split, ()))

    def put_meta(self, key: str, value: Any) -> None:
        """See ``Store.put_meta``."""
        with self._open():
            self._meta[key] = jsonable(value)

    def meta(self, key: str) -> Any:
        """See ``Store.meta``."""
        with self._open():
            # a copy, as a file would give
            return jsonable(self._meta.get(key))

    def begin_session(self, info: Mapping[str, Any]) -> int:
        """See ``Store.begin_session``; the info is for the file's readers alone."""
        with self._open():
            if self._began is not None:
                self._ended_seconds += time.monotonic() - self._began
            self._began = time.monotonic()
            return self._book.begin_session()

    def end_session(self, seconds: float, reason: str) -> None:
        """See ``Store.end_session``; the reason is for the file's readers alone."""
        with self._open():
            if self._began is None:
                raise ValueError("no session is open: begin_session comes first.")
            self._began = None
            self._ended_seconds += seconds

    def seconds(self) -> float:
        """See ``Store.seconds``."""
        with self._open():
            return self._ended_seconds

    def close(self) -> None:
        """See ``Store.close``."""
        with self._lock:
            self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def _open(self) -> threading.Lock:
        """The lock for one operation on an open store."""
        if self._closed:
            raise StoreError("This store is closed: nothing can be read or written any more.")
        return self._lock
