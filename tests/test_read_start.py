"""``Search(start=)``, ``optimize([program, path])`` and ``--start`` take whatever holds prompts, and say what they found where they can't."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import gepa_lite as gl
from gepa_lite.cli.app import app
from tests.test_starts import LM, OTHER, SEED, run
from tests.triage import Triage, rows

ROUTE = "Decide how urgent it is. rule typo."


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prompts of one run in every form, and prompt files."""
    folder = tmp_path_factory.mktemp("shelf")
    result = run(folder / "first")
    bundle = result.save(folder / "a.prompts.json")
    registry = gl.Registry(folder / "registry")
    registry.promote(registry.add(bundle, why="first"), why="it is better")
    gl.export(result, "markdown", folder / "exported")
    gl.export(result, "markdown", folder / "edited")
    (folder / "edited" / "route.md").write_text(ROUTE + "\n")
    (folder / "files").mkdir()
    (folder / "files" / "route.md").write_text(ROUTE + "\n")
    (folder / "route.txt").write_text(ROUTE + "\n")
    (folder / "prompts.yaml").write_text(f"route: {ROUTE}\n")
    return folder


def start_of(path: Any, folder: Path, way: str) -> tuple[gl.Result[Any], dict[str, str]]:
    result = run(folder / "run", search=gl.Search(start=path)) if way == "search" else run(folder / "run", [path])
    assert [start.index for start in result.starts] == [0, 1]
    return result, dict(result.candidates[1].candidate.texts)


@pytest.mark.parametrize("way", ["search", "list"])
@pytest.mark.parametrize(
    ("name", "shown"),
    [("a.prompts.json", "a.prompts.json"), ("registry", "v0001.prompts.json"), ("first", "run first, #"), ("first/run.db", "run first, #")],
)
def test_what_a_run_left_is_a_start(name: str, shown: str, way: str, shelf: Path, tmp_path: Path) -> None:
    result, texts = start_of(shelf / name, tmp_path, way)
    assert texts == dict(gl.load_prompts(shelf / "a.prompts.json")) != SEED
    assert result.starts[1].name.startswith(shown)
    [kept] = json.loads(result.save(tmp_path / "next.prompts.json").read_text())["starts"]
    assert kept["origin"]["candidate"]["lineage"][0]["step"] == -1
    assert kept["origin"]["verdict"] == gl.load_prompts(shelf / "a.prompts.json").data["verdict"]


@pytest.mark.parametrize("way", ["search", "list"])
@pytest.mark.parametrize("name", ["edited", "files", "files/route.md", "route.txt", "prompts.yaml"])
def test_prompt_files_are_a_start(name: str, way: str, shelf: Path, tmp_path: Path) -> None:
    result, texts = start_of(str(shelf / name), tmp_path, way)
    assert texts["route"] == ROUTE
    before = gl.load_prompts(shelf / "a.prompts.json") if name == "edited" else SEED
    assert texts["gist"] == before["gist"]
    assert result.starts[1].name == Path(name).name


def test_an_exported_folder_is_a_start_as_it_is_and_so_are_texts_and_what_was_read(shelf: Path, tmp_path: Path) -> None:
    shipped = gl.load_prompts(shelf / "a.prompts.json")
    for place, given in enumerate([shelf / "exported", shipped, gl.prompts_from(shelf / "files"), OTHER]):
        result = run(tmp_path / str(place), search=gl.Search(start=given))
        texts = dict(result.candidates[1].candidate.texts)
        assert texts == {**SEED, **(shipped if place == 0 else given)}  # type: ignore[dict-item]


def test_starts_of_one_name_are_told_apart_and_long_names_are_whole(tmp_path: Path) -> None:
    one, two = (filled(tmp_path / name, {"route.md": f"Decide how urgent it is. {name}."}) / "route.md" for name in ("one", "two"))
    result = run(tmp_path / ("first-run-with-a-name-that-is-long"), [one, two])
    assert [start.name for start in result.starts] == ["first program", "route.md (start 1)", "route.md (start 2)"]
    after = run(tmp_path / "second", [result.run])
    assert f"run first-run-with-a-name-that-is-long, #{result.winner_index}  " in str(after)


def test_a_run_is_found_by_its_name_and_its_winner_counts_whatever_the_test_set_said(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # on these test examples no rule helps, so the result is the seed
    praise = [row for row in rows(90, 3) if row["kind"] in ("praise", "question") and len(row["message"]) % 2]
    monkeypatch.setenv("GEPA_LITE_RUNS", str(tmp_path))
    kept = run(tmp_path / "kept", testset=praise[:4])
    assert kept.shipped == 0 != kept.winner_index
    result = run(tmp_path / "next", search=gl.Search(start="kept"))
    assert dict(result.candidates[1].candidate.texts) == kept.winner_prompts != kept.prompts


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda at: at / "nowhere", "nowhere can't be read: there is no such file or folder, and no such run .*Give a bundle"),
        (
            lambda at: filled(at / "x", {"main.py": "", "b.csv": ""}),
            r"no prompts to start from are in the folder .*x: it holds b.csv, main.py",
        ),
        (lambda at: filled(at / "x", {}), "it is empty .*a registry's folder, a run's name or folder"),
        (lambda at: filled(at / "x", {"a.prompts.json": "{}", "b.prompts.json": "{}"}), "no registry: name one of them, a.prompts.json, b"),
        (lambda at: filled(at / "x", {"run.csv": "a,b"}) / "run.csv", "run.csv is a file that ends in .csv: no prompts"),
        (lambda at: filled(at / "x", {"a.json": '{"route": "x"}'}) / "a.json", "a.json is JSON, but not a bundle of prompts"),
        (lambda at: filled(at / "x", {"rote.md": ROUTE}), "x: Triage has no module 'rote'; .*Did you mean 'route'"),
        (lambda at: filled(at / "x", {"run.db": "no database"}), "run.db"),
        (lambda at: filled(at / "x", {"registry.json": "[]"}), "not a registry of prompts"),
    ],
)
def test_what_is_no_start_is_named_with_what_is(make: Any, words: str, tmp_path: Path) -> None:
    calls = LM.calls
    with pytest.raises(gl.GepaLiteError, match=words):
        run(tmp_path / "run", search=gl.Search(start=make(tmp_path)))
    assert LM.calls == calls


def filled(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def test_a_run_whose_modules_are_others_or_that_has_no_result_is_refused(shelf: Path, tmp_path: Path) -> None:
    class Other(gl.Program):
        only = gl.Module("message -> urgency", "Say it.")

        def forward(self, message: str) -> gl.Outputs:
            return self.only(message=message)

    options: dict[str, Any] = {"feedback": lambda example, output: 1.0, "reflection_lm": LM}
    with pytest.raises(gl.UsageError, match=r"run first, #\d+: Other has no module 'gist'"):
        gl.optimize(Other(lm=LM), rows(8, 1), rows(8, 2), search=gl.Search(start=shelf / "first"), run=tmp_path / "x", **options)


def test_the_command_takes_them_by_path_and_by_name(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GEPA_LITE_RUNS", str(shelf))
    for name, data in (("train", rows(24, 1)), ("val", rows(16, 2))):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, data)))
    (tmp_path / "route.md").write_text(ROUTE)
    arguments = ["--program", "tests.test_starts:made", "--train", "train.jsonl", "--val", "val.jsonl", "--reflection-lm", "local/none"]
    done = CliRunner().invoke(app, ["run", *arguments, "--start", "nowhere", "--run", "./x"])
    assert done.exit_code == 2
    assert "nowhere can't be read: there is no such file or folder, and no such run" in done.output
    (tmp_path / "run.toml").write_text(
        'program = "tests.test_starts:made"\ntrain = "train.jsonl"\nval = "val.jsonl"\nrun = "./r"\nstart = ["first", "route.md"]\n[budget]\nrollouts = 150\n'
    )
    done = CliRunner().invoke(app, ["run", "run.toml", "--quiet", "--json"])
    assert done.exit_code == 0, done.output
    names = [start["name"] for start in json.loads(done.stdout)["starts"]]
    assert names[0] == "first program"
    assert names[1].startswith("run first, #")
    assert names[2] == "route.md"
    again = CliRunner().invoke(app, ["resume", str(tmp_path / "r"), "--budget-rollouts", "160", "--quiet", "--json"])
    assert [start["name"] for start in json.loads(again.stdout)["starts"]] == names


def test_a_search_names_what_a_start_may_be() -> None:
    with pytest.raises(gl.UsageError, match="the path of a bundle, a registry, a run or prompt files, or texts by module path"):
        gl.Search(start=3)
    assert Triage(lm=LM).prompts == SEED
