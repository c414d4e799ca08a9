"""The data sets of the benchmarks, from a folder; never part of the product.

The folder is ``GEPA_LITE_DATA``, ``../shared/data`` beside the checkout otherwise. What is not the paper's own split is named ``*-local``.
"""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gepa_lite.errors import UsageError


@dataclass(frozen=True, slots=True)
class DataSet:
    """A set of rows with their own splits.

    Attributes:
        file: its place in the folder.
        licence: as its owners or its README state it.
        keep_private: its texts are real people's: never print them.
    """

    file: str
    licence: str
    keep_private: bool = False


DATA_SETS = {
    "hotpotqa-local": DataSet("hotpotqa/hotpot_dev_distractor.jsonl.gz", "CC BY-SA 4.0"),
    "hover-local": DataSet("hover/hover_3hop.jsonl", "CC BY-SA 4.0"),
    "ifeval-local": DataSet("ifbench/ifeval_541.jsonl", "Apache-2.0"),
    "ifbench-test": DataSet("ifbench/ifbench_test.jsonl", "ODC-BY 1.0"),
    "pupa-local": DataSet("pupa/pupa.jsonl.gz", "MIT; WildChat upstream ODC-BY", keep_private=True),
    "aime-local": DataSet("math/aime_2022_2025.jsonl", "none stated; the problems are MAA's"),
    "livebench-math-local": DataSet("math/livebench_math.jsonl.gz", "Apache-2.0 (repository)"),
    "gsm8k-local": DataSet("math/gsm8k.jsonl.gz", "MIT"),
    "bbh-local": DataSet("bbh/bbh_27tasks.jsonl.gz", "MIT"),
    "bbeh-local": DataSet("bbeh/bbeh_8tasks.jsonl.gz", "CC BY 4.0"),
    "trec-local": DataSet("cls/trec.jsonl", "none stated"),
    "banking77-local": DataSet("cls/banking77.jsonl", "CC BY 4.0"),
    "facility-local": DataSet("facility/facility_support.jsonl", "MIT"),
    "samsum-local": DataSet("gen/samsum.jsonl.gz", "CC BY-NC-ND 4.0"),
    "asset-local": DataSet("gen/asset.jsonl.gz", "CC BY-NC 4.0"),
    "spider-local": DataSet("spider/spider_mini.jsonl", "CC BY-SA 4.0"),
    "wiki-corpus": DataSet("wiki/corpus.jsonl.gz", "CC BY-SA"),
}


def data_folder() -> Path:
    """Where the data lies."""
    return Path(os.environ.get("GEPA_LITE_DATA") or Path(__file__).parents[2] / "shared" / "data")


def load(name: str) -> list[dict[str, Any]]:
    """All rows of a set, in the file's order.

    Raises:
        UsageError: no such set, or its file is not in the folder.
    """
    if name not in DATA_SETS:
        raise UsageError(f"no data set {name!r}; there are {', '.join(DATA_SETS)}.")
    return read(DATA_SETS[name].file)


def read(file: str) -> list[dict[str, Any]]:
    """All rows of a file of the folder: JSON lines, as they are or compressed by gzip.

    Raises:
        UsageError: it is not in the folder.
    """
    path = data_folder() / file
    if not path.is_file():
        raise UsageError(f"there is no {path}. Set GEPA_LITE_DATA to the folder that holds {file}.")
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return [json.loads(line) for line in text.split("\n") if line]


def load_splits(name: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of a set by their own ``split`` field."""
    splits: dict[str, list[dict[str, Any]]] = {}
    for row in load(name):
        splits.setdefault(row.get("split", "all"), []).append(row)
    return splits
