"""Split labelled data into disjoint sets, reproducibly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gepa_lite.core.ids import content_hash
from gepa_lite.core.seeds import stream
from gepa_lite.data import read_rows
from gepa_lite.errors import UsageError

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Splits:
    """Disjoint sets of rows. ``train, val, test = gl.split(data)`` works, and with ``curve=`` four names do.

    Attributes:
        train: to learn from.
        val: to compare candidates on.
        test: to seal: ``optimize(..., testset=splits.test)``.
        curve: for the curve over the course of the search; empty unless asked for.
    """

    train: Sequence[Row]
    val: Sequence[Row]
    test: Sequence[Row]
    curve: Sequence[Row] = ()

    def __iter__(self) -> Iterator[Sequence[Row]]:
        yield from (self.train, self.val, self.test, self.curve) if self.curve else (self.train, self.val, self.test)


def split(data: Any, *, val: float = 0.3, test: float = 0.3, curve: float = 0.0, stratify: str | None = None, seed: int = 0) -> Splits:
    """Split labelled data into a train, a validation and a test set; each row goes to one of them.

    A row's place depends on the data and the seed, not on the order of the rows. Give the test set what you can: of a true gain of 10 points, 30 examples show next to nothing
    and 100 about half (``docs/verdict.md``).

    Args:
        data: a list of dicts, a path, a data frame, as ``trainset`` of ``optimize``.
        val: share of the rows to compare candidates on, 0 to 1.
        test: share to seal.
        curve: share for ``optimize(..., curveset=)``.
        stratify: a field, e.g. the label: each of its values is shared out alike.
        seed: of the draw.

    Raises:
        UsageError: shares that leave nothing to learn from, or an unknown field.

    Example:
        >>> import gepa_lite as gl
        >>> rows = [{"word": word, "label": word[0]} for word in "ape ant bee bat cow cat dog doe eel elk".split()]
        >>> train, val, test = gl.split(rows, val=0.3, test=0.3)
        >>> len(train), len(val), len(test)
        (4, 3, 3)
    """
    rows = read_rows(data)
    shares = {"test": test, "val": val, "curve": curve}
    for name, share in shares.items():
        check_share(name, share)
    if sum(shares.values()) >= 1:
        raise UsageError(f"split: val={val:g}, test={test:g} and curve={curve:g} leave nothing to train on: their sum must be below 1.")
    if stratify is not None and stratify not in rows[0]:
        raise UsageError(f"split(stratify={stratify!r}): the rows have no such field; they have {', '.join(map(repr, rows[0]))}.")
    order = sorted(rows, key=content_hash)
    stream(seed, "split").shuffle(order)
    if stratify is not None:
        order.sort(key=lambda row: content_hash(row[stratify]))
    parts = deal(order, list(shares.values()))
    return Splits(parts[3], parts[1], parts[0], parts[2])


def deal(rows: Sequence[Any], shares: Sequence[float]) -> list[list[Any]]:
    """Deal rows out by shares, as evenly along their order as whole rows allow; the last part gets what the shares leave."""
    parts: list[list[Any]] = [[] for _ in range(len(shares) + 1)]
    wanted = [*shares, 1 - sum(shares)]
    for number, row in enumerate(rows, 1):
        # the part that lags its share most; ties go to the first
        lags = [share * number - len(part) for share, part in zip(wanted, parts, strict=True)]
        parts[max(range(len(parts)), key=lambda index: (round(lags[index], 9), -index))].append(row)
    return parts


def check_share(name: str, share: object) -> None:
    """Refuse what is no share.

    Raises:
        UsageError: it is not a number from 0 to 1, without 1.
    """
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share < 1:
        raise UsageError(f"{name}={share!r}: a share from 0 to 1 (without 1) is needed, e.g. 0.3.")
