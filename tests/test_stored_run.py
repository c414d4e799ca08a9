"""A run on disk is finished only where a resume would do nothing more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite import api
from gepa_lite.core.events import BudgetChanged, MilestoneScored, Shortened, Stopped
from gepa_lite.core.events import Tested as Scored
from gepa_lite.insight.stored import read_run
from gepa_lite.store.run_store import RunStore
from gepa_lite.ui.library import Library
from tests.triage import program, reflector, rows


def go(folder: Path, prefer: Any = "score", **sets: Any) -> list[Any]:
    prepared = api.prepare(
        program(),
        rows(24, 1),
        rows(16, 2),
        reflection_lm=reflector(),
        search=gl.Search(shorten=60, milestones=3, prefer=prefer),
        budget=gl.Budget(rollouts=300),
        **sets,
    )
    api.execute(prepared, folder, [])
    with RunStore.read(folder) as store:
        return list(store.events())


def cut_off(folder: Path, events: list[Any]) -> Any:
    with RunStore.create(folder) as store:
        store.commit(events)
    run, library = read_run(folder), Library(folder.parent)
    with library.closing():
        assert library.status(library.shelf(folder.name))[0] == run.status, "the live list says the same"
    return run


@pytest.mark.parametrize(
    "sets",
    [
        {"testset": rows(10, 3), "curveset": rows(6, 4)},
        {"testset": rows(10, 3)},
        {"curveset": rows(6, 4)},
        {"testset": rows(10, 3), "curveset": rows(6, 4), "prefer": "short"},
        {},
    ],
    ids=("both", "test", "curve", "short", "none"),
)
def test_only_the_whole_log_is_finished(tmp_path: Path, sets: dict[str, Any]) -> None:
    events = go(tmp_path / "run", **sets)
    assert cut_off(tmp_path / "whole", events).finished
    stop = next(place for place, event in enumerate(events) if isinstance(event, Stopped))
    assert any(isinstance(event, Shortened) for event in events[stop:])
    words = []
    for length in range(stop, len(events)):
        run = cut_off(tmp_path / f"cut-{length}", events[:length])
        assert not run.finished, f"{type(events[length]).__name__} is left"
        words.append(run.result().stopped)
    assert words[:2] == ["interrupted", "interrupted within the shortening pass"]
    if "testset" in sets:
        place = next(index for index, event in enumerate(events) if isinstance(event, Scored)) - stop
        assert words[place] == "interrupted within the test set"
    if "curveset" in sets:
        assert words[-1] == "interrupted within the curve's examples"
        assert sum(isinstance(event, MilestoneScored) for event in events) > 1, "one of several milestones is not all"


def test_a_run_that_found_another_winner_is_not_finished_before_it_is_tested(tmp_path: Path) -> None:
    events = go(tmp_path / "run", testset=rows(10, 3))
    tested = next(place for place, event in enumerate(events) if isinstance(event, Scored))
    other = Scored(0, events[tested].seed_values, events[tested].seed_values)
    assert events[tested].winner != 0
    run = cut_off(tmp_path / "cut", [*events[:tested], other, BudgetChanged(gl.Budget(rollouts=301)), Stopped("budget", "spent")])
    assert not run.finished
    assert run.result().stopped == "interrupted within the test set"
