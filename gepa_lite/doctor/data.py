"""What can be told of the examples for nothing: labels that stand in the inputs, and examples of one split that are nearly those of another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from gepa_lite.core.example import Example
from gepa_lite.core.ids import jsonable
from gepa_lite.doctor.checkup import Diagnosis
from gepa_lite.guard.words import words_of
from gepa_lite.run_spec import RunSpec

NEAR = 0.8
"""Share of the three-word runs of both that two inputs have in common, from which on they count as near-duplicates."""
_RUN = 3
_SHARED_LABEL = 0.5
_COMMON = 200
"""Runs of words that stand in more examples than this say nothing, and would make the comparison slow."""


def check_data(spec: RunSpec) -> Iterator[Diagnosis]:
    """Splits, near-duplicates between them, and labels in the inputs."""
    splits = {name: rows for name, rows in spec.splits.items() if rows}
    sizes = ", ".join(f"{name} {len(rows)}" for name, rows in splits.items())
    yield Diagnosis("ok", "splits", f"The splits share no example: {sizes}.")
    yield _near_duplicates(splits)
    yield from _labels(spec.examples)


def near_duplicates(splits: Mapping[str, Sequence[Example]]) -> list[tuple[str, int, str, int]]:
    """Pairs of examples of different splits with nearly the same inputs: split and row of each, the later split first.

    >>> rows = [Example(str(n), {"text": text}, {}) for n, text in enumerate(["where is my parcel today", "Where is my parcel, today?", "a plant died"])]
    >>> near_duplicates({"train": rows[:1], "validation": rows[1:]})
    [('validation', 0, 'train', 0)]
    """
    runs: list[tuple[str, int, frozenset[tuple[str, ...]]]] = []
    holders: dict[tuple[str, ...], list[int]] = defaultdict(list)
    pairs = []
    for name, rows in splits.items():
        for row, example in enumerate(rows):
            mine = _runs(example)
            shared: dict[int, int] = defaultdict(int)
            for run in mine:
                for other in holders[run][:_COMMON]:
                    shared[other] += 1
            for other, count in shared.items():
                split, place, theirs = runs[other]
                if split != name and count >= NEAR * len(mine | theirs):
                    pairs.append((name, row, split, place))
                    break
            for run in mine:
                holders[run].append(len(runs))
            runs.append((name, row, mine))
    return pairs


def _runs(example: Example) -> frozenset[tuple[str, ...]]:
    words = words_of(" ".join(str(jsonable(value)) for value in example.inputs.values())).folded
    if len(words) <= _RUN:
        return frozenset({tuple(words)})
    return frozenset(tuple(words[start : start + _RUN]) for start in range(len(words) - _RUN + 1))


def _near_duplicates(splits: Mapping[str, Sequence[Example]]) -> Diagnosis:
    pairs = near_duplicates(splits)
    if not pairs:
        return Diagnosis("ok", "near_duplicates", "No example is nearly one of another split.")
    name, row, other, place = pairs[0]
    return Diagnosis(
        "warn",
        "near_duplicates",
        f"{len(pairs)} examples are nearly those of another split, so scores there flatter what was learnt from their twins.",
        f"e.g. row {row} of {name} and row {place} of {other}: at least {NEAR:.0%} of their runs of {_RUN} words are the same.",
        "Keep twins in one split: group them before gl.split, or drop one of each pair.",
    )


def _labels(examples: Sequence[Example]) -> Iterator[Diagnosis]:
    """Label fields whose values can be read off the inputs."""
    fields = sorted({name for example in examples for name in example.labels})
    found = False
    for name in fields:
        rows = [example for example in examples if _words(example.labels.get(name))]
        values = {_words(example.labels[name]) for example in rows}
        if len(rows) < 2 or len(values) < 2:
            continue
        equal = [example for example in rows if _words(example.labels[name]) in {_words(value) for value in example.inputs.values()}]
        inside = [example for example in rows if f" {_words(example.labels[name])} " in f" {_inputs(example)} "]
        if len(equal) > _SHARED_LABEL * len(rows):
            found = True
            yield Diagnosis(
                "fail",
                "labels_in_inputs",
                f"An input holds the label {name!r} itself.",
                f"In {len(equal)} of {len(rows)} examples an input field equals it.",
                "Take that field out of the rows, or out of the parameters of the program's forward.",
            )
        elif len(inside) > _SHARED_LABEL * len(rows):
            found = True
            yield Diagnosis(
                "warn",
                "labels_in_inputs",
                f"The label {name!r} stands in the inputs' text more often than not.",
                f"In {len(inside)} of {len(rows)} examples.",
                "Fine where the answer is to be found in the text; else take it out of the inputs.",
            )
    if not found:
        yield Diagnosis("ok", "labels_in_inputs", "No label can be read off the inputs." if fields else "The examples have no labels.")


def _words(value: object) -> str:
    """A label as words; "" for numbers and truth values, which stand in texts by chance."""
    if isinstance(value, str) and value.strip():
        return " ".join(words_of(value).folded)
    return ""


def _inputs(example: Example) -> str:
    return " ".join(" ".join(words_of(str(jsonable(value))).folded) for value in example.inputs.values())
