"""The events after the search: the shortening pass, the sealed test set, the curve. Part of the union in ``events``, which is where they are imported from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gepa_lite.core.budget import Spend


@dataclass(frozen=True, slots=True)
class Shortened:
    """After the search: one sentence of a candidate was left out, and the rest run on the validation set.

    Attributes:
        parent: index in the pool of the candidate that had the sentence.
        module: the sentence's module.
        sentence: what was left out.
        status: ``"dropped"``: the shorter candidate scores no less, and joins the pool; ``"kept"``: it scores less; ``"refused"``: the contract needs the sentence; ``"void"``: a missing cell.
        reason: in words.
        texts: the module's text without the sentence.
        values: the shorter candidate's, by position of ``validation_ids``; None is missing, or not run any more since it could not reach its parent.
        spend: logical cost.
        objectives: further scores by name, by position of ``validation_ids``.
    """

    parent: int
    module: str
    sentence: str
    status: Literal["dropped", "kept", "refused", "void"]
    reason: str
    texts: Mapping[str, str]
    values: tuple[float | None, ...] = ()
    spend: Spend = field(default_factory=Spend)
    objectives: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SealOpened:
    """The sealed test set is about to be scored for a winner: a look, counted from here on whatever becomes of it.

    Attributes:
        winner: index in the pool.
        candidate_ids: who may be scored: the seed and the winner.
        elsewhere: looks at the same examples by other runs for other candidates, as far as they were found.
    """

    winner: int
    candidate_ids: tuple[str, ...]
    elsewhere: int = 0


@dataclass(frozen=True, slots=True)
class Tested:
    """The sealed test set was scored, once, for seed and winner.

    Attributes:
        winner: index in the pool.
        seed_values: by position of ``test_ids``; None is missing.
        winner_values: likewise.
        spend: logical cost.
        seed_objectives: the seed's further scores by name, by position of ``test_ids``; higher is better.
        winner_objectives: the winner's.
    """

    winner: int
    seed_values: tuple[float | None, ...]
    winner_values: tuple[float | None, ...]
    spend: Spend = field(default_factory=Spend)
    seed_objectives: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    winner_objectives: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MilestoneScored:
    """After the search: a candidate that once was the best was scored on the curve's examples.

    Attributes:
        member: index in the pool.
        values: by position of ``curve_ids``; None is missing.
        spend: logical cost.
    """

    member: int
    values: tuple[float | None, ...]
    spend: Spend = field(default_factory=Spend)
