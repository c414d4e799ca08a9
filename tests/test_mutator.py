"""Training a mutator: which records are kept, what is refused before anything heavy, and a real training of a small model of letters."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import gepa_lite as gl
from benchmarks.mutator_reward import UNUSABLE, gain, questions
from benchmarks.mutator_task import RuleTask, act, run_task, score, teacher
from gepa_lite.cli.app import app
from gepa_lite.errors import UsageError
from gepa_lite.insight.transitions import TransitionRecord
from gepa_lite.lm.policy import engine_of, open_policy
from gepa_lite.lm.policy.engine import read_card
from gepa_lite.mutator.selection import Exchange, check_enough, read_records, select, split
from gepa_lite.mutator.settings import Tuning
from gepa_lite.mutator.training import train_mutator


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    found = [folder / f"taught-{number}" for number in range(2)]
    for number, run in enumerate(found):
        run_task(RuleTask(number), teacher(number), run, number, 14)
    return found


@pytest.fixture(scope="module")
def records(runs: list[Path]) -> list[TransitionRecord]:
    return read_records(runs)


def test_each_record_is_kept_or_left_out_by_one_filter(records: list[TransitionRecord]) -> None:
    kept = select(records, Tuning())
    assert len(kept.rows) + sum(kept.dropped.values()) == kept.records == len(records)
    improved = [record for record in records if record.label == "improved" and not record.dropped]
    assert [row.reply for row in kept.rows] == [record.response for record in improved]
    assert set(kept.dropped) <= {"no_change", "no_child", "repeated", "regressed"}
    assert "no_change" in kept.dropped


def test_filters_have_an_order_and_names(records: list[TransitionRecord]) -> None:
    good = next(record for record in records if record.label == "improved")
    made = [
        good,
        dataclasses.replace(good, uid="1"),
        dataclasses.replace(good, op="merge", dropped="breakage"),
        dataclasses.replace(good, dropped="systematic"),
        dataclasses.replace(good, messages=()),
        dataclasses.replace(good, label="regressed", delta=-0.1),
        dataclasses.replace(good, response="other", delta=0.05),
        dataclasses.replace(good, response="long"),
    ]
    found = select(made, Tuning(min_gain=0.1), lambda messages, reply: 5000 if reply == "long" else 10)
    assert found.dropped == {
        "repeated": 1,
        "merge": 1,
        "systematic": 1,
        "no_messages": 1,
        "regressed": 1,
        "below_min_gain": 1,
        "over_max_length": 1,
    }
    assert found.longest == 5000
    assert len(found.rows) == 1


def test_a_file_of_transitions_is_as_good_as_its_run(runs: list[Path], records: list[TransitionRecord], tmp_path: Path) -> None:
    file = tmp_path / "one.jsonl"
    done = CliRunner().invoke(app, ["export", str(runs[0]), "--format", "transitions", "--to", str(file)])
    assert done.exit_code == 0
    assert read_records([file]) == gl.transitions(runs[0])
    # the same run by both ways counts once
    assert len(read_records([file, *runs])) == len(records)


@pytest.mark.parametrize(
    ("text", "match"), [("{", "line 1: no JSON"), ('{"messages": []}', "--format transitions"), ("[1]", "no transition")]
)
def test_another_file_is_refused(text: str, match: str, tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text(text)
    with pytest.raises(UsageError, match=match):
        read_records([tmp_path / "other.jsonl"])
    with pytest.raises(UsageError, match="can't be read"):
        read_records([tmp_path / "none.jsonl"])


def test_what_is_held_out_shares_no_text_with_what_is_trained_on() -> None:
    rows = [Exchange([], str(place), f"text {place // 3}") for place in range(30)]
    train, held = split(rows, Tuning(held_out=0.2))
    assert len(held) == 6
    assert sorted(map(id, [*train, *held])) == sorted(map(id, rows))
    assert not {row.about for row in train} & {row.about for row in held}
    assert split(rows, Tuning(held_out=0.2)) == (train, held)
    assert any(split(rows, Tuning(held_out=0.2, seed=seed))[1] != held for seed in (1, 2, 3))
    assert split(rows, Tuning(held_out=0.0)) == (rows, [])
    assert split([Exchange([], "a", "x"), Exchange([], "b", "x"), Exchange([], "c", "y")], Tuning(held_out=0.1))[1][0].reply == "c"
    with pytest.raises(UsageError, match="same text"):
        split(rows[:3], Tuning())


def test_too_few_records_are_refused_before_anything_heavy(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"of 24 records kept; left out: .*no_change.*At least 100 are needed"):
        train_mutator(runs, tmp_path / "new", base="no-such-model", tuning=Tuning(min_records=100))
    assert not (tmp_path / "new").exists()


def test_too_long_records_are_refused_with_the_longest(records: list[TransitionRecord]) -> None:
    tuning = Tuning(max_length=100)
    with pytest.raises(UsageError, match=r"over max_length=100 has 377 tokens"):
        check_enough(select(records, tuning, lambda messages, reply: 377), tuning)


def test_preferences_without_a_pair_are_refused(records: list[TransitionRecord]) -> None:
    tuning = Tuning(preferences=True)
    assert select(records, tuning).pairs
    improved = [record for record in records if record.label == "improved"]
    with pytest.raises(UsageError, match="no pair"):
        check_enough(select(improved, tuning), tuning)


@pytest.mark.parametrize(
    "wrong", [{"epochs": 0}, {"held_out": 1.0}, {"held_out": True}, {"learning_rate": 0}, {"lora": 3}, {"min_gain": -1}]
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Tuning(**wrong)


def test_a_folder_of_something_else_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for taken in (tmp_path, tmp_path / "file"):
        with pytest.raises(UsageError, match="no training of a mutator"):
            train_mutator(["no-such-run"], taken, base="no-such-model")


def test_no_run_and_an_adapter_as_base_are_refused(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run was named"):
        train_mutator([], tmp_path / "new")
    (tmp_path / "policy.json").write_text("{}")
    with pytest.raises(UsageError, match="folder of an adapter"):
        train_mutator(runs, tmp_path / "new", base=str(tmp_path))


def test_the_command_says_what_is_wrong(runs: list[Path], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["train-mutator", *map(str, runs), "--to", str(tmp_path / "new"), "--min-records", "99"])
    assert done.exit_code == 2
    assert "At least 99 are needed" in done.stderr


def test_the_simulated_task_is_scored_by_its_prompt(runs: list[Path]) -> None:
    assert act("Do it. Messages about kettles must be answered: refund.", "train note 3 about kettles") == "refund"
    assert act("Do it. Kettles: refund. Pianos: archive.", "train note 3 about pianos") == "archive"
    assert act("Do it.", "train note 3 about kettles") == "none"
    asked = questions(runs)
    record = next(record for record in gl.transitions(runs[0]) if record.label == "improved")
    question = asked[record.uid]
    # what the run measured is what the reward is
    assert gain(question, record.response, "stop") == pytest.approx(record.delta)
    assert gain(question, "no prompt here", "stop") == UNUSABLE == gain(question, record.response, "length")
    assert score(question["parent"], question["examples"]) == pytest.approx(sum(record.scores_before) / len(record.scores_before))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("trl")
    from benchmarks.rl_task import letter_model

    return letter_model(tmp_path_factory.mktemp("letters"))


SMALL = Tuning(epochs=3, max_length=500, learning_rate=5e-3, held_out=0.2, preferences=True)


@pytest.mark.heavy
@pytest.mark.timeout(400)
def test_a_training_lowers_the_loss_held_out_and_one_that_broke_off_goes_on_as_the_whole_one(
    letters: str, runs: list[Path], tmp_path: Path
) -> None:
    told: list[tuple[str, int]] = []
    whole = train_mutator(
        runs, tmp_path / "whole", base=letters, tuning=SMALL, progress=lambda stage, step, steps, loss: told.append((stage, step))
    )
    assert whole.loss_before is not None
    assert whole.loss_after is not None
    assert whole.loss_after < whole.loss_before
    assert whole.rows + whole.held_out + sum(whole.dropped.values()) == whole.records == 24
    assert {stage for stage, _ in told} == {"replies", "pairs"}

    def interrupted_at(stage: str) -> Any:
        def stop(now: str, step: int, steps: int, loss: float) -> None:
            if (now, step) == (stage, 2):
                raise KeyboardInterrupt

        return stop

    for stage in ("replies", "pairs"):
        with pytest.raises(KeyboardInterrupt):
            train_mutator(runs, tmp_path / "broken", base=letters, tuning=SMALL, progress=interrupted_at(stage))
        # another process would load the model anew
        engine_of.cache_clear()
        open_policy.cache_clear()
    again = train_mutator(runs, tmp_path / "broken", base=letters, tuning=SMALL)
    assert dataclasses.replace(again, folder=whole.folder) == whole
    # one that has ended is only read
    assert train_mutator(runs, tmp_path / "whole", base=letters, tuning=SMALL, progress=interrupted_at("replies")) == whole
    with pytest.raises(UsageError, match="differs in tuning"):
        train_mutator(runs, tmp_path / "whole", base=letters, tuning=dataclasses.replace(SMALL, seed=1))
    assert (
        read_card(tmp_path / "whole")["adapter"]
        == whole.adapter
        == json.loads((tmp_path / "whole" / "training.json").read_text())["trained"]["adapter"]
    )
    # what was trained serves as reflection model: a run with it asks it
    result = run_task(RuleTask(9), f"policy/{tmp_path / 'whole'}", tmp_path / "run", 0, 4)
    assert [record.model for record in gl.transitions(result)] == [f"policy/{tmp_path / 'whole'}"] * 4


@pytest.mark.heavy
@pytest.mark.timeout(400)
def test_a_window_that_is_too_small_is_said_before_weights_are_loaded(letters: str, runs: list[Path], tmp_path: Path) -> None:
    engine_of.cache_clear()
    with pytest.raises(UsageError, match=r"window .* is 512 tokens"):
        train_mutator(runs, tmp_path / "new", base=letters)
    assert engine_of(letters.removeprefix("policy/")).model is None


@pytest.mark.heavy
@pytest.mark.timeout(400)
def test_the_benchmark_runs_all_its_parts() -> None:
    pytest.importorskip("trl")
    from benchmarks.mutator import run
    from benchmarks.report import Options

    report = run(Options(quick=True, rest=("--preferences", "--reward", "1")))
    assert set(report.extra["outcomes"]) == {"base", "trained", "rewarded", "teacher"}
    rows = {row.measure: row for row in report.rows}
    refined = rows["replies that improve it (refinement): teacher, base"]
    assert refined.ours > 0
    assert refined.peer == 0
