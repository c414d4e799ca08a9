"""What a run is made of in a view's eyes: proposals, candidates, and what each role took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class Attempt:
    """A proposal or a merge.

    Attributes:
        seq: its event's place in the log.
        at: when it was kept, seconds since 1970.
        step: of the search.
        kind: ``"rewrite"``, ``"edit"`` or ``"merge"``.
        parents: indices in the pool.
        modules: that were to be rewritten; of a merge, in which the child differs from its first parent.
        status: accepted, rejected, skipped or void.
        code: a short stable word for the reason.
        reason: in words.
        model: who was asked; "" for a merge.
        texts: proposed, by module.
        before: sum of the parent's values on its examples; of a merge, the better parent's.
        after: sum of the child's; None where it was not run on all of them.
        examples: how many.
        rules: what the contract and the leak guard found.
        child: index in the pool, once its texts are in it; None before and where they were left out.
        usd: what it cost, None where a price is unknown.
    """

    seq: int
    at: float
    step: int
    kind: str
    parents: tuple[int, ...]
    modules: tuple[str, ...]
    status: str
    code: str
    reason: str
    model: str
    texts: Mapping[str, str]
    before: float
    after: float | None
    examples: int
    rules: tuple[str, ...] = ()
    child: int | None = None
    usd: float | None = 0.0

    @property
    def valid(self) -> bool:
        """Whether the child was run, so that it can be compared with its parent."""
        return self.after is not None and self.status in ("accepted", "rejected")

    @property
    def better(self) -> bool:
        """Whether the child was strictly better than its parent on the same examples."""
        return self.after is not None and self.after > self.before


@dataclass(slots=True)
class Node:
    """A candidate in the pool.

    Attributes:
        index: its place; the seed is 0.
        seq: its event's place in the log.
        at: when it joined, seconds since 1970.
        step: that made it, -1 for the seed and other starts.
        parents: indices in the pool.
        texts: all its texts, by module.
        changed: modules whose text is not the first parent's.
        mean: on the validation set, higher is better; None while a cell is missing.
        rollouts: of the run when it joined.
        usd: of the run when it joined; of calls with a known price.
        generation: steps from the seed.
    """

    index: int
    seq: int
    at: float
    step: int
    parents: tuple[int, ...]
    texts: Mapping[str, str]
    changed: tuple[str, ...]
    mean: float | None
    rollouts: int
    usd: float
    generation: int


@dataclass(slots=True)
class RoleSpend:
    """What one role took, logically: the same whether answers came from the cache or not."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float = 0.0
    priced: bool = True
