"""Blame, shares of the data and the curve from the command line."""

from __future__ import annotations

import json

from tests.test_cli import Desk, desk

__all__ = ["desk"]


def test_blame_names_the_origin_of_each_sentence(desk: Desk) -> None:
    assert desk.run("run", *desk.arguments, "--run", "a").exit_code == 0
    paid = desk.calls
    done = desk.run("blame", "a")
    assert done.exit_code == 0
    assert "#1 step 0 (validation +1.000" in done.stdout
    rows = json.loads(desk.run("blame", "a", "--json").stdout)
    shown = json.loads(desk.run("show", "a", "--json").stdout)
    assert "".join(row["sentence"] for row in rows) == "".join(shown["prompts"].values())
    (seed,) = json.loads(desk.run("blame", "a", "--candidate", "0", "--json").stdout)
    assert seed["member"] == 0
    assert desk.run("blame", "a", "--candidate", "99").exit_code == 2
    assert desk.calls == paid


def test_shares_are_sealed_and_a_resume_keeps_them(desk: Desk) -> None:
    lines = "".join((desk.folder / f"{split}.jsonl").read_text() for split in ("train", "val", "test"))
    (desk.folder / "all.jsonl").write_text(lines)
    arguments = ["--program", f"{desk.name}:make", "--train", "all.jsonl", "--test", "0.4", "--curve", "0.2"]
    arguments += ["--budget-rollouts", "70", "--search", "fan=1", "--search", "milestones=2", "--run", "a", "--json"]
    done = desk.run("run", *arguments)
    assert done.exit_code == 0, done.stderr
    data = json.loads(done.stdout)
    assert (data["test"]["n"], [point["n"] for point in data["curve"]]) == (7, [4, 4])
    assert data["optimism"] == data["validation"]["gain"] - data["test"]["gain"]
    paid = desk.calls
    again = desk.run("resume", "a", "--budget-rollouts", "90", "--json")
    assert again.exit_code == 0, again.stderr
    assert json.loads(again.stdout)["test"] == data["test"]
    assert desk.calls == paid
    assert json.loads(desk.run("show", "a", "--json").stdout)["curve"] == data["curve"]


def test_pins_and_the_gate_from_a_config_file_survive_a_resume(desk: Desk) -> None:
    lines = [
        f'program = "{desk.name}:make"',
        'train = "train.jsonl"',
        'val = "val.jsonl"',
        'test = "test.jsonl"',
        "[budget]",
        "rollouts = 60",
    ]
    lines += ["[search]", "fan = 1", "shorten = 12", 'require = "improved"', 'pins = [{word = "word7"}, {word = "apart"}]']
    (desk.folder / "run.toml").write_text("\n".join(lines))
    done = desk.run("run", "run.toml", "--run", "a", "--json")
    assert done.exit_code == 0, done.stderr
    first = json.loads(done.stdout)
    assert (first["verdict"], first["vetoed"]) == ("improved", 0)
    again = desk.run("resume", "a", "--budget-rollouts", "80", "--json")
    assert again.exit_code == 0, again.stderr
    assert json.loads(again.stdout)["test"] == first["test"]
    assert "Pins: the winner holds 2 of 2" in desk.run("show", "a").stdout
