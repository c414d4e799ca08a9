"""Load shipped prompts in production: standard library alone, no optimizer, no LM client.

``*.prompts.json`` is one JSON object; ``docs/bundle-format.md`` says what it holds. A registry is a folder of such files, of which one is current (``docs/after-shipping.md``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping

from gepa_lite.core.rules import Rules
from gepa_lite.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gepa_lite.core.contract import Contracts

SCHEMA = "gepa_lite.prompts"
SCHEMA_VERSION = 1
REGISTRY_SCHEMA = "gepa_lite.registry"
REGISTRY_VERSION = 1
REGISTRY_FILE = "registry.json"
"""The one file of a registry that changes: it names the current version and holds the history. Versions never change, so whoever has read it has all of one version."""


class Prompts(Mapping[str, str]):
    """The prompts of a bundle by module path, read-only, with the evidence they came with.

    Attributes:
        source: the file they were read from.
        data: the whole bundle as parsed JSON: scores, verdict, models, cost, lineage.
    """

    def __init__(self, data: Mapping[str, Any], source: str) -> None:
        self.data = data
        self.source = source
        self._texts = {path: module["prompt"] for path, module in data["modules"].items()}

    def __getitem__(self, module: str) -> str:
        try:
            return str(self._texts[module])
        except KeyError:
            raise KeyError(f"{self.source} has no prompt {module!r}; it has {', '.join(map(repr, self._texts))}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __repr__(self) -> str:
        return f"Prompts({self.source!r}: {', '.join(self._texts)})"

    @property
    def contracts(self) -> Contracts:
        """What the prompts kept to when they were made, and must keep to when they are changed."""
        from gepa_lite.core.contract import Contract, Contracts

        modules = {path: Contract.from_data(module["contract"]) for path, module in self.data["modules"].items() if module.get("contract")}
        program = self.data.get("contract")
        return Contracts(modules, Contract.from_data(program) if program else None)

    def breaches(self) -> list[str]:
        """What the prompts break of their contracts, in words, as far as the standard library can tell: languages and Jinja2 templates are not looked into."""
        held = {path: Rules(module["contract"]) for path, module in self.data["modules"].items() if module.get("contract")}
        found = [f"{path}: {breach.words}" for path, rules in held.items() for breach in rules.breaches(self[path], libraries=False)]
        program = self.data.get("contract")
        together = Rules(program).breaches_together(self, libraries=False) if program else []
        return [*found, *(breach.words for breach in together)]

    def check_modules(self, fingerprints: Mapping[str, str]) -> None:
        """Refuse a program whose modules are not the bundle's.

        Args:
            fingerprints: the signature's fingerprint of each module, by path.

        Raises:
            UsageError: a module is missing on either side, or its signature has changed; each difference is named.
        """
        modules: Mapping[str, Any] = self.data["modules"]
        problems = [f"the program has no module {path!r}" for path in modules if path not in fingerprints]
        problems += [f"the bundle has no prompt for the module {path!r}" for path in fingerprints if path not in modules]
        problems += [
            f"the signature of {path!r} has changed since the prompts were made (then: {module.get('signature')})"
            for path, module in modules.items()
            if path in fingerprints and module.get("fingerprint") != fingerprints[path]
        ]
        if problems:
            raise UsageError(
                f"{self.source} does not fit this program: {'; '.join(problems)}. Optimize again, or take the prompts by hand."
            )


def load_prompts(path: str | os.PathLike[str]) -> Prompts:
    """Read a bundle.

    Args:
        path: a ``*.prompts.json`` file that ``result.save`` wrote, or the folder of a ``gl.Registry``: then the version that is current.

    Returns:
        The prompts by module path.

    Raises:
        UsageError: the file is missing, is not a bundle, is of a newer version than this package reads, or holds a prompt that breaks its contract.

    Example:
        >>> prompts = load_prompts("triage.prompts.json")  # doctest: +SKIP
        >>> prompts["route"]  # doctest: +SKIP
        'Decide how urgent it is. ...'
    """
    name = os.fspath(path)
    if os.path.isdir(name):
        name = _current_file(name)
    data = _read_json(name, "a file that result.save() wrote")
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not isinstance(data.get("modules"), dict):
        raise UsageError(f"{name} is JSON, but not a bundle of prompts: its 'schema' should be {SCHEMA!r} with 'modules' beside it.")
    if data.get("version") != SCHEMA_VERSION:
        raise UsageError(f"{name} has schema version {data.get('version')!r}; this package reads {SCHEMA_VERSION}. Upgrade gepa-lite.")
    for module, entry in data["modules"].items():
        if not isinstance(entry, dict) or not isinstance(entry.get("prompt"), str):
            raise UsageError(f"{name}: the module {module!r} has no 'prompt' text.")
    prompts = Prompts(data, name)
    if broken := prompts.breaches():
        raise UsageError(
            f"{name} was changed by hand so that its prompts break their contract: {'; '.join(broken)}. Restore them, or change the 'contract' in the file too."
        )
    return prompts


class LivePrompts:
    """The current prompts of a registry's folder, or of one bundle file, in a process that goes on while they change. Safe under threads; standard library alone.

    Each call of ``now`` looks whether the folder has another current version, which takes microseconds, and reads it if so. What it returns is of one version and never changes: take it once a request.

    Args:
        path: as ``load_prompts`` takes it.

    Attributes:
        problem: why the last change could not be taken, in words; None where all is well. The prompts then stay as they were: a bad file does not take a running service down.

    Raises:
        UsageError: there is nothing to start with.

    Example:
        >>> live = LivePrompts("prompts/")  # doctest: +SKIP
        >>> live.now()["route"]  # doctest: +SKIP
        'Decide how urgent it is. ...'
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self.problem: str | None = None
        # the mark is taken before the content, so that a change in between is seen by the next look
        mark = self._mark()
        self._held = mark, load_prompts(self._path)

    def now(self) -> Prompts:
        """The prompts of the version that is current at this moment."""
        mark, prompts = self._held
        found = self._mark()
        if found == mark:
            return prompts
        try:
            prompts = load_prompts(self._path)
        except UsageError as error:
            self.problem = str(error)
        else:
            self.problem = None
        # one assignment: another thread sees the pair before or after it
        self._held = found, prompts
        return prompts

    def _mark(self) -> tuple[int, int, int]:
        """What differs once a file was replaced."""
        try:
            status = os.stat(os.path.join(self._path, REGISTRY_FILE) if os.path.isdir(self._path) else self._path)
        except OSError:
            return (0, 0, 0)
        return status.st_ino, status.st_mtime_ns, status.st_size


def read_registry(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The registry's one changing file: ``current`` (a version's number or None) and ``history``.

    Raises:
        UsageError: it is missing, damaged or of a newer version.
    """
    name = os.path.join(folder, REGISTRY_FILE)
    data = _read_json(name, "a bundle's file, or a registry's folder: gepa-lite registry add FOLDER BUNDLE makes one")
    if not isinstance(data, dict) or data.get("schema") != REGISTRY_SCHEMA or not isinstance(data.get("history"), list):
        raise UsageError(
            f"{name} is JSON, but not a registry of prompts: its 'schema' should be {REGISTRY_SCHEMA!r} with 'history' beside it."
        )
    if data.get("version") != REGISTRY_VERSION:
        raise UsageError(f"{name} has schema version {data.get('version')!r}; this package reads {REGISTRY_VERSION}. Upgrade gepa-lite.")
    return data


def version_file(folder: str | os.PathLike[str], number: int) -> str:
    """Where a version's bundle is."""
    return os.path.join(folder, f"v{number:04d}.prompts.json")


def _current_file(folder: str) -> str:
    if not os.path.exists(os.path.join(folder, REGISTRY_FILE)):
        raise UsageError(f"{folder} is a folder without {REGISTRY_FILE}, so it is no registry: {_found_in(folder)}")
    current = read_registry(folder)["current"]
    if current is None:
        raise UsageError(f"the registry in {folder} has no current version: promote one, by gepa-lite registry promote {folder} VERSION.")
    return version_file(folder, current)


def _found_in(folder: str) -> str:
    """What a folder is in place of a registry, and what to give."""
    names = sorted(os.listdir(folder))
    bundles = [name for name in names if name.endswith(".prompts.json")]
    if "run.db" in names:
        return "it is a run. Save the prompts of its result, by result.save(path) or gepa-lite run --out, and give that file."
    if bundles == ["bundle.prompts.json"]:
        return "it is an exported folder of prompt files. Give the bundle in it, or what `gepa-lite import` makes of the files."
    if bundles:
        return f"it holds {', '.join(bundles[:5])}. Give one of them, or make a registry: gepa-lite registry add FOLDER BUNDLE."
    return "give the path of a file that result.save() wrote, or make a registry: gepa-lite registry add FOLDER BUNDLE."


def _read_json(name: str, wanted: str) -> Any:
    try:
        with open(name, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        raise UsageError(f"{name} can't be read: {error.strerror}. Give the path of {wanted}.") from None
    except ValueError as error:
        raise UsageError(f"{name} is not JSON ({error}). Give the path of {wanted}.") from None
