"""Reading examples: every source, and what each wrong one is told."""

from __future__ import annotations

import builtins
import dataclasses
import datetime
import gzip
import importlib
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from pydantic import BaseModel

from gepa_lite.data import Rows, load_rows, read_rows
from gepa_lite.errors import UsageError

ROWS = [{"question": "1+1", "answer": "2"}, {"question": 'say "é, ü"\nagain', "answer": ""}]


@dataclasses.dataclass
class Pair:
    question: str
    answer: str


class PairModel(BaseModel):
    question: str
    answer: str


class Dataset:
    """What a Hugging Face dataset looks like from outside."""

    column_names = ("question", "answer")

    def __iter__(self) -> Iterator[dict[str, str]]:
        return iter(ROWS)


def dspy_example(values: dict[str, Any], inputs: set[str] | None) -> Any:
    """An object of a class that says it comes from dspy, with the two methods that are used."""

    class Example:
        def toDict(self) -> dict[str, Any]:
            return dict(values)

        def inputs(self) -> Any:
            if inputs is None:
                raise ValueError("Inputs have not been set for this example.")
            return dspy_example({key: values[key] for key in inputs}, None)

    Example.__module__ = "dspy.primitives.example"
    return Example()


def refusal(source: Any) -> str:
    with pytest.raises(UsageError) as caught:
        load_rows(source)
    assert str(caught.value).startswith("trainset")
    return str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        ROWS,
        tuple(ROWS),
        (row for row in ROWS),
        [types.MappingProxyType(row) for row in ROWS],
        [Pair(**row) for row in ROWS],
        [PairModel(**row) for row in ROWS],
        Dataset(),
        [dspy_example(row, None) for row in ROWS],
    ],
)
def test_from_memory(source: Any) -> None:
    assert load_rows(source) == Rows(ROWS, None)


def test_rows_are_copies() -> None:
    read_rows(ROWS)[0]["question"] = "changed"
    assert ROWS[0]["question"] == "1+1"


def test_inputs_that_dspy_examples_declare() -> None:
    rows = load_rows([dspy_example(row, {"question"}) for row in ROWS])
    assert rows == Rows(ROWS, frozenset({"question"}))
    assert "row 2 declares the inputs (none), the first row 'question'" in refusal(
        [dspy_example(ROWS[0], {"question"}), dspy_example(ROWS[1], None)]
    )


def test_a_real_dspy_example() -> None:
    dspy = pytest.importorskip("dspy")
    assert load_rows([dspy.Example(**row).with_inputs("question") for row in ROWS]) == Rows(ROWS, frozenset({"question"}))
    assert load_rows([dspy.Example(**row) for row in ROWS]).input_keys is None


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ([], ["empty"]),
        (iter(()), ["empty"]),
        (5, ["found 5"]),
        (None, ["found None"]),
        ([["a", 1]], ["row 1 is ['a', 1]", "expected a mapping"]),
        ([ROWS[0], "text"], ["row 2 is 'text'"]),
        ([Pair], ["row 1 is <class"]),
        ([{1: "a"}], ["row 1 has the key 1", "texts"]),
        ([ROWS[0], {"question": "x"}], ["row 2 lacks 'answer'"]),
        ([ROWS[0], {**ROWS[0], "why": "x"}], ["row 2 has 'why'", "first row lacks"]),
        (ROWS[0], ["one mapping with the keys 'answer', 'question'", "list of mappings"]),
        ({"train": Dataset(), "test": Dataset()}, ["'test', 'train'", "one of its splits"]),
        ([{"a": "x" * 500}, "y" * 500], ["row 2 is 'yyy", "…"]),
    ],
)
def test_what_is_refused(source: Any, parts: list[str]) -> None:
    message = refusal(source)
    assert all(part in message for part in parts), message


def test_an_error_names_the_set() -> None:
    with pytest.raises(UsageError, match=r"^valset is empty"):
        load_rows([], "valset")


def test_numpy_becomes_python() -> None:
    row = {"n": numpy.int64(3), "x": numpy.float32(0.5), "v": numpy.arange(2), "d": {"b": [numpy.bool_(True)]}, "t": (numpy.str_("s"),)}
    (read,) = read_rows([row])
    assert read == {"n": 3, "x": 0.5, "v": [0, 1], "d": {"b": [True]}, "t": ("s",)}
    assert [type(read["n"]), type(read["d"]["b"][0]), type(read["t"][0])] == [int, bool, str]


def write_jsonl(path: Path) -> None:
    path.write_text("\n".join(json.dumps(row) for row in ROWS) + "\n\n", encoding="utf-8-sig")


def write_gz(path: Path) -> None:
    path.write_bytes(gzip.compress("\n".join(json.dumps(row) for row in ROWS).encode()))


def write_json(path: Path) -> None:
    path.write_text(json.dumps(ROWS, indent=1))


def write_csv(path: Path) -> None:
    path.write_bytes('question,answer\r\n1+1,2\r\n"say ""é, ü""\nagain",\r\n\r\n'.encode("utf-8-sig"))


def write_tsv(path: Path) -> None:
    path.write_bytes('question\tanswer\n1+1\t2\n"say ""é, ü""\nagain"\t\n'.encode())


@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize(
    ("name", "write"),
    [("a.jsonl", write_jsonl), ("a.jsonl.gz", write_gz), ("A.JSON", write_json), ("a.csv", write_csv), ("a.b.tsv", write_tsv)],
)
def test_files(tmp_path: Path, name: str, write: Any, as_text: bool) -> None:
    path = tmp_path / name
    write(path)
    assert read_rows(str(path) if as_text else path) == ROWS


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("a.jsonl", b'{"a": 1}\n\n{"a": \n', ["line 3 is not JSON", '{"a":']),
        ("a.jsonl", b'{"a": 1}\n\n[1]\n', ["line 3 is [1]", "expected a mapping"]),
        ("a.jsonl", b'{"a": 1}\n\n{"b": 1}\n', ["line 3 lacks 'a'"]),
        ("a.jsonl", b"\n", ["empty"]),
        ("a.jsonl", b"[" * 100_000, ["line 1 is not JSON"]),
        ("a.jsonl", b'{"a": "\xff"}', ["UTF-8"]),
        ("a.jsonl.gz", b"not gzip", ["can't be read"]),
        ("a.jsonl.gz", gzip.compress(b'{"a": 1}\n' * 1000, mtime=0)[:-20], ["can't be read"]),
        ("a.json", b'[\n{"a": 1},\n{"a": }]', ["line 3 is not JSON"]),
        ("a.json", b'{"a": 1}\n{"a": 2}', ["line 2 is not JSON", ".jsonl"]),
        ("a.json", b'{"data": []}', ["expected a JSON list", "{'data': []}"]),
        ("a.json", b"[]", ["empty"]),
        ("a.csv", b"", ["empty"]),
        ("a.csv", b"a,b\n", ["empty"]),
        ("a.csv", b"a,b\n1,2\n3\n", ["line 3 has 1 cells, the header 2"]),
        ("a.csv", b"a,b\n1,2,3\n", ["line 2 has 3 cells"]),
        ("a.csv", b"a,a\n1,2\n", ["'a' 2 times"]),
        ("a.csv", b"a,\n1,2\n", ["''", "name of its own"]),
        ("a.csv", b'a,b\n1,"2\n', ["can't be read"]),
        ("a.xlsx", b"", ["can't read a .xlsx file", ".jsonl"]),
        ("a", b"", ["suffixless"]),
    ],
)
def test_broken_files(tmp_path: Path, name: str, content: bytes, parts: list[str]) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    message = refusal(path)
    assert all(part in message for part in [*parts, str(path)]), message


def test_no_such_file(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "none.jsonl")
    assert "is a folder" in refusal(tmp_path)
    assert "can't be read" in refusal("x" * 5000)


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert "pip install pyarrow" in refusal(path)


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    rows: list[dict[str, Any]] = [{"q": "a", "n": 1, "x": float("nan"), "tags": ["u"]}, {"q": None, "n": None, "x": 0.5, "tags": []}]
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    assert read_rows(path) == [{**rows[0], "x": None}, rows[1]]
    path.write_bytes(b"not parquet")
    assert "not Parquet" in refusal(path)


def test_a_data_frame() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "q": ["a", None],
            "n": [1, 2],
            "x": [0.5, float("nan")],
            "k": pandas.array([1, None], dtype="Int64"),
            "t": [pandas.Timestamp("2024-01-31"), pandas.NaT],
        }
    )
    rows = read_rows(frame)
    assert rows == [
        {"q": "a", "n": 1, "x": 0.5, "k": 1, "t": datetime.datetime(2024, 1, 31)},
        {"q": None, "n": 2, "x": None, "k": None, "t": None},
    ]
    assert [type(value) for value in rows[0].values()] == [str, int, float, int, datetime.datetime]
    assert "empty" in refusal(frame[:0])
    assert "'a' occurs twice" in refusal(pandas.DataFrame([[1, 2]], columns=["a", "a"]))


def test_a_hugging_face_dataset() -> None:
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_list(ROWS)
    assert read_rows(dataset) == ROWS
    assert "one of its splits" in refusal(datasets.DatasetDict({"train": dataset}))


def test_no_library_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []
    real = builtins.__import__

    def watch(name: str, *args: Any, **kwargs: Any) -> Any:
        imported.append(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", watch)
    load_rows([dspy_example(row, None) for row in ROWS])
    assert not {"dspy", "pandas", "datasets", "pyarrow", "numpy"} & {name.partition(".")[0] for name in imported}
