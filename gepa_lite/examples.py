"""The examples of a run: from what the caller gave to disjoint splits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gepa_lite.core.example import Example, check_splits, inputs_id
from gepa_lite.core.seeds import stream
from gepa_lite.errors import UsageError
from gepa_lite.program.optimizable import Optimizable
from gepa_lite.search.search import Search
from gepa_lite.splitting import check_share, deal

ENOUGH = 40
"""Examples from which on a run without a test set is told that it could have one."""
FEWEST_TESTS = 6
"""Test examples without which not even a win on every one of them could be told from chance: two in 2**6 is below 5 %, two in 2**5 is not."""


@dataclass(frozen=True, slots=True)
class RunExamples:
    """Disjoint splits.

    Attributes:
        train: to learn from.
        validation: to compare candidates on.
        test: sealed; may be empty.
        curve: for the curve over the course of the search; may be empty.
        pins: pinned examples that are in no other split.
        pin_ids: all pinned examples.
    """

    train: Sequence[Example]
    validation: Sequence[Example]
    test: Sequence[Example] = ()
    curve: Sequence[Example] = ()
    pins: Sequence[Example] = ()
    pin_ids: tuple[str, ...] = ()


def run_examples(
    program: Optimizable, trainset: Any, valset: Any, testset: Any, curveset: Any, search: Search, notices: list[str]
) -> RunExamples:
    """The splits of a run; what was decided for the caller is added to ``notices``.

    Raises:
        UsageError: a source can't be read, splits overlap or are too small, or a pin is unknown.
    """
    given = {"trainset": trainset, "valset": valset, "testset": testset, "curveset": curveset}
    splits = {name: list(program.examples(source, name)) for name, source in given.items() if source is not None and not _is_share(source)}
    if "trainset" not in splits:
        raise UsageError(f"trainset={trainset!r}: examples are needed: a list of dicts, a path, a data frame.")
    check_splits(splits)
    _hold_out(splits, {name: source for name, source in given.items() if _is_share(source)}, search, notices)
    if "valset" not in splits:
        splits["trainset"], splits["valset"] = _halves(splits["trainset"], search, notices)
    test = splits.get("testset", [])
    notices += _test_notices(len(splits["trainset"]) + len(splits["valset"]), len(test), search)
    pins, pin_ids = _pins(program, search.pins, splits)
    return RunExamples(splits["trainset"], splits["valset"], test, splits.get("curveset", []), pins, pin_ids)


def _is_share(source: Any) -> bool:
    return isinstance(source, (int, float))


def _hold_out(splits: dict[str, list[Example]], shares: Mapping[str, float], search: Search, notices: list[str]) -> None:
    """Take shares for the test set and the curve out of the validation set, or out of the train set where there is none."""
    if not shares:
        return
    for name, share in shares.items():
        check_share(name, share)
    source = "valset" if "valset" in splits else "trainset"
    order = sorted(splits[source], key=lambda example: example.id)
    stream(search.seed, "hold out").shuffle(order)
    parts = deal(order, list(shares.values()))
    for name, part in zip(shares, parts, strict=False):
        if not part:
            raise UsageError(f"{name}={shares[name]:g} of {len(order)} examples is none. Give more examples, or a larger share.")
        splits[name] = part
        notices.append(
            f"{name}={shares[name]:g}: {len(part)} of the {len(order)} examples of the {source} are sealed; the search never sees them."
        )
    rest = {example.id for example in parts[-1]}
    splits[source] = [example for example in splits[source] if example.id in rest]
    if not splits[source]:
        raise UsageError(f"{', '.join(f'{name}={share:g}' for name, share in shares.items())} leave nothing of the {source}.")


def _halves(train: list[Example], search: Search, notices: list[str]) -> tuple[list[Example], list[Example]]:
    if len(train) < 2:
        raise UsageError(
            "trainset has one example and there is no valset: at least two are needed, one to learn from and one to compare on."
        )
    shuffled = list(train)
    stream(search.seed, "split").shuffle(shuffled)
    half = len(shuffled) // 2
    train, validation = shuffled[half:], shuffled[:half]
    notices.append(
        f"No valset was given: the train set is split into {len(train)} examples to learn from and {len(validation)} to compare on."
    )
    return train, validation


def _test_notices(others: int, test: int, search: Search) -> list[str]:
    if search.require == "improved" and not test:
        raise UsageError(
            "Search(require='improved') needs a test set: only one can show a gain. Pass testset=..., or testset=0.3 to seal a share of the data."
        )
    if not test:
        if others < ENOUGH:
            return []
        return [
            f"No test set was given, so this run can show no gain, only validation scores. The {others} examples have room for one: testset=0.3 seals a share, "
            f"or split them yourself: train, val, test = gl.split(data)."
        ]
    if test < FEWEST_TESTS:
        return [f"The test set has {test} examples: fewer than {FEWEST_TESTS} can show no gain, whatever they score."]
    return []


def _pins(program: Optimizable, pins: Sequence[Any], splits: Mapping[str, Sequence[Example]]) -> tuple[list[Example], tuple[str, ...]]:
    """The pinned examples of no other split, and the ids of all."""
    by_id = {example.id: (name, example) for name, examples in splits.items() for example in examples}
    by_inputs = {inputs_id(example): (name, example) for name, example in by_id.values()}
    extra: list[Example] = []
    ids: list[str] = []
    for pin in pins:
        if isinstance(pin, str):
            if pin not in by_id:
                raise UsageError(
                    f"Search(pins=...): no example has the id {pin!r}. Pin it by its row, or take the id from gl.Example.id or result.flips."
                )
            name, example = by_id[pin]
        else:
            row = {**pin.inputs, **pin.labels} if isinstance(pin, Example) else pin
            (example,) = program.examples([row], "pins")
            name, known = by_inputs.get(inputs_id(example), ("", example))
            if name and known.id != example.id:
                raise UsageError(f"Search(pins=...): an example of the {name} has the inputs of a pin and other labels: make them agree.")
        if name not in ("", "valset"):
            raise UsageError(
                f"Search(pins=...): a pin is in the {name}: move it to the valset, or out of all sets. What is learned from or sealed can't be a veto as well."
            )
        if example.id not in ids:
            ids.append(example.id)
            extra += [] if name else [example]
    _check_distinct(extra)
    return extra, tuple(ids)


def _check_distinct(extra: Iterable[Example]) -> None:
    examples = list(extra)
    if examples:
        check_splits({"pins": examples})
