"""System-aware merge: join two lineages that improved different modules (papers: GEPA appendix D, algorithms 3 and 4; its code)."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from gepa_lite.core.candidate import Candidate
from gepa_lite.core.events import Merged
from gepa_lite.core.seeds import stream
from gepa_lite.search.front import prune
from gepa_lite.search.frontier import front_of
from gepa_lite.search.search import Search
from gepa_lite.search.state import Member, RunState

SUBSAMPLE = 5
"""Validation examples a merged child is tried on before it is validated in full: the paper's."""

_TRIES = 10
_LOOKED_AT = 16
"""Members of the front, those of the highest mean, whose pairs are weighed: on a large continuous set nearly every candidate is on the front."""


@dataclass(frozen=True, slots=True)
class MergePlan:
    """A merge that the committed state suggests.

    Attributes:
        step: the step's index.
        parents: the two candidates, the older first.
        ancestor: index of the common ancestor.
        sources: for each module the index of the candidate that its text is taken from.
        child: the texts.
        example_ids: validation examples to try it on first.
        before: both parents' values on them.
        rollouts: what the step takes at most.
    """

    step: int
    parents: tuple[int, int]
    ancestor: int
    sources: Mapping[str, int]
    child: Candidate
    example_ids: tuple[str, ...]
    before: tuple[tuple[float, ...], tuple[float, ...]]
    rollouts: int


def plan_merge(state: RunState, search: Search, step: int, beside: Sequence[MergePlan | Merged] = ()) -> MergePlan | None:
    """The merge to try in this step, or None. Pure.

    ``"paper"``: in the step after an accepted proposal, a pair drawn from the pruned front. ``"complementary"``: whenever the pool has grown, the pair of the front whose best per example
    beats the better of the two means by most, if that is worth at least two examples; of a large front, the members of the highest mean are looked at. Both end after ``merge_attempts`` attempts, accepted or not, and after
    ``merge_give_up`` failures in a row.

    Args:
        state: as committed.
        search: the rules.
        step: the step's index.
        beside: merges of steps in flight: they are not tried twice either, and count as failed until they are committed.
    """
    if search.merge == "none" or len(state.pool) < 3 or len(state.rotation) < 2 or not _may_merge(state, search, beside):
        return None
    front = front_of(state, search)
    wins = prune(front)
    survivors = front.members[wins > 0].tolist()
    draw = stream(search.seed, "merge", step)
    pairs = _drawn_pairs(survivors, draw) if search.merge == "paper" else _complementary_pairs(state, survivors)
    before = [*state.merges, *beside]
    # also where other parents gave the same texts
    tried = {_child(state, merge.sources).id for merge in before}
    done = {(tuple(merge.parents), merge.ancestor) for merge in before}
    lineage = cache(partial(ancestors, state.pool))
    for older, newer in pairs:
        found = _join(state, (older, newer), done, lineage, draw)
        if found is None:
            continue
        ancestor, sources, child = found
        if child.id in state.seen or child.id in tried:
            continue
        return _with_subsample(state, step, (older, newer), ancestor, sources, child, draw)
    return None


def _may_merge(state: RunState, search: Search, beside: Sequence[MergePlan | Merged]) -> bool:
    if len(state.merges) + len(beside) >= search.merge_attempts:
        return False
    failed = len(beside)
    for merge in reversed(state.merges):
        if merge.status == "accepted":
            break
        failed += 1
    if failed >= search.merge_give_up:
        return False
    newest = state.pool[len(state.pool) - 1]
    if search.merge == "paper":
        return newest.step >= state.next_step - 1 and len(newest.parents) == 1
    return all(newest.step > merge.step for merge in (*state.merges[-1:], *beside))


def _child(state: RunState, sources: Mapping[str, int]) -> Candidate:
    return Candidate({module: state.pool[index].candidate.texts[module] for module, index in sources.items()})


def _drawn_pairs(survivors: Sequence[int], draw: random.Random) -> Iterator[tuple[int, int]]:
    if len(survivors) < 2:
        return
    for _ in range(_TRIES):
        older, newer = sorted(draw.sample(list(survivors), 2))
        yield older, newer


def _complementary_pairs(state: RunState, survivors: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Pairs by how much a pick of the better one per example would beat the better mean, largest first; those worth two examples or more."""
    if len(survivors) < 2:
        return
    means = state.means.array[survivors, 0]
    members = np.sort(np.array(survivors)[np.argsort(-means, kind="stable")[:_LOOKED_AT]])
    rows, means = state.table.array[members], state.means.array[members, 0]
    left, right = np.triu_indices(len(members), 1)
    # the larger of two numbers is their mean plus half their distance, so one pass over each row gives the pick's mean
    gains = (_apart(rows) - np.abs(means[left] - means[right])) / 2
    # the seed's row is never missing; a candidate whose validation ended early has missing cells, and is no member of the front
    seed = state.table.array[0]
    spread = max(rows.max(), seed.max()) - min(rows.min(), seed.min())
    enough = 2 * spread / rows.shape[1]
    for place in np.argsort(-gains, kind="stable"):
        if spread == 0 or gains[place] < enough - 1e-12:
            return
        yield int(members[left[place]]), int(members[right[place]])


def _apart(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean distance of each pair of rows, in the order of ``triu_indices``; one buffer for all, which is twice as fast as an array for each."""
    buffer = np.empty_like(rows)
    found = []
    for place in range(len(rows) - 1):
        difference = np.subtract(rows[place + 1 :], rows[place], out=buffer[place + 1 :])
        found.append(np.abs(difference, out=difference).mean(axis=1))
    return np.concatenate(found)


def _join(
    state: RunState,
    pair: tuple[int, int],
    done: Collection[tuple[tuple[int, ...], int]],
    lineage: Callable[[int], set[int]],
    draw: random.Random,
) -> tuple[int, dict[str, int], Candidate] | None:
    """A child of the two by a common ancestor, or None where they have none that tells them apart and was not tried."""
    older, newer = pair
    lines = lineage(older), lineage(newer)
    if older in lines[1] or newer in lines[0]:
        return None
    means = {index: state.pool[index].mean for index in (older, newer)}
    common = [
        index
        for index in sorted(lines[0] & lines[1])
        if ((older, newer), index) not in done
        and not _above(state.pool[index].mean, means[older], means[newer])
        and _tells_apart(state, index, older, newer)
    ]
    if not common:
        return None
    # weighted by the mean above the worst one, so that zero and negative scores can be weighed too
    floor = min(state.pool[index].mean or 0.0 for index in common)
    weights = [(state.pool[index].mean or 0.0) - floor + 1e-9 for index in common]
    ancestor = draw.choices(common, weights=weights)[0]
    sources = {module: _source(state, module, ancestor, older, newer, draw) for module in state.pool[0].candidate.texts}
    return ancestor, sources, _child(state, sources)


def ancestors(pool: Sequence[Member], index: int) -> set[int]:
    """Indices of all ancestors, without the candidate itself. Iterative, so that thousands of generations are no problem."""
    found: set[int] = set()
    waiting = list(pool[index].parents)
    while waiting:
        parent = waiting.pop()
        if parent not in found:
            found.add(parent)
            waiting.extend(pool[parent].parents)
    return found


def _above(ancestor: float | None, *means: float | None) -> bool:
    return ancestor is None or any(mean is None or ancestor > mean for mean in means)


def _tells_apart(state: RunState, ancestor: int, older: int, newer: int) -> bool:
    """Some module differs between the two and is the ancestor's in exactly one of them."""
    base, one, two = (state.pool[index].candidate.texts for index in (ancestor, older, newer))
    return any(one[m] != two[m] and base[m] in (one[m], two[m]) for m in base)


def _source(state: RunState, module: str, ancestor: int, older: int, newer: int, draw: random.Random) -> int:
    base, one, two = (state.pool[index].candidate.texts[module] for index in (ancestor, older, newer))
    if two in (one, base):
        return older
    if base == one:
        return newer
    first, second = state.pool[older].mean or 0.0, state.pool[newer].mean or 0.0
    if first == second:
        return draw.choice((older, newer))
    return older if first > second else newer


def _with_subsample(
    state: RunState, step: int, parents: tuple[int, int], ancestor: int, sources: Mapping[str, int], child: Candidate, draw: random.Random
) -> MergePlan:
    """The paper's subsample: up to two examples that each parent wins, the rest from ties, then from whatever is left."""
    assert state.started is not None
    one, two = state.table.array[parents[0]], state.table.array[parents[1]]
    size = min(SUBSAMPLE, len(one))
    each = -(-size // 3)
    chosen: list[int] = []
    for mask, most in ((one > two, each), (two > one, each), (one == two, size)):
        places = np.flatnonzero(mask).tolist()
        chosen += draw.sample(places, min(most, size - len(chosen), len(places)))
    if len(chosen) < size:
        left = np.delete(np.arange(len(one)), chosen)
        chosen += draw.sample(left.tolist(), size - len(chosen))
    ids = tuple(state.started.validation_ids[place] for place in chosen)
    before = tuple(float(one[p]) for p in chosen), tuple(float(two[p]) for p in chosen)
    return MergePlan(step, parents, ancestor, sources, child, ids, before, len(one))


def merge_event(plan: MergePlan, state: RunState) -> Merged:
    """The event of a plan before its child is run; the outcome is filled in with ``dataclasses.replace``."""
    base = state.pool[plan.parents[0]].candidate.texts
    texts = {module: text for module, text in plan.child.texts.items() if text != base[module]}
    return Merged(plan.step, plan.parents, plan.ancestor, plan.sources, texts, plan.example_ids, plan.before, "void", "missing", "")
