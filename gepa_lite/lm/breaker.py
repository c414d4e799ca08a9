"""The circuit breaker: models that are down stop the run, with one error, before its budget is burnt."""

from __future__ import annotations

import threading
from collections.abc import Collection

from gepa_lite.core.budget import Role
from gepa_lite.errors import ModelError, ModelsDownError

_AT_FIRST = 5
"""Failed calls in a row (each after its own retries) of one role that mean: down, where none ever succeeded."""

_LATER = 12
"""The same where some succeeded. An outage that fails every other call has such a row about once in 8,000 calls; five in a row it has within a hundred, and a run that can go on must not be stopped
by it: what is missing is then left out, or makes the verdict indecisive."""


class Breaker:
    """Counts failures in a row that are the world's fault, by role, or where told so by reflection model.

    A fault that waiting can't cure (wrong key, unknown model, refused request) opens it at once where no call has ever succeeded. A call that failed before and fails again says nothing new:
    rollouts that are tried once more, after all others, are not a row of their own.

    Args:
        reflectors: names of reflection models that are counted each for itself: one that is down is asked no more, whatever the others do, and only once all of them are the run ends.
    """

    def __init__(self, reflectors: Collection[str] = ()) -> None:
        self._reflectors = frozenset(reflectors)
        self._row: dict[str, int] = {}
        self._succeeded: set[str] = set()
        self._failed: set[str] = set()
        self._open: dict[str, str] = {}
        self._lock = threading.Lock()

    def check(self, role: Role, model: str) -> None:
        """Refuse a call of what is down.

        Raises:
            ModelsDownError: there is no other model for it.
            ModelError: there is: this one is left out.
        """
        with self._lock:
            down, last = self._open.get(self._who(role, model)), self._last(role)
        if down is not None:
            raise ModelsDownError(down) if last else ModelError(f"{down}. It is asked no more in this session")

    def success(self, role: Role, model: str) -> None:
        """A call came back."""
        who = self._who(role, model)
        with self._lock:
            self._row[who] = 0
            self._succeeded.add(who)

    def failure(self, role: Role, model: str, error: ModelError, key: str) -> None:
        """A call failed.

        Args:
            role: what it was for.
            model: who was asked.
            error: how it failed.
            key: tells the call from others.

        Raises:
            ModelsDownError: what could answer counts as down.
        """
        if error.fault != "world":
            return
        who = self._who(role, model)
        with self._lock:
            if key in self._failed:
                return
            self._failed.add(key)
            row = self._row[who] = self._row.get(who, 0) + 1
            hopeless = not error.retryable and who not in self._succeeded
            if not hopeless and row < (_LATER if who in self._succeeded else _AT_FIRST):
                return
            times = "the first call" if row == 1 else f"{row} calls in a row"
            self._open[who] = f"the {role} model {model} is down: {times} failed ({error.kind}): {error}"
            if self._last(role):
                raise ModelsDownError(self._open[who]) from error

    def _several(self, role: Role) -> bool:
        return role == "reflection" and len(self._reflectors) > 1

    def _who(self, role: Role, model: str) -> str:
        """What is counted together."""
        return f"{role} {model}" if self._several(role) else role

    def _last(self, role: Role) -> bool:
        """Whether nothing is left that could answer."""
        return not self._several(role) or all(self._who(role, model) in self._open for model in self._reflectors)
