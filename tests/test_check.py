"""The doctor: each fault that would waste a run is found, a healthy run passes, and the cost is what was said before."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import gepa_lite as gl
from gepa_lite.adapters.adapt import adapt
from gepa_lite.cli.app import app
from gepa_lite.doctor.data import near_duplicates
from gepa_lite.doctor.noise import smallest_gain
from gepa_lite.doctor.program import wrecked
from gepa_lite.lm.protocol import LMInfo
from gepa_lite.search.verdict import compare, verdict_of
from gepa_lite.testing import ScriptedLM
from tests.test_estimate import write_task
from tests.triage import Triage, answer, program, reflector, rows

TRAIN, VALIDATION, TEST = rows(30, 1), rows(40, 2), rows(20, 3)

TIDE = itertools.count()


def check(program_: Any = None, train: Any = TRAIN, validation: Any = VALIDATION, **options: Any) -> gl.Checkup:
    return gl.check(program_ or program(), train, validation, **{"reflection_lm": reflector(), **options})


def levels(checkup: gl.Checkup, code: str) -> list[str]:
    return [finding.level for finding in checkup.of(code)]


def test_a_healthy_run_passes_within_what_was_said_before(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GEPA_LITE_PROGRESS", "1")
    task = program()
    checkup = check(task, testset=TEST)
    assert not checkup.failed, str(checkup)
    told = re.search(r"at most (\d+) rollouts and (\d+) reflections", capsys.readouterr().err)
    assert told is not None
    assert checkup.rollouts <= int(told[1])
    lm = task.models["gist"]
    assert isinstance(lm, ScriptedLM)
    assert checkup.cost.calls <= lm.calls + int(told[2])
    # the sealed test set stays sealed
    sent = "\n".join(message["content"] for request in lm.requests for message in request.messages)
    assert not any(row["message"] in sent for row in TEST)
    assert {"ok"} == {finding.level for code in ("prompt_reaches_model", "feedback_moves", "noise") for finding in checkup.of(code)}


def test_every_finding_has_words_and_each_that_is_not_fine_says_what_to_do() -> None:
    checkup = check(program(usd_per_token=None), feedback=lambda example, output: 0.5)
    for finding in checkup.findings:
        assert finding.what
        assert finding.level == "ok" or finding.do or finding.evidence
    data = checkup.to_dict()
    assert json.loads(json.dumps(data)) == data
    assert "FAIL" in str(checkup)


def test_a_prompt_that_never_reaches_the_request_fails() -> None:
    class Deaf(Triage):
        def with_prompts(self, prompts: Any) -> Any:
            return self

    checkup = check(Deaf(lm=ScriptedLM(answer, name="task")))
    assert levels(checkup, "prompt_reaches_model") == ["fail", "fail"]
    assert "does not reach the model" in checkup.of("prompt_reaches_model")[0].what


def test_a_module_that_never_runs_is_told() -> None:
    class Idle(gl.Program):
        """Route."""

        used = gl.Module("message -> urgency: Literal['low', 'medium', 'high']", "Decide how urgent it is.")
        idle = gl.Module("message -> note", "Never called.")

        def forward(self, message: str) -> gl.Outputs:
            return self.used(message=message)

    checkup = check(
        Idle(lm=ScriptedLM("low", name="task")), feedback=lambda example, output: (float(output.urgency == example["urgency"]), "x")
    )
    assert levels(checkup, "prompt_reaches_model") == ["ok", "warn"]


@pytest.mark.parametrize(
    ("feedback", "code", "level"),
    [
        (lambda example, output: (0.7, "whatever it says"), "feedback_moves", "fail"),
        (lambda example, output: (0.0, "never right"), "feedback_moves", "warn"),
        (lambda example, output: float(output.urgency == example["urgency"]), "feedback_words", "warn"),
        (lambda example, output: (float({"low": 0, "medium": 1, "high": 1}[output.urgency]), "a look-up"), "feedback_moves", "warn"),
        (lambda example, output: 1 / 0, "feedback", "fail"),
        (lambda example, output: 7.0, "feedback", "fail"),
        (lambda example, output: (next(TIDE) % 7 / 7, "by the tide"), "feedback_repeats", "warn"),
    ],
)
def test_feedback_that_can_not_teach_is_found(feedback: Any, code: str, level: str) -> None:
    assert level in levels(check(feedback=feedback), code)


def test_feedback_that_is_out_of_range_names_the_range() -> None:
    assert "range is 0 to 1" in check(feedback=lambda example, output: 7.0).of("feedback")[0].evidence


def test_the_noise_floor_comes_from_repeats_and_sets_the_smallest_gain() -> None:
    coin = itertools.count()

    def unsteady(request: gl.Request) -> str:
        return "the gist" if "urgent" not in request.messages[0]["content"] else ("low", "high", "high")[next(coin) % 3]

    lm = ScriptedLM(unsteady, name="task", deterministic=False)
    checkup = check(Triage(lm=lm), workers=1, effort=gl.Effort(examples=5, repeats=4))
    noise = checkup.of("noise")[0]
    assert "changed their score" in noise.evidence
    assert not noise.evidence.startswith("0 of")
    gain = checkup.of("smallest_gain")[0]
    assert gain.level == "warn"
    assert "About" in gain.do


def test_six_net_flips_are_the_fewest_that_a_verdict_calls_improved() -> None:
    n = 40
    flips = round(smallest_gain(n, 0.0, 1.0) * n)
    for won, expected in ((flips, "improved"), (flips - 1, "not shown")):
        before = [0.0] * n
        after = [1.0] * won + [0.0] * (n - won)
        assert verdict_of(compare(before, after)) == expected


def test_a_label_among_the_inputs_fails() -> None:
    class Told(gl.Program):
        """Route."""

        route = gl.Module("message, hint -> urgency: Literal['low', 'medium', 'high']", "Decide.")

        def forward(self, message: str, hint: str) -> gl.Outputs:
            return self.route(message=message, hint=hint)

    train, validation = ([{**row, "hint": row["urgency"]} for row in part] for part in (TRAIN, VALIDATION))
    judge = lambda example, output: (float(output.urgency == example["urgency"]), "x")  # noqa: E731 - as short as a user's
    checkup = check(Told(lm=ScriptedLM("low", name="task")), train, validation, feedback=judge)
    assert "fail" in levels(checkup, "labels_in_inputs")
    assert "'urgency'" in next(finding.what for finding in checkup.of("labels_in_inputs") if finding.level == "fail")


def test_near_duplicates_across_splits_are_counted() -> None:
    twins = [{**row, "message": row["message"].upper() + " !"} for row in TRAIN[:7]]
    checkup = check(validation=[*VALIDATION, *twins])
    (found,) = checkup.of("near_duplicates")
    assert found.level == "warn"
    assert found.what.startswith("7 examples")
    assert levels(check(), "near_duplicates") == ["ok"]


def test_many_like_examples_are_compared_in_reasonable_work() -> None:
    examples = adapt(program()).examples(rows(1_000, 5), "x")
    assert near_duplicates({"train": examples[:500], "validation": examples[500:]}) == []


@pytest.mark.parametrize(
    ("reply", "level", "words"),
    [
        ("I can't help with that.", "fail", "no_block"),
        ("<prompt>", "fail", "cut_off"),
        (gl.ModelError("the line is cut"), "fail", "line is cut"),
        ("<prompt>Decide how urgent it is, and mind the house.</prompt>", "ok", ""),
    ],
)
def test_a_reflection_model_that_can_not_answer_in_the_form_is_found(reply: Any, level: str, words: str) -> None:
    checkup = check(reflection_lm=ScriptedLM(lambda request: reply, name="writer"), workers=1)
    found = [finding for finding in checkup.findings if finding.code in ("reflection_format", "models")]
    assert level in [finding.level for finding in found]
    assert words in " ".join(finding.evidence for finding in found)


def test_the_refinement_rate_is_that_of_one_minibatch() -> None:
    checkup = check(effort=gl.Effort(proposals=3))
    (rate,) = checkup.of("refinement_rate")
    assert re.match(r"[0-3] of 3 proposals were better .* on one minibatch of 3", rate.what)


def test_a_window_that_nobody_states_is_unknown_and_not_fine() -> None:
    class Silent(ScriptedLM):
        def describe(self) -> LMInfo:
            return LMInfo("task", context_window=None, usd_per_input_token=0.0, usd_per_output_token=0.0)

    checkup = check(Triage(lm=Silent(answer)))
    assert levels(checkup, "context")[0] == "unknown"
    assert "?     The context window of task is not known." in str(checkup)
    assert "1 not known" in str(checkup)
    assert not checkup.failed


def test_unknown_prices_are_told_and_a_small_window_is_found() -> None:
    class Small(ScriptedLM):
        def describe(self) -> LMInfo:
            return LMInfo("task", context_window=1_200, usd_per_input_token=None, usd_per_output_token=None)

    checkup = check(Triage(lm=Small(answer)))
    assert levels(checkup, "prices") == ["warn"]
    assert "warn" in levels(checkup, "context")
    assert "max_prompt_tokens=" in checkup.of("context")[0].do


def test_a_wrong_set_up_is_a_finding_and_no_exception() -> None:
    checkup = check(budget=gl.Budget(rollouts=3))
    assert checkup.failed
    assert "rollouts are needed" in checkup.of("setup")[0].evidence
    missing_key = gl.check(Triage(lm="openai/gpt-4.1-mini"), TRAIN, VALIDATION)
    assert "OPENAI_API_KEY" in missing_key.of("setup")[0].evidence
    assert (missing_key.rollouts, missing_key.cost.calls) == (0, 0)


def test_models_that_are_down_fail_and_the_rest_is_not_paid_for() -> None:
    lm = ScriptedLM(lambda request: gl.ModelError("the line is cut"), name="task")
    checkup = check(Triage(lm=lm), workers=1)
    assert levels(checkup, "models") == ["fail"]
    assert lm.calls <= 8
    assert not checkup.of("noise")


def test_the_check_keeps_to_its_own_bound_in_dollars() -> None:
    checkup = check(program(usd_per_token=0.01), budget=gl.Budget(usd=100.0))
    assert "0.50 USD" in checkup.planned
    assert checkup.cost.usd is not None
    assert checkup.cost.usd <= 0.5
    assert levels(checkup, "budget") == ["warn"]


def test_the_run_does_not_pay_again_for_the_seed(tmp_path: Path) -> None:
    def calls_of(run: Path, *, checked: bool) -> tuple[int, gl.Result[Any]]:
        task = program()
        lm = task.models["gist"]
        assert isinstance(lm, ScriptedLM)
        common: dict[str, Any] = {"reflection_lm": reflector(), "budget": gl.Budget(rollouts=200), "run": run}
        before = 0
        if checked:
            assert not gl.check(task, TRAIN, VALIDATION, **common).failed
            before = lm.calls
        result = gl.optimize(task, TRAIN, VALIDATION, **common)
        return lm.calls - before, result

    plain, expected = calls_of(tmp_path / "plain", checked=False)
    after, result = calls_of(tmp_path / "checked", checked=True)
    assert after <= plain - 8
    assert result.prompts == expected.prompts
    assert result.costs.logical == expected.costs.logical


@pytest.mark.parametrize("value", ["text", 3, 2.5, True, ["a"], {"a": {"b": "c"}}, gl.Outputs(a="b", n=1)])
def test_every_usual_output_can_be_wrecked(value: Any) -> None:
    assert wrecked(value) != value
    assert type(wrecked(value)) in (type(value), int)


def test_an_output_of_an_unknown_type_is_left_alone() -> None:
    assert wrecked(object()) is None


def test_the_command_exits_with_6_where_a_run_would_be_wasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write_task(tmp_path)
    (tmp_path / "judge.py").write_text("def same(example, output):\n    return 0.5, 'always'\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    good = CliRunner().invoke(app, ["check", str(config), "--json"])
    assert good.exit_code == 0, good.output
    assert json.loads(good.stdout)["failed"] is False
    bad = CliRunner().invoke(app, ["check", str(config), "--feedback", "judge:same", "--run", "other"])
    assert bad.exit_code == 6
    assert "FAIL  The score does not change" in bad.stdout


def test_a_dspy_program_is_checked_too() -> None:
    from tests.dspy_task import BETTER, TRAIN, VALIDATION, Shout, right, serving, shout

    with serving(shout):
        checkup = gl.check(Shout(), TRAIN, VALIDATION, feedback=right, reflection_lm=ScriptedLM(BETTER))
    assert levels(checkup, "prompt_reaches_model") == ["ok"]
    assert levels(checkup, "reflection_format") == ["ok"]
    assert "2 of 2 proposals were better" in checkup.of("refinement_rate")[0].what
