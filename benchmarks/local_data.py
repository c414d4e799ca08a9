"""The rows of the local suite: our own splits from the first rows of public files, so what is reported on them is named ``*-local``."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from benchmarks.data_sets import data_folder, load
from gepa_lite.demo.task import load_splits

Rows = list[dict[str, Any]]
Splits = dict[str, Rows]
"""``train``, ``validation``, ``curve`` and ``test``."""

SIZES = {"train": 50, "validation": 30, "curve": 30, "test": 100}
"""Examples of each split, at most."""

_SCHEMA_CHARS = 800
_QUERY_CHARS = 130


def trec() -> Splits:
    """Questions by what they ask for: ``text``, ``label``."""
    return _cut(_parts("trec-local", ("text", "label")))


def banking(labels: Collection[str]) -> Splits:
    """Customers' messages with some of the 77 intents: ``text``, ``label``."""
    return _cut(_parts("banking77-local", ("text", "label"), lambda row: row["label"] in labels))


def facility() -> Splits:
    """E-mails to a facility service: ``message``, ``urgency``, ``sentiment``. The file has 68 test rows: the validation rows that are left over join them."""
    parts = _parts("facility-local", ("input", "urgency", "sentiment"), rename={"input": "message"})
    parts["test"] += parts["val"][SIZES["validation"] :]
    return _cut(parts)


def gsm8k() -> Splits:
    """Word problems: ``question``, ``answer``, ``solution``."""
    return _cut(_parts("gsm8k-local", ("question", "answer", "solution"), lambda row: len(row["solution"]) < 250))


def bbh(task: str) -> Splits:
    """One of BBH's tasks: ``question``, ``answer``. Its 50 validation rows give validation; the curve is cut from the test rows."""
    parts = _parts("bbh-local", ("input", "target"), lambda row: row["task"] == task, {"input": "question", "target": "answer"})
    size = SIZES["curve"]
    parts["train"] = parts["train"][: SIZES["train"]] + parts["test"][-size:]
    parts["test"] = parts["test"][:-size]
    return _cut(parts)


def hotpotqa() -> Splits:
    """Questions with their two gold paragraphs, no distractors: ``question``, ``facts``, ``answer``."""

    def with_facts(row: Mapping[str, Any]) -> dict[str, Any]:
        gold = [f"{title}: {text}" for title, text in row["context"] if title in row["gold_titles"]]
        return {**row, "facts": "\n".join(gold)}

    return _cut(
        _parts("hotpotqa-local", ("question", "facts", "answer"), lambda row: len(with_facts(row)["facts"]) < 1_200, change=with_facts)
    )


def spider() -> Splits:
    """Questions to small data bases: ``question``, ``tables``, ``db_id``, ``query``, ``order_matters``; no data base is in two splits, but for the curve, which shares the training ones."""
    import json

    schemas: dict[str, str] = json.loads((data_folder() / "spider" / "schemas.json").read_text(encoding="utf-8"))

    def fits(row: Mapping[str, Any]) -> bool:
        return len(schemas[row["db_id"]]) < _SCHEMA_CHARS and len(row["query"]) < _QUERY_CHARS

    def with_tables(row: Mapping[str, Any]) -> dict[str, Any]:
        return {**row, "tables": schemas[row["db_id"]]}

    return _cut(_parts("spider-local", ("question", "tables", "db_id", "query", "order_matters"), fits, change=with_tables))


def fernpost() -> Splits:
    """The demo's messages, which are the package's own: ``message``, ``topic``, ``team``, ``rule``."""
    train, validation, test = load_splits()
    spare = validation[SIZES["validation"] :] + train[SIZES["train"] :]
    return {
        "train": train[: SIZES["train"]],
        "curve": spare,
        "validation": validation[: SIZES["validation"]],
        "test": test[: SIZES["test"]],
    }


def _parts(
    data: str,
    keep: Sequence[str],
    fits: Callable[[Mapping[str, Any]], bool] = lambda row: True,
    rename: Mapping[str, str] | None = None,
    change: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda row: row,
) -> Splits:
    """The set's own splits with the named keys alone, each row once, shuffled by ``Random(0)`` since files are sorted by label or data base."""
    names, parts = rename or {}, {}
    for split in ("train", "val", "test"):
        rows = [change(row) for row in load(data) if row["split"] == split and fits(row)]
        found = list({str(row[keep[0]]): {names.get(key, key): row[key] for key in keep} for row in rows}.values())
        random.Random(0).shuffle(found)
        parts[split] = found
    return parts


def _cut(parts: Splits) -> Splits:
    """The splits in their sizes: the curve's examples follow the training ones in the training rows; validation too where the set has no such split."""
    train, end = parts["train"], SIZES["train"] + SIZES["curve"]
    return {
        "train": train[: SIZES["train"]],
        "curve": train[SIZES["train"] : end],
        "validation": (parts["val"] or train[end:])[: SIZES["validation"]],
        "test": parts["test"][: SIZES["test"]],
    }
