"""Optimizers of other packages, in processes of their own: the real packages on a scripted task, each within our budget, record, verdict and resume."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite.baselines import OPTIMIZERS, optimizer
from gepa_lite.baselines.guest import KINDS, Guest, Process
from gepa_lite.core.events import Event, Proposed, Validated
from gepa_lite.store.run_store import RunStore
from gepa_lite.testing import ScriptedLM
from tests.guest_replies import reply
from tests.triage import answer, program, rows

TRAIN, VALIDATION, TEST = rows(12, 1), rows(8, 2), rows(10, 3)
BUDGET = gl.Budget(rollouts=64)
BUDGETS = {"dspy_miprov2": gl.Budget(rollouts=160)}  # its bootstrapping alone takes more than the others' whole search
heavy = pytest.mark.heavy
pytestmark = pytest.mark.timeout(300)  # each starts a process that imports a large package, some three times


def needs(kind: str) -> str:
    try:
        Guest(kind).settings()
    except gl.UsageError as error:
        pytest.skip(str(error))
    return kind


def optimized(
    kind: str, folder: Path, *, answers: Callable[[gl.Request], str] = answer, budget: gl.Budget = BUDGET, **settings: Any
) -> Any:
    task, reflection = ScriptedLM(answers, name="task"), ScriptedLM(reply, name="reflection")
    run = optimizer(needs(kind), **settings)
    result = run(type(program())(lm=task), TRAIN, VALIDATION, testset=TEST, reflection_lm=reflection, budget=budget, run=folder, workers=4)
    return result, task, reflection


def events_of(folder: Path) -> list[Event]:
    with RunStore.read(folder) as store:
        return store.events()


def test_the_guests_are_among_the_optimizers() -> None:
    assert set(KINDS) <= set(OPTIMIZERS)


@heavy
@pytest.mark.parametrize("kind", KINDS)
def test_a_guest_stays_within_the_budget_and_an_interrupted_run_equals_an_unbroken_one(kind: str, tmp_path: Path) -> None:
    budget = BUDGETS.get(kind, BUDGET)
    result, task, reflection = optimized(kind, tmp_path / "whole", budget=budget)
    events = events_of(tmp_path / "whole")
    assert result.finished
    assert result.test.n == len(TEST)
    assert result.verdict in ("improved", "not shown", "worse")
    assert len(result.candidates) > 1
    assert budget.rollouts - 2 * len(TEST) < result.costs.logical.rollouts + 2 * len(VALIDATION)
    assert result.costs.logical.rollouts <= budget.rollouts
    assert sum(event.spend.rollouts for event in events if hasattr(event, "spend")) == result.costs.logical.rollouts
    assert {event.proposer for event in events if isinstance(event, Proposed)} == {kind}
    # the ledger is what the models themselves counted
    with RunStore.read(tmp_path / "whole") as store:
        assert store.paid().total.calls == task.calls + reflection.calls
    assert sum(event.spend.proposals for event in events if hasattr(event, "spend")) == reflection.calls

    calls = 0

    def failing(request: gl.Request) -> str:
        nonlocal calls
        calls += 1
        if calls == 50:
            raise KeyboardInterrupt
        return answer(request)

    with pytest.raises(BaseException, match=r".*"):
        optimized(kind, tmp_path / "run", answers=failing, budget=budget)
    optimized(kind, tmp_path / "run", budget=budget)
    assert events_of(tmp_path / "run") == events


@heavy
def test_an_outage_is_missing_in_our_record_though_the_guest_knows_no_missing_ones(tmp_path: Path) -> None:
    lost = next(row["message"] for row in VALIDATION)

    def down(request: gl.Request) -> str:
        if "rule" in request.messages[0]["content"] and lost in request.messages[-1]["content"]:
            raise ConnectionError("down")
        return answer(request)

    result, _, _ = optimized("dspy_gepa", tmp_path / "run", answers=down)
    values = [event.values for event in events_of(tmp_path / "run") if isinstance(event, Validated)]
    assert values
    assert all(row[0] is None for row in values)
    assert all(value is not None for row in values for value in row[1:])
    assert result.winner_index == 0


@heavy
def test_a_larger_budget_goes_on_where_a_guest_was_ended(tmp_path: Path) -> None:
    optimized("dspy_gepa", tmp_path / "run", budget=gl.Budget(rollouts=52))
    more, _, _ = optimized("dspy_gepa", tmp_path / "run", budget=BUDGET)
    whole, _, _ = optimized("dspy_gepa", tmp_path / "whole", budget=BUDGET)
    assert more.costs.logical.rollouts <= BUDGET.rollouts
    assert [c.candidate.texts for c in more.candidates] == [c.candidate.texts for c in whole.candidates]


@heavy
def test_the_reflection_of_dspy_gepa_sees_the_feedback_and_a_failed_parse(tmp_path: Path) -> None:
    asked: list[str] = []

    def note(request: gl.Request) -> str:
        asked.append("\n".join(str(message["content"]) for message in request.messages))
        return reply(request)

    def odd(request: gl.Request) -> str:
        text = answer(request)
        return text if text == "the gist" or "rule" in request.messages[0]["content"] else "perhaps"

    task = ScriptedLM(odd, name="task")
    optimizer(needs("dspy_gepa"))(
        type(program())(lm=task), TRAIN, VALIDATION, reflection_lm=ScriptedLM(note), budget=gl.Budget(rollouts=60), run=tmp_path / "run"
    )
    routes = [text for text in asked if '"unusable reply": "perhaps"' in text]
    assert routes
    assert "must be one of" in routes[0] or "low" in routes[0].split("Feedback")[1]


@heavy
def test_miprov2_puts_demonstrations_into_prompts_and_ends_with_its_trials(tmp_path: Path) -> None:
    result, _, _ = optimized(
        "dspy_miprov2", tmp_path / "run", budget=gl.Budget(rollouts=400), auto=None, num_candidates=5, num_trials=8, minibatch=False
    )
    assert result.stopped == "dspy.MIPROv2 made its last trial"
    texts = [candidate.candidate.texts for candidate in result.candidates[1:]]
    assert any("Examples of good answers:" in text for row in texts for text in row.values())
    shown = [text for row in texts for text in row.values()]
    assert not any(row["message"] in text for row in (*VALIDATION, *TEST) for text in shown)
    assert any(row["message"] in text for row in TRAIN for text in shown)


@heavy
def test_a_dspy_program_is_optimized_by_dspys_own_optimizer_on_our_ledger(tmp_path: Path) -> None:
    dspy = pytest.importorskip("dspy")
    needs("dspy_gepa")

    class Task(dspy.BaseLM):
        calls = 0

        def forward(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
            Task.calls += 1
            system, user = messages[0]["content"], messages[-1]["content"]
            kind = next(kind for kind in ("refund", "praise", "question", "leak", "invoice", "typo") if f" {kind} " in user)
            said = {"refund": "high", "praise": "low", "question": "medium", "leak": "high", "invoice": "medium", "typo": "low"}[kind]
            text = said if f"rule {kind}" in system else "medium"
            message = {"content": f"[[ ## urgency ## ]]\n{text}\n\n[[ ## completed ## ]]", "tool_calls": None}
            choice = SimpleNamespace(message=SimpleNamespace(**message), finish_reason="stop")
            return SimpleNamespace(choices=[choice], usage={"prompt_tokens": 5, "completion_tokens": 5}, model="t")

    module = dspy.Predict(dspy.Signature("message -> urgency", "Decide how urgent it is."))
    module.set_lm(Task(model="t"))

    def metric(example: Any, prediction: Any, trace: Any = None) -> Any:
        right = prediction.urgency == example.urgency
        return dspy.Prediction(score=float(right), feedback="right" if right else f"RULE:{example.kind}")

    train, validation = ([dspy.Example(**row).with_inputs("message") for row in split] for split in (TRAIN, VALIDATION))
    reflection = ScriptedLM(reply)
    result = optimizer("dspy_gepa")(
        module, train, validation, feedback=metric, reflection_lm=reflection, budget=gl.Budget(rollouts=60), run=tmp_path / "run"
    )
    assert isinstance(result.winner, dspy.Module)
    assert "rule" in result.winner.signature.instructions
    assert module.signature.instructions == "Decide how urgent it is."
    with RunStore.read(tmp_path / "run") as store:
        assert store.paid().total.calls == Task.calls + reflection.calls


@heavy
def test_a_reply_without_a_prompt_costs_textgrad_a_step_and_not_the_run(tmp_path: Path) -> None:
    def mute(request: gl.Request) -> str:
        return "I would rather not."

    result = optimizer(needs("textgrad"))(
        program(), TRAIN, VALIDATION, reflection_lm=ScriptedLM(mute), budget=gl.Budget(rollouts=30), run=tmp_path / "run"
    )
    assert result.winner_index == 0
    assert result.finished


def test_a_package_that_is_not_installed_is_named_before_anything_is_paid_for(tmp_path: Path) -> None:
    task = ScriptedLM(answer)
    with pytest.raises(
        gl.UsageError, match=r"needs the package (textgrad|no-such).*pip install 'gepa-lite\[textgrad\]'.*GEPA_LITE_PYTHON_TEXTGRAD"
    ):
        gl.compare(
            type(program())(lm=task),
            TRAIN,
            VALIDATION,
            reflection_lm=ScriptedLM(reply),
            optimizers=["best_of_n", optimizer("textgrad", python=_bare_python(tmp_path))],
            budget=BUDGET,
            folder=tmp_path / "runs",
        )
    assert task.calls == 0


def _bare_python(folder: Path) -> Path:
    """An interpreter without any package."""
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    script.chmod(0o755)
    return script


def test_an_interpreter_that_is_none_is_refused() -> None:
    with pytest.raises(gl.UsageError, match="can't be run as a Python interpreter"):
        optimizer("trace", python="/nowhere/python").check()


def test_a_guest_that_dies_says_its_last_words(tmp_path: Path) -> None:
    with Process(sys.executable, "nothing", str(tmp_path)) as process:
        process.tell({})
        with pytest.raises(gl.RunError, match=r"(?s)ended with code 1.*with_nothing.py"):
            process.hear()
        # nobody reads this: neither it nor leaving may hide the words above behind a broken pipe
        process.tell({})


def test_a_guest_sees_no_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gepa_lite.baselines.guest import _environment

    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    assert "secret" not in _environment(str(tmp_path)).values()
    assert _environment(str(tmp_path))["HOME"] == str(tmp_path)
