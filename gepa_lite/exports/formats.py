"""The table of export formats. A format is one line here and one function that writes it; one that prompts can be read back from has a second function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gepa_lite.exports.dspy_state import read_dspy, write_dspy
from gepa_lite.exports.folder import read_folder, write_folder
from gepa_lite.exports.langchain import read_langchain, write_langchain
from gepa_lite.exports.mlflow_prompts import read_mlflow, write_mlflow
from gepa_lite.exports.plain import read_messages, read_python, write_messages, write_python
from gepa_lite.exports.source import Reading, Source


@dataclass(frozen=True, slots=True)
class Format:
    """One form of shipped prompts.

    Attributes:
        words: what it is, for the help.
        write: writes it to a target, a path or what the tool takes for one.
        read: reads it back, as the tool does that it is for.
        in_place: it is written where it stays (a registry with versions of its own), so it can't be moved there once it is verified.
        code: it holds code (``gl.Code``) as well, apart from the prompts.
    """

    words: str
    write: Callable[[Source, str], None]
    read: Callable[[Source, str], Reading]
    in_place: bool = False
    code: bool = False


def _files(words: str, write: Callable[[Source, Path], None], read: Callable[[Source, Path], Reading], *, code: bool = False) -> Format:
    """A format that is a file or a folder."""
    return Format(words, lambda source, target: write(source, Path(target)), lambda source, target: read(source, Path(target)), code=code)


FORMATS: Mapping[str, Format] = {
    "dspy": _files("dspy's state file, for program.load", write_dspy, read_dspy),
    "langchain": _files("a folder of ChatPromptTemplate JSON files", write_langchain, read_langchain),
    "markdown": _files(
        "a folder of Markdown files, to be edited and read back by `gepa-lite import`", write_folder, read_folder, code=True
    ),
    "messages": _files("plain chat messages as JSON", write_messages, read_messages),
    "mlflow": Format("MLflow's prompt registry; PATH is its store, e.g. sqlite:///mlflow.db", write_mlflow, read_mlflow, in_place=True),
    "py": _files("a Python module of plain constants, which needs no package", write_python, read_python, code=True),
}
