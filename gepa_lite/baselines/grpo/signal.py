"""Whether updates have anything to go on: a group whose rollouts all have one score, or none, moves no weight."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gepa_lite.baselines.grpo.rows import Episode, Row
from gepa_lite.core.feedback import Objective
from gepa_lite.core.rollout import Rollout

FLAT_IN_A_ROW = 5
"""Updates in a row without a gradient after which a person is told."""


@dataclass(frozen=True, slots=True)
class Signal:
    """The groups of one update, or of several.

    Attributes:
        groups: of rollouts, one an example.
        flat: those without a gradient.
        missing: of these, those without any score, for reasons outside the program.
        idle: of these, those with scores in which no trained module left a row.
        scores: of the flat groups, without those that are missing; values: higher is better.
    """

    groups: int = 0
    flat: int = 0
    missing: int = 0
    idle: int = 0
    scores: frozenset[float] = frozenset()

    def __add__(self, other: Signal) -> Signal:
        return Signal(
            self.groups + other.groups,
            self.flat + other.flat,
            self.missing + other.missing,
            self.idle + other.idle,
            self.scores | other.scores,
        )

    @property
    def still(self) -> bool:
        """Whether no group has a gradient."""
        return self.flat == self.groups


def signal_of(episodes: Sequence[Episode], rows: Iterable[Row]) -> Signal:
    """What an update can learn from.

    Args:
        episodes: all its rollouts.
        rows: those that are trained on, made from these rollouts.
    """
    examples = dict.fromkeys(episode.example_id for episode in episodes)
    kept = [(episodes[row.episode].example_id, row.advantage) for row in rows if row.trained]
    moving, ran = {example for example, advantage in kept if advantage}, {example for example, _ in kept}
    found = Signal(len(examples))
    for example in examples:
        scores = {episode.reward for episode in episodes if episode.example_id == example and episode.reward is not None}
        if example not in moving:
            found += Signal(0, 1, int(not scores), int(bool(scores) and example not in ran), frozenset(scores))
    return found


def stall_words(flat: Sequence[Signal], objective: Objective | None, group: int, temperature: float) -> str:
    """What a person is told after updates that moved nothing, and what to do.

    Args:
        flat: those updates, all in a row.
        objective: of the scores; None where it is not known.
        group: rollouts of an example.
        temperature: of sampling.
    """
    seen = sum(flat, Signal())
    equal = seen.groups - seen.missing - seen.idle
    causes = [(equal, "all scores equal"), (seen.missing, "no score, for outages"), (seen.idle, "no reply of a trained module")]
    listed = ", ".join(f"{count} with {words}" for count, words in causes if count)
    head = f"{len(flat)} updates in a row had no gradient, so nothing was learned: of their {seen.groups} groups {listed}."
    if not equal:
        return head + (" Look at what failed." if seen.missing else " Is the module asked at all? See the trace of a rollout.")
    if objective is not None and seen.scores == {objective.best}:
        return f"{head} Every score is the best there is: these examples teach nothing more. Train on harder ones, or stop here."
    hopeless = objective is not None and seen.scores == {objective.worst}
    worst = " Every score is the worst there is: no answer that was sampled came to anything." if hopeless else ""
    return (
        f"{head}{worst} Scores of one example must differ now and then: take a larger group (Training(group=), now {group}), a higher temperature "
        f"(now {temperature:g}), an easier prompt that states the form of the answer, or a feedback function that gives part of the score for part of the answer."
    )


def unreadable_words(name: str, rollouts: Sequence[Rollout], group: int, temperature: float) -> str | None:
    """What a person is told before a training from a candidate of which no validation rollout gave an answer; None where one did.

    Args:
        name: of the candidate, in words.
        rollouts: of its validation.
        group: rollouts of an example.
        temperature: of sampling.
    """
    failures = [rollout.failure for rollout in rollouts if rollout.failure is not None and rollout.failure.fault == "candidate"]
    if not failures or len(failures) < len(rollouts):
        return None
    parse = sum(failure.kind == "parse" for failure in failures)
    form = f", {parse} of them since the reply could not be read" if parse else ""
    return (
        f"None of the {len(rollouts)} rollouts of {name}'s validation gave an answer that can be scored{form} (the first: {failures[0].message}). All failures score the same, so GRPO has "
        f"nothing to go on unless sampling at temperature {temperature:g} gives a readable answer now and then. Before much is spent: state the form of the answer in the prompt, try an easier "
        f"form, a larger group (Training(group=), now {group}) or a higher temperature, or improve the prompts first (optimizer('prompts_then_grpo'))."
    )


def worst_alone(values: Iterable[float], objective: Objective) -> bool:
    """Whether there are values and all are the worst possible: what failures have."""
    found = list(values)
    return bool(found) and all(math.isclose(value, objective.worst, abs_tol=1e-12) for value in found)
