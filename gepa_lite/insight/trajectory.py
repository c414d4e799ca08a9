"""The measures of the trajectory study, as plain functions on arrays (arXiv 2604.19440; section numbers are of its text)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Reference = Literal["best", "mean", "any", "all"]


def spatial_entropy(distances: NDArray[np.float64], sigma: float, weights: NDArray[np.float64] | None = None) -> float:
    r"""Entropy of the kernel density of a set of points (§4.2.2): :math:`g_i=\sum_j w_j e^{-d_{ij}^2/2\sigma^2}`, :math:`q=g/\sum g`, :math:`H=-\sum q\ln q`.

    It measures how even the density is, not how wide the set spreads: equal points and points infinitely far apart both give ln n, and it dips only where a tight cluster has
    stragglers. ``similarity_entropy`` tells the two apart; report both.

    Args:
        distances: shape (n, n).
        sigma: width of the kernel, in the unit of the distances.
        weights: shape (n,), not negative: fitness, for H_fitness; None is H_spatial.

    Returns:
        Nats, 0 to ln n; 0 for fewer than two points, NaN where all weights are zero.

    Example:
        >>> points = np.array([0.0, 0.0, 0.0, 100.0])
        >>> round(spatial_entropy(np.abs(points[:, None] - points), sigma=1.0), 6)
        1.313834
    """
    count = len(distances)
    if count < 2:
        return 0.0
    density = _kernel(distances, sigma) @ (np.ones(count) if weights is None else weights)
    total = density.sum()
    if not total > 0:
        return math.nan
    share = density[density > 0] / total
    return float(-(share * np.log(share)).sum())


def similarity_entropy(distances: NDArray[np.float64], sigma: float) -> float:
    """Similarity-sensitive entropy with equal weights: 0 where all points are one, ln n where all are far apart.

    Example:
        >>> points = np.array([0.0, 1.0, 3.0])
        >>> round(similarity_entropy(np.abs(points[:, None] - points), sigma=1.0), 6)
        0.707749
    """
    count = len(distances)
    if count < 2:
        return 0.0
    # no minus zero for a collapsed set
    return max(0.0, float(-np.log(_kernel(distances, sigma).mean(axis=1)).mean()))


def kernel_width(distances: NDArray[np.float64]) -> float:
    """Sigma: the median of the pairwise distances, one for a whole run, so that its generations compare (the study does not give its own)."""
    pairs = distances[np.triu_indices(len(distances), 1)]
    pairs = pairs[pairs > 0]
    return float(np.median(pairs)) if len(pairs) else 1.0


def _kernel(distances: NDArray[np.float64], sigma: float) -> NDArray[np.float64]:
    kernel: NDArray[np.float64] = np.exp(-(distances**2) / (2 * sigma**2))
    return kernel


def novelty(distances: NDArray[np.float64]) -> float:
    """Distance to the nearest earlier solution (§3.2); NaN where there is none.

    Args:
        distances: from the new solution to each earlier one, shape (earlier,).
    """
    return float(distances.min()) if len(distances) else math.nan


def normalised(values: Sequence[float]) -> list[float]:
    """Novelties between 0 and 1 over a run: ``(x - min) / (max - min)``; NaN stays."""
    known = [value for value in values if not math.isnan(value)]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    return [(value - low) / (high - low + 1e-12) for value in values]


def breakthrough_rate(initial_best: float, generation_bests: Sequence[float | None]) -> float:
    """Share of generations whose best is strictly above everything before (§2.4); a generation without a valid solution is none.

    Example:
        >>> breakthrough_rate(1.0, [1.0, 2.0, 2.0, 3.0])
        0.5
    """
    if not generation_bests:
        return math.nan
    return len(leaders([initial_best, *generation_bests]) - {0}) / len(generation_bests)


def leaders(values: Sequence[float | None]) -> set[int]:
    """Places of the values that are strictly above everything before them, the first known one included; None is unknown.

    Example:
        >>> sorted(leaders([0.5, None, 0.5, 0.7, 0.6, 0.8]))
        [0, 3, 5]
    """
    found: set[int] = set()
    best: float | None = None
    for place, value in enumerate(values):
        if value is not None and (best is None or value > best):
            found.add(place)
            best = value
    return found


def refined(child: float, parents: Sequence[float], reference: Reference = "best") -> bool:
    """Whether an offspring is strictly better than its prompted parents: than the best of them, their mean, any or all."""
    if reference == "any":
        return any(child > parent for parent in parents)
    bound = math.fsum(parents) / len(parents) if reference == "mean" else max(parents)
    return child > bound


def refinement_rate(offspring: Sequence[tuple[float, Sequence[float]]], reference: Reference = "best") -> float:
    """Local refinement rate (§2.4): of the valid offspring the share that is strictly better than the parents it was prompted with; NaN where there is none.

    Example:
        >>> refinement_rate([(0.7, [0.6]), (0.6, [0.6]), (0.5, [0.4, 0.8])])
        0.3333333333333333
    """
    return sum(refined(child, parents, reference) for child, parents in offspring) / len(offspring) if offspring else math.nan


def share_interval(count: int, total: int) -> tuple[float, float]:
    """95 % Wilson interval of a share; (0, 1) for nothing out of nothing.

    Example:
        >>> [round(end, 3) for end in share_interval(3, 10)]
        [0.108, 0.603]
    """
    if not total:
        return 0.0, 1.0
    z, share = 1.959964, count / total
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, centre - half) if count else 0.0, min(1.0, centre + half) if count < total else 1.0


def classical_mds(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points in the plane whose distances are nearest to the given ones (Torgerson's classical scaling), shape (n, 2); the sign of each axis is fixed by its first point.

    Example:
        >>> map_ = classical_mds(np.array([[0.0, 1.0, 3.0], [1.0, 0.0, 2.0], [3.0, 2.0, 0.0]]))
        >>> round(float(np.linalg.norm(map_[0] - map_[2])), 6)
        3.0
    """
    count = len(distances)
    if count < 2:
        return np.zeros((count, 2))
    squared = distances**2
    centred = -0.5 * (squared - squared.mean(axis=0) - squared.mean(axis=1, keepdims=True) + squared.mean())
    values, vectors = np.linalg.eigh(centred)
    order = np.argsort(values)[::-1][:2]
    points = np.zeros((count, 2))
    points[:, : len(order)] = vectors[:, order] * np.sqrt(np.maximum(values[order], 0.0))
    signs = np.where(points[0] < 0, -1.0, 1.0)
    flipped: NDArray[np.float64] = points * signs
    return flipped


SURGE_GENERATIONS = 5
"""Generations that a surge is measured against."""
SURGE_RISE = 0.02
"""The least rise of H / ln n that can be one: the study's runs keep H / ln n within 0.93 to 0.99."""


def surges(shares: Sequence[float], spreads: Sequence[float]) -> list[int]:
    """Generations in which the search has begun to scatter: spatial entropy rose by more than three standard deviations of the generations before, and the spread with it.

    Args:
        shares: H_spatial / ln n by generation.
        spreads: similarity entropy / ln n by generation: H_spatial alone also rises where a set collapses.
    """
    found = []
    for place in range(3, len(shares)):
        before = np.array(shares[max(0, place - SURGE_GENERATIONS) : place])
        spread = np.array(spreads[max(0, place - SURGE_GENERATIONS) : place])
        rise = shares[place] - before.mean()
        if rise > max(3 * before.std(), SURGE_RISE) and spreads[place] > spread.max():
            found.append(place)
    return found
