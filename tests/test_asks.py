"""What a person asks of a run that goes on: to pause, to finish now, to go on with a larger budget."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite.core.events import BudgetChanged, Event, RunStarted, StepEnded, Stopped
from gepa_lite.store import asks
from gepa_lite.store.asks import Ask, Asks, ask, read_ask
from gepa_lite.store.run_store import RunStore
from tests import triage


@pytest.fixture(autouse=True)
def _look_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asks, "_EVERY", 0.0)


def run(folder: Path, proposals: int = 12, on_event: Callable[[Event], None] | None = None) -> gl.Result[Any]:
    return gl.optimize(
        triage.program(),
        triage.rows(24, 1),
        triage.rows(16, 2),
        testset=triage.rows(10, 3),
        reflection_lm=triage.reflector(),
        budget=gl.Budget(proposals=proposals),
        search=gl.Search(fan=1),
        run=folder,
        on_event=on_event,
    )


def after_step(step: int, act: Callable[[], None]) -> Callable[[Event], None]:
    return lambda event: act() if isinstance(event, StepEnded) and event.step == step else None


def events(folder: Path) -> list[Event]:
    with RunStore.read(folder) as store:
        return store.events()


def test_a_pause_is_a_ctrl_c_from_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    result = run(folder, on_event=after_step(1, lambda: ask(folder, Ask("pause"))))
    assert not result.finished
    assert not any(isinstance(event, Stopped) for event in events(folder))
    again = run(folder)
    assert again.finished, "the ask is gone with the session that it was for"
    alone = run(tmp_path / "alone")
    assert events(folder) == events(tmp_path / "alone")
    assert again.prompts == alone.prompts


def test_two_asks_of_one_process_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    move, first = Path.replace, [True]

    def interrupted(self: Path, target: Path) -> Path:
        if first.pop() if first else False:
            ask(tmp_path, Ask("finish"))
        return move(self, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    ask(tmp_path, Ask("pause"))
    assert read_ask(tmp_path) == Ask("pause"), "the last to be whole"
    assert [path.name for path in tmp_path.iterdir()] == ["run.asks"]


def test_finishing_now_scores_the_test_set(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    result = run(folder, on_event=after_step(1, lambda: ask(folder, Ask("finish"))))
    assert result.finished
    assert result.state.stopped == Stopped("asked", "a person asked to finish now")
    assert result.test is not None
    kinds = [type(event).__name__ for event in events(folder)]
    assert kinds[-3:] == ["Stopped", "SealOpened", "Tested"]
    # two, and the one whose proposals were begun beside the second one's validation
    assert kinds.count("StepEnded") == 3
    before = events(folder)
    assert run(folder).finished
    assert events(folder) == before, "a finished run stays as it is"


def test_a_larger_budget_takes_effect_while_the_run_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    result = run(folder, 4, after_step(1, lambda: ask(folder, Ask(budget=gl.Budget(proposals=8)))))
    larger = run(tmp_path / "larger", 8)
    assert result.finished
    assert result.state.budget == gl.Budget(proposals=8)
    changed = [event for event in events(folder) if not isinstance(event, BudgetChanged | RunStarted)]
    assert changed == [event for event in events(tmp_path / "larger") if not isinstance(event, RunStarted)]
    assert sum(isinstance(event, BudgetChanged) for event in events(folder)) == 1
    assert result.prompts == larger.prompts


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"stop": "explode"}', '{"budget": {"rollouts": -1}}', '{"budget": {}}', '{"budget": "much"}', "\x00"]
)
def test_what_makes_no_sense_asks_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.asks").write_text(text, encoding="utf-8")
    assert read_ask(tmp_path) == Ask()


def test_asks_come_back_as_they_were_left(tmp_path: Path) -> None:
    wanted = Ask("finish", gl.Budget(rollouts=10, usd=0.5))
    ask(tmp_path, wanted)
    assert read_ask(tmp_path) == wanted
    assert Asks(tmp_path).now() == Ask(), "a session starts without the asks of an earlier one"
    assert Asks().now() == Ask()
    with pytest.raises(gl.UsageError, match="Can't write"):
        ask(tmp_path / "nowhere", wanted)


def test_the_file_is_read_once_a_second_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asks, "_EVERY", 3600.0)
    view = Asks(tmp_path)
    assert view.now() == Ask()
    ask(tmp_path, Ask("pause"))
    assert view.now() == Ask()
