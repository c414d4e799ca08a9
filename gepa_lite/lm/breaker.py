"""The circuit breaker: models that are down stop the run, with one error, before its budget is burnt."""

from __future__ import annotations

import threading

from gepa_lite.core.budget import Role
from gepa_lite.errors import ModelError, ModelsDownError

_AT_FIRST = 5
"""Failed calls in a row (each after its own retries) of one role that mean: down, where none ever succeeded."""

_LATER = 12
"""The same where some succeeded. An outage that fails every other call has such a row about once in 8,000 calls; five in a row it has within a hundred, and a run that can go on must not be stopped
by it: what is missing is then left out, or makes the verdict indecisive."""


class Breaker:
    """Counts failures in a row that are the world's fault, by role.

    A fault that waiting can't cure (wrong key, unknown model, refused request) opens it at once where no call of the role has ever succeeded. A call that failed before and fails again says nothing new:
    rollouts that are tried once more, after all others, are not a row of their own.
    """

    def __init__(self) -> None:
        self._row: dict[Role, int] = {}
        self._succeeded: set[Role] = set()
        self._failed: set[str] = set()
        self._open: dict[Role, ModelsDownError] = {}
        self._lock = threading.Lock()

    def check(self, role: Role) -> None:
        """Raise the role's ``ModelsDownError`` if the breaker is open."""
        with self._lock:
            error = self._open.get(role)
        if error is not None:
            raise error

    def success(self, role: Role) -> None:
        """A call came back."""
        with self._lock:
            self._row[role] = 0
            self._succeeded.add(role)

    def failure(self, role: Role, model: str, error: ModelError, key: str) -> None:
        """A call failed; raises once the role's models count as down.

        Args:
            role: what it was for.
            model: who was asked.
            error: how it failed.
            key: tells the call from others.
        """
        if error.fault != "world":
            return
        with self._lock:
            if key in self._failed:
                return
            self._failed.add(key)
            self._row[role] = self._row.get(role, 0) + 1
            hopeless = not error.retryable and role not in self._succeeded
            if hopeless or self._row[role] >= (_LATER if role in self._succeeded else _AT_FIRST):
                times = "the first call" if self._row[role] == 1 else f"{self._row[role]} calls in a row"
                down = ModelsDownError(f"the {role} model {model} is down: {times} failed ({error.kind}): {error}")
                self._open[role] = down
                raise down from error
