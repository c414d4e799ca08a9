"""The seal on the test set and the curve's examples: a store keeps no rollout on them before its time (design decision 11)."""

from __future__ import annotations

from collections.abc import Iterable

from gepa_lite.core.events import Event, RunStarted, SealOpened, Stopped, Tested
from gepa_lite.core.rollout import RolloutKey


class Seal:
    """Which rollouts may be kept, by the events so far. Not safe for threads by itself.

    A test example may be run by the seed and a winner once a ``SealOpened`` event, which is a look on record, names them; each winner is ``Tested`` once. Examples of the
    curve may be run once the search has ended.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._test: frozenset[str] = frozenset()
        self._curve: frozenset[str] = frozenset()
        self._allowed: set[str] = set()
        self._tested: set[int] = set()
        self._ended = False
        self.follow(events)

    def check(self, events: Iterable[Event]) -> None:
        """Refuse a second scoring for one winner.

        Raises:
            ValueError: the winner was scored before.
        """
        for event in events:
            if isinstance(event, Tested) and event.winner in self._tested:
                raise ValueError(f"the sealed test set was scored for candidate {event.winner} already: it is scored once.")

    def follow(self, events: Iterable[Event]) -> None:
        """Take note of committed events."""
        for event in events:
            match event:
                case RunStarted():
                    self._test, self._curve = frozenset(event.test_ids), frozenset(event.curve_ids)
                case SealOpened():
                    self._allowed.update(event.candidate_ids)
                case Tested():
                    self._tested.add(event.winner)
                case Stopped():
                    self._ended = True
                case _:
                    pass

    def admit(self, key: RolloutKey) -> None:
        """Refuse a rollout on a sealed example.

        Raises:
            ValueError: naming candidate and example.
        """
        if key.example_id in self._test and key.candidate_id not in self._allowed:
            raise ValueError(f"the test set is sealed: candidate {key.candidate_id} may not be run on its example {key.example_id}.")
        if key.example_id in self._curve and not self._ended:
            raise ValueError(f"the curve's examples are sealed until the search has ended: {key.example_id} may not be run yet.")
