"""The leak guard within a run: one more question, then rejected unpaid; in the log, the report, the command line and dspy programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import gepa_lite as gl
from gepa_lite import api
from gepa_lite.cli.app import app
from gepa_lite.cli.config import make_record
from gepa_lite.core.events import Proposed
from gepa_lite.core.finding import Finding
from gepa_lite.errors import UsageError
from gepa_lite.origin import search_table
from gepa_lite.report.html import report_html
from gepa_lite.report.markdown import report_markdown
from gepa_lite.search.gate import in_words
from gepa_lite.search.state import RunState
from gepa_lite.session import Session
from gepa_lite.ship.findings import findings_text
from gepa_lite.store.memory import MemoryStore
from gepa_lite.testing import ScriptedLM
from tests.triage import program, reflect, rows

SECRET = "ghp_" + "a1" * 18


def letters(count: int, seed: int) -> list[dict[str, Any]]:
    """The triage task with messages long enough to be recognized."""
    return [{**row, "message": f"{row['message']} came in by {row['message'].split()[-3]}th mail today"} for row in rows(count, seed)]


TRAIN, VALIDATION = letters(24, 1), letters(16, 2)


def copies(request: gl.Request) -> str:
    """Adds a training message with the rule, whatever it is told."""
    text = request.messages[0]["content"]
    return reflect(request).replace("</prompt>", f" {TRAIN[0]['message']}</prompt>") if "Review:" in text else again(text, TRAIN[1])


def heeds(request: gl.Request) -> str:
    """Leaves the message out when it is asked once more."""
    text = request.messages[0]["content"]
    return reflect(request).replace("</prompt>", f" {TRAIN[0]['message']}</prompt>") if "Review:" in text else again(text, None)


def again(text: str, row: dict[str, Any] | None) -> str:
    proposed = text.split("<proposed>")[1].split("</proposed>", maxsplit=1)[0].strip()
    return f"<prompt>{proposed.replace(TRAIN[0]['message'], row['message'] if row else '').strip()}</prompt>"


def run(reflection: Any, guard: Any = "reject", **rules: Any) -> tuple[RunState, ScriptedLM]:
    lm = ScriptedLM(reflection, name="reflector")
    prepared = api.prepare(
        program(), TRAIN, VALIDATION, reflection_lm=lm, budget=gl.Budget(rollouts=260), search=gl.Search.paper(guard=guard, **rules)
    )
    return Session(prepared.spec, MemoryStore()).run().state, lm


def proposals(state: RunState) -> list[Proposed]:
    return [proposal for proposal in state.proposals if proposal.status != "skipped"]


def test_a_copy_is_asked_for_once_more_and_then_rejected_unpaid() -> None:
    state, lm = run(copies)
    assert proposals(state)
    for proposal in proposals(state):
        assert (proposal.status, proposal.code, proposal.texts, proposal.after) == ("rejected", "leak", {}, ())
        assert [(f.rule, f.attempt, f.split) for f in proposal.findings] == [("copied_input", 0, "train"), ("copied_input", 1, "train")]
        assert (proposal.spend.proposals, proposal.spend.reflection.calls) == (1, 2)
        assert proposal.reason == proposal.findings[1].words
    told = [call.messages[0]["content"] for call in lm.requests if "can't be used as it is" in call.messages[0]["content"]]
    assert len(told) == len(proposals(state))
    assert all("- it copies 'a " in text and "Review:" not in text for text in told)
    assert state.stopped is not None
    assert state.stopped.code == "reflection"


def test_a_reply_that_heeds_the_finding_goes_on() -> None:
    state, _ = run(heeds)
    accepted = [proposal for proposal in state.proposals if proposal.status == "accepted"]
    assert accepted
    assert all([(f.rule, f.attempt) for f in p.findings] == [("copied_input", 0)] for p in accepted)
    assert not any(row["message"] in text for member in state.pool for text in member.candidate.texts.values() for row in TRAIN)


def test_warn_lets_through_what_reject_refuses_and_off_looks_for_nothing() -> None:
    warned, _ = run(copies, "warn")
    off, _ = run(copies, "off")
    assert [proposal.texts for proposal in warned.proposals] == [proposal.texts for proposal in off.proposals]
    assert any(proposal.status == "accepted" for proposal in warned.proposals)
    assert {f.blocks for proposal in warned.proposals for f in proposal.findings} == {False}
    assert not any(proposal.findings for proposal in off.proposals)


def test_honest_rules_are_never_refused_and_the_course_is_that_without_a_guard() -> None:
    on, off = run(reflect)[0], run(reflect, "off")[0]
    assert [(p.status, p.texts, p.findings) for p in on.proposals] == [(p.status, p.texts, ()) for p in off.proposals]


def test_edits_are_looked_through_too() -> None:
    def edits(request: gl.Request) -> str:
        return f"<edit><add>Such as: {TRAIN[3]['message']}</add></edit>"

    state, _ = run(edits, proposer="edit")
    assert {proposal.code for proposal in proposals(state)} == {"leak"}


def test_a_contract_and_a_leak_are_named_together() -> None:
    def both(request: gl.Request) -> str:
        return f"<prompt>As an AI, remember {SECRET}.</prompt>"

    lm = ScriptedLM(both, name="reflector")
    prepared = api.prepare(
        program(),
        TRAIN,
        VALIDATION,
        reflection_lm=lm,
        budget=gl.Budget(rollouts=120),
        search=gl.Search.paper(),
        contract=gl.Contract(banned=("As an AI",)),
    )
    state = Session(prepared.spec, MemoryStore()).run().state
    first = proposals(state)[0]
    assert first.code == "contract"
    assert {f.rule for f in first.findings} == {"contract:banned", "secret"}
    assert "it holds a GitHub token (line 1)" in first.reason
    assert SECRET not in first.reason


def test_a_detector_that_fails_ends_the_run_with_its_name() -> None:
    def broken(text: str) -> Any:
        raise KeyError("model")

    with pytest.raises(UsageError, match="broken must give"):
        run(reflect, gl.Guard(detectors=(broken,)))


@pytest.mark.parametrize("workers", [1, 8])
def test_the_log_is_the_same_for_any_number_of_workers(workers: int) -> None:
    def once(count: int) -> list[Any]:
        prepared = api.prepare(
            program(),
            TRAIN,
            VALIDATION,
            reflection_lm=ScriptedLM(heeds, name="reflector"),
            budget=gl.Budget(rollouts=200),
            search=gl.Search(fan=3),
            workers=count,
        )
        store = MemoryStore()
        Session(prepared.spec, store).run()
        return list(store.events())

    assert once(workers) == once(3)


# --- what a person sees ---------------------------------------------------------------------------------------------------


def optimize(reflection: Any, guard: Any, folder: Path) -> gl.Result[Any]:
    return gl.optimize(
        program(),
        TRAIN,
        VALIDATION,
        reflection_lm=ScriptedLM(reflection, name="reflector"),
        budget=gl.Budget(rollouts=160),
        search=gl.Search.paper(guard=guard),
        run=folder,
    )


def test_result_report_and_show_list_what_was_found(tmp_path: Path) -> None:
    def tells(request: gl.Request) -> str:
        return reflect(request).replace("</prompt>", f" Use {SECRET}.</prompt>") if "Review:" in request.messages[0]["content"] else "none"

    result = optimize(tells, "reject", tmp_path / "a")
    assert result.findings
    assert {(f.finding.rule, f.status, f.mended, f.in_winner) for f in result.findings} == {("secret", "rejected", False, False)}
    words = "secret: it holds a GitHub token (line 2): leave it out"
    assert f"refused, {result.findings[-1].finding.module}: {words}" in str(result)
    assert "guard=gl.Guard(allow=[...]" in str(result)
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "a")]).stdout
    assert words in shown
    printed = CliRunner().invoke(app, ["show", str(tmp_path / "a"), "--json"]).stdout
    data = json.loads(printed)
    assert len(data["findings"]) == len(result.findings)
    assert data["findings"][0]["finding"]["rule"] == "secret"
    assert SECRET not in str(result) + shown + printed
    again = optimize(tells, "reject", tmp_path / "a")
    assert again.findings == result.findings, "a resumed run replays them"
    with pytest.raises(UsageError, match=r"search[.]guard was"):
        optimize(tells, "off", tmp_path / "a")


def test_a_mended_text_and_one_that_stands_in_the_winner_are_told_apart(tmp_path: Path) -> None:
    mended = optimize(heeds, "reject", tmp_path / "a")
    assert {(f.mended, f.in_winner) for f in mended.findings} == {(True, False)}
    assert "written once more:" in str(mended)
    assert "in the winner's line" not in str(mended)
    standing = optimize(copies, "warn", tmp_path / "b")
    assert any(f.in_winner for f in standing.findings)
    assert "in the winner's line" in str(standing)
    assert "warned of:" in str(standing)


def test_a_secret_that_was_only_warned_of_is_not_printed_with_the_prompt_that_holds_it(tmp_path: Path) -> None:
    def tells(request: gl.Request) -> str:
        return reflect(request).replace("</prompt>", f" Use {SECRET} then.</prompt>")

    result = optimize(tells, "warn", tmp_path / "a")
    assert any(SECRET in text for text in result.winner_prompts.values())
    assert "secret: it holds a GitHub token" in str(result)
    assert "Use *** then." in str(result)
    assert SECRET not in str(result)
    page, text = report_html(tmp_path / "a"), report_markdown(tmp_path / "a")
    for view in (page, text):
        assert "Checks of proposed prompts" in view
        assert "it holds a GitHub token" in view
        assert SECRET not in view
        assert "Use ***" in view


def test_many_findings_are_told_in_few_words() -> None:
    found = [Finding("m", "copied_input", f"it copies number {n}") for n in range(9)]
    assert in_words(found) == "it copies number 0; it copies number 1; it copies number 2; and 6 more"
    assert in_words([]) is None
    assert findings_text([]) == ""


def test_a_config_file_may_name_a_mode_or_the_options() -> None:
    assert make_record(gl.Search, {"guard": "warn"}, "search").leak_guard.mode == "warn"
    options = {"mode": "warn", "allow": ["help@fernpost.com"], "words": 8}
    made = make_record(gl.Search, {"guard": options}, "search")
    assert made.guard == gl.Guard(mode="warn", allow=("help@fernpost.com",), words=8)
    assert make_record(gl.Search, json.loads(json.dumps(search_table(made))), "search") == made
    with pytest.raises(UsageError, match="mod"):
        make_record(gl.Search, {"guard": {"mod": "warn"}}, "search")
    with pytest.raises(UsageError, match="'reject', 'warn' or 'off'"):
        make_record(gl.Search, {"guard": {"mode": "stop"}}, "search")


def test_dspy_programs_are_guarded_likewise() -> None:
    task = pytest.importorskip("tests.dspy_task")
    words = [
        f"{name} of the northern {name}fields" for name in ("heather", "juniper", "lichen", "marram", "nettle", "osier", "privet", "quince")
    ]

    def reflection(request: gl.Request) -> str:
        return f"<prompt>Answer in capital letters, e.g. {words[0].upper()}.</prompt>"

    def metric(example: Any, prediction: Any, trace: Any = None) -> Any:
        return task.dspy.Prediction(score=float(prediction.reply == example.want), feedback="Shout.")

    with task.serving(task.shout):
        data = task.words(*words)
        prepared = api.prepare(
            task.Shout(),
            data[:4],
            data[4:],
            feedback=metric,
            reflection_lm=ScriptedLM(reflection, name="reflector"),
            budget=gl.Budget(rollouts=60),
            search=gl.Search.paper(),
        )
        state = Session(prepared.spec, MemoryStore()).run().state
    assert {proposal.code for proposal in proposals(state)} == {"leak"}
    assert {f.rule for p in proposals(state) for f in p.findings} == {"copied_input"}
    assert proposals(state)[0].findings[0].module == "say"
