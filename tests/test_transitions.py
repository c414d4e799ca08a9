"""A run as training data: records against the log, labels and marks by hand, and rows in the forms that trainers take."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import gepa_lite as gl
from gepa_lite.cli.app import app
from gepa_lite.core.candidate import Candidate
from gepa_lite.errors import UsageError
from gepa_lite.insight.training_rows import training_rows
from gepa_lite.insight.transitions import TransitionRecord, label_of, mark
from gepa_lite.store.run_store import RunStore
from gepa_lite.testing import ScriptedLM
from tests import triage


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> gl.Result[Any]:
    return gl.optimize(
        triage.program(),
        triage.rows(12, 1),
        triage.rows(16, 2),
        reflection_lm={ScriptedLM(triage.reflect, name="good"): 0.6, ScriptedLM("nothing to say", name="mute"): 0.4},
        budget=gl.Budget(proposals=24),
        search=gl.Search(seed=3, proposer="rewrite"),
        run=tmp_path_factory.mktemp("runs") / "triage",
    )


def test_each_proposal_has_a_record_that_agrees_with_the_log(run: gl.Result[Any]) -> None:
    records = gl.transitions(run)
    state = run.state
    asked = [proposal for proposal in state.proposals if proposal.status != "skipped"]
    mutations = [record for record in records if record.op == "mutation"]
    assert [(r.iteration, r.slot, r.module) for r in mutations] == [(p.step, p.slot, m) for p in asked for m in p.modules]
    for record, proposal in zip(mutations, asked, strict=True):
        parent = state.pool[proposal.parent]
        assert record.parent_ids == (parent.candidate.id,)
        assert record.parent_text == parent.candidate.texts[record.module]
        assert record.child_text == proposal.texts.get(record.module, "")
        assert record.accepted == (proposal.status == "accepted")
        assert record.scores_before == proposal.before
        assert record.delta == (pytest.approx(proposal.gain / len(proposal.before)) if proposal.after else None)
        # what was asked holds the parent's text, what came back holds the child's
        assert record.parent_text in record.messages[0]["content"]
        assert record.child_text in record.response
        assert record.tokens["input"] == proposal.spend.reflection.input_tokens
        assert len(record.feedback) == len(record.minibatch_ids) == len(record.artifacts["parent"])
        assert [row["score"] for row in record.artifacts["parent"]] == list(record.scores_before)
        assert (record.status == "parse_error") == (record.model == "mute")
        if record.child_text:
            assert record.child_id == Candidate({**parent.candidate.texts, **proposal.texts}).id
    assert {record.label for record in mutations} >= {"improved", ""}
    assert len({record.uid for record in records}) == len(records)


def test_children_that_joined_have_their_validation_mean(run: gl.Result[Any]) -> None:
    joined = {member.candidate.id: member for member in run.state.pool}
    records = [record for record in gl.transitions(run) if record.val_after is not None]
    assert records
    for record in records:
        texts = {**run.state.pool[0].candidate.texts}
        child = joined.get(record.child_id)
        # a step's best texts of several modules join one child
        assert child is None or record.val_after == child.mean
        assert record.module in texts
        assert record.val_before == joined[record.parent_ids[0]].mean


def test_merges_are_records_without_messages(tmp_path: Path) -> None:
    result = gl.optimize(
        triage.program(),
        triage.rows(12, 1),
        triage.rows(16, 2),
        reflection_lm=triage.reflector(),
        budget=gl.Budget(proposals=40),
        search=gl.Search.paper(merge="complementary", seed=1),
        run=tmp_path / "merging",
    )
    merged = list(result.state.merges)
    records = [record for record in gl.transitions(result) if record.op == "merge"]
    assert len(records) == sum(len(event.texts) for event in merged)
    for record in records:
        assert record.messages == ()
        assert len(record.parent_ids) == 2


@pytest.mark.parametrize(("delta", "label"), [(None, ""), (0.0, "no_change"), (1e-10, "no_change"), (0.1, "improved"), (-0.1, "regressed")])
def test_labels(delta: float | None, label: str) -> None:
    assert label_of(delta) == label


def a_record(**changes: Any) -> TransitionRecord:
    blank = {field.name: () for field in dataclasses.fields(TransitionRecord)}
    base: dict[str, Any] = {
        "uid": "u", "op": "mutation", "module": "m", "model": "a", "parent_text": "old", "child_text": "new", "delta": 0.5, "label": "improved", "status": "ok",
        "messages": ({"role": "user", "content": "improve old"},), "response": "<prompt>new</prompt>", "reasoning": None, "dropped": "",
        "artifacts": {"parent": [{"failure": None}], "child": []},
    }  # fmt: skip
    return TransitionRecord(**{**blank, **base, **changes})


FAILED = {"parent": [{"failure": {"kind": "parse"}}], "child": [{"failure": {"kind": "parse"}}]}


@pytest.mark.parametrize(
    ("record", "recovered", "expected"),
    [
        (a_record(), False, ""),
        (a_record(status="infra", delta=None), False, "systematic"),
        (a_record(status="timeout"), False, "systematic"),
        (a_record(status="exec_error", artifacts=FAILED), False, "unrecoverable"),
        (a_record(status="exec_error", artifacts=FAILED), True, ""),
        (a_record(status="exec_error"), False, "breakage"),
        # self-repair: the parent failed and the child runs
        (a_record(artifacts={**FAILED, "child": []}), False, ""),
        (a_record(status="parse_error", delta=None), False, "no_child"),
        (a_record(status="refused", delta=None), False, "no_child"),
        (a_record(response="x" * 401), False, "too_long"),
    ],
)
def test_marks(record: TransitionRecord, recovered: bool, expected: str) -> None:
    assert mark(record, 100, recovered) == expected


def test_a_child_that_breaks_the_program_is_marked(tmp_path: Path) -> None:
    def answer(request: gl.Request) -> str:
        if "urgent" in request.messages[0]["content"] and "BROKEN" in request.messages[0]["content"]:
            return "no such level"
        return triage.answer(request)

    result = gl.optimize(
        triage.Triage(lm=ScriptedLM(answer, name="task")),
        triage.rows(6, 1),
        triage.rows(6, 2),
        reflection_lm=ScriptedLM("<prompt>Decide how urgent it is. BROKEN.</prompt>", name="breaks"),
        budget=gl.Budget(proposals=4),
        run=tmp_path / "broken",
    )
    broken = [record for record in gl.transitions(result) if record.module == "route" and record.child_text]
    assert broken
    assert {(record.status, record.dropped) for record in broken} == {("exec_error", "breakage")}
    assert all(row["failure"]["kind"] == "parse" for row in broken[0].artifacts["child"])


def test_rows_to_train_on() -> None:
    other = {"role": "user", "content": "improve old by another minibatch"}
    records = [
        a_record(uid="better", reasoning="since"),
        a_record(uid="same", delta=0.0, label="no_change", response="<prompt>meh</prompt>"),
        a_record(uid="elsewhere", delta=-1.0, label="regressed", messages=(other,), response="<prompt>bad</prompt>"),
        a_record(uid="best", delta=1.0, response="<prompt>best</prompt>", messages=(other,)),
        a_record(uid="cut", dropped="too_long"),
        a_record(uid="merged", op="merge", messages=(), response=""),
    ]
    sft = list(training_rows(records, "sft"))
    assert [row["uid"] for row in sft] == ["better", "best"]
    assert [message["role"] for message in sft[0]["messages"]] == ["user", "assistant"]
    assert sft[0]["messages"][-1] == {"role": "assistant", "content": "<prompt>new</prompt>", "reasoning_content": "since"}
    assert [(row["uid"], row["label"]) for row in training_rows(records, "kto")] == [("better", True), ("elsewhere", False), ("best", True)]
    pairs = list(training_rows(records, "preferences"))
    assert [(p["chosen_uid"], p["rejected_uid"], p["same_prompt"], p["margin"]) for p in pairs] == [
        ("better", "same", True, 0.5),
        ("best", "elsewhere", True, 2.0),
    ]
    (loose,) = training_rows([records[0], records[2]], "preferences")
    assert not loose["same_prompt"]
    assert len(list(training_rows(records, "transitions"))) == len(records)
    with pytest.raises(UsageError, match="sft"):
        training_rows(records, "csv")


@pytest.mark.parametrize("form", ["transitions", "sft", "preferences", "kto"])
def test_the_command_writes_lines_of_json(form: str, run: gl.Result[Any], tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    done = CliRunner().invoke(app, ["export", str(run.run), "--format", form, "--to", str(out), "--json"])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert rows == json.loads(json.dumps(list(training_rows(gl.transitions(run), form))))
    assert json.loads(done.stdout)["rows"] == len(rows)
    assert rows or form == "preferences"


@pytest.mark.parametrize("form", ["transitions", "sft", "kto"])
def test_half_characters_and_odd_line_ends_are_exported(form: str, tmp_path: Path) -> None:
    odd = "cut off \ud83d, a line \u2028 and \x85 another, \x00"

    def answer(request: gl.Request) -> Any:
        return f"{triage.reflect(request)} {odd}" if "<prompt>" in str(request.messages) else triage.answer(request)

    result = gl.optimize(
        triage.program(),
        [{**row, "message": f"{row['message']} {odd}"} for row in triage.rows(12, 1)],
        triage.rows(16, 2),
        reflection_lm=ScriptedLM(answer, name="odd"),
        budget=gl.Budget(proposals=12),
        run=tmp_path / "r",
    )
    out = tmp_path / "rows.jsonl"
    done = CliRunner().invoke(app, ["export", str(result.run), "--format", form, "--to", str(out)])
    assert done.exit_code == 0, done.output
    lines = out.read_text(encoding="utf-8").splitlines()
    assert lines
    assert all("cut off \ufffd, a line \u2028 and \x85 another" in json.dumps(json.loads(line), ensure_ascii=False) for line in lines)


def test_the_command_refuses_what_it_does_not_look_at(run: gl.Result[Any], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["export", str(run.run), "--format", "sft", "--to", str(tmp_path / "x"), "--live"])
    assert done.exit_code == 2
    assert "--live" in done.stderr
    with pytest.raises(UsageError, match="positive"):
        gl.transitions(run, max_tokens=0)


def test_a_run_of_the_first_layout_is_read_and_brought_up_to_date(run: gl.Result[Any], tmp_path: Path) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    assert run.run is not None
    (folder / "run.db").write_bytes((run.run / "run.db").read_bytes())
    with sqlite3.connect(folder / "run.db") as old:
        old.execute("DROP TABLE reflections")
        old.execute("PRAGMA user_version = 1")
    old.close()
    records = gl.transitions(folder)
    assert len(records) == len(gl.transitions(run))
    assert all(record.messages == () for record in records)
    with RunStore.open(folder) as store:
        store.note_reflection((9, 0, 0), "a", "key", [{"role": "user", "content": "hello"}])
    with sqlite3.connect(folder / "run.db") as now:
        assert now.execute("PRAGMA user_version").fetchone() == (2,)
        assert now.execute("SELECT address, body FROM reflections").fetchall() == [("[9,0,0]", '[{"role":"user","content":"hello"}]')]
    now.close()
