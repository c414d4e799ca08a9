"""A candidate run on some examples, once or several times each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gepa_lite.core.budget import Spend
from gepa_lite.core.call import total_usage
from gepa_lite.core.candidate import Candidate
from gepa_lite.core.rollout import Rollout
from gepa_lite.search.ports import Ports
from gepa_lite.search.state import mean_of


@dataclass(frozen=True, slots=True)
class Trial:
    """The rollouts of one candidate.

    Attributes:
        samples: one list of rollouts for each repeat, in the order of the examples.
    """

    samples: tuple[tuple[Rollout, ...], ...]

    @property
    def values(self) -> tuple[float | None, ...]:
        """One value an example: the mean over the repeats, None where one of them is missing."""
        return tuple(mean_of([rollout.value for rollout in group]) for group in zip(*self.samples, strict=True))

    @property
    def rollouts(self) -> tuple[Rollout, ...]:
        """All rollouts, repeat by repeat."""
        return tuple(rollout for sample in self.samples for rollout in sample)

    @property
    def lessons(self) -> tuple[Rollout, ...]:
        """One rollout an example to learn from: the worst of its repeats, the first of equal ones."""
        return tuple(min(group, key=lambda r: float("inf") if r.value is None else r.value) for group in zip(*self.samples, strict=True))

    def on(self, places: Iterable[int]) -> Trial:
        """The same on some of the examples, by place."""
        kept = list(places)
        return Trial(tuple(tuple(sample[place] for place in kept) for sample in self.samples))

    def replaced(self, places: Sequence[int], newer: Trial) -> Trial:
        """The same with the rollouts of some examples, by place, run again."""
        samples = []
        for old, new in zip(self.samples, newer.samples, strict=True):
            by_place = dict(zip(places, new, strict=True))
            samples.append(tuple(by_place.get(place, rollout) for place, rollout in enumerate(old)))
        return Trial(tuple(samples))

    @property
    def missing(self) -> str | None:
        """What is missing, in words, or None."""
        count = sum(rollout.missing for rollout in self.rollouts)
        return f"{count} of {len(self.rollouts)} rollouts are missing: {self.first_failure}" if count else None

    @property
    def first_failure(self) -> str:
        """Why the first of the missing rollouts is, in words; "" where none is."""
        return next((rollout.failure.message for rollout in self.rollouts if rollout.missing and rollout.failure is not None), "")

    @property
    def modules(self) -> set[str]:
        """The modules that ran."""
        return {module for rollout in self.rollouts for module in rollout.trace.modules}

    @property
    def calls(self) -> dict[str, float]:
        """Calls of each module in a rollout, on average."""
        rollouts = self.rollouts
        counts = Counter(call.module for rollout in rollouts for call in rollout.trace.calls)
        return {module: count / len(rollouts) for module, count in sorted(counts.items())}

    @property
    def objectives(self) -> dict[str, tuple[float | None, ...]]:
        """The feedback's further scores by name, in the order of the examples; None where a rollout has none of that name."""
        named = [[r.feedback.objectives if r.feedback is not None else {} for r in group] for group in zip(*self.samples, strict=True)]
        names = sorted({name for group in named for scores in group for name in scores})
        return {name: tuple(mean_of([scores.get(name) for scores in group]) for group in named) for name in names}


def spend_of(rollouts: Iterable[Rollout]) -> Spend:
    """Logical cost, each rollout counted once. A missing one counts too: it was run."""
    once = {rollout.key: rollout for rollout in rollouts}.values()
    task, judge = total_usage(r.usage for r in once), total_usage(r.judge_usage for r in once)
    return Spend(rollouts=len(once), task=task, judge=judge)


def run_trial(
    ports: Ports, candidate: Candidate, example_ids: Sequence[str], *, repeats: int, sample: int, priority: tuple[int, ...]
) -> Trial:
    """Run a candidate on examples, ``repeats`` times each; the repeats' sample numbers follow each other.

    Raises:
        RunError: the run can't go on.
    """
    rows = ports.evaluate(candidate, example_ids, samples=range(sample * repeats, (sample + 1) * repeats), priority=priority)
    return Trial(tuple(tuple(row) for row in rows))
