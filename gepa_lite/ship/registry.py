"""A folder of bundle versions, of which one is current, with who changed it and why.

A version is a file that never changes. ``registry.json`` names the current one and holds the history; it is replaced in one move, under a lock, and this is the only moment at which anything
changes. So a reader sees the old version or the new one, whatever happens, and needs no lock; ``gl.load_prompts(folder)`` and ``gl.LivePrompts(folder)`` are such readers.
"""

from __future__ import annotations

import datetime
import getpass
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from gepa_lite.bundle import REGISTRY_FILE, REGISTRY_SCHEMA, REGISTRY_VERSION, Prompts, load_prompts, read_registry, version_file
from gepa_lite.errors import UsageError
from gepa_lite.ship.atomic import write_atomically
from gepa_lite.ship.bundle import bundle_text

T = TypeVar("T")

LOCK_SECONDS = 30.0
"""How long a writer waits for another one. A write takes milliseconds."""


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of a registry's history.

    Attributes:
        action: ``"add"``, ``"promote"`` or ``"rollback"``.
        version: the version that was added, or that is current from here on.
        before: the version that was current before; None for none.
        by: who did it.
        why: in their words.
        at: UTC, ISO 8601.
    """

    action: str
    version: int
    before: int | None
    by: str
    why: str
    at: str

    def __str__(self) -> str:
        move = f"v{self.version}" if self.action == "add" else f"{'-' if self.before is None else f'v{self.before}'} to v{self.version}"
        return f"{self.at}  {self.action:<8}  {move:<12}  {self.by}: {self.why}"


class Registry:
    """A registry of prompts in a folder. Safe under any number of readers and concurrent writers, on a local file system.

    Args:
        folder: made by the first ``add``.

    Example:
        >>> import gepa_lite as gl
        >>> registry = gl.Registry("prompts/")  # doctest: +SKIP
        >>> version = registry.add("triage.prompts.json", why="urgency by the new house rules")  # doctest: +SKIP
        >>> registry.promote(version, why="0.71 to 0.84 on the test set")  # doctest: +SKIP
        >>> gl.load_prompts("prompts/")["route"]  # doctest: +SKIP
        'Decide how urgent it is. ...'
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(os.fspath(folder))

    @property
    def current(self) -> int | None:
        """The number of the current version, or None."""
        number: int | None = read_registry(self.folder)["current"]
        return number

    @property
    def history(self) -> list[Change]:
        """What was done, the first first."""
        return [Change(**entry) for entry in read_registry(self.folder)["history"]]

    @property
    def versions(self) -> list[int]:
        """The numbers of all versions, in rising order."""
        return [change.version for change in self.history if change.action == "add"]

    def load(self, version: int | None = None) -> Prompts:
        """The prompts of a version; None for the current one.

        Raises:
            UsageError: there is no such version.
        """
        if version is None:
            return load_prompts(self.folder)
        self._require(version, self.versions)
        return load_prompts(version_file(self.folder, version))

    def add(self, bundle: Prompts | str | os.PathLike[str], *, why: str, by: str | None = None, promote: bool = False) -> int:
        """Keep a bundle as a new version.

        Args:
            bundle: a path, or what ``gl.load_prompts`` read; checked as it does.
            why: for the history.
            by: who; None for the user of this process.
            promote: make it the current one, in the same move.

        Returns:
            Its number, from 1.

        Raises:
            UsageError: it is no bundle, is of another program than the versions here, or the folder can't be written.
        """
        prompts = bundle if isinstance(bundle, Prompts) else load_prompts(bundle)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{self.folder} can't be made: {error.strerror}.") from None

        def change(data: dict[str, Any]) -> int:
            numbers = [entry["version"] for entry in data["history"] if entry["action"] == "add"]
            if numbers:
                self._check_same_program(prompts, load_prompts(version_file(self.folder, numbers[-1])))
            number = max(numbers, default=0) + 1
            # a writer that died here leaves a file that no entry names; the next one replaces it
            write_atomically(Path(version_file(self.folder, number)), bundle_text(prompts.data))
            self._enter(data, "add", number, by, why)
            if promote:
                self._enter(data, "promote", number, by, why)
            return number

        return self._change(change)

    def promote(self, version: int, *, why: str, by: str | None = None) -> Prompts:
        """Make a version the current one.

        Args:
            version: its number.
            why: for the history.
            by: who; None for the user of this process.

        Returns:
            Its prompts.

        Raises:
            UsageError: there is no such version, or its file was changed into one that ``gl.load_prompts`` refuses.
        """

        def change(data: dict[str, Any]) -> Prompts:
            self._require(version, [entry["version"] for entry in data["history"] if entry["action"] == "add"])
            prompts = load_prompts(version_file(self.folder, version))
            self._enter(data, "promote", version, by, why)
            return prompts

        return self._change(change)

    def rollback(self, *, why: str, by: str | None = None) -> Prompts:
        """Go back to the version that was promoted before the current one; once more goes back further.

        Args:
            why: for the history.
            by: who; None for the user of this process.

        Returns:
            The prompts that are current now.

        Raises:
            UsageError: there is none to go back to.
        """

        def change(data: dict[str, Any]) -> Prompts:
            line = _line(data["history"])
            if len(line) < 2:
                raise UsageError(f"the registry in {self.folder} has no earlier version to go back to; promote one by its number.")
            prompts = load_prompts(version_file(self.folder, line[-2]))
            self._enter(data, "rollback", line[-2], by, why)
            return prompts

        return self._change(change)

    def _change(self, change: Callable[[dict[str, Any]], T]) -> T:
        """Read, change and replace the registry's file, as its one writer."""
        import filelock

        if not self.folder.is_dir():
            raise UsageError(f"there is no registry in {self.folder}: add a bundle first.")
        try:
            with filelock.FileLock(self.folder / ".registry.lock", timeout=LOCK_SECONDS):
                new = not (self.folder / REGISTRY_FILE).exists()
                data = (
                    {"schema": REGISTRY_SCHEMA, "version": REGISTRY_VERSION, "current": None, "history": []}
                    if new
                    else read_registry(self.folder)
                )
                outcome = change(data)
                write_atomically(self.folder / REGISTRY_FILE, json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
                return outcome
        except filelock.Timeout:
            raise UsageError(
                f"another process has been writing to the registry in {self.folder} for {LOCK_SECONDS:g} s: end it, or try again."
            ) from None
        except OSError as error:
            raise UsageError(f"the registry in {self.folder} can't be written: {error.strerror}.") from None

    def _enter(self, data: dict[str, Any], action: str, version: int, by: str | None, why: str) -> None:
        if not why.strip():
            raise UsageError("why is empty: say in a few words why, for whoever reads the history.")
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        data["history"].append(asdict(Change(action, version, data["current"], by or _user(), why, now)))
        if action != "add":
            data["current"] = version

    def _require(self, version: int, known: list[int]) -> None:
        if version not in known:
            raise UsageError(f"the registry in {self.folder} has no version {version}; it has {', '.join(map(str, known)) or 'none'}.")

    def _check_same_program(self, prompts: Prompts, before: Prompts) -> None:
        if prompts.data["program"] != before.data["program"]:
            raise UsageError(
                f"{prompts.source} is of the program {prompts.data['program']!r}, and the registry in {self.folder} of {before.data['program']!r}: one folder for each program."
            )


def _line(history: Sequence[Mapping[str, Any]]) -> list[int]:
    """The promoted versions that lead to the current one, which is the last; what was rolled back is not among them."""
    line: list[int] = []
    for entry in history:
        if entry["action"] == "promote" and line[-1:] != [entry["version"]]:
            line.append(entry["version"])
        elif entry["action"] == "rollback":
            line.pop()
    return line


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        return "unknown"
