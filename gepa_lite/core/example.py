"""Examples: what a program is run on and judged by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gepa_lite.core.ids import content_hash
from gepa_lite.errors import UsageError


@dataclass(frozen=True, slots=True)
class Example(Mapping[str, Any]):
    """One labelled example.

    ``example["field"]`` reads an input or a label. The id is a hash of both, never a position in a list.

    Attributes:
        id: content hash of inputs and labels.
        inputs: what the program's ``forward`` gets, by name.
        labels: everything else; only the feedback function sees it.
    """

    id: str
    inputs: Mapping[str, Any]
    labels: Mapping[str, Any]

    def __getitem__(self, key: str) -> Any:
        if key in self.inputs:
            return self.inputs[key]
        if key in self.labels:
            return self.labels[key]
        raise KeyError(f"{key!r} is not in this example; it has {', '.join(map(repr, self))}")

    def __iter__(self) -> Iterator[str]:
        yield from self.inputs
        yield from self.labels

    def __len__(self) -> int:
        return len(self.inputs) + len(self.labels)

    def __hash__(self) -> int:
        return hash(self.id)

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Example) else NotImplemented


def make_example(row: Mapping[str, Any], required: Sequence[str], optional: Sequence[str], what: str) -> Example:
    """An example from a row: the keys the program names are inputs, the rest are labels.

    Args:
        row: field values by name.
        required: the inputs of the program's ``forward`` that have no default.
        optional: the inputs that have one; taken where the row has them.
        what: the split's name, for the error.

    Raises:
        UsageError: an input is missing from the row.
    """
    missing = [key for key in required if key not in row]
    if missing:
        raise UsageError(
            f"{what}: an example lacks the program's input {', '.join(map(repr, missing))}; it has {', '.join(map(repr, row)) or 'no fields'}. "
            f"Rename the field in the data, or the parameter of the program's forward."
        )
    inputs = {key: row[key] for key in (*required, *optional) if key in row}
    labels = {key: value for key, value in row.items() if key not in inputs}
    return Example(content_hash({"inputs": inputs, "labels": labels}), inputs, labels)


def inputs_id(example: Example) -> str:
    """Content hash of the inputs alone: two examples with equal inputs are the same question, whatever their labels."""
    return content_hash(example.inputs)


def check_splits(splits: Mapping[str, Sequence[Example]]) -> None:
    """Refuse empty splits, duplicates within a split and inputs shared between splits.

    Raises:
        UsageError: naming the splits, how many examples are concerned, and one of them.
    """
    seen: dict[str, str] = {}
    for name, examples in splits.items():
        if not examples:
            raise UsageError(f"{name} is empty: at least one example is needed.")
        here: dict[str, int] = {}
        repeated: list[int] = []
        shared: dict[str, list[int]] = {}
        for position, example in enumerate(examples):
            key = inputs_id(example)
            if key in here:
                repeated.append(position)
            elif key in seen:
                shared.setdefault(seen[key], []).append(position)
            here.setdefault(key, position)
        if repeated:
            raise UsageError(
                f"{name}: {len(repeated)} of {len(examples)} examples repeat the inputs of an earlier one (first: row {repeated[0]}, "
                f"{_preview(examples[repeated[0]])}). Drop the duplicates: they would be paid for twice and weigh double."
            )
        for other, positions in shared.items():
            raise UsageError(
                f"{name} and {other} overlap: {len(positions)} of {len(examples)} examples of {name} have inputs that are in {other} too "
                f"(first: row {positions[0]}, {_preview(examples[positions[0]])}). Splits must be disjoint, or scores mean nothing."
            )
        seen.update(dict.fromkeys(here, name))


def _preview(example: Example) -> str:
    text = ", ".join(f"{key}={value!r}" for key, value in example.inputs.items())
    return text if len(text) <= 80 else text[:77] + "..."
