"""The config of a run: one TOML or YAML file, options on top, checked before anything is imported or paid for."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import operator
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import GenericAlias, NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError

from gepa_lite.errors import UsageError

T = TypeVar("T")

_PATHS = ("train", "val", "test", "curve", "out")
_PLAIN = (str, int, float, bool, NoneType)


class RunConfig(BaseModel):
    """What ``gepa-lite run`` is told.

    Attributes:
        program: ``module:name`` of a program class, of a function that makes a program, or of an instance.
        start: paths of further prompts to start from, or names of runs.
        feedback: ``module:name`` of a feedback function; None for the program's own method.
        train: file of the examples to learn from.
        val: file of the examples that candidates are compared on; None splits ``train``.
        test: file of the sealed examples, or the share of the data to seal.
        curve: file of the examples that score the search's course, or a share.
        lm: the model of all modules that name none.
        reflection_lm: who rewrites, or models with their weights; None for the program's model.
        budget: fields of ``gl.Budget``; empty for the default budget.
        search: fields of ``gl.Search``; ``objective`` and ``reflection_limits`` are tables of their own.
        contract: fields of ``gl.Contract`` by module path; ``"*"`` is the program as a whole.
        prices: USD per million input and output tokens, by model.
        run: name or folder of the run; None makes a name.
        replies_from: as ``optimize`` takes it.
        workers: as ``optimize`` takes them.
        trackers: names of trackers, as ``optimize`` takes them.
        out: where to write the prompts of a finished run.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    program: str
    train: Path
    start: list[Path] = Field(default_factory=list)
    feedback: str | None = None
    val: Path | None = None
    test: float | Path | None = None
    curve: float | Path | None = None
    lm: str | None = None
    reflection_lm: str | dict[str, float] | None = None
    budget: dict[str, Any] = Field(default_factory=dict)
    search: dict[str, Any] = Field(default_factory=dict)
    contract: dict[str, dict[str, Any]] = Field(default_factory=dict)
    prices: dict[str, list[float]] = Field(default_factory=dict)
    run: str | None = None
    replies_from: str | None = None
    workers: int | str = 16
    trackers: list[str] = Field(default_factory=list)
    out: Path | None = None


def make_config(file: Path | None, options: Mapping[str, Any]) -> RunConfig:
    """The config from a file with options on top; tables are merged key by key.

    Args:
        file: TOML or YAML; relative paths in it start from its folder. None for options alone.
        options: by field of ``RunConfig``; None is not given. Relative paths start from the current folder.

    Raises:
        UsageError: names the file or option, the key and what is expected, with near matches.
    """
    values = {} if file is None else read_config(file)
    check_keys(values, RunConfig.model_fields, f"{file}")
    for key, value in options.items():
        if isinstance(value, Mapping):
            values[key] = _merged(values.get(key), value, key)
        elif value is not None:
            values[key] = value
    for key, flag in (("program", "--program"), ("train", "--train")):
        if key not in values:
            raise UsageError(f"{key} is not given: pass {flag}, or write it in the config file.")
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise _usage_error(error) from None


def read_config(file: Path) -> dict[str, Any]:
    """A config file as it stands, with its relative paths made absolute.

    Raises:
        UsageError: it can't be read, or is not a table.
    """
    kind = file.suffix.lower()
    if kind not in (".toml", ".yaml", ".yml"):
        raise UsageError(f"{file}: a config is a .toml, .yaml or .yml file.")
    try:
        text = file.read_text(encoding="utf-8")
        values = tomllib.loads(text) if kind == ".toml" else yaml.safe_load(text)
    except OSError as error:
        raise UsageError(f"{file}: the config can't be read: {error.strerror}.") from error
    except (ValueError, yaml.YAMLError) as error:
        raise UsageError(f"{file}: the config is not {kind.removeprefix('.').upper()}: {error}") from error
    if not isinstance(values, dict):
        raise UsageError(f"{file}: the config must be a table with keys such as program and train.")
    for key in _PATHS:
        if isinstance(values.get(key), str):
            values[key] = file.absolute().parent / Path(values[key]).expanduser()
    start = values.get("start")
    if isinstance(start, (str, list)):
        values["start"] = [_start(file.absolute().parent, text) for text in ([start] if isinstance(start, str) else start)]
    run = values.get("run")
    # a run is a name, unless it has the form of a path
    if isinstance(run, str) and "/" in run:
        values["run"] = str(file.absolute().parent / Path(run).expanduser())
    return values


def _start(folder: Path, text: str) -> Path:
    """A path from the config's folder; what is not there and has no separator may be the name of a run."""
    path = folder / Path(text).expanduser()
    return path if path.exists() or "/" in text else Path(text)


def read_settings(pairs: Iterable[str]) -> dict[str, Any]:
    """The table that ``--search KEY=VALUE`` options give; a dot in a key leads into a table.

    >>> read_settings(["fan=4", "objective.direction=minimize"])
    {'fan': 4, 'objective': {'direction': 'minimize'}}

    Raises:
        UsageError: an option without ``=``.
    """
    table: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"--search {pair!r}: write KEY=VALUE, e.g. --search fan=4.")
        inner = table
        *parents, last = key.split(".")
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = yaml.safe_load(value)
    return table


def make_record(kind: type[T], table: Mapping[str, Any], what: str) -> T:
    """A ``gl.Search`` or ``gl.Budget`` from a table.

    Args:
        kind: the dataclass.
        table: field values by name; fields that are dataclasses are tables too.
        what: what to call the table in errors.

    Raises:
        UsageError: an unknown key, with near matches, or a wrong value.
    """
    check_keys(table, [item.name for item in dataclasses.fields(kind)], what)  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    values = {key: _field(hints[key], value, f"{what}.{key}") for key, value in table.items()}
    try:
        return kind(**values)
    except UsageError:
        raise
    except ValueError as error:
        raise UsageError(f"{what}: {error}.") from error


def check_keys(keys: Iterable[str], known: Iterable[str], what: str) -> None:
    """Refuse an unknown key.

    Raises:
        UsageError: names it, its near matches and what is known.
    """
    names = list(known)
    for key in keys:
        if key not in names:
            near = difflib.get_close_matches(str(key), names, n=1)
            hint = f"Did you mean {near[0]!r}? " if near else ""
            raise UsageError(f"{what}: unknown key {key!r}. {hint}Known: {', '.join(names)}.")


def _field(hint: Any, value: Any, name: str) -> Any:
    """A field's value in the type that its annotation asks for; what only an object could be, a file can't give."""
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    record = next((member for member in members if isinstance(member, type) and dataclasses.is_dataclass(member)), None)
    if record is not None and isinstance(value, Mapping):
        return make_record(record, value, name)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(_without_objects(hint))
    except PydanticSchemaGenerationError:
        raise UsageError(f"{name}: this field takes objects, which only Python can make: use gl.optimize.") from None
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        problem = error.errors()[0]
        raise UsageError(f"{name}={value!r}: {_said(problem['msg'])}.") from None


def _without_objects(hint: Any) -> Any:
    """An annotation without the members of its union that only Python can make, such as a selector of one's own."""
    if get_origin(hint) not in (Union, UnionType):
        return hint
    members = [member for member in get_args(hint) if not isinstance(member, type) or isinstance(member, GenericAlias) or member in _PLAIN]
    return functools.reduce(operator.or_, members)


def _merged(table: Any, over: Mapping[str, Any], key: str) -> Any:
    if not over:
        return {} if table is None else table
    if table is not None and not isinstance(table, Mapping):
        raise UsageError(f"{key} must be a table; it is {table!r}.")
    merged = dict(table or {})
    for name, value in over.items():
        if isinstance(value, Mapping):
            merged[name] = _merged(merged.get(name), value, f"{key}.{name}")
        elif value is not None:
            merged[name] = value
    return merged


def _usage_error(error: ValidationError) -> UsageError:
    """The first problem in words."""
    problem = error.errors()[0]
    return UsageError(f"{'.'.join(map(str, problem['loc']))}={problem['input']!r}: {_said(problem['msg'])}.")


def _said(message: str) -> str:
    return message[:1].lower() + message[1:]
