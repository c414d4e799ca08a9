"""Plain messages as JSON, and plain constants as a Python module: neither needs a library."""

from __future__ import annotations

import inspect
import json
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gepa_lite.core.call import Message
from gepa_lite.errors import UsageError
from gepa_lite.exports import user_message as user_message_module
from gepa_lite.exports.source import INPUTS, Reading, Source, filled, framed, prompt_in, system_of
from gepa_lite.ship.atomic import write_atomically

_SLOT = f"{{{INPUTS}}}"


def write_messages(source: Source, path: Path) -> None:
    """One JSON object: for each module its messages, the user message as ``{inputs}``, and the names of its inputs."""
    data = {
        module: {
            "messages": [
                {"role": "system", "content": system_of(entry)},
                *([{"role": "user", "content": _SLOT}] if entry.get("frame") else []),
            ],
            "inputs": entry["frame"]["inputs"] if entry.get("frame") else None,
            "model": entry.get("model"),
            "params": entry.get("params"),
        }
        for module, entry in source.modules.items()
    }
    write_atomically(path, json.dumps(data, indent=2, sort_keys=True) + "\n")


def read_messages(source: Source, path: Path) -> Reading:
    """By ``json`` alone."""
    data: dict[str, Any] = json.loads(path.read_text("utf-8"))

    def messages(module: str, user: str) -> list[Message]:
        return [{**message, "content": user if message["content"] == _SLOT else message["content"]} for message in data[module]["messages"]]

    texts = {module: prompt_in(entry["messages"][0]["content"], source.modules[module], str(path)) for module, entry in data.items()}
    return Reading(texts, filled(source, messages))


_HEAD = '''"""The prompts of {program}, exported from a bundle of {made_by}: plain constants, standard library alone.

Verdict when they were made: {verdict}. Don't edit this file: change the prompts by a new run, and export again.
"""
'''
_CODE = """# Python that a search has written for steps that are no model's: no prompts. Run it in a sandbox only.
"""
_MESSAGES = '''

def messages(module: str, **inputs: Any) -> list[dict[str, str]]:
    """What to send for a module: a system and a user message.

    Args:
        module: one of ``PROMPTS``.
        inputs: a value of JSON types for each of ``INPUTS[module]``.

    Raises:
        KeyError: no such module.
        TypeError: an input is missing or unexpected.
    """
    names = INPUTS[module]
    if set(inputs) != set(names):
        raise TypeError(f"{module} takes {', '.join(names)}; it got {', '.join(inputs) or 'nothing'}")
    return [
        {"role": "system", "content": SYSTEM[module]},
        {"role": "user", "content": user_message({name: inputs[name] for name in names})},
    ]
'''


def write_python(source: Source, path: Path) -> None:
    """A module with the constants ``PROMPTS``, ``CODE`` where steps are code, and where the messages are known ``SYSTEM``, ``INPUTS``, ``PARAMS`` and ``messages(module, **inputs)``."""
    data = source.prompts.data
    head = _HEAD.format(program=_safe(data["program"]), made_by=_safe(data["made_by"]), verdict=_safe(data["verdict"]))
    modules = source.asked
    code = f"{_CODE}CODE = {_sources(source.code)}\n" if source.code else ""
    prompts = {module: source.prompts[module] for module in modules}
    if not framed(source):
        write_atomically(path, f"{head}\nPROMPTS = {_literal(prompts)}\n{code}")
        return
    body = inspect.getsource(user_message_module)
    imports, functions = body.partition("\n\ndef ")[0].partition("from __future__")[2], body.partition("\n\ndef ")[2]
    constants = {
        "PROMPTS": prompts,
        "SYSTEM": {module: system_of(entry) for module, entry in modules.items()},
        "INPUTS": {module: entry["frame"]["inputs"] for module, entry in modules.items()},
        "PARAMS": {module: entry.get("params") or {} for module, entry in modules.items()},
    }
    lines = "".join(f"{name} = {_literal(value)}\n" for name, value in constants.items()) + code
    write_atomically(path, f"{head}\nfrom __future__{imports}\n{lines}\n\ndef {functions.rstrip()}\n{_MESSAGES}")


def read_python(source: Source, path: Path) -> Reading:
    """By running the module, as an import does."""
    try:
        names = runpy.run_path(str(path))
    except Exception as error:
        raise UsageError(f"{path} can't be imported: {type(error).__name__}: {error}.") from error
    make = names.get("messages")
    return Reading({**names["PROMPTS"], **names.get("CODE", {})}, None if make is None else lambda module, inputs: make(module, **inputs))


def _literal(value: Any) -> str:
    """A Python literal in ASCII over several lines, one entry a line."""
    if not isinstance(value, dict):
        return ascii(value)
    return "{\n" + "".join(f"    {key!a}: {item!a},\n" for key, item in value.items()) + "}"


def _sources(code: Mapping[str, str]) -> str:
    """Code by module, one string a line, so that it and its diffs can be read."""
    entries = ("".join(f"        {line!a}\n" for line in text.splitlines(keepends=True)) or "        ''\n" for text in code.values())
    return "{\n" + "".join(f"    {module!a}: (\n{lines}    ),\n" for module, lines in zip(code, entries, strict=True)) + "}"


def _safe(text: Any) -> str:
    """A text that can stand in a docstring."""
    return ascii(str(text))[1:-1].replace('"', "'")
