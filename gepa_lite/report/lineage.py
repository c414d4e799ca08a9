"""The lineage tree: which candidate came from which, what was rejected on the way, and what was merged."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import chain

from markupsafe import Markup

from gepa_lite.insight.steps import Attempt, Node
from gepa_lite.insight.trail import Trail
from gepa_lite.report.svg import Scale, number, path, picture, tag, tip

MOST = 150
"""Candidates that a tree shows; beyond, those that led to the front."""
_ROW = 20
_WIDTH = 860
_LEFT, _RIGHT = 24, 70
_LABEL = 68
"""Room that a label takes."""


def line_of(trail: Trail, index: int) -> list[Node]:
    """A candidate's line of first parents, the seed first."""
    found = [trail.nodes[index]]
    while found[-1].parents:
        found.append(trail.nodes[found[-1].parents[0]])
    return found[::-1]


def ancestors_of(trail: Trail, index: int) -> set[int]:
    """All candidates that one descends from, itself included, merges too."""
    found, waiting = {index}, [index]
    while waiting:
        for parent in trail.nodes[waiting.pop()].parents:
            if parent not in found:
                found.add(parent)
                waiting.append(parent)
    return found


def shown_nodes(trail: Trail, front: Collection[int], most: int = MOST) -> list[int]:
    """Which candidates a tree shows: all where they fit, else the winner's ancestors, then those of the front by mean, then those of the newest."""
    if len(trail.nodes) <= most:
        return [node.index for node in trail.nodes]
    winner = trail.winner
    kept = ancestors_of(trail, winner.index) if winner is not None else {0}
    if len(kept) > most:
        return sorted(kept)[: most // 2] + sorted(kept)[-most // 2 :]
    wanted = [*sorted(front, key=lambda index: -(trail.nodes[index].mean or 0.0)), *range(len(trail.nodes) - 1, 0, -1)]
    for index in wanted:
        if len(kept) >= most:
            break
        line = ancestors_of(trail, index)
        if len(kept | line) <= most:
            kept |= line
    return sorted(kept)


def lineage_chart(trail: Trail, front: Collection[int], link: str | None = None) -> Markup:
    """The tree, time to the right, each child on its parent's row or on one of its own.

    Args:
        trail: the run's course.
        front: indices on the front.
        link: address of a candidate's page with ``{}`` for its index; None without links.
    """
    if not trail.nodes:
        return Markup("")
    shown = shown_nodes(trail, front)
    kept = set(shown)
    rows = _rows(trail, shown)
    ranks = sorted(
        {trail.nodes[index].step for index in shown} | {a.step for a in trail.attempts if a.parents[0] in kept and len(shown) <= MOST}
    )
    scale = Scale(-1, max(1, ranks[-1]), _LEFT, _WIDTH - _RIGHT)
    spot = {index: (scale(trail.nodes[index].step), 16.0 + _ROW * rows[index]) for index in shown}
    winner = trail.winner
    path_of = ancestors_of(trail, winner.index) if winner is not None else set()
    parts = [_edge(trail.nodes[index], parent, spot, path_of) for index in shown for parent in trail.nodes[index].parents if parent in kept]
    parts += _rejections(trail, kept, scale, spot)
    best = None if winner is None else winner.index
    labelled = _labelled(spot, [index for index in shown if index == best], [index for index in shown if index in front], shown)
    for index in shown:
        dot = _dot(trail, index, spot[index], front, best, index in labelled)
        parts.append(dot if link is None else tag("a", dot, href=link.format(index)))
    height = 20 + _ROW * (max(rows.values()) + 1)
    counts = Counter(attempt.status for attempt in trail.attempts)
    words = f"Lineage of {len(trail.nodes)} candidates, {len(shown)} shown; proposals and merges: " + ", ".join(
        f"{count} {status}" for status, count in counts.most_common()
    )
    return picture(_WIDTH, height, words, *parts, role="img" if link is None else "group")


def _rows(trail: Trail, shown: list[int]) -> dict[int, int]:
    """A row for each candidate: the best child goes on in its parent's row, the others open new ones below."""
    children: dict[int, list[int]] = defaultdict(list)
    kept = set(shown)
    roots = []
    for index in shown:
        parents = [parent for parent in trail.nodes[index].parents if parent in kept]
        if parents:
            children[parents[0]].append(index)
        else:
            roots.append(index)
    rows: dict[int, int] = {}
    free = 0
    waiting = [(index, True) for index in reversed(roots)]
    while waiting:
        index, opens = waiting.pop()
        if opens:
            rows[index], free = free, free + 1
        else:
            rows[index] = rows[trail.nodes[index].parents[0]]
        ranked = sorted(children[index], key=lambda child: (-(trail.nodes[child].mean or -1e9), child))
        # the last one pushed is placed first: the child that goes on, then the newest of the others
        waiting += [(child, True) for child in sorted(ranked[1:])]
        if ranked:
            waiting.append((ranked[0], False))
    return rows


def _edge(node: Node, parent: int, spot: dict[int, tuple[float, float]], path_of: Collection[int]) -> Markup:
    (x1, y1), (x2, y2) = spot[parent], spot[node.index]
    kind = "edge merge" if len(node.parents) > 1 else "edge"
    kind += " won" if node.index in path_of and parent in path_of else ""
    if y1 == y2:
        return path([(x1, y1), (x2, y2)], kind)
    bend = min(x2, x1 + 14)
    return tag(
        "path",
        class_=kind,
        fill="none",
        d=f"M{number(x1)} {number(y1)}C{number(bend)} {number(y1)} {number(x1)} {number(y2)} {number(bend)} {number(y2)}H{number(x2)}",
    )


def _labelled(spot: Mapping[int, tuple[float, float]], *ranked: Sequence[int]) -> set[int]:
    """The candidates whose label has room beside those that come before it in rank."""
    taken: dict[float, list[float]] = defaultdict(list)
    found = set()
    for index in dict.fromkeys(chain(*ranked)):
        x, y = spot[index]
        if all(abs(x - other) >= _LABEL for other in taken[y]):
            taken[y].append(x)
            found.add(index)
    return found


def _rejections(trail: Trail, kept: set[int], scale: Scale, spot: dict[int, tuple[float, float]]) -> list[Markup]:
    """A small cross on its parent's row for each proposal that came to nothing; many at one place are one cross."""
    places: dict[tuple[int, int], list[Attempt]] = defaultdict(list)
    for attempt in trail.attempts:
        if attempt.child is None and attempt.parents[0] in kept and attempt.status != "skipped":
            places[attempt.parents[0], round(scale(attempt.step) / 6)].append(attempt)
    parts = []
    for (parent, _), attempts in places.items():
        x, y = scale(attempts[0].step), spot[parent][1] + 6
        words = "; ".join(f"step {a.step}, {' + '.join(a.modules)}: {a.status} ({a.code.replace('_', ' ')})" for a in attempts[:6])
        more = f"; and {len(attempts) - 6} more" if len(attempts) > 6 else ""
        cross = f"M{number(x - 2)} {number(y - 2)}L{number(x + 2)} {number(y + 2)}M{number(x + 2)} {number(y - 2)}L{number(x - 2)} {number(y + 2)}"
        parts.append(tag("path", tip(words + more), class_="cross", d=cross, fill="none"))
    return parts


def _dot(trail: Trail, index: int, spot: tuple[float, float], front: Collection[int], winner: int | None, labelled: bool) -> Markup:
    node = trail.nodes[index]
    mean = "missing" if node.mean is None else f"{trail.objective.score(node.mean):.3f}"
    origin = f"from {' and '.join(f'#{parent}' for parent in node.parents)} at step {node.step}"
    if node.step < 0:
        origin = "a start beside the seed" if node.parents else "the seed"
    words = f"#{index}: {mean}, {origin}; changed: {', '.join(node.changed) if node.parents else 'nothing'}"
    kind = "dot winner" if index == winner else "dot front" if index in front else "dot merged" if len(node.parents) > 1 else "dot"
    radius = 6 if index == winner else 4
    label = tag("text", f"#{index} {mean}", class_="tick small", x=spot[0] + 8, y=spot[1] - 3)
    return tag("g", tag("circle", tip(words), class_=kind, cx=spot[0], cy=spot[1], r=radius), *([label] if labelled else []))
