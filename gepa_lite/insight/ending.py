"""Whether a run that is followed by its trail has nothing left to do: the answer of ``StoredRun.finished``, without the state where the trail is enough."""

from __future__ import annotations

from pathlib import Path

from gepa_lite.insight.stored import read_run, rules_of
from gepa_lite.insight.trail import Trail
from gepa_lite.search.reserve import milestones_among


def is_finished(trail: Trail, folder: Path) -> bool:
    """Whether a resume would do nothing more.

    Args:
        trail: the run's course, up to now.
        folder: of the run; its file is read in full only where the course does not tell: whether another sentence could go, and which candidate is the shortest good one.
    """
    if trail.started is None or trail.stopped is None:
        return False
    if not trail.nodes:
        # a search that ended in the seed's validation has nothing to score
        return True
    test, curve = bool(trail.started.test_ids), bool(trail.started.curve_ids)
    if (test and trail.tested is None) or (curve and not trail.curve):
        return False
    rules = rules_of(trail.started)
    # what comes after the shortening pass has begun where there is any: the pass is over
    if rules.prefer != "score" or (rules.shorten and not test and not curve):
        return read_run(folder).finished
    winner = trail.shortened_best
    assert winner is not None
    if trail.tested is not None and trail.tested.winner != winner.index:
        return False
    scored = [event.member for event in trail.curve]
    return not curve or set(milestones_among(scored, trail.leads, winner.index, rules.milestones)) <= set(scored)
