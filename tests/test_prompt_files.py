"""Prompts that live in files: what is read, what placeholders hold, and that writing back changes the prompts' texts alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import gepa_lite as gl
from gepa_lite.cli.app import app
from gepa_lite.prompt_files.reading import Slot
from tests.triage import reflector, rows
from tests.wrapped_task import ASK, PROMPTS, feedback, triage

BETTER = {"gist": "Say what they want.", "route": "First line.\n\n  Indented: yes\nLast line # no comment."}


def folder(tmp_path: Path) -> Path:
    home = tmp_path / "prompts"
    (home / "router").mkdir(parents=True)
    (home / ".git").mkdir()
    (home / "gist.md").write_bytes(PROMPTS["gist"].encode() + b"\n")
    (home / "route.txt").write_bytes(PROMPTS["route"].encode())
    (home / "router" / "classify.j2").write_bytes(b"Classify {{ item | upper }}.\r\nAnswer briefly.\r\n")
    (home / "README.md").write_text("What these are.")
    (home / ".git" / "x.md").write_text("no prompt")
    return home


def bundle(tmp_path: Path, texts: dict[str, str], seeds: dict[str, str]) -> gl.Prompts:
    modules = {name: {"prompt": text, "seed": seeds[name]} for name, text in texts.items()}
    return gl.Prompts({"schema": "gepa_lite.prompts", "version": 1, "program": "t", "modules": modules}, "t")


def test_a_folder_is_read_by_name_without_the_last_line_end(tmp_path: Path) -> None:
    files = gl.prompts_from(folder(tmp_path))
    assert dict(files) == {**PROMPTS, "router.classify": "Classify {{ item | upper }}.\nAnswer briefly."}
    assert gl.prompts_from(tmp_path / "prompts" / "gist.md") == {"gist": PROMPTS["gist"]}
    parts = gl.wrap(lambda message: message, files).parts
    assert [parts[name].contract.form for name in files] == ["text", "text", "jinja"]
    assert "item" in str(parts["router.classify"].contract.resolved(files["router.classify"], 100).placeholders)
    assert gl.prompts_from(tmp_path / "prompts", form="template").contracts["gist"].form == "template"


@pytest.mark.parametrize(
    ("name", "content", "keys", "words"),
    [
        ("missing", None, None, "no such file or folder"),
        ("a.rst", b"x", None, "a file that ends in .md"),
        ("a.md", b"\xff", None, "not UTF-8 text"),
        ("a.md", b"x", ["p"], "no YAML file"),
        ("a.yaml", b"a: [", None, "not one YAML document"),
        ("a.yaml", b"- x\n", None, "a YAML mapping is needed"),
        ("a.yaml", b"model: gpt\nretries: 3\n", None, "retries is of type int, not a text"),
        ("a.yaml", b"p:\n  q: x\n", ["p.r"], "at p there is 'q'"),
        ("a.yaml", b"p: {q: x}\nr: {q: y}\n", ["p.q", "r.q"], "two prompts are called 'q'"),
    ],
)
def test_what_holds_no_prompts_is_refused_in_words(tmp_path: Path, name: str, content: bytes | None, keys: Any, words: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(gl.UsageError, match=words):
        gl.prompts_from(tmp_path / name, keys=keys)


def test_two_files_of_one_name_and_an_empty_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(gl.UsageError, match="holds no prompts"):
        gl.prompts_from(tmp_path)
    for ending in ("md", "txt"):
        (tmp_path / f"a.{ending}").write_text("x")
    with pytest.raises(gl.UsageError, match="both the prompt 'a'"):
        gl.prompts_from(tmp_path)


def test_optimized_prompts_go_back_into_their_files_and_nothing_else_changes(tmp_path: Path) -> None:
    home = folder(tmp_path)
    (home / "gist.md").chmod(0o640)
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    files = gl.prompts_from(home)
    program = gl.wrap(triage, {name: files[name] for name in PROMPTS}, lm=ASK)
    options: dict[str, Any] = {"feedback": feedback, "reflection_lm": reflector(), "budget": gl.Budget(rollouts=150)}
    result = gl.optimize(program, rows(12, 1), rows(8, 2), run=tmp_path / "run", **options)
    assert result.prompts != PROMPTS
    plan = gl.write_back(result, home, dry_run=True)
    assert {path: path.read_bytes() for path in before} == before
    assert not plan.written
    done = gl.write_back(result, home)
    assert (done.changed, done.diff) == (plan.changed, plan.diff)
    assert dict(gl.prompts_from(home)) == {**files, **result.prompts}
    assert (home / "gist.md").read_bytes() == result.prompts["gist"].encode() + b"\n"
    assert (home / "route.txt").read_bytes() == result.prompts["route"].encode()
    assert stat.S_IMODE((home / "gist.md").stat().st_mode) == 0o640
    assert (home / "router" / "classify.j2").read_bytes() == before[home / "router" / "classify.j2"]
    saved = result.save(tmp_path / "t.prompts.json")
    assert gl.write_back(saved, home).changed == ()
    assert not [path for path in home.rglob(".*") if path.name != ".git"]


def test_line_ends_marks_and_links_stay(tmp_path: Path) -> None:
    real = tmp_path / "real.md"
    real.write_bytes("\ufeffOne\r\nTwo\r\n".encode())
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "gist.md").symlink_to(real)
    done = gl.write_back(bundle(tmp_path, {"gist": "Three\nFour"}, {"gist": "One\nTwo"}), tmp_path / "p")
    assert real.read_bytes() == "\ufeffThree\r\nFour\r\n".encode()
    assert (tmp_path / "p" / "gist.md").is_symlink()
    assert "-\ufeffOne" in done.diff


def test_a_file_that_was_changed_since_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    home = folder(tmp_path)
    (home / "route.txt").write_text("Someone was here.")
    with pytest.raises(gl.UsageError, match=r"'route' in .*route.txt: changed since the run started"):
        gl.write_back(bundle(tmp_path, BETTER, PROMPTS), home)
    assert (home / "gist.md").read_text() == PROMPTS["gist"] + "\n"
    (home / "route.txt").unlink()
    with pytest.raises(gl.UsageError, match="has no place for 'route'"):
        gl.write_back(bundle(tmp_path, BETTER, PROMPTS), home)


YAML = """\
# settings of the service
model:   gpt-4.1-mini   # aligned by hand
agents:
    - name: router
      prompts:
        gist: "Say in one sentence what the sender wants."   # short

        route: |  # how urgent
            Decide how
              urgent it is.


        unused: 'stays'
flow: {a: 1,   b: [2,3]}
limits: &limits {tokens: 100}
other: *limits
"""


def test_keys_of_a_yaml_file_are_replaced_where_they_stand(tmp_path: Path) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(YAML)
    keys = {"gist": "agents.0.prompts.gist", "route": "agents.0.prompts.route"}
    seeds = {"gist": PROMPTS["gist"], "route": "Decide how\n  urgent it is."}
    assert dict(gl.prompts_from(file, keys=keys)) == seeds
    assert set(gl.prompts_from(file, keys="agents.0.prompts")) == {"gist", "route", "unused"}
    gl.write_back(bundle(tmp_path, BETTER, seeds), file, keys=keys)
    assert dict(gl.prompts_from(file, keys=keys)) == BETTER
    want = YAML.replace(PROMPTS["gist"], BETTER["gist"]).replace(
        "            Decide how\n              urgent it is.\n",
        "            First line.\n\n              Indented: yes\n            Last line # no comment.\n",
    )
    assert file.read_text() == want


@pytest.mark.parametrize(
    ("content", "text", "wanted"),
    [
        ("p: old\nq: 1\n", "new", "p: new\nq: 1\n"),
        ("p: old # why\n", "yes", "p: 'yes' # why\n"),
        ("p: 'old'\n", "it's", "p: 'it''s'\n"),
        ("p: old\nq: 1\n", "a\nb", "p: |-\n  a\n  b\nq: 1\n"),
        ("p: {q: old, r: 1}\n", "a\nb", 'p: {q: "a\\nb", r: 1}\n'),
        ("p: >-\n  old\n  text\nq: 1\n", "a\nb", "p: |-\n  a\n  b\nq: 1\n"),
        ("p: |-\n  old", "a\nb", "p: |-\n  a\n  b"),
        ("p: |\r\n    old\r\nq: 1\r\n", "a\nb", "p: |\r\n    a\r\n    b\r\nq: 1\r\n"),
        ("p: &a |\n  old\nq: 1\n", "a", "p: &a |\n  a\nq: 1\n"),
        ("p: |\n  old\n", " a\nb", "p: |2\n   a\n  b\n"),
    ],
)
def test_a_yaml_text_keeps_its_style_where_that_can_hold_it(content: str, text: str, wanted: str) -> None:
    keys = ("p", "q") if content.startswith("p: {") else ("p",)
    assert Slot(Path("f.yaml"), keys, "").replaced(content, text) == wanted


def test_an_alias_is_not_changed_in_two_places() -> None:
    with pytest.raises(gl.UsageError, match="shared with another key"):
        Slot(Path("f.yaml"), ("p",), "").replaced("p: &a old\nq: *a\n", "new")


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=40).filter(lambda text: not text.endswith("\n"))


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.sampled_from(["old", "'old'", '"old"', "|\n      old\n", "|-\n      old\n", ">\n      old\n\n", "|+\n      old\n"]))
def test_whatever_is_written_into_yaml_reads_back_and_the_rest_is_as_it_was(text: str, spelling: str) -> None:
    head, tail = "# one\na:   1\nb:\n    p: ", "\n# two\nc:   [x,  y] # three\n"
    content = f"{head}{spelling.removesuffix(chr(10))}{tail}"
    changed = Slot(Path("f.yaml"), ("b", "p"), "").replaced(content, text)
    value = yaml.safe_load(changed)["b"]["p"]
    assert value.removesuffix("\n") == text
    assert changed.startswith(head)
    assert changed.endswith("# two\nc:   [x,  y] # three\n")


def test_the_command_shows_the_diff_and_writes(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(f"route: {PROMPTS['route']}\nnested:\n  g: {PROMPTS['gist']}\n")
    keys = {"gist": "nested.g", "route": "route"}
    program = gl.wrap(triage, gl.prompts_from(file, keys=keys), lm=ASK)
    options: dict[str, Any] = {"feedback": feedback, "reflection_lm": reflector(), "budget": gl.Budget(rollouts=150)}
    result = gl.optimize(program, rows(12, 1), rows(8, 2), run=tmp_path / "run", **options)
    saved = os.fspath(result.save(tmp_path / "t.prompts.json"))
    arguments = ["write-back", saved, str(file), "--key", "gist=nested.g", "--key", "route"]
    shown = CliRunner().invoke(app, [*arguments, "--dry-run"])
    assert shown.exit_code == 0, shown.output
    assert f"-route: {PROMPTS['route']}" in shown.stdout or f"-  g: {PROMPTS['gist']}" in shown.stdout
    assert file.read_text().startswith(f"route: {PROMPTS['route']}")
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert dict(gl.prompts_from(file, keys=keys)) == result.prompts
