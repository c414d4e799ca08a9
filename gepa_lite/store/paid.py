"""The paid side of the ledger: every call that was sent, with what it cost or, where a crash lost the answer, what it may have cost."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from gepa_lite.core.budget import ROLES, Role
from gepa_lite.core.call import Usage


def _nothing() -> dict[Role, Usage]:
    return {role: Usage() for role in ROLES}


@dataclass(frozen=True, slots=True)
class Paid:
    """What was paid, by role; every role has an entry.

    Attributes:
        settled: usage of the calls that ended, with or without a reply.
        lost: calls that an earlier session began and never settled, counted at their bound: they may have been charged.
        seconds: wall seconds of the settled calls.
    """

    settled: Mapping[Role, Usage] = field(default_factory=_nothing)
    lost: Mapping[Role, Usage] = field(default_factory=_nothing)
    seconds: Mapping[Role, float] = field(default_factory=lambda: dict.fromkeys(ROLES, 0.0))

    @property
    def total(self) -> Usage:
        """Settled and lost calls of all roles: the most that can have been charged, calls in flight apart."""
        total = Usage()
        for usage in (*self.settled.values(), *self.lost.values()):
            total = total + usage
        return total


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call that was begun and is not settled.

    Attributes:
        row: its number in the store; ids may come again in a later session, rows don't.
        session: the session that began it, 0 before the first.
        role: what it is for.
        bound: the most it can cost.
    """

    row: int
    session: int
    role: Role
    bound: Usage


class CallBook:
    """Keeps the sums of paid calls up to date, so that ``paid`` costs the same after ten calls and after a million. Thread-safe."""

    def __init__(self, earlier: Paid, next_row: int, session: int) -> None:
        """Start from what earlier processes left.

        Args:
            earlier: the sums up to now; calls still open then are lost.
            next_row: the number of the next call.
            session: the last session so far, 0 for none.
        """
        self._lock = threading.Lock()
        self._settled = dict(earlier.settled)
        self._lost = dict(earlier.lost)
        self._seconds = dict(earlier.seconds)
        self._next_row = next_row
        self._session = session
        self._open: dict[str, OpenCall] = {}

    def begin_session(self) -> int:
        """Count a new session; calls that are still open count as lost until they are settled after all."""
        with self._lock:
            self._session += 1
            return self._session

    def begin(self, call_id: str, role: Role, bound: Usage) -> OpenCall:
        """Open a call.

        Raises:
            ValueError: the id is open already.
        """
        with self._lock:
            if call_id in self._open:
                raise ValueError(f"call {call_id!r} is open already: settle it, or give this call an id of its own.")
            call = self._open[call_id] = OpenCall(self._next_row, self._session, role, bound)
            self._next_row += 1
            return call

    def find(self, call_id: str) -> OpenCall:
        """The open call of an id.

        Raises:
            ValueError: there is none.
        """
        with self._lock:
            call = self._open.get(call_id)
        if call is None:
            raise ValueError(f"call {call_id!r} is not open: begin_call comes first, and a call is settled once.")
        return call

    def settle(self, call_id: str, usage: Usage, seconds: float) -> OpenCall:
        """Close an open call with what it really cost.

        Raises:
            ValueError: the id is not open.
        """
        call = self.find(call_id)
        with self._lock:
            # Two threads that settle one call would count it twice.
            if self._open.pop(call_id, None) is None:
                raise ValueError(f"call {call_id!r} is settled already.")
            self._settled[call.role] = self._settled[call.role] + usage
            self._seconds[call.role] += seconds
            return call

    def paid(self) -> Paid:
        """The sums of now."""
        with self._lock:
            lost = dict(self._lost)
            for call in self._open.values():
                if call.session < self._session:
                    lost[call.role] = lost[call.role] + call.bound
            return Paid(dict(self._settled), lost, dict(self._seconds))
