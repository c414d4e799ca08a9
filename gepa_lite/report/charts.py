"""The charts of a run: score over cost, novelty and fitness, the map of candidates, entropies, and where the money went."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from markupsafe import Markup

from gepa_lite.insight.distance import TextSpace, cosine_distances
from gepa_lite.insight.generations import Generation, TextCourse
from gepa_lite.insight.steps import Node
from gepa_lite.insight.trail import Trail
from gepa_lite.insight.trajectory import classical_mds
from gepa_lite.report.svg import Frame, Scale, path, picture, tag, thin, tip

Axis = Literal["rollouts", "usd", "seconds"]
AXES: Mapping[Axis, str] = {"rollouts": "rollouts", "usd": "dollars", "seconds": "minutes"}
_MOST_DOTS = 1_500
_MOST_ON_MAP = 400


def place_on(axis: Axis, node: Node, trail: Trail) -> float:
    """Where a candidate stands on an axis: what the run had spent when it joined."""
    if axis == "rollouts":
        return float(node.rollouts)
    return node.usd if axis == "usd" else (node.at - trail.begun) / 60


def axes_of(trail: Trail) -> list[Axis]:
    """The axes that say something: no dollars where nothing has a price."""
    return [axis for axis in AXES if axis != "usd" or trail.usd > 0]


def progress_chart(trail: Trail, axis: Axis, front: frozenset[int]) -> Markup:
    """Validation means over what was spent: every candidate, the best so far, the front, and scores on examples that the search never saw."""
    score = trail.objective.score
    nodes = [(node, score(node.mean)) for node in trail.nodes if node.mean is not None]
    if not nodes:
        return Markup("")
    unseen = _unseen(trail)
    xs = [place_on(axis, node, trail) for node, _ in nodes]
    end = {"rollouts": float(trail.spent_rollouts), "usd": trail.usd, "seconds": (trail.last - trail.begun) / 60}[axis]
    ys = [value for _, value in nodes] + [value for _, value in unseen]
    if min(ys) == max(ys):
        # one height: its place between the worst and the best says more than a scale of its own
        ys += [bound for bound in trail.objective.range if math.isfinite(bound)]
    frame = Frame.around([0.0, *xs, end or 1.0], ys, (f"{AXES[axis]} spent", "mean score"), counts=axis == "rollouts")
    best = [(place_on(axis, trail.nodes[index], trail), score(trail.nodes[index].mean or 0.0)) for index in trail.leads]
    parts = [frame.line([*best, (end, best[-1][1])], "best", steps=True)]
    keep = set(thin(nodes, _MOST_DOTS))
    for place, (node, value) in enumerate(nodes):
        if place in keep or node.index in front:
            kind = "dot front" if node.index in front else "dot"
            parts.append(frame.dot(place_on(axis, node, trail), value, kind, f"#{node.index}: {value:.3f} (step {node.step})"))
    winner = trail.winner
    if winner is not None and winner.mean is not None:
        parts.append(frame.dot(place_on(axis, winner, trail), score(winner.mean), "dot winner", f"#{winner.index}, the winner", 5))
    points = [(place_on(axis, trail.nodes[index], trail), value) for index, value in unseen]
    parts.append(frame.line(points, "unseen"))
    parts += [frame.dot(x, y, "dot unseen", f"{y:.3f} on unseen examples", 4) for x, y in points]
    words = f"Validation mean of {len(nodes)} candidates over {AXES[axis]}; the best rises from {best[0][1]:.3f} to {best[-1][1]:.3f}"
    return frame.picture(words, *parts)


def _unseen(trail: Trail) -> list[tuple[int, float]]:
    """Candidates with their means on the curve's examples, in order."""
    found = []
    for event in sorted(trail.curve, key=lambda event: event.member):
        values = [value for value in event.values if value is not None]
        if values:
            found.append((event.member, trail.objective.score(math.fsum(values) / len(values))))
    return found


def novelty_chart(course: TextCourse) -> Markup:
    """Novelty against gain: are the steps that pay the small ones?"""
    novelties = course.normalised_novelties
    attempts = [attempt for attempt in course.measured if attempt.seq in novelties]
    if len(attempts) < 2:
        return Markup("")
    attempts = [attempts[place] for place in thin(attempts, _MOST_DOTS)]
    gains = [((attempt.after or 0.0) - attempt.before) / max(1, attempt.examples) for attempt in attempts]
    frame = Frame.around(
        [novelties[attempt.seq] for attempt in attempts], gains, ("novelty, 0 to 1 over the run", "gain an example"), (460, 300)
    )
    zero = frame.line([(frame.x.low, 0.0), (frame.x.high, 0.0)], "zero")
    dots = [
        frame.dot(
            novelties[attempt.seq],
            gain,
            "dot accepted" if attempt.status == "accepted" else "dot rejected",
            f"step {attempt.step}, {' + '.join(attempt.modules)}: {attempt.status}, gain {gain:+.3f}",
        )
        for attempt, gain in zip(attempts, gains, strict=True)
    ]
    return frame.picture(f"Novelty and gain of {len(attempts)} proposals", zero, *dots)


def map_chart(trail: Trail, space: TextSpace, front: frozenset[int]) -> Markup:
    """The candidates in the plane, so that near means alike in wording; the fainter, the earlier. Nothing of fewer than three."""
    places = thin(trail.nodes, _MOST_ON_MAP)
    winner = trail.winner
    keep = sorted({*places, *([winner.index] if winner else []), *list(front)[:50]})
    nodes = [trail.nodes[place] for place in keep]
    if len(nodes) < 3:
        return Markup("")
    points = space.points([node.texts for node in nodes])
    flat = classical_mds(np.sqrt(2 * cosine_distances(points, points)))
    size = 330.0
    half = float(np.abs(flat - flat.mean(axis=0)).max()) or 1.0
    middle = flat.mean(axis=0)
    x = Scale(float(middle[0]) - half, float(middle[0]) + half, 14, size - 14)
    y = Scale(float(middle[1]) - half, float(middle[1]) + half, size - 14, 14)
    at = {node.index: (x(float(flat[row, 0])), y(float(flat[row, 1]))) for row, node in enumerate(nodes)}
    parts = [tag("rect", class_="plane", x=1, y=1, width=size - 2, height=size - 2)]
    parts += [path([at[node.parents[0]], at[node.index]], "edge faint") for node in nodes if node.parents and node.parents[0] in at]
    last = max(node.generation for node in nodes) or 1
    for node in nodes:
        shade = 1 + round(3 * node.generation / last)
        kind = f"dot age{shade}" + (" front" if node.index in front else "")
        words = f"#{node.index}, generation {node.generation}" + ("" if node.mean is None else f": {trail.objective.score(node.mean):.3f}")
        parts.append(tag("circle", tip(words), class_=kind, cx=at[node.index][0], cy=at[node.index][1], r=3.5))
    if winner is not None:
        parts.append(
            tag("circle", tip(f"#{winner.index}, the winner"), class_="dot winner", cx=at[winner.index][0], cy=at[winner.index][1], r=6)
        )
    return picture(size, size, f"Map of {len(nodes)} candidates by likeness of wording", *parts)


def entropy_chart(generations: Sequence[Generation]) -> Markup:
    """Evenness and spread by generation, with breakthroughs and surges."""
    known = [place for place in generations if place.points]
    if len(known) < 2:
        return Markup("")
    values = [place.evenness for place in known] + [place.spread for place in known]
    frame = Frame.around([place.index for place in known], [*values, 0.0, 1.0], ("generation", "share of ln n"), (460, 300), counts=True)
    kept = [known[place] for place in thin(known, 500)]
    parts = [
        frame.line([(place.index, place.evenness) for place in kept], "line a"),
        frame.line([(place.index, place.spread) for place in kept], "line b"),
    ]
    for place in known:
        if place.surge:
            parts.append(frame.dot(place.index, place.evenness, "dot alarm", f"surge in generation {place.index}", 5))
        if place.breakthrough:
            parts.append(frame.dot(place.index, place.spread, "dot winner", f"breakthrough in generation {place.index}", 3))
    return frame.picture("Evenness (H_spatial) and spread (similarity entropy) by generation", *parts)


def bars(rows: Sequence[tuple[str, float, str]], words: str) -> Markup:
    """Horizontal bars: name, size, and what to write behind it."""
    rows = [row for row in rows if row[1] > 0]
    if not rows:
        return Markup("")
    height, left, width = 26 * len(rows) + 4, 120, 860
    # about 6.5 a letter
    room = 12 + 6.5 * max(len(note) for _, _, note in rows)
    scale = Scale(0, max(size for _, size, _ in rows), 0, width - left - room)
    parts = []
    for place, (name, size, note) in enumerate(rows):
        y = 4 + 26 * place
        parts.append(tag("text", name, class_="tick", x=left - 8, y=y + 14, text_anchor="end"))
        parts.append(tag("rect", class_="bar", x=left, y=y, width=max(1.0, scale(size)), height=18))
        parts.append(tag("text", note, class_="tick", x=left + max(1.0, scale(size)) + 6, y=y + 14))
    return picture(width, height, words, *parts)


def spend_rows(spend: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, float, str]]:
    """Bars of dollars by role, or of tokens where nothing has a price."""
    usd = any(role["usd"] > 0 for role in spend.values())
    found = []
    for name, role in spend.items():
        tokens = role["input_tokens"] + role["output_tokens"]
        price = f"{role['usd']:.4f} USD, " if role["priced"] and usd else "" if role["priced"] else "price unknown, "
        found.append((name, role["usd"] if usd else float(tokens), f"{price}{tokens:,} tokens"))
    return found
