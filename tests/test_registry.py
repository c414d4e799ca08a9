"""A registry of prompts: versions, what is current, who and why; readers and writers at once."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import gepa_lite as gl
from gepa_lite.cli.app import app


def bundle(path: Path, number: int, program: str = "Triage") -> Path:
    """Two prompts that must be read together."""
    entry = {"signature": "a -> b", "fingerprint": "0", "contract": None}
    modules: dict[str, Any] = {name: {"prompt": f"{name} {number} " + "word " * 2_000, **entry} for name in ("gist", "route")}
    path.write_text(json.dumps({"schema": "gepa_lite.prompts", "version": 1, "program": program, "modules": modules}))
    return path


def number_of(prompts: gl.Prompts) -> int:
    """The version of both prompts; that they agree is the point."""
    numbers = {int(text.split()[1]) for text in prompts.values()}
    assert len(numbers) == 1, numbers
    return numbers.pop()


def test_promote_rollback_and_history(tmp_path: Path) -> None:
    registry = gl.Registry(tmp_path / "prompts")
    for number in (1, 2, 3):
        assert registry.add(bundle(tmp_path / "b.json", number), why=f"try {number}", by="ada") == number
    assert registry.versions == [1, 2, 3]
    assert registry.current is None
    with pytest.raises(gl.UsageError, match="no current version"):
        gl.load_prompts(registry.folder)
    for number in (1, 2, 3):
        assert number_of(registry.promote(number, why="better", by="ada")) == number
        assert number_of(gl.load_prompts(registry.folder)) == registry.current == number
    assert number_of(registry.rollback(why="complaints", by="bob")) == 2
    registry.promote(3, why="fixed", by="ada")
    registry.promote(3, why="fixed indeed", by="ada")
    assert [number_of(registry.rollback(why="no", by="bob")) for _ in range(2)] == [2, 1]
    with pytest.raises(gl.UsageError, match="no earlier version"):
        registry.rollback(why="further")
    assert number_of(registry.load()) == 1
    assert number_of(registry.load(3)) == 3
    last = registry.history[-1]
    assert (last.action, last.version, last.before, last.by, last.why) == ("rollback", 1, 2, "bob", "no")


def test_what_is_refused(tmp_path: Path) -> None:
    registry = gl.Registry(tmp_path / "prompts")
    with pytest.raises(gl.UsageError, match="there is no registry"):
        registry.promote(1, why="x")
    with pytest.raises(gl.UsageError, match=r"is a folder without registry.json, so it is no registry: give the path of a file"):
        gl.load_prompts(tmp_path)
    for name, words in {
        "run.db": "it is a run. Save the prompts of its result",
        "bundle.prompts.json": "it is an exported folder of prompt files",
        "a.prompts.json": "it holds a.prompts.json. Give one of them",
    }.items():
        (tmp_path / name / "in").mkdir(parents=True)
        (tmp_path / name / "in" / name).touch()
        with pytest.raises(gl.UsageError, match=words):
            gl.load_prompts(tmp_path / name / "in")
    registry.add(bundle(tmp_path / "b.json", 1), why="first", promote=True)
    assert registry.current == 1
    with pytest.raises(gl.UsageError, match="no version 7; it has 1"):
        registry.promote(7, why="x")
    with pytest.raises(gl.UsageError, match="why is empty"):
        registry.promote(1, why=" ")
    with pytest.raises(gl.UsageError, match="one folder for each program"):
        registry.add(bundle(tmp_path / "b.json", 2, program="Other"), why="x")
    (tmp_path / "prompts" / "v0001.prompts.json").write_text("{")
    with pytest.raises(gl.UsageError, match="is not JSON"):
        registry.promote(1, why="damaged")
    assert len(registry.history) == 2, "what was refused left no trace"


def test_writers_in_processes_lose_nothing(tmp_path: Path) -> None:
    folder, path = tmp_path / "prompts", bundle(tmp_path / "b.json", 1)
    code = (
        "import sys, gepa_lite as gl; registry = gl.Registry(sys.argv[1])\n"
        "for i in range(8): registry.promote(registry.add(sys.argv[2], why=f'{sys.argv[3]} {i}'), why='mine')"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(folder), str(path), str(name)]) for name in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    registry = gl.Registry(folder)
    assert registry.versions == list(range(1, 25))
    assert sorted(change.why for change in registry.history if change.action == "add") == sorted(
        f"{n} {i}" for n in range(3) for i in range(8)
    )
    assert not [path.name for path in folder.iterdir() if path.name.endswith(tuple("0123456789_")) or path.name.startswith(".v")]


def test_ten_thousand_reads_are_never_torn(tmp_path: Path) -> None:
    folder = tmp_path / "prompts"
    registry = gl.Registry(folder)
    for number in (1, 2, 3):
        registry.add(bundle(tmp_path / "b.json", number), why="x", promote=True)
    code = (
        "import sys, itertools, gepa_lite as gl; registry = gl.Registry(sys.argv[1])\n"
        "for i in itertools.count():\n"
        "    registry.promote(1 + i % 3, why='up'); registry.promote(1 + (i + 1) % 3, why='up'); registry.rollback(why='down')\n"
        "    if i == 0: print('begun', flush=True)"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE)
    live, seen, lock = gl.LivePrompts(folder), set(), threading.Lock()

    def read(count: int) -> None:
        numbers = {number_of(live.now() if i % 4 else gl.load_prompts(folder)) for i in range(count)}
        with lock:
            seen.update(numbers)

    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"begun\n"
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(read, [625] * 16))
        assert writer.poll() is None, "the writer went on all the while"
    finally:
        writer.kill()
        writer.communicate()
    assert seen == {1, 2, 3}
    assert live.problem is None
    assert number_of(live.now()) == registry.current


def test_the_command_line(tmp_path: Path) -> None:
    folder, runner = str(tmp_path / "prompts"), CliRunner()

    def call(*words: str) -> str:
        done = runner.invoke(app, ["registry", *words])
        assert done.exit_code == 0, done.output
        return done.stdout

    path = str(bundle(tmp_path / "b.json", 1))
    assert call("add", folder, path, "--why", "first", "--promote") == "1\n"
    assert call("add", folder, path, "--why", "second") == "2\n"
    assert call("promote", folder, "2", "--why", "better", "--by", "ada") == "current: 2\n"
    assert call("rollback", folder, "--why", "worse") == "current: 1\n"
    found = json.loads(call("history", folder, "--json"))
    assert found["current"] == 1
    assert [entry["action"] for entry in found["history"]] == ["add", "promote", "add", "promote", "rollback"]
    assert "v1 to v2" in call("history", folder)
    assert runner.invoke(app, ["registry", "promote", folder, "9", "--why", "x"]).exit_code == 2
