"""Proposals as points, in generations: what the text measures of a run are computed on."""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gepa_lite.insight.distance import TextSpace, cosine_distances
from gepa_lite.insight.steps import Attempt, Node
from gepa_lite.insight.trail import Trail
from gepa_lite.insight.trajectory import (
    kernel_width,
    leaders,
    normalised,
    novelty,
    share_interval,
    similarity_entropy,
    spatial_entropy,
    surges,
)

GENERATION = 10
"""Valid proposals in a generation: the study's number of offspring."""
POPULATION = 40
"""Candidates in the population that entropies are computed on, beside the generation's own: the study's."""
TEXTS = 1_000
"""Proposals whose texts are compared, the latest: every one is compared with all before it."""


@dataclass(frozen=True, slots=True)
class Rates:
    """How proposals fared: all of a run, or those of one module or model.

    Attributes:
        proposals: made.
        valid: whose child was run on its minibatch.
        refined: valid ones strictly better than their parent there.
        accepted: that passed the acceptance rule.
        validated: accepted ones whose child is in the pool with a mean.
        validated_better: of these, with a higher validation mean than the parent.
        breakthroughs: whose child had a higher validation mean than every candidate before it.
        generations: of their own: so many valid ones in a row, the last may have fewer.
        breakthrough_rate: share of these generations with such a child; NaN where there is none.
        breakthrough_low: lower end of its 95 % Wilson interval, which takes generations for alike: breakthroughs get rarer as a search goes on.
        breakthrough_high: upper end.
        rate: local refinement rate, ``refined / valid``; NaN where nothing is valid.
        low: lower end of its 95 % Wilson interval.
        high: upper end.
        distance: mean parent-child distance of valid proposals, of the whole candidate; NaN where none was measured.
        novelty: mean distance of their texts to the nearest earlier candidate, siblings apart; NaN where none was measured.
        usd: what the proposals cost, reflection and minibatch; None where a price is unknown.
        usd_per_refinement: ``usd / refined``; None where there is none.
    """

    proposals: int
    valid: int
    refined: int
    accepted: int
    validated: int
    validated_better: int
    breakthroughs: int
    generations: int
    breakthrough_rate: float
    breakthrough_low: float
    breakthrough_high: float
    rate: float
    low: float
    high: float
    distance: float
    novelty: float
    usd: float | None
    usd_per_refinement: float | None


@dataclass(frozen=True, slots=True)
class Generation:
    """``generation`` valid proposals in a row, the last may have fewer.

    Attributes:
        index: from 0.
        proposals: valid ones in it.
        steps: first and last step.
        best: highest validation mean so far at its end, in the user's own direction.
        breakthrough: whether a child of it had a higher validation mean than every candidate before.
        rate: local refinement rate within it.
        distance: mean parent-child distance.
        novelty: mean distance to the nearest earlier candidate, siblings apart.
        max_novelty: the largest.
        points: of population and generation, that the entropies are of.
        h_spatial: nats.
        h_fitness: nats, weighed by fitness above the worst possible.
        h_similarity: nats; 0 where all points are one.
        evenness: ``h_spatial / ln points``.
        spread: ``h_similarity / ln points``.
        surge: whether the search has begun to scatter here.
    """

    index: int
    proposals: int
    steps: tuple[int, int]
    best: float | None
    breakthrough: bool
    rate: float
    distance: float
    novelty: float
    max_novelty: float
    points: int
    h_spatial: float
    h_fitness: float
    h_similarity: float
    evenness: float
    spread: float
    surge: bool = False


class TextCourse:
    """The valid proposals of a run as points, in generations.

    Args:
        trail: the run's course.
        space: that texts are compared in.
        size: of a generation.
    """

    def __init__(self, trail: Trail, space: TextSpace, size: int = GENERATION) -> None:
        valid = [attempt for attempt in trail.attempts if attempt.kind != "merge" and attempt.valid]
        self.trail, self.space, self.size = trail, space, size
        self.groups = in_rows(valid, size)
        latest = -(-TEXTS // size)
        self.skipped = max(0, len(self.groups) - latest)
        self.measured = [attempt for group in self.groups[self.skipped :] for attempt in group]
        # the population as it was when the first measured generation began, then every child
        begin = self.measured[0].seq if self.measured else 0
        self._elite: list[Node] = []
        self._looked_at = 0
        self._first = [node.index for node in trail.nodes if node.seq < begin][-TEXTS:]
        texts = [trail.nodes[index].texts for index in self._first]
        texts += [{**trail.nodes[attempt.parents[0]].texts, **attempt.texts} for attempt in self.measured]
        self._points = space.points(texts)
        self._place = {attempt.seq: len(self._first) + number for number, attempt in enumerate(self.measured)}
        self.distances = self._parent_distances()
        self.novelties = self._novelties()
        self._novelty_at = {
            attempt.seq: value for attempt, value in zip(self.measured, self.novelties, strict=True) if not math.isnan(value)
        }
        self._leaders = leaders([node.mean for node in trail.nodes])
        self.sigma = kernel_width(_euclidean(self._points[-500:])) if len(self._points) > 1 else 1.0

    def rates(self, attempts: Sequence[Attempt]) -> Rates:
        """How some proposals fared."""
        valid = [attempt for attempt in attempts if attempt.valid]
        count = sum(attempt.better for attempt in valid)
        low, high = share_interval(count, len(valid))
        nodes = self.trail.nodes
        children = [(nodes[a.child].mean, nodes[a.parents[0]].mean) for a in attempts if a.child is not None]
        pairs = [(child, parent) for child, parent in children if child is not None and parent is not None]
        steps = [self.distances[attempt.seq] for attempt in valid if attempt.seq in self.distances]
        new = [self._novelty_at[attempt.seq] for attempt in valid if attempt.seq in self._novelty_at]
        prices = [attempt.usd for attempt in attempts]
        usd = None if None in prices else math.fsum(price for price in prices if price is not None)
        own = [self.broke_through(group) for group in in_rows(valid, self.size)]
        least, most = share_interval(sum(own), len(own))
        return Rates(
            proposals=len(attempts),
            valid=len(valid),
            refined=count,
            accepted=sum(attempt.status == "accepted" for attempt in attempts),
            validated=len(pairs),
            validated_better=sum(child > parent for child, parent in pairs),
            breakthroughs=sum(a.child in self._leaders for a in attempts if a.child is not None),
            generations=len(own),
            breakthrough_rate=sum(own) / len(own) if own else math.nan,
            breakthrough_low=least,
            breakthrough_high=most,
            rate=count / len(valid) if valid else math.nan,
            low=low,
            high=high,
            distance=float(np.mean(steps)) if steps else math.nan,
            novelty=float(np.mean(new)) if new else math.nan,
            usd=usd,
            usd_per_refinement=usd / count if usd is not None and count else None,
        )

    def broke_through(self, group: Sequence[Attempt]) -> bool:
        """Whether one of the children had a higher validation mean than every candidate before it."""
        return any(attempt.child in self._leaders for attempt in group if attempt.child is not None)

    @property
    def normalised_novelties(self) -> dict[int, float]:
        """Novelty between 0 and 1 of the measured proposals, by their place in the log; those without anything earlier are left out."""
        values = normalised(self.novelties)
        return {attempt.seq: value for attempt, value in zip(self.measured, values, strict=True) if not math.isnan(value)}

    def generations(self) -> list[Generation]:
        """The generations in order."""
        found = []
        best: float | None = None
        seen, nodes = 0, self.trail.nodes
        for index, group in enumerate(self.groups):
            end = max([group[-1].seq, *(nodes[attempt.child].seq for attempt in group if attempt.child is not None)])
            while seen < len(nodes) and nodes[seen].seq <= end:
                best = nodes[seen].mean if seen in self._leaders else best
                seen += 1
            found.append(self._generation(index, group, best, self.broke_through(group)))
        shares = [(place.evenness, place.spread) for place in found[self.skipped :]]
        surging = {self.skipped + place for place in surges([share for share, _ in shares], [spread for _, spread in shares])}
        return [dataclasses.replace(place, surge=place.index in surging) for place in found]

    def _generation(self, index: int, group: Sequence[Attempt], best: float | None, breakthrough: bool) -> Generation:
        score = self.trail.objective.score
        shown = None if best is None else score(best)
        steps = (group[0].step, group[-1].step)
        rate = sum(attempt.better for attempt in group) / len(group)
        if index < self.skipped:
            unknown = (math.nan,) * 3
            return Generation(index, len(group), steps, shown, breakthrough, rate, *unknown, 0, *(math.nan,) * 5)
        places = [self._place[attempt.seq] for attempt in group]
        steps_taken = [self.distances[attempt.seq] for attempt in group]
        novelties = [self.novelties[place - len(self._first)] for place in places]
        new = [value for value in novelties if not math.isnan(value)] or [math.nan]
        points, fitness = self._population(group)
        apart = _euclidean(points)
        entropies = (
            spatial_entropy(apart, self.sigma),
            spatial_entropy(apart, self.sigma, fitness),
            similarity_entropy(apart, self.sigma),
        )
        most = math.log(len(points)) if len(points) > 1 else 1.0
        return Generation(
            index,
            len(group),
            steps,
            shown,
            breakthrough,
            rate,
            float(np.mean(steps_taken)),
            float(np.mean(new)),
            max(new),
            len(points),
            *entropies,
            evenness=entropies[0] / most,
            spread=entropies[2] / most,
        )

    def _population(self, group: Sequence[Attempt]) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """The points of the population before a generation and of its children, each candidate once, with their fitness above the worst possible."""
        nodes = self.trail.nodes
        while self._looked_at < len(nodes) and nodes[self._looked_at].seq < group[0].seq:
            self._looked_at += 1
            self._elite.append(nodes[self._looked_at - 1])
        self._elite = heapq.nlargest(
            POPULATION, (node for node in self._elite if node.mean is not None), key=lambda node: (node.mean, -node.index)
        )
        points = [*self.space.points([node.texts for node in self._elite]), *(self._points[self._place[attempt.seq]] for attempt in group)]
        worst = self.trail.objective.worst
        fitness = [(node.mean or 0.0) - worst for node in self._elite] + [self._fitness(attempt) - worst for attempt in group]
        return np.array(points), np.maximum(0.0, np.array(fitness))

    def _fitness(self, attempt: Attempt) -> float:
        nodes = self.trail.nodes
        child = None if attempt.child is None else nodes[attempt.child].mean
        if child is not None:
            return child
        parent = nodes[attempt.parents[0]]
        # a parent whose validation was still running, or ended early, stands for the candidate that it was made from
        while parent.mean is None and parent.parents:
            parent = nodes[parent.parents[0]]
        return (parent.mean or 0.0) + ((attempt.after or 0.0) - attempt.before) / max(1, attempt.examples)

    def _parent_distances(self) -> dict[int, float]:
        parents = self.space.points([self.trail.nodes[attempt.parents[0]].texts for attempt in self.measured])
        if not len(parents):
            return {}
        children = self._points[len(self._first) :]
        cosines = np.einsum("ij,ij->i", parents, children).astype(np.float64)
        apart = np.maximum(0.0, 1.0 - cosines)
        return {attempt.seq: float(gap) for attempt, gap in zip(self.measured, np.where(apart < 1e-6, 0.0, apart), strict=True)}

    def _novelties(self) -> list[float]:
        """Of each measured proposal, against all of earlier generations (the study does not say how it orders siblings)."""
        found: list[float] = []
        begin = len(self._first)
        for group in self.groups[self.skipped :]:
            apart = cosine_distances(self._points[begin : begin + len(group)], self._points[:begin])
            found += [novelty(row) for row in apart]
            begin += len(group)
        return found


def in_rows(attempts: Sequence[Attempt], size: int) -> list[Sequence[Attempt]]:
    """So many in a row, the last group may have fewer."""
    return [attempts[start : start + size] for start in range(0, len(attempts), size)]


def _euclidean(points: NDArray[np.float32]) -> NDArray[np.float64]:
    """Distances of unit vectors: the square root of twice one minus the cosine."""
    roots: NDArray[np.float64] = np.sqrt(2.0 * cosine_distances(points, points))
    return roots
