"""Write docs/cli.md from the command line itself: ``python docs/generate_cli.py``. A test fails where the two differ."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from gepa_lite.cli.app import TRACEBACK_VARIABLE, app
from gepa_lite.cli.exit_codes import MEANINGS

TARGET = Path(__file__).with_name("cli.md")


def reference() -> str:
    """The reference of all commands, as Markdown."""
    root: Any = typer.main.get_command(app)
    sections = [
        "# The command line",
        "Written by `python docs/generate_cli.py` from the commands' own help; change it there.",
        "`gepa-lite COMMAND --help` says the same in a terminal; `python -m gepa_lite` is the same program.",
        *(section for name, command in root.commands.items() for section in _command(f"gepa-lite {name}", command)),
        "## Exit codes",
        "\n".join(["| code | meaning |", "| --- | --- |", *(f"| {code.value} | {meaning} |" for code, meaning in MEANINGS.items())]),
        f"Errors are one line on standard error that starts with `error:`; `{TRACEBACK_VARIABLE}=1` shows their traceback too.",
    ]
    return "\n\n".join(sections) + "\n"


def _command(path: str, command: Any) -> Iterator[str]:
    children = getattr(command, "commands", {})
    parameters = [parameter for parameter in command.params if "--help" not in parameter.opts]
    arguments = [parameter for parameter in parameters if parameter.param_type_name == "argument"]
    options = [parameter for parameter in parameters if parameter.param_type_name == "option"]
    words = [path, *(["[OPTIONS]"] if options else []), *(_name(argument) for argument in arguments), *(["[COMMAND]"] if children else [])]
    yield f"## `{' '.join(words)}`"
    yield from _paragraphs(inspect.cleandoc(command.help or ""))
    rows = [f"- `{_name(argument)}`: {argument.help}" for argument in arguments]
    rows += [f"- `{_option(option)}`: {option.help}{_default(option)}" for option in options]
    if rows:
        yield "\n".join(rows)
    for name, child in children.items():
        yield from _command(f"{path} {name}", child)


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs as they are written; those behind click's mark, which keeps lines apart, as code."""
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield f"```toml\n{textwrap.dedent(paragraph.removeprefix(chr(8)).strip(chr(10)))}\n```"
        else:
            yield " ".join(paragraph.split())


def _name(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required else f"[{name}]"


def _option(option: Any) -> str:
    names = ", ".join(sorted(option.opts, key=len))
    return names if option.is_flag else f"{names} {option.metavar}"


def _default(option: Any) -> str:
    """The default where it says anything: no flag is on, and None means not given."""
    return f" Default: `{option.default}`." if isinstance(option.default, (str, int)) and not option.is_flag else ""


if __name__ == "__main__":
    TARGET.write_text(reference(), encoding="utf-8")
