"""The charts of a run as an image for a paper or a slide; needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gepa_lite.errors import UsageError
from gepa_lite.insight.distance import Embedding, TextSpace
from gepa_lite.insight.measures import read_trail, run_of
from gepa_lite.report.charts import AXES, Axis, place_on
from gepa_lite.report.pages import Look
from gepa_lite.store.browse import Browse

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gepa_lite.ship.result import Result

FORMATS = ("png", "svg", "pdf")


def plot(run: Result[Any] | str | Path, path: str | Path, *, over: Axis = "rollouts", embedding: str | Embedding = "ngrams") -> Path:
    """Draw a run to an image: score over cost, refinement and breakthroughs by generation, entropies, and novelty against gain.

    Args:
        run: a result, the name of a run, or the path of its folder.
        path: ending in .png, .svg or .pdf; an existing file is replaced.
        over: what the score is shown against: ``"rollouts"``, ``"usd"`` or ``"seconds"``.
        embedding: what texts are compared by; see ``gl.measures``.

    Raises:
        UsageError: there is no such run, matplotlib is not installed, or the file can't be written.
    """
    path = Path(path)
    if path.suffix.lstrip(".").lower() not in FORMATS:
        raise UsageError(f"{path}: a name that ends in {', '.join('.' + form for form in FORMATS)} is needed.")
    if over not in AXES:
        raise UsageError(f"over={over!r}: one of {', '.join(map(repr, AXES))} is needed.")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("plotting needs matplotlib: pip install 'gepa-lite[plot]'") from error
    with Browse(run_of(run)) as browse:
        trail = read_trail(browse)
        look = Look(trail, browse, TextSpace(trail.modules, embedding))
        figure = Figure(figsize=(10, 7), layout="constrained")
        (score, rates), (entropy, novelty) = figure.subplots(2, 2)
        _score(score, look, over)
        _rates(rates, look)
        _entropies(entropy, look)
        _novelty(novelty, look)
        figure.suptitle(browse.folder.name.replace("$", r"\$"))
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} can't be written: {error}.") from error
    return path


def _score(axes: Axes, look: Look, over: Axis) -> None:
    trail = look.trail
    nodes = [node for node in trail.nodes if node.mean is not None]
    score = trail.objective.score
    front = [node.index in look.front for node in nodes]
    xs = np.array([place_on(over, node, trail) for node in nodes])
    ys = np.array([score(node.mean) for node in nodes if node.mean is not None])
    axes.scatter(xs, ys, s=10, color="0.6", label="candidate")
    axes.scatter(xs[front], ys[front], s=16, label="on the front")
    leads = [trail.nodes[index] for index in trail.leads if trail.nodes[index].mean is not None]
    axes.step(
        [place_on(over, node, trail) for node in leads], [score(node.mean or 0.0) for node in leads], where="post", label="best so far"
    )
    axes.set(xlabel=f"{AXES[over]} spent", ylabel="validation mean")
    axes.legend(fontsize="small")


def _rates(axes: Axes, look: Look) -> None:
    places = look.measures.generations
    axes.bar([place.index for place in places], [place.rate for place in places], color="0.8", label="refinement rate")
    new = [place.index for place in places if place.breakthrough]
    axes.plot(new, [1.02] * len(new), "v", markersize=4, label="breakthrough")
    axes.set(xlabel="generation", ylabel="share", ylim=(0, 1.08))
    axes.locator_params(axis="x", integer=True)
    axes.legend(fontsize="small")


def _entropies(axes: Axes, look: Look) -> None:
    places = [place for place in look.measures.generations if place.points]
    axes.plot([place.index for place in places], [place.evenness for place in places], label="evenness (H_spatial / ln n)")
    axes.plot([place.index for place in places], [place.spread for place in places], "--", label="spread (similarity entropy / ln n)")
    axes.set(xlabel="generation", ylim=(0, 1.05))
    axes.locator_params(axis="x", integer=True)
    axes.legend(fontsize="small")


def _novelty(axes: Axes, look: Look) -> None:
    novelties = look.course.normalised_novelties
    for status, marker in (("accepted", "o"), ("rejected", "x")):
        chosen = [attempt for attempt in look.course.measured if attempt.seq in novelties and attempt.status == status]
        gains = [((attempt.after or 0.0) - attempt.before) / max(1, attempt.examples) for attempt in chosen]
        axes.scatter([novelties[attempt.seq] for attempt in chosen], gains, s=14, marker=marker, label=status)
    axes.axhline(0, color="0.5", linewidth=0.8)
    axes.set(xlabel="novelty", ylabel="gain an example")
    axes.legend(fontsize="small")
