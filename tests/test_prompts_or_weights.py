"""Prompts against weights: the tasks' feedback, and what the tables make of the cells."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gepa_lite as gl
from benchmarks import prompts_or_weights
from benchmarks.cell_tables import read_cells
from benchmarks.cells import keep
from benchmarks.prompts_or_weights import optimizer_of
from benchmarks.report import Options
from benchmarks.weights_tables import fewer_rollouts, markdown, split_gain
from benchmarks.weights_tasks import TASKS, splits
from gepa_lite.errors import UsageError

PAGE = Path(__file__).parents[1] / "docs" / "baselines.md"


def cell(optimizer: str, seed: int, course: list[tuple[float, int]], values: list[float], **figures: float) -> dict[str, Any]:
    given = {"seed_test": 0.1, "test": sum(values) / len(values), "seed_form": 0.5, "form": 0.5, "rollouts": 200, "tokens": 9_000}
    roles = {"task": {"input_tokens": 7_000, "output_tokens": 1_000}, "reflection": {"input_tokens": 800, "output_tokens": 200}}
    return {
        "task": "orders",
        "optimizer": optimizer,
        "seed": seed,
        "figures": {**given, "seconds": 60.0, "training_seconds": 0.0, "tokens_by_role": roles, **figures},
        "leads": [{"validation": score, "rollouts": spent} for score, spent in course],
        "test_values": {"winner": values},
    }


def test_orders_are_judged_by_the_words_they_name() -> None:
    example = {"note": "We need cups and nails.", "things": "cups, nails"}
    judge = TASKS["orders"].feedback
    whole, half, talk, empty = (
        judge(example, SimpleNamespace(things=text)) for text in ("nails, cups", "cups", "I think: cups, nails", "!")
    )
    assert [found.score for found in (whole, half, empty)] == [1.0, pytest.approx(2 / 3), 0.0]
    assert talk.score == pytest.approx(2 / 3)
    assert [found.objectives["form"] for found in (whole, half, talk, empty)] == [1.0, 1.0, 0.0, 0.0]
    assert "Missing: nails." in half.text
    assert "too many: i, think." in talk.text


def test_contacts_are_judged_module_by_module() -> None:
    example = {"person": "Ann", "room": "7"}
    found = TASKS["contacts"].feedback(example, SimpleNamespace(person="ann.", room="It is room 7"))
    assert found.scores == {"who": 1.0, "where": pytest.approx(0.4)}
    assert found.score == pytest.approx(0.7)
    assert found.objectives == {"form": 0.0}
    assert "'7'" in found.for_module("where")
    assert found.for_module("who") == "Right: Ann."


def test_splits_share_no_note_and_stay_the_same() -> None:
    parts = splits((24, 12, 40))
    assert [len(part) for part in parts] == [24, 12, 40]
    assert len({row["note"] for part in parts for row in part}) == 76
    assert parts == splits((24, 12, 40))
    for row in parts[0]:
        assert all(thing in row["note"] for thing in [*row["things"].split(", "), row["person"], row["room"]])


@pytest.mark.parametrize("name", TASKS)
def test_prompts_by_hand_are_those_of_the_program(name: str) -> None:
    program = TASKS[name].program(lm=lambda request: "x")
    assert set(TASKS[name].by_hand) == set(program.prompts)
    assert gl.evaluate(program, splits((1, 1, 4))[2], feedback=TASKS[name].feedback).mean == 0.0


def test_a_gain_is_split_into_form_and_content() -> None:
    assert split_gain({"seed_test": 0.2, "test": 0.4, "seed_form": 0.5, "form": 1.0}) == (pytest.approx(0.2), pytest.approx(0.0))
    assert split_gain({"seed_test": 0.0, "test": 0.5, "seed_form": 0.0, "form": 1.0}) == (0.5, 0.0), "no answer could be read before"
    form, content = split_gain({"seed_test": 0.3, "test": 0.2, "seed_form": 0.0, "form": 0.0})
    assert (form, content) == (0.0, pytest.approx(-0.1))


def test_how_many_times_fewer_rollouts_is_read_at_the_best_score_that_both_reached() -> None:
    quick = cell("gepa_lite", 0, [(0.1, 12), (0.4, 30), (0.6, 120)], [1.0])
    slow = cell("grpo", 0, [(0.1, 12), (0.3, 72), (0.5, 132)], [1.0])
    assert fewer_rollouts(quick, slow) == pytest.approx(132 / 120)
    assert fewer_rollouts(slow, quick) == pytest.approx(120 / 132)
    assert fewer_rollouts(quick, cell("grpo", 0, [(0.1, 12), (0.4, 60)], [1.0])) == pytest.approx(2.0)
    assert fewer_rollouts(quick, cell("grpo", 0, [(0.1, 12)], [1.0])) is None, "it never rose"


def test_the_tables_pair_seeds_and_say_where_nothing_can_be_compared() -> None:
    cells = [
        cell("grpo", 0, [(0.1, 12), (0.5, 132)], [0.4, 0.6], training_seconds=30.0),
        cell("grpo", 1, [(0.1, 12), (0.5, 72)], [0.4, 0.6], training_seconds=50.0),
        cell("gepa_lite", 0, [(0.1, 12), (0.5, 66)], [0.5, 0.9]),
        cell("gepa", 1, [(0.1, 12)], [0.1, 0.1]),
        cell("by_hand", 0, [], [0.2, 0.2]),
    ]
    lines = markdown(cells).splitlines()
    assert [line.split(" | ")[1] for line in lines[2:6]] == ["by_hand", "grpo", "gepa", "gepa_lite"]
    assert lines[3].startswith("| orders | grpo | 2 | 0.500 [")
    assert lines[3].endswith("| 200 | 9,000, 1,000 | 60 | 40 |")
    assert lines[-2].startswith("| orders | gepa | 1 | -0.400 [")
    assert lines[-2].endswith("| none: one of the two never rose | 0 |")
    assert lines[-1].startswith("| orders | gepa_lite | 1 | +0.200 [")
    assert lines[-1].endswith("| 2.00 [2.00, 2.00] | 1 |")


def test_the_table_alone_runs_nothing_and_says_where_there_are_no_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rest = ("--table", "--results", str(tmp_path), "--model", "policy/tiny", "--markdown", str(tmp_path / "page.md"))
    with pytest.raises(UsageError, match="no cell of policy/tiny"):
        prompts_or_weights.run(Options(rest=rest))
    keep(tmp_path / "policy_tiny" / "one.json", cell("grpo", 2, [(0.1, 12)], [0.25, 0.5]))
    report = prompts_or_weights.run(Options(rest=rest))
    assert report.seeds == [2]
    assert (tmp_path / "page.md").read_text() == markdown(read_cells("policy/tiny", tmp_path)) + "\n"
    assert "| orders | grpo | 1 | 0.375" in capsys.readouterr().out


@pytest.mark.parametrize(("rest", "named"), [(("--tasks", "orders,nothing"), "nothing"), (("--optimizers", "grpo,nobody"), "nobody")])
def test_unknown_names_are_refused_before_anything_runs(rest: tuple[str, ...], named: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=named):
        prompts_or_weights.run(Options(rest=(*rest, "--results", str(tmp_path), "--runs", str(tmp_path))))
    assert not list(tmp_path.iterdir())


def test_the_control_is_the_training_with_its_rewards_dealt_anew() -> None:
    trained, control = (optimizer_of(name, 3e-4) for name in ("grpo", "grpo_shuffled"))
    assert (trained.name, control.name) == ("grpo", "grpo_shuffled")
    assert trained.procedure is not None
    assert control.procedure is not None
    own, others = (procedure.settings()["training"] for procedure in (trained.procedure, control.procedure))
    assert {name: (own[name], others[name]) for name in own if own[name] != others[name]} == {"shuffled": (False, True)}


def test_the_page_shows_the_tables_of_the_kept_cells() -> None:
    assert markdown(read_cells("policy/smollm2-135m", prompts_or_weights.RESULTS)) in PAGE.read_text("utf-8"), (
        "python -m benchmarks prompts-or-weights --table --markdown FILE"
    )
