"""The parts of a page about a run, gathered for the templates: what the file and the live pages have in common."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from markupsafe import Markup

from gepa_lite.core.candidate import Candidate
from gepa_lite.core.ids import content_hash
from gepa_lite.core.money import dollars
from gepa_lite.core.rollout import Rollout
from gepa_lite.insight.advice import Advice, advise, facts_of
from gepa_lite.insight.distance import TextSpace
from gepa_lite.insight.generations import TextCourse
from gepa_lite.insight.measures import Measures, measures_of, utilization_of
from gepa_lite.insight.race import race_of
from gepa_lite.insight.steps import Node
from gepa_lite.insight.trail import Trail
from gepa_lite.report import charts
from gepa_lite.report.lineage import line_of
from gepa_lite.search.front import Front, prune
from gepa_lite.search.tops import Tops
from gepa_lite.ship.starts import StartScore
from gepa_lite.ship.words import word_changes
from gepa_lite.store.browse import Browse


@dataclass
class Look:
    """A run as a page sees it: its course, and what is computed from it once it is asked for.

    Args:
        trail: its course.
        browse: its file.
        space: that texts are compared in; kept from look to look, since it remembers the vectors.
    """

    trail: Trail
    browse: Browse
    space: TextSpace

    @cached_property
    def front(self) -> frozenset[int]:
        """Indices of the candidates that survive the per-example Pareto pruning."""
        members = [node.index for node in self.trail.nodes if node.mean is not None]
        if not members:
            return frozenset()
        table = np.array([self.trail.rows[index] for index in members])
        means = np.array([self.trail.nodes[index].mean for index in members], dtype=np.float64)
        front = Front(
            np.arange(len(members)), (table,), means, Tops.of(table, means), self.trail.objective.worst, self.trail.objective.best
        )
        return frozenset(members[row] for row in np.flatnonzero(prune(front) > 0))

    @cached_property
    def measures(self) -> Measures:
        """Of the run so far."""
        return measures_of(self.course, utilization_of(self.browse))

    @cached_property
    def course(self) -> TextCourse:
        """Its proposals as points, in generations."""
        return TextCourse(self.trail, self.space)

    @cached_property
    def advice(self) -> list[Advice]:
        """What the measures say to do."""
        return advise(self.trail, self.measures, facts_of(self.trail, self.browse))

    @property
    def progress_charts(self) -> list[tuple[str, Markup]]:
        """Name and chart for each axis that says something."""
        found = [(axis, charts.progress_chart(self.trail, axis, self.front)) for axis in charts.axes_of(self.trail)]
        return [(charts.AXES[axis], chart) for axis, chart in found if chart]

    @cached_property
    def race(self) -> list[StartScore]:
        """Its starts side by side, where it has several."""
        return race_of(self.trail)

    @property
    def checks(self) -> Counter[str]:
        """Proposals in which the contract or the leak guard found something, by rule."""
        return Counter(rule for attempt in self.trail.attempts for rule in set(attempt.rules))

    @property
    def summary(self) -> list[tuple[str, str]]:
        """What a run is at a glance: name and value."""
        trail = self.trail
        rows = []
        if trail.nodes and trail.best is not None:
            score = trail.objective.score
            seed, best = trail.nodes[0].mean, trail.best
            rows.append(("seed, validation", "missing" if seed is None else f"{score(seed):.3f}"))
            rows.append(("best, validation", "missing" if best.mean is None else f"{score(best.mean):.3f} (#{best.index})"))
        rows.append(("candidates", f"{len(trail.nodes):,}, {len(self.front):,} on the front"))
        rows.append(("proposals", f"{sum(attempt.kind != 'merge' for attempt in trail.attempts):,}"))
        bound = f" of {trail.budget.rollouts:,}" if trail.budget.rollouts else ""
        rows.append(("rollouts", f"{trail.spent_rollouts:,}{bound}"))
        if trail.usd or not trail.priced or trail.budget.usd:
            price = f"{trail.usd:.4f}{'' if trail.priced else ' and unknown'}"
            rows.append(("dollars", f"{price}{f' of {dollars(trail.budget.usd)}' if trail.budget.usd else ''}"))
        if found := self.checks:
            rows.append(("checks", ", ".join(f"{rule} {count:,}" for rule, count in sorted(found.items()))))
        if (aside := trail.set_aside) is not None:
            rows.append(("set aside", f"{len(aside.example_ids):,} validation examples"))
        rows.append(("time", clock(sum(session.seconds for session in self.browse.sessions()))))
        return rows


def clock(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> clock(3725), clock(65)
    ('1:02:05', '1:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


Piece = tuple[str, str]
_MOST_WORDS = 40_000


def diff(before: str, after: str) -> list[Piece]:
    """Pieces of a word diff with their kind; two long texts are shown whole, since a diff of them would take minutes."""
    if len(before) + len(after) > _MOST_WORDS:
        return [("removed", before), ("added", after)] if before != after else [("kept", before)]
    return list(word_changes(before, after))


@dataclass(frozen=True)
class LineStep:
    """One step of a lineage: a candidate and what it changed.

    Attributes:
        node: the candidate.
        score: its validation mean in the user's own direction, or None.
        gain: over its first parent.
        diffs: by changed module.
        model: who wrote it.
    """

    node: Node
    score: float | None
    gain: float | None
    diffs: Sequence[tuple[str, Sequence[Piece]]]
    model: str = ""


def lineage_steps(trail: Trail, index: int, most: int | None = None) -> tuple[list[LineStep], int]:
    """A candidate's line with what each step changed, the seed left out; and how many steps in the middle are left out."""
    line = line_of(trail, index)
    steps = list(itertools.pairwise(line))
    dropped = 0
    if most is not None and len(steps) > most:
        dropped = len(steps) - most
        steps = steps[: most // 2] + steps[len(steps) - (most - most // 2) :]
    writers = {attempt.child: attempt.model for attempt in trail.attempts if attempt.child is not None and attempt.model}
    found = []
    for parent, node in steps:
        score = None if node.mean is None else trail.objective.score(node.mean)
        gain = None if node.mean is None or parent.mean is None else score_gain(trail, parent.mean, node.mean)
        diffs = [(module, diff(parent.texts[module], node.texts[module])) for module in node.changed]
        found.append(LineStep(node, score, gain, diffs, writers.get(node.index, "")))
    return found, dropped


def score_gain(trail: Trail, before: float, after: float) -> float:
    """The difference of two values in the user's own direction."""
    return trail.objective.score(after) - trail.objective.score(before)


@dataclass(frozen=True)
class Case:
    """One rollout as a page shows it.

    Attributes:
        rollout: with output, feedback and trace.
        split: of its example.
        inputs: of its example, as JSON types.
        labels: likewise.
        score: in the user's own direction.
    """

    rollout: Rollout
    split: str
    inputs: Any
    labels: Any
    score: float | None


def case_of(trail: Trail, browse: Browse, rollout: Rollout) -> Case:
    """A rollout with its example."""
    found = browse.example(rollout.key.example_id)
    split, inputs, labels = ("", {}, {}) if found is None else (found[0], found[1].inputs, found[1].labels)
    return Case(rollout, split, inputs, labels, None if rollout.value is None else trail.objective.score(rollout.value))


def telling_cases(look: Look, index: int, most: int) -> list[Case]:
    """The validation rollouts of a candidate that say most: where it differs from the seed, or the seed from the winner, the largest change first."""
    trail = look.trail
    winner = trail.winner
    if trail.started is None or winner is None:
        return []
    other = winner.index if index == 0 else 0
    gaps = np.nan_to_num(np.abs(trail.rows[index] - trail.rows[other]), nan=-1.0)
    order = np.argsort(-gaps, kind="stable")[:most]
    candidate = Candidate(trail.nodes[index].texts).id
    ids = [trail.started.validation_ids[place] for place in order]
    rollouts = [rollout for example in ids for rollout in look.browse.rollouts_on(candidate, example)[:1]]
    return [case_of(trail, look.browse, rollout) for rollout in rollouts]


def settings_rows(trail: Trail) -> list[tuple[str, str]]:
    """What fixed the run's course, and fingerprints of what it ran on."""
    started = trail.started
    if started is None:
        return []
    rows = [("budget", trail.budget.describe())]
    for name, value in started.settings.items():
        if name == "search":
            rows += [(f"search.{key}", _words(item)) for key, item in value.items()]
        else:
            rows.append((name, _words(value)))
    for name in ("train", "validation", "test", "curve", "pin"):
        ids = getattr(started, f"{name}_ids")
        if ids:
            rows.append((f"{name} set", f"{len(ids):,} examples, fingerprint {content_hash(list(ids))[:12]}"))
    rows.append(("seed prompts", f"fingerprint {Candidate(started.texts).id[:12]}"))
    return rows


def _words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class CandidateRow:
    """A candidate in a table.

    Attributes:
        node: the candidate.
        score: validation mean in the user's own direction, or None.
        marks: ``winner``, ``best``, ``front``, ``merged``.
    """

    node: Node
    score: float | None
    marks: Sequence[str] = field(default_factory=tuple)


def candidate_row(look: Look, index: int) -> CandidateRow:
    """A candidate as a table shows it."""
    trail = look.trail
    node, winner, best = trail.nodes[index], trail.winner, trail.best
    marks = [
        word
        for word, true in (
            ("winner", winner is not None and index == winner.index and trail.stopped is not None),
            ("best", best is not None and index == best.index),
            ("front", index in look.front),
            ("merged", len(node.parents) > 1),
        )
        if true
    ]
    return CandidateRow(node, None if node.mean is None else trail.objective.score(node.mean), marks)
