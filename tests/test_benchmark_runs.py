"""The suite's cells: each is one run of a task by an optimizer, kept as one file, on a scripted model here."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest

from benchmarks import cell_plots, cell_tables, local_tasks, suite, table
from benchmarks.cells import SETTINGS, Cell, optimizer_of, run_cell
from benchmarks.data_sets import data_folder
from benchmarks.local_data import SIZES
from benchmarks.replies import RememberingLM
from benchmarks.report import Options, Report
from benchmarks.run import MODEL, command_of, run, run_all, scripted
from gepa_lite.adapters.adapt import adapt
from gepa_lite.errors import UsageError
from gepa_lite.lm.protocol import Params, Request
from gepa_lite.testing import ScriptedLM

BUDGET = 100
NAMES = ("seed", "by_hand", "gepa_lite", "gepa", "best_of_n")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("suite")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEPA_LITE_RUNS", str(root / "runs"))
        patch.setenv("GEPA_LITE_PROGRESS", "0")
        lm = RememberingLM(ScriptedLM(scripted), root / "replies.db")
        for name in NAMES:
            for seed in (0,) if name in ("seed", "by_hand") else (0, 1):
                cell = Cell("fernpost-local", name, seed, "scripted", BUDGET)
                run_cell(cell, lm, root / "results", command_of(cell))
        lm.close()
    return root / "results"


def test_each_cell_says_what_was_run_and_what_came(results: Path) -> None:
    found = json.loads(Cell("fernpost-local", "gepa", 1, "scripted", BUDGET).file(results).read_text())
    assert (found["task"], found["optimizer"], found["seed"], found["budget"]) == ("fernpost-local", "gepa", 1, BUDGET)
    assert found["command"] == "python -m benchmarks run --task fernpost-local --optimizer gepa --lm scripted --budget 100 --seeds 1"
    figures = found["figures"]
    assert figures["rollouts"] <= BUDGET
    assert figures["seed_test"] == pytest.approx(0.25)
    assert figures["test"] > figures["seed_test"]
    assert figures["gap"] == pytest.approx(figures["validation"] - figures["test"])
    assert figures["tokens"] == sum(role["input_tokens"] + role["output_tokens"] for role in figures["tokens_by_role"].values())
    assert [len(found["test_values"][who]) for who in ("seed", "winner")] == [100, 100]
    leads = found["leads"]
    assert leads[0]["member"] == 0
    assert leads[0]["rollouts"] == SIZES["validation"]
    assert all(lead["curve"] is not None for lead in leads), "scored on a split of its own"
    assert {"gepa_lite", "gepa"} <= set(found["versions"])
    text = json.dumps(found)
    assert str(results.parent) not in text, "no path of this machine"


def test_both_optimizers_start_from_the_same_scores(results: Path) -> None:
    cells = cell_tables.read_cells("scripted", results)
    seeds = {tuple(cell["test_values"]["seed"]) for cell in cells if "seed" in cell["test_values"]}
    assert len(seeds) == 1
    (plain,) = [cell for cell in cells if cell["optimizer"] == "seed"]
    assert seeds == {tuple(plain["test_values"]["winner"])}


def test_a_cell_that_is_done_is_not_run_again_and_another_budget_is_another_cell(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = Cell("fernpost-local", "gepa_lite", 0, "scripted", BUDGET)
    assert done.done(results)
    assert not Cell("fernpost-local", "gepa_lite", 0, "scripted", BUDGET + 1).done(results)
    assert run_all([done], results) == ([], {})
    unknown = Cell("fernpost-local", "gepa_lite", 0, "local/no-such-model", BUDGET)
    with pytest.raises(UsageError, match="no-such-model"):
        run_all([unknown], results)
    late = Cell("fernpost-local", "gepa_lite", 7, "scripted", BUDGET)
    assert run_all([late], results, until=0.0) == ([], {}), "out of time"


def test_a_cell_that_is_stopped_ends_the_table_and_goes_on_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEPA_LITE_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("GEPA_LITE_PROGRESS", "0")
    calls = 0

    def answer(request: Request) -> str:
        nonlocal calls
        calls += 1
        if calls == 100:
            os.kill(os.getpid(), signal.SIGINT)
        return scripted(request)

    lm = RememberingLM(ScriptedLM(answer), tmp_path / "replies.db")
    monkeypatch.setattr("benchmarks.run.open_model", lambda name: lm)
    cells = [Cell("fernpost-local", name, 0, "scripted", BUDGET) for name in ("gepa_lite", "best_of_n")]
    assert run_all(cells, tmp_path) == ([], {})
    assert not any(cell.done(tmp_path) for cell in cells)
    found, failed = run_all(cells, tmp_path)
    assert [each["optimizer"] for each in found] == ["gepa_lite", "best_of_n"]
    assert failed == {}
    lm.close()


def test_the_tables_compare_what_is_comparable(results: Path) -> None:
    found = cell_tables.tables(cell_tables.read_cells("scripted", results))
    task = found["fernpost-local"]
    assert list(task["optimizers"])[:2] == ["seed", "by_hand"]
    ours = task["optimizers"]["gepa_lite"]
    assert ours["seeds"] == [0, 1]
    assert ours["low"] <= ours["test"] <= ours["high"]
    assert ours["worst"] <= ours["test"]
    assert task["pair"]["seeds"] == [0, 1]
    text = cell_tables.markdown(found)
    assert "| fernpost-local | gepa_lite | 2 |" in text
    assert "gepa_lite - gepa" in text


def test_the_table_is_a_command(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image, page = tmp_path / "curves.svg", tmp_path / "table.md"
    rest = ("--lm", "scripted", "--results", str(results), "--plot", str(image), "--markdown", str(page))
    report = table.run(Options(rest=rest))
    assert report.n == 8
    assert [row.measure for row in report.rows] == [
        "fernpost-local: test above the seed program's",
        "fernpost-local: test, gepa_lite beside gepa",
    ]
    assert all(row.met for row in report.rows)
    assert image.read_text().lstrip().startswith("<?xml")
    assert page.read_text() in capsys.readouterr().out


def test_the_page_shows_the_runs_that_are_there() -> None:
    page = (Path(__file__).parents[1] / "docs" / "benchmarks.md").read_text("utf-8")
    assert cell_tables.markdown(cell_tables.tables(cell_tables.read_cells(MODEL))) in page, "python -m benchmarks table --markdown FILE"


def test_a_course_is_the_mean_of_its_runs() -> None:
    runs = [
        {"leads": [{"tokens": 10, "curve": 0.2}, {"tokens": 40, "curve": 0.6}], "figures": {"tokens": 90}},
        {"leads": [{"tokens": 20, "curve": 0.2}], "figures": {"tokens": 60}},
    ]
    assert cell_plots.course(runs, "tokens") == ([20, 40, 60], pytest.approx([0.2, 0.4, 0.4]))


def test_an_interval_is_that_of_paired_runs() -> None:
    assert cell_tables.interval([[1.0, 1.0], [1.0, 1.0]]) == (1.0, 1.0, 1.0)
    mean, low, high = cell_tables.interval([[0.0, 1.0] * 50])
    assert mean == 0.5
    assert 0.38 < low < 0.45
    assert 0.55 < high < 0.62
    assert cell_tables.interval([[1.0, None]])[0] == 1.0


def test_equal_tokens_are_those_that_both_had() -> None:
    def cell(seed: int, tokens: int, leads: list[tuple[int, float]]) -> dict[str, object]:
        rows = [{"rollouts": spent, "tokens": spent, "curve": score} for spent, score in leads]
        return {
            "seed": seed,
            "figures": {"rollouts": 100, "tokens": tokens},
            "leads": rows,
            "test_values": {"winner": [1.0, 0.0]},
        }

    ours, theirs = cell(0, 50, [(10, 0.2), (40, 0.5)]), cell(0, 90, [(10, 0.2), (60, 0.9)])
    both = cell_tables.pair([ours], [theirs])
    assert both is not None
    assert both["curve at equal tokens"] == pytest.approx(0.3), "theirs led with 0.9 only after 60 tokens"
    assert both["curve at equal rollouts"] == pytest.approx(-0.4)
    assert both["test"] == 0
    assert cell_tables.pair([ours], [cell(1, 90, [])]) is None


def test_greedy_replies_are_remembered_and_others_are_not(tmp_path: Path) -> None:
    model = ScriptedLM("yes")
    lm = RememberingLM(model, tmp_path / "replies.db")
    greedy = Request(({"role": "user", "content": "well?"},), Params(temperature=0.0))
    warm = Request(greedy.messages, Params(temperature=1.0))
    first, second = lm.complete(greedy), lm.complete(greedy)
    assert (first.text, first.usage) == (second.text, second.usage)
    lm.complete(warm)
    lm.complete(warm)
    assert (lm.asked.calls, lm.asked.remembered) == (4, 1)
    assert model.describe() == lm.describe()
    lm.close()
    again = RememberingLM(ScriptedLM("no"), tmp_path / "replies.db")
    assert again.complete(greedy).text == "yes", "of the same model, also in another process"
    again.close()


def test_names_are_checked_before_anything_is_run() -> None:
    with pytest.raises(UsageError, match="no task 'x'; there are"):
        run(Options(rest=("--task", "x")))
    with pytest.raises(UsageError, match="no setting 'gepa_lite:x'"):
        run(Options(rest=("--optimizer", "gepa_lite:x")))
    with pytest.raises(UsageError, match="Did you mean 'best_of_n'"):
        optimizer_of("best_of_m")
    for name in SETTINGS:
        assert optimizer_of(name).name == name


def test_the_suite_runs_both_searches_on_every_task_before_a_second_seed() -> None:
    cells = list(suite.ordered(("a", "b"), ("gepa_lite", "gepa"), ("few_shot",), (0, 1), "m", 200))
    names = [f"{cell.task} {cell.optimizer} {cell.seed}" for cell in cells]
    assert names[:6] == ["a seed 0", "a gepa_lite 0", "a gepa 0", "b seed 0", "b gepa_lite 0", "b gepa 0"]
    assert names[6:9] == ["a by_hand 0", "b by_hand 0", "a gepa_lite 1"]
    assert names[12:] == ["a few_shot 0", "b few_shot 0", "a few_shot 1", "b few_shot 1"]
    assert len(set(names)) == len(names)


def test_a_quick_suite_starts_no_real_model(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Report("run", [], 0)
    monkeypatch.setattr(suite, "quick", lambda: told)
    monkeypatch.setattr(suite, "run_all", lambda *given: pytest.fail("it ran the suite's cells"))
    assert suite.run(Options(quick=True)) is told


@pytest.mark.parametrize("name", list(local_tasks.TASKS))
def test_each_tasks_rows_are_apart_and_its_feedback_takes_them(name: str) -> None:
    if name != "fernpost-local" and not data_folder().is_dir():
        pytest.skip("the data sets are not here")
    task = local_tasks.find_task(name)
    splits = task.splits()
    assert len(splits["validation"]) == SIZES["validation"]
    assert len(splits["test"]) == SIZES["test"]
    assert len(splits["train"]) == SIZES["train"]
    seen = [json.dumps(row, sort_keys=True) for rows in splits.values() for row in rows]
    assert len(set(seen)) == len(seen)
    program = adapt(task.program(lm=ScriptedLM("x")))
    assert set(task.by_hand) == set(program.prompts)
    assert all(re.search(r"\w", text) for text in task.by_hand.values())
