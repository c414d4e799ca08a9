"""A run's file in which nothing is kept of what was said: what the search still needs of it is held in memory while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Self

from gepa_lite.core.budget import Role
from gepa_lite.core.call import Message
from gepa_lite.core.events import Event
from gepa_lite.core.example import Example
from gepa_lite.core.rollout import Rollout, RolloutKey
from gepa_lite.errors import UsageError
from gepa_lite.lm.protocol import Completion
from gepa_lite.store.bare import bare_event, bare_rollout, is_bare
from gepa_lite.store.run_store import RunStore

PURGED_KEY = "purged"
"""The meta entry of a run whose messages and inputs were dropped afterwards: when that was."""


def was_purged(folder: Path) -> bool:
    """Whether what was said in a run was dropped."""
    with RunStore.read(folder) as store:
        return store.meta(PURGED_KEY) is not None


class PrivateStore(RunStore):
    """A ``RunStore`` that writes no messages, inputs, outputs, replies, examples and words of the feedback.

    Of training examples the search reads what was said, to learn from it. A rollout on one that lies here without its words, from an earlier session or before a purge, is not found, so it is run again; all others are.
    """

    def read_by(self, learnt_from: Collection[str], withhold: bool) -> Self:
        """Say who reads what.

        Args:
            learnt_from: ids of examples whose words the search reads.
            withhold: True for a run that stores no messages; False for one that was purged and stores them from now on.

        Raises:
            UsageError: the run has no events yet and holds rollouts with their words, taken before it.
        """
        self._learnt_from, self._withhold = frozenset(learnt_from), withhold
        self._said: dict[RolloutKey, Rollout] = {}
        self._replies: dict[str, Completion] = {}
        if withhold and any(not is_bare(rollout) for rollout in self.rollouts()):
            raise UsageError(
                f"{self.folder} holds rollouts with messages and inputs, taken before by gl.estimate or gl.check. "
                f"Drop these first, `gepa-lite purge {self.folder}`, or give the run another name."
            )
        return self

    def commit(self, events: Sequence[Event]) -> None:
        """See ``Store.commit``."""
        super().commit([bare_event(event) for event in events] if self._withhold else events)

    def completion(self, key: str) -> Completion | None:
        """See ``Store.completion``."""
        return self._replies.get(key) or super().completion(key)

    def save_completion(self, key: str, completion: Completion, role: Role, seconds: float, call_id: str | None = None) -> None:
        """See ``Store.save_completion``; the reply itself is held in memory."""
        if not self._withhold:
            super().save_completion(key, completion, role, seconds, call_id)
            return
        if call_id is not None:
            self.end_call(call_id, completion.usage, seconds, completion.attempts, "ok")
        self._replies.setdefault(key, completion)

    def rollout(self, key: RolloutKey) -> Rollout | None:
        """See ``Store.rollout``."""
        return self.rollouts_at([key]).get(key)

    def rollouts_at(self, keys: Sequence[RolloutKey]) -> dict[RolloutKey, Rollout]:
        """See ``Store.rollouts_at``."""
        held = {key: self._said[key] for key in keys if key in self._said}
        kept = super().rollouts_at([key for key in keys if key not in held])
        return {**held, **{key: found for key, found in kept.items() if not (key.example_id in self._learnt_from and is_bare(found))}}

    def hand_in_rollout(self, rollout: Rollout) -> Callable[[], None]:
        """See ``Store.hand_in_rollout``."""
        done = super().hand_in_rollout(bare_rollout(rollout) if self._withhold else rollout)
        if rollout.key.example_id in self._learnt_from:
            self._said.setdefault(rollout.key, rollout)
        return done

    def note_reflection(self, address: Sequence[int], model: str, key: str, messages: Sequence[Message]) -> None:
        """See ``Store.note_reflection``."""
        if not self._withhold:
            super().note_reflection(address, model, key, messages)

    def save_examples(self, split: str, examples: Sequence[Example]) -> None:
        """See ``Store.save_examples``; their ids are in the run's first event."""
        if not self._withhold:
            super().save_examples(split, examples)
