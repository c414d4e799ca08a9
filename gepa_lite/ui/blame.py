"""Blame without the state: where each sentence of a candidate comes from, by the course that the pages keep."""

from __future__ import annotations

from gepa_lite.core.sentences import same_sentence, sentences_of
from gepa_lite.insight.steps import Attempt, Node
from gepa_lite.insight.trail import Trail
from gepa_lite.report.lineage import ancestors_of
from gepa_lite.ship.blame import Blame


def blame_in(trail: Trail, index: int) -> list[Blame]:
    """As ``ship.blame.blame_of``, of the modules that differ from the seed: a sentence belongs to the earliest candidate of the lineage that had it."""
    line = [trail.nodes[member] for member in sorted(ancestors_of(trail, index))]
    writers: dict[int, list[Attempt]] = {}
    for attempt in trail.attempts:
        if attempt.child is not None and attempt.kind != "merge":
            writers.setdefault(attempt.child, []).append(attempt)
    seed, node = trail.nodes[0], trail.nodes[index]
    found = []
    for module, text in node.texts.items():
        if text == seed.texts[module]:
            continue
        known = [(member, _sentences(member, module)) for member in line]
        for sentence in sentences_of(text):
            if sentence.strip():
                first = next(member for member, sentences in known if same_sentence(sentence) in sentences)
                found.append(_blame(trail, module, sentence, first, writers.get(first.index, [])))
    return found


def _sentences(node: Node, module: str) -> set[str]:
    return {same_sentence(sentence) for sentence in sentences_of(node.texts[module])}


def _blame(trail: Trail, module: str, sentence: str, node: Node, writers: list[Attempt]) -> Blame:
    if not node.parents:
        return Blame(module, sentence, 0)
    parent = trail.nodes[node.parents[0]]
    gain = None if node.mean is None or parent.mean is None else node.mean - parent.mean
    together = sum(
        sentence not in _sentences(parent, path) for path in node.changed for sentence in _sentences(node, path) if sentence.strip()
    )
    writer = next((attempt for attempt in writers if module in attempt.texts), None)
    if writer is None:
        return Blame(module, sentence, node.index, node.step, validation_gain=gain, together=together)
    return Blame(
        module,
        sentence,
        node.index,
        node.step,
        writer.model,
        minibatch_gain=(writer.after or 0.0) - writer.before,
        validation_gain=gain,
        together=together,
    )
