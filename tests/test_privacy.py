"""Runs that keep nothing of what was said, and runs that it was dropped from: what is on disk, byte by byte, and what still works."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import gepa_lite as gl
from gepa_lite.cli.app import app
from gepa_lite.core.closing_events import Shortened
from gepa_lite.core.events import Event, RunStarted, SetAside
from gepa_lite.errors import ModelTimeoutError, RunLockedError, UsageError
from gepa_lite.insight.stored import read_run
from gepa_lite.store.bare import WITHHELD, bare_event
from gepa_lite.store.run_store import RunStore
from gepa_lite.testing import ScriptedLM
from tests import triage

SECRETS = (b"zebra-input", b"zebra-output", b"zebra-feedback", b"zebra-reply", b"zebra-label")
"""Stand in each input, output, feedback, reflection reply and label; a prompt holds none of them."""


class Private(triage.Triage):
    def feedback(self, example: gl.Example, output: gl.Outputs, trace: gl.Trace) -> gl.Feedback:
        given = super().feedback(example, output, trace)
        return dataclasses.replace(given, text=f"{given.text} zebra-feedback", modules={"route": f"{given.text} zebra-feedback too"})


def answer(request: gl.Request) -> str:
    said = triage.answer(request)
    return f"{said} zebra-output" if said == "the gist" else said


def reflect(request: gl.Request) -> str:
    return f"zebra-reply, since I think so: {triage.reflect(request)}"


def rows(count: int, seed: int) -> list[dict[str, Any]]:
    return [{**row, "message": f"{row['message']} zebra-input", "why": "zebra-label"} for row in triage.rows(count, seed)]


def optimize(folder: Path, budget: gl.Budget | None = None, keep: bool = False, **options: Any) -> gl.Result[Any]:
    program = Private(lm=ScriptedLM(answer, name="task"))
    search = gl.Search(seed=5, store_messages=keep, pins=(rows(1, 9)[0],))
    budget = budget or gl.Budget(rollouts=260)
    lm = ScriptedLM(reflect, name="reflector")
    return gl.optimize(
        program, rows(12, 1), rows(16, 2), testset=rows(20, 3), reflection_lm=lm, budget=budget, search=search, run=folder, **options
    )


def events_of(folder: Path) -> list[Event]:
    with RunStore.read(folder) as store:
        return store.events()


def found_in(folder: Path) -> set[bytes]:
    content = b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())
    return {secret for secret in SECRETS if secret in content}


@pytest.fixture(scope="module")
def open_run(tmp_path_factory: pytest.TempPathFactory) -> gl.Result[Any]:
    return optimize(tmp_path_factory.mktemp("runs") / "open", keep=True)


@pytest.fixture(scope="module")
def private_run(tmp_path_factory: pytest.TempPathFactory) -> gl.Result[Any]:
    return optimize(tmp_path_factory.mktemp("runs") / "private")


@pytest.fixture
def copied(open_run: gl.Result[Any], tmp_path: Path) -> Path:
    assert open_run.run is not None
    folder = tmp_path / "copy"
    folder.mkdir()
    (folder / "run.db").write_bytes((open_run.run / "run.db").read_bytes())
    return folder


def bare(events: list[Event]) -> Iterator[Event]:
    for event in events:
        # the one setting in which the two differ
        yield dataclasses.replace(event, settings={}) if isinstance(event, RunStarted) else bare_event(event)


def test_nothing_of_messages_and_inputs_is_written_and_the_course_is_the_same(
    open_run: gl.Result[Any], private_run: gl.Result[Any], tmp_path: Path
) -> None:
    assert open_run.run is not None
    assert private_run.run is not None
    assert found_in(open_run.run) == set(SECRETS)
    assert found_in(private_run.run) == set()
    assert list(bare(events_of(private_run.run))) == list(bare(events_of(open_run.run)))
    assert events_of(private_run.run) == [bare_event(event) for event in events_of(private_run.run)]
    assert private_run.prompts == open_run.prompts
    assert len(private_run.candidates) > 1
    assert private_run.costs.paid == open_run.costs.paid


def failing(folder: Path, keep: bool) -> gl.Result[Any]:
    """One validation example never gets a score, and the endpoint's words quote it."""
    validation = rows(20, 2)
    sick = validation[7]["message"]

    def script(request: gl.Request) -> Any:
        return ModelTimeoutError("no reply to zebra-input") if sick in request.messages[-1]["content"] else answer(request)

    lm, reflector = ScriptedLM(script, name="task"), ScriptedLM(reflect, name="reflector")
    search = gl.Search(seed=5, store_messages=keep)
    return gl.optimize(
        Private(lm=lm),
        rows(12, 1),
        validation,
        reflection_lm=reflector,
        budget=gl.Budget(rollouts=120),
        search=search,
        run=folder,
        workers=1,
    )


@pytest.mark.parametrize("keep", [True, False])
def test_the_error_of_an_example_that_is_set_aside_is_not_kept(keep: bool, tmp_path: Path) -> None:
    assert failing(tmp_path / "r", keep).state.set_aside is not None
    if keep:
        assert b"zebra-input" in found_in(tmp_path / "r")
        gl.purge(tmp_path / "r")
    (aside,) = (event for event in events_of(tmp_path / "r") if isinstance(event, SetAside))
    assert aside.reason == WITHHELD
    assert len(aside.example_ids) == 1
    assert found_in(tmp_path / "r") == set()


@pytest.mark.parametrize(("status", "reason"), [("void", WITHHELD), ("kept", "words of the run or of a model")])
def test_a_shorter_prompt_that_an_outage_stopped_keeps_no_error(status: Any, reason: str) -> None:
    event = Shortened(0, "route", "One sentence.", status, "words of the run or of a model", {"route": "The rest."})
    assert bare_event(event) == dataclasses.replace(event, reason=reason)


def test_nothing_is_written_while_it_goes_on_either(tmp_path: Path) -> None:
    seen: list[set[bytes]] = []
    optimize(tmp_path / "live", on_event=lambda event: seen.append(found_in(tmp_path / "live")))
    assert seen
    assert not any(seen)


@pytest.mark.parametrize("keep", [True, False])
def test_a_stopped_run_is_resumed_to_the_log_of_the_uninterrupted_one(keep: bool, private_run: gl.Result[Any], tmp_path: Path) -> None:
    folder = tmp_path / "stopped"

    class Stop(Exception):
        pass

    def stop(event: Event) -> None:
        if type(event).__name__ == "StepEnded" and event.step == 1:  # type: ignore[union-attr]
            raise Stop

    with pytest.raises(Stop):
        optimize(folder, keep=keep, on_event=stop)
    if keep:
        assert found_in(folder)
        gl.purge(folder)
        assert not found_in(folder)
    resumed = optimize(folder, keep=keep)
    assert private_run.run is not None
    if keep:
        # what is learnt from now on is kept again; what was dropped stays dropped
        with RunStore.read(folder) as store:
            assert store.events()[3:] != []
    else:
        assert not found_in(folder)
    assert list(bare(events_of(folder))) == list(bare(events_of(private_run.run)))
    assert resumed.prompts == private_run.prompts


def test_everything_that_reads_a_run_says_what_is_not_kept(private_run: gl.Result[Any], tmp_path: Path) -> None:
    folder = private_run.run
    assert folder is not None
    runner = CliRunner()
    for words in (
        ["show", str(folder)],
        ["measures", str(folder), "--json"],
        ["blame", str(folder)],
        ["report", str(folder), "-o", str(tmp_path / "r.html")],
    ):
        done = runner.invoke(app, words)
        assert done.exit_code == 0, done.output
    html = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert WITHHELD in html
    assert read_run(folder).result().verdict == private_run.verdict
    assert all(flip.inputs == {} and flip.output_after is None for flip in private_run.flips)
    private_run.save(tmp_path / "b.prompts.json")
    assert not any(secret in (tmp_path / "b.prompts.json").read_bytes() for secret in SECRETS)
    exported = gl.export(private_run, "py", tmp_path / "prompts.py", verify_on=0)
    assert exported.verified is None
    with pytest.raises(UsageError, match="verify_on=0"):
        gl.export(private_run, "py", tmp_path / "prompts.py")
    records = gl.transitions(folder)
    assert records
    assert all(record.messages == () and record.response == "" for record in records)
    assert {record.delta for record in records if record.label} == {record.delta for record in records if record.delta is not None}


def test_the_dashboard_shows_it(private_run: gl.Result[Any]) -> None:
    pytest.importorskip("starlette")
    from starlette.testclient import TestClient

    from gepa_lite.ui.app import make_app

    assert private_run.run is not None
    client = TestClient(make_app(private_run.run.parent), base_url="http://127.0.0.1:8000")
    page = client.get(f"/run/{private_run.run.name}")
    assert page.status_code == 200


def test_a_run_without_examples_is_not_built_again_from_its_file(private_run: gl.Result[Any]) -> None:
    assert private_run.run is not None
    done = CliRunner().invoke(app, ["resume", str(private_run.run), "--budget-rollouts", "400"])
    assert done.exit_code == 2


def test_samples_with_messages_are_not_taken_over(tmp_path: Path) -> None:
    folder, lm = tmp_path / "sampled", ScriptedLM(reflect, name="reflector")
    program = Private(lm=ScriptedLM(answer, name="task"))
    gl.estimate(program, rows(12, 1), rows(16, 2), reflection_lm=lm, budget=gl.Budget(rollouts=200), run=folder)
    assert found_in(folder)
    with pytest.raises(UsageError, match="purge"):
        optimize(folder)
    gl.purge(folder)
    optimize(folder)
    assert not found_in(folder)


def test_samples_of_a_private_run_hold_no_messages(tmp_path: Path) -> None:
    folder = tmp_path / "sampled"
    program, lm = Private(lm=ScriptedLM(answer, name="task")), ScriptedLM(reflect, name="reflector")
    search = gl.Search(store_messages=False)
    gl.estimate(program, rows(12, 1), rows(16, 2), reflection_lm=lm, budget=gl.Budget(rollouts=200), search=search, run=folder)
    assert not found_in(folder)


def test_another_setting_is_another_run(private_run: gl.Result[Any]) -> None:
    assert private_run.run is not None
    with pytest.raises(UsageError, match="store_messages"):
        optimize(private_run.run, keep=True)
    with pytest.raises(UsageError, match="store_messages"):
        gl.Search(store_messages="no")  # type: ignore[arg-type]


def test_purge_drops_the_bytes_and_keeps_scores_prompts_and_costs(copied: Path, open_run: gl.Result[Any]) -> None:
    before = read_run(copied).result()
    done = gl.purge(copied)
    assert found_in(copied) == set()
    assert done.bytes_after < done.bytes_before
    assert done.rollouts
    assert done.replies
    assert done.questions
    assert done.examples == 12 + 16 + 20 + 1
    after = read_run(copied).result()
    assert after.prompts == before.prompts == open_run.prompts
    assert after.verdict == before.verdict
    assert after.costs == before.costs
    with RunStore.read(copied) as store, RunStore.read(open_run.run or copied) as whole:
        assert [(r.key, r.value, r.usage) for r in store.rollouts()] == [(r.key, r.value, r.usage) for r in whole.rollouts()]
    again = gl.purge(copied)
    assert (again.rollouts, again.replies, again.examples) == (0, 0, 0)


def test_purge_drops_what_a_training_sampled(copied: Path) -> None:
    folder = copied / "training" / "samples"
    folder.mkdir(parents=True)
    (folder / "3.jsonl").write_text("\n[[1, 2], [3], [-0.5]]")
    assert gl.purge(copied).samples == 1
    assert not list(folder.iterdir())
    assert gl.purge(copied).samples == 0


def test_a_live_run_is_not_purged(copied: Path) -> None:
    with RunStore.open(copied), pytest.raises(RunLockedError):
        gl.purge(copied)
    assert found_in(copied)


def test_purge_waits_for_nobody_who_reads(copied: Path) -> None:
    reader = sqlite3.connect(copied / "run.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM rollouts").fetchone()
    with pytest.raises(gl.GepaLiteError, match=r"purge again|database"):
        gl.purge(copied)
    reader.execute("COMMIT")
    reader.close()
    gl.purge(copied)
    assert not found_in(copied)


def test_the_command_asks_first(copied: Path) -> None:
    runner = CliRunner()
    refused = runner.invoke(app, ["purge", str(copied)])
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    assert found_in(copied)
    done = runner.invoke(app, ["purge", str(copied), "--yes", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["examples"] == 49
    assert not found_in(copied)
