"""What is exported, and what can be read back from what was written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gepa_lite.bundle import Prompts
from gepa_lite.core.call import Message
from gepa_lite.errors import UsageError
from gepa_lite.exports.user_message import user_message

INPUTS = "inputs"
"""The variable that stands for the user message: ``user_message`` makes its text from a module's inputs."""


@dataclass(frozen=True, slots=True)
class Source:
    """What is exported.

    Attributes:
        prompts: the bundle.
        program: the user's own program, as it came; None where it is not at hand.
        run: the run's folder; None where it is not at hand.
    """

    prompts: Prompts
    program: Any = None
    run: Path | None = None

    @property
    def modules(self) -> Mapping[str, Mapping[str, Any]]:
        """The bundle's modules by path."""
        modules: Mapping[str, Mapping[str, Any]] = self.prompts.data["modules"]
        return modules

    @property
    def code(self) -> dict[str, str]:
        """The texts that are code (``gl.Code``), by module path."""
        return {path: self.prompts[path] for path, module in self.modules.items() if is_code(module)}

    @property
    def asked(self) -> dict[str, Mapping[str, Any]]:
        """The modules whose text is a prompt."""
        return {path: module for path, module in self.modules.items() if not is_code(module)}


@dataclass(frozen=True, slots=True)
class Reading:
    """What an exported file says, read by the tool it was written for.

    Attributes:
        prompts: the texts by module path.
        messages: what is sent for a module and its inputs; None where the form holds no messages, or only the user's own code knows them.
    """

    prompts: Mapping[str, str]
    messages: Callable[[str, Mapping[str, Any]], list[Message]] | None = None


def is_code(module: Mapping[str, Any]) -> bool:
    """Whether the text of a bundle's module is code."""
    return (module.get("contract") or {}).get("form") == "python"


def system_of(module: Mapping[str, Any]) -> str:
    """The system message of a bundle's module: its prompt, and what follows it where that is known."""
    frame = module.get("frame")
    return str(module["prompt"]) if frame is None else f"{module['prompt']}{frame['after']}"


def prompt_in(system: str, module: Mapping[str, Any], where: str) -> str:
    """The prompt that a system message begins with.

    Raises:
        UsageError: the system message does not end as the program's own does.
    """
    after = "" if module.get("frame") is None else module["frame"]["after"]
    if not system.endswith(after):
        raise UsageError(f"{where}: the system message does not end as the program's own does, with {after[-80:]!r}.")
    return system[: len(system) - len(after)]


def ordered(module: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """A call's inputs in the order of the module's signature."""
    return {name: inputs[name] for name in module["frame"]["inputs"]}


def framed(source: Source) -> bool:
    """Whether the messages around every prompt are known."""
    return bool(source.asked) and all(module.get("frame") is not None for module in source.asked.values())


def filled(source: Source, system: Callable[[str, str], list[Message]]) -> Callable[[str, Mapping[str, Any]], list[Message]] | None:
    """The messages of a form that takes the user message as one text: ``system(module, user message)`` gives them."""
    if not framed(source):
        return None
    return lambda path, inputs: system(path, user_message(ordered(source.modules[path], inputs)))


def file_name(path: str, ending: str) -> str:
    """A module's path as a file name: whatever is no letter, digit, dot, hyphen or underscore is written as ``%`` and its code.

    >>> file_name("steps[0].route", ".md")
    'steps%5B0%5D.route.md'
    """
    from urllib.parse import quote

    return quote(path, safe="") + ending


def path_of(name: str, ending: str) -> str:
    """The inverse of ``file_name``."""
    from urllib.parse import unquote

    return unquote(name.removesuffix(ending))
