"""Several optimizers on one program, side by side: one table, one plot of what each had reached at what price."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from gepa_lite.baselines.optimizer import Optimizer, optimizer
from gepa_lite.core.budget import Budget
from gepa_lite.errors import UsageError
from gepa_lite.search.state import RunState
from gepa_lite.search.verdict import mean_interval
from gepa_lite.ship.result import Result
from gepa_lite.store.browse import Browse
from gepa_lite.store.codec import decode_event
from gepa_lite.store.folders import runs_root

Axis = Literal["rollouts", "tokens", "usd", "seconds"]
AXES: tuple[Axis, ...] = ("rollouts", "tokens", "usd", "seconds")


@dataclass(frozen=True, slots=True)
class Point:
    """A candidate that led when it joined. Prices are what the run had taken by then.

    Attributes:
        score: its validation mean, in the user's own direction.
        rollouts: logical rollouts.
        tokens: of all roles.
        usd: None where a price is unknown.
        seconds: wall time since the run began, pauses between sessions included.
    """

    score: float
    rollouts: int
    tokens: int
    usd: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """One optimizer with one seed.

    Attributes:
        optimizer: its name.
        seed: of its draws.
        verdict: by the sealed test set, or ``validated only``.
        before: the seed program's score on the test set; on the validation set where there is none.
        after: the winner's.
        validation: the winner's on the validation set.
        rollouts: that the search and its ending took.
        tokens: of all roles.
        usd: None where a price is unknown.
        seconds: wall time.
        training_seconds: of computing updates of weights: processor time on a CPU, wall time on a GPU; 0 where none are trained.
        prompt_tokens: of the winner's prompts in one run of the program, over the seed's.
        points: what it had reached when.
        run: the run's folder.
        stopped: why its search ended, in words.
        failed: whether that was an error of another package; what it had found until then counts.
    """

    optimizer: str
    seed: int
    verdict: str
    before: float
    after: float
    validation: float
    rollouts: int
    tokens: int
    usd: float | None
    seconds: float
    training_seconds: float
    prompt_tokens: float
    points: tuple[Point, ...]
    run: str
    stopped: str
    failed: bool

    @property
    def gain(self) -> float:
        """``after - before``."""
        return self.after - self.before


@dataclass(frozen=True)
class Comparison:
    """What ``compare`` found. ``print`` shows the table.

    Attributes:
        outcomes: one for each optimizer and seed, in the order given.
        tested: whether scores are of a sealed test set; otherwise they are of the validation set that winners were chosen on, and flatter.
    """

    outcomes: Sequence[Outcome]
    tested: bool

    @property
    def names(self) -> list[str]:
        """The optimizers, in order."""
        return list(dict.fromkeys(outcome.optimizer for outcome in self.outcomes))

    def of(self, name: str) -> list[Outcome]:
        """The outcomes of one optimizer."""
        return [outcome for outcome in self.outcomes if outcome.optimizer == name]

    def to_data(self) -> dict[str, Any]:
        """As JSON types."""
        return {"tested": self.tested, "outcomes": [asdict(outcome) for outcome in self.outcomes]}

    def __str__(self) -> str:
        console = Console(width=140, no_color=True, highlight=False)
        with console.capture() as captured:
            console.print(_table(self))
        failed = [f"{row.optimizer}, seed {row.seed}: {row.stopped}" for row in self.outcomes if row.failed]
        return "\n".join([captured.get().rstrip(), *failed])

    def plot(self, path: str | Path, *, over: Axis = "rollouts") -> Path:
        """Draw the best validation score so far against what it took, the mean over the seeds, to an image; needs ``pip install 'gepa-lite[plot]'``.

        Args:
            path: e.g. ``"compare.svg"``.
            over: ``"rollouts"``, ``"tokens"``, ``"usd"`` or ``"seconds"``.

        Raises:
            UsageError: matplotlib is not installed, no run has a price in dollars, or the file can't be written.
        """
        if over not in AXES:
            raise UsageError(f"over={over!r}: one of {', '.join(AXES)} is needed.")
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise UsageError("plotting needs matplotlib: pip install 'gepa-lite[plot]'") from error
        figure = Figure(figsize=(7, 4.2), layout="constrained")
        axes = figure.subplots()
        drawn = 0
        for name in self.names:
            spent, scores = curve([outcome.points for outcome in self.of(name)], over)
            drawn += len(spent)
            axes.step(spent, scores, where="post", label=name)
        if not drawn:
            raise UsageError(f"no run has its {over}: draw over another axis.")
        axes.set(xlabel=over, ylabel="best validation score so far (mean over seeds)")
        axes.legend()
        try:
            figure.savefig(path)
        except (OSError, ValueError) as error:
            raise UsageError(f"{path} can't be written: {error}.") from error
        return Path(path)


def curve(courses: Sequence[Sequence[Point]], over: Axis) -> tuple[list[float], list[float]]:
    """The mean of several courses: where any of them rises, and to what; from where all have begun.

    Args:
        courses: points in order, one sequence a seed.
        over: the axis.
    """
    known = [[(float(spent), point.score) for point in course if (spent := getattr(point, over)) is not None] for course in courses]
    known = [course for course in known if course]
    if not known:
        return [], []
    start = max(course[0][0] for course in known)
    places = sorted({spent for course in known for spent, _ in course if spent >= start})
    return places, [fmean(max(score for spent, score in course if spent <= place) for course in known) for place in places]


def compare(
    program: Any,
    trainset: Any,
    valset: Any = None,
    *,
    optimizers: Sequence[str | Optimizer] = ("gepa_lite", "best_of_n", "few_shot"),
    seeds: Sequence[int] = (0,),
    folder: str | Path | None = None,
    budget: Budget | None = None,
    on_outcome: Callable[[Outcome], None] | None = None,
    **options: Any,
) -> Comparison:
    """Run several optimizers on the same program, data, feedback, models and budget.

    Each runs in a run of its own with its own cache and ledger, so that each pays for all it uses. The same call with the same folder goes on where it stopped. Where a test set is sealed
    each run looks at it once for its winner, and the verdicts are held to that many looks.

    Args:
        program: as in ``gl.optimize``.
        trainset: likewise.
        valset: likewise.
        optimizers: names of ``baselines.OPTIMIZERS``, or ``baselines.optimizer(...)`` with settings.
        seeds: each optimizer runs once with each.
        folder: where the runs are kept, each as ``<optimizer>-<seed>``; by default ``compare-<program>`` under the runs' root.
        budget: of each run; needed, since a comparison at unequal budgets says nothing.
        on_outcome: called after each run.
        options: ``objective`` (direction and range of the scores), ``testset``, ``feedback``, ``reflection_lm``, ``workers``, ``contract`` and ``prices`` as in ``gl.optimize``.

    Raises:
        UsageError: an argument is wrong; raised before any call is paid for.
        RunError: a run can't go on; what was paid is kept.

    Example:
        >>> import gepa_lite as gl
        >>> from gepa_lite.testing import ScriptedLM
        >>> class Shout(gl.Program):
        ...     answer = gl.Module("word -> reply", "Repeat the word.")
        ...     def forward(self, word):
        ...         return self.answer(word=word)
        >>> task = ScriptedLM(lambda request: "HI" if "capital" in request.messages[0]["content"] else "hi")
        >>> reflection = ScriptedLM("<prompt>Repeat the word in capital letters.</prompt>")
        >>> words = [{"word": w} for w in "red green blue white black brown pink gold".split()]
        >>> found = gl.compare(Shout(lm=task), words[:4], words[4:], feedback=lambda example, output: output.reply.isupper(), reflection_lm=reflection,
        ...                    optimizers=["gepa_lite", "best_of_n"], budget=gl.Budget(rollouts=60), folder=getfixture("tmp_path"))
        >>> [(outcome.optimizer, outcome.after) for outcome in found.outcomes]
        [('gepa_lite', 1.0), ('best_of_n', 1.0)]
    """
    chosen = [optimizer(item) if isinstance(item, str) else item for item in optimizers]
    _check(chosen, seeds, budget)
    root = runs_root() / f"compare-{type(program).__name__}" if folder is None else Path(folder)
    outcomes = []
    for each in chosen:
        for seed in seeds:
            result = each(program, trainset, valset, budget=budget, seed=seed, run=root / f"{each.name}-{seed}", **options)
            outcomes.append(outcome_of(each.name, seed, result))
            if on_outcome is not None:
                on_outcome(outcomes[-1])
    return Comparison(outcomes, all(outcome.verdict != "validated only" for outcome in outcomes))


def outcome_of(name: str, seed: int, result: Result[Any]) -> Outcome:
    """What one run found and took."""
    assert result.run is not None
    scored = result.test or result.validation
    spend, tokens, stop = result.costs.logical, result.prompt_tokens, result.state.stopped
    return Outcome(
        optimizer=name,
        seed=seed,
        verdict=result.verdict,
        before=scored.before,
        after=scored.after,
        validation=result.validation.after,
        rollouts=spend.rollouts,
        tokens=spend.tokens,
        usd=spend.usd,
        seconds=result.costs.seconds,
        training_seconds=result.costs.seconds_by_role.get("training", 0.0),
        prompt_tokens=tokens[1] / tokens[0] if tokens[0] else math.nan,
        points=points_of(result.run, result),
        run=os.fspath(result.run),
        stopped=result.stopped,
        failed=stop is not None and stop.code == "failed",
    )


def points_of(folder: Path, result: Result[Any]) -> tuple[Point, ...]:
    """What a run had reached when, from its log."""
    points: list[Point] = []
    state = RunState()
    begun: datetime | None = None
    with Browse(folder) as browse:
        for row in browse.events():
            state = state.apply(decode_event(row.kind, row.version, row.body))
            at = datetime.fromisoformat(row.at)
            begun = begun or at
            if state.seed_validated and state.best.mean is not None and len(points) < len(state.leads):
                spend = state.spend
                points.append(
                    Point(result.objective.score(state.best.mean), spend.rollouts, spend.tokens, spend.usd, (at - begun).total_seconds())
                )
    return tuple(points)


def _check(chosen: Sequence[Optimizer], seeds: Sequence[int], budget: Budget | None) -> None:
    if not chosen or not seeds:
        raise UsageError("compare needs at least one optimizer and one seed.")
    names = [each.name for each in chosen]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"two optimizers are named {twice[0]!r}: give one a label, baselines.optimizer({twice[0]!r}, label='...').")
    if budget is None:
        raise UsageError("compare needs a budget, the same for each optimizer: budget=gl.Budget(rollouts=...).")
    for each in chosen:
        each.check()


def _table(found: Comparison) -> Table:
    what = "test" if found.tested else "validation (flatters)"
    table = Table(box=None, pad_edge=False)
    for name, justify in (
        ("optimizer", "left"),
        (f"{what}: seed", "right"),
        ("winner", "right"),
        ("gain [95 %]", "right"),
        ("worst", "right"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    trained = any(row.training_seconds for row in found.outcomes)
    for name in ("improved", "rollouts", "tokens", "USD", "seconds", "prompt", *(["training s"] if trained else [])):
        table.add_column(name, justify="right")
    for name in found.names:
        rows = found.of(name)
        training = [f"{fmean(row.training_seconds for row in rows):,.0f}"] if trained else []
        table.add_row(name, *_cells(rows), *training)
    return table


def _cells(rows: Sequence[Outcome]) -> list[str]:
    gain, low, high, n = mean_interval([row.gain for row in rows])
    interval = f"{gain:+.3f} [{low:+.3f}, {high:+.3f}]" if n > 1 else f"{gain:+.3f}"
    dollars = [row.usd for row in rows]
    known = [usd for usd in dollars if usd is not None]
    return [
        f"{fmean(row.before for row in rows):.3f}",
        f"{fmean(row.after for row in rows):.3f}",
        interval,
        f"{min(row.gain for row in rows):+.3f}",
        f"{sum(row.verdict == 'improved' for row in rows)} of {n}",
        f"{fmean(row.rollouts for row in rows):,.0f}",
        f"{fmean(row.tokens for row in rows):,.0f}",
        f"{fmean(known):.4f}" if len(known) == len(rows) else "?",
        f"{fmean(row.seconds for row in rows):,.0f}",
        f"{fmean(row.prompt_tokens for row in rows):.1f}x",
    ]


def read_seeds(text: str) -> list[int]:
    """Seeds as the command line gives them, ``"0,1,2"`` or ``"0-9"``.

    Raises:
        UsageError: they are no such numbers.
    """
    seeds: list[int] = []
    for part in text.split(","):
        low, mark, high = part.strip().partition("-")
        if not low.isdigit() or (mark and not high.isdigit()):
            raise UsageError(f"seeds={text!r}: whole numbers with commas between them are needed, or a range such as 0-9.")
        seeds += range(int(low), int(high or low) + 1)
    return seeds
