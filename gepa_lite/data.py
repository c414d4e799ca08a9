"""Read examples from where users have them: lists, files, data frames, data sets. Only a .parquet file imports a library (pyarrow)."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import importlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from gepa_lite.errors import UsageError

_MISSING_CELLS = frozenset({"NAType", "NaTType"})
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Rows:
    """Examples as read, before they are split into inputs and labels.

    Attributes:
        rows: one mapping an example, all with the same keys.
        input_keys: the keys that the source itself declares as inputs (``dspy.Example.with_inputs``), or None.
    """

    rows: list[dict[str, Any]]
    input_keys: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class _Row:
    """A row before it is checked, with words for where it stands ("row 3", "line 7")."""

    value: Any
    place: str


def read_rows(source: Any, what: str = "data") -> list[dict[str, Any]]:
    """The rows of a source, see ``load_rows``.

    Example:
        >>> read_rows([{"question": "1+1", "answer": "2"}])
        [{'question': '1+1', 'answer': '2'}]
    """
    return load_rows(source, what).rows


def load_rows(source: Any, what: str = "trainset") -> Rows:
    """Read examples into plain dictionaries.

    Taken: an iterable of mappings, dataclasses, pydantic models or ``dspy.Example``; a path to .jsonl, .jsonl.gz, .json (a list), .csv,
    .tsv or .parquet; a pandas DataFrame; a Hugging Face dataset. In tables (DataFrame, parquet) NaN, NaT and NA become None; a CSV cell
    stays the text it is. Numpy scalars and arrays become Python numbers and lists. A generator is read to its end.

    Args:
        source: the examples.
        what: what to call them in errors, e.g. ``"valset"``.

    Raises:
        UsageError: no such file, a broken line (with its number), an empty set, a row that is no mapping, rows with different keys.
    """
    path = Path(source) if isinstance(source, (str, Path)) else None
    what = f"{what} ({path})" if path is not None else what
    is_table = _is_frame(source) or (path is not None and path.suffix.lower() == ".parquet")
    rows: list[dict[str, Any]] = []
    declared: list[frozenset[str] | None] = []
    for row in _read_file(path, what) if path is not None else _in_memory(source, what):
        values, inputs = _mapping(row, what)
        rows.append({key: _plain(value, is_table=is_table) for key, value in values.items()})
        declared.append(inputs)
        _check_keys(row, rows, what)
        if inputs != declared[0]:
            raise UsageError(
                f"{what}: {row.place} declares the inputs {_keys(inputs)}, the first row {_keys(declared[0])}: make them agree"
            )
    if not rows:
        raise UsageError(f"{what} is empty: expected at least one example")
    return Rows(rows, declared[0])


def _keys(keys: Iterable[str] | None) -> str:
    return "(none)" if keys is None else ", ".join(map(repr, sorted(keys)))


def _check_keys(row: _Row, rows: list[dict[str, Any]], what: str) -> None:
    lacks, has = rows[0].keys() - rows[-1].keys(), rows[-1].keys() - rows[0].keys()
    if lacks:
        raise UsageError(f"{what}: {row.place} lacks {_keys(lacks)}, which the first row has. All rows need the same keys")
    if has:
        raise UsageError(f"{what}: {row.place} has {_keys(has)}, which the first row lacks. All rows need the same keys")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


# --- from memory


def _is_frame(source: Any) -> bool:
    return type(source).__module__.partition(".")[0] == "pandas" and hasattr(source, "columns")


def _in_memory(source: Any, what: str) -> Iterator[_Row]:
    if _is_frame(source):
        repeated = source.columns[source.columns.duplicated()]
        if len(repeated):
            raise UsageError(f"{what}: the column {repeated[0]!r} occurs twice; give each column a name of its own")
        source = source.to_dict(orient="records")
    if isinstance(source, Mapping):
        advice = (
            "choose one of its splits" if all(hasattr(value, "column_names") for value in source.values()) else "pass a list of mappings"
        )
        raise UsageError(f"{what}: expected a sequence of examples, found one mapping with the keys {_keys(map(str, source))}; {advice}")
    try:
        values = iter(source)
    except TypeError:
        raise UsageError(f"{what}: expected a list of examples, a path, a DataFrame or a dataset, found {_shown(source)}") from None
    for number, value in enumerate(values, 1):
        yield _Row(value, f"row {number}")


def _mapping(row: _Row, what: str) -> tuple[dict[str, Any], frozenset[str] | None]:
    """The row as a dictionary, and the inputs it declares."""
    value, inputs = row.value, None
    if _is_dspy_example(value):
        value, inputs = value.toDict(), _dspy_inputs(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    elif not isinstance(value, type) and callable(getattr(value, "model_dump", None)):
        value = value.model_dump()
    if not isinstance(value, Mapping):
        raise UsageError(f"{what}: {row.place} is {_shown(value)}; expected a mapping such as {{'question': ..., 'answer': ...}}")
    for key in value:
        if not isinstance(key, str):
            raise UsageError(f"{what}: {row.place} has the key {_shown(key)}; expected keys that are texts")
    return dict(value), inputs


def _is_dspy_example(value: Any) -> bool:
    ancestors = (ancestor.__module__.partition(".")[0] for ancestor in type(value).__mro__)
    return "dspy" in ancestors and hasattr(value, "toDict")


def _dspy_inputs(example: Any) -> frozenset[str] | None:
    try:
        return frozenset(example.inputs().toDict())
    except ValueError:  # dspy's way to say that with_inputs was never called
        return None


def _plain(value: Any, *, is_table: bool) -> Any:
    """The value in Python's own types; where the row is a table's, without the table's marks for a missing cell."""
    kind = type(value)
    if kind.__module__.partition(".")[0] == "numpy" and hasattr(value, "tolist"):
        value = value.tolist()
    elif hasattr(value, "to_pydatetime") and kind.__name__ not in _MISSING_CELLS:
        value = value.to_pydatetime()
    if is_table and (type(value).__name__ in _MISSING_CELLS or (isinstance(value, float) and math.isnan(value))):
        return None
    if isinstance(value, dict):
        return {key: _plain(item, is_table=is_table) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_plain(item, is_table=is_table) for item in value)
    return value


# --- from files


def _read_file(path: Path, what: str) -> Iterator[_Row]:
    name = path.name.lower()
    reader = next((reader for suffix, reader in _READERS.items() if name.endswith(suffix)), None)
    try:
        if not path.is_file():
            problem = "is a folder" if path.is_dir() else "does not exist"
            raise UsageError(f"{what}: the file {problem}; expected a path to one of {', '.join(_READERS)}")
        if reader is None:
            raise UsageError(f"{what}: can't read a {path.suffix or 'suffixless'} file; expected one of {', '.join(_READERS)}")
        yield from reader(path, what)
    except UnicodeDecodeError as error:
        raise UsageError(f"{what}: the file is not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8") from error
    except (OSError, EOFError) as error:
        raise UsageError(f"{what}: the file can't be read: {error}") from error


def _open(path: Path) -> TextIO:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _read_jsonl(path: Path, what: str) -> Iterator[_Row]:
    with _open(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UsageError(f"{what}: line {number} is not JSON ({error}): {_shown(line.strip())}") from error
            yield _Row(value, f"line {number}")


def _read_json(path: Path, what: str) -> Iterator[_Row]:
    with _open(path) as file:
        text = file.read()
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        hint = "; one object a line is a .jsonl file" if line == 2 and text.lstrip().startswith("{") else ""
        raise UsageError(f"{what}: {f'line {line}' if line else 'the file'} is not JSON ({error}){hint}") from error
    if not isinstance(values, list):
        raise UsageError(f"{what}: expected a JSON list of objects, found {_shown(values)}")
    for number, value in enumerate(values, 1):
        yield _Row(value, f"row {number}")


def _read_csv(path: Path, what: str) -> Iterator[_Row]:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    with _open(path) as file:
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        try:
            header = next(reader, [])
            for name in header:
                if header.count(name) > 1 or not name.strip():
                    raise UsageError(
                        f"{what}: the header has {name!r} {header.count(name)} times; expected a name of its own for each column"
                    )
            for cells in reader:
                if not cells:
                    continue
                place = f"line {reader.line_num}"
                if len(cells) != len(header):
                    raise UsageError(
                        f"{what}: {place} has {len(cells)} cells, the header {len(header)}; quote cells that hold {delimiter!r}"
                    )
                yield _Row(dict(zip(header, cells, strict=True)), place)
        except csv.Error as error:
            raise UsageError(f"{what}: line {reader.line_num} can't be read: {error}") from error


def _read_parquet(path: Path, what: str) -> Iterator[_Row]:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise UsageError(f"{what}: reading .parquet needs pyarrow: pip install pyarrow") from error
    try:
        values = parquet.read_table(path).to_pylist()
    except ValueError as error:  # pyarrow's own errors are ValueErrors
        raise UsageError(f"{what}: the file is not Parquet: {error}") from error
    for number, value in enumerate(values, 1):
        yield _Row(value, f"row {number}")


_READERS: dict[str, Callable[[Path, str], Iterator[_Row]]] = {
    ".jsonl": _read_jsonl,
    ".jsonl.gz": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": _read_parquet,
}
