"""The circuit breaker: models that are down stop the run, with one error, before its budget is burnt."""

from __future__ import annotations

import threading

from gepa_lite.core.budget import Role
from gepa_lite.errors import ModelError, ModelsDownError

_IN_A_ROW = 5
"""Failed calls in a row (each after its own retries) of one role that mean: down."""


class Breaker:
    """Counts failures in a row that are the world's fault, by role.

    A fault that waiting can't cure (wrong key, unknown model, refused request) opens it at once where no call of the role has ever succeeded.
    """

    def __init__(self) -> None:
        self._row: dict[Role, int] = {}
        self._succeeded: set[Role] = set()
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

    def failure(self, role: Role, model: str, error: ModelError) -> None:
        """A call failed; raises once the role's models count as down."""
        if error.fault != "world":
            return
        with self._lock:
            self._row[role] = self._row.get(role, 0) + 1
            hopeless = not error.retryable and role not in self._succeeded
            if hopeless or self._row[role] >= _IN_A_ROW:
                times = "the first call" if self._row[role] == 1 else f"{self._row[role]} calls in a row"
                down = ModelsDownError(f"the {role} model {model} is down: {times} failed ({error.kind}): {error}")
                self._open[role] = down
                raise down from error
