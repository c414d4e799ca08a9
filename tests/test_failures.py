"""Each row of docs/failures.md against the code: what a failure is recorded as, whether it is scored, kept and tried again, and what the run does."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite.api import prepare
from gepa_lite.core.candidate import Candidate
from gepa_lite.core.events import SetAside
from gepa_lite.core.rollout import RolloutKey
from gepa_lite.engine import Engine
from gepa_lite.errors import (
    AuthError,
    BadRequestError,
    ContextWindowError,
    ModelConnectionError,
    ModelNotFoundError,
    ModelsDownError,
    ModelTimeoutError,
    RateLimitError,
    RefusedError,
    RunError,
    ServerError,
)
from gepa_lite.lm.breaker import Breaker
from gepa_lite.report.html import report_html
from gepa_lite.report.markdown import report_markdown
from gepa_lite.store.memory import MemoryStore
from gepa_lite.store.run_store import RunStore
from gepa_lite.testing import ScriptedLM
from tests.triage import Triage, answer, program, reflector, rows

DOCS = Path(__file__).parent.parent / "docs" / "failures.md"
TRAIN, VALIDATION = rows(12, 1), rows(8, 2)
SICK = 5
"""The place of the example that something is wrong with; the calls before it succeed."""


def table(heading: str) -> list[list[str]]:
    """The rows of the table under a heading, cell by cell."""
    text = DOCS.read_text(encoding="utf-8").split(f"## {heading}")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


ROWS = {(row[0], row[1]): row[2:] for row in table("In a rollout")}


class Caught(Triage):
    """A program that swallows what its model raises."""

    def forward(self, message: str) -> gl.Outputs:
        try:
            return super().forward(message)
        except gl.ModelError:
            return gl.Outputs(urgency="low")


class Raising(Triage):
    """A program that can't take one message."""

    def forward(self, message: str) -> gl.Outputs:
        out = super().forward(message)
        if message == VALIDATION[SICK]["message"]:
            raise ZeroDivisionError("one too many")
        return out


class Grade(gl.Program):
    """A judge that asks a model."""

    grade = gl.Module("message, urgency -> grade: float", "Grade it.", retries=0)

    def forward(self, message: str, urgency: str) -> gl.Outputs:
        return self.grade(message=message, urgency=urgency)


def sick_lm(reply: Any, well: Callable[[gl.Request], Any] = answer, **options: Any) -> ScriptedLM:
    """A model that answers one message in a way of its own."""

    def script(request: gl.Request) -> Any:
        return reply if VALIDATION[SICK]["message"] in request.messages[-1]["content"] else well(request)

    return ScriptedLM(script, **{"name": "task", **options})


class RaisingLM(ScriptedLM):
    """An LM object with a bug."""

    def complete(self, request: gl.Request) -> gl.Completion:
        if VALIDATION[SICK]["message"] in request.messages[-1]["content"]:
            super().complete(request)
            raise KeyError("a bug")
        return super().complete(request)


def judged(reply: Any, *, caught: bool = False) -> tuple[Triage, Any]:
    judge = Grade(lm=sick_lm(reply, lambda request: "0.5", name="judge"))

    def feedback(example: gl.Example, output: gl.Outputs) -> float:
        try:
            return float(judge(message=example["message"], urgency=output.urgency).grade)
        except gl.ModelError:
            if caught:
                return 1.0
            raise

    return program(), feedback


def scoring(score: Callable[[], Any]) -> tuple[Triage, Any]:
    return program(), lambda example, output: score() if example["message"] == VALIDATION[SICK]["message"] else 1.0


def task(reply: Any, kind: type[Triage] = Triage) -> tuple[Triage, None]:
    return kind(lm=sick_lm(reply)), None


CASES: dict[tuple[str, str], Callable[[], tuple[Triage, Any]]] = {
    ("model", "wrong key (401, 403), after other calls succeeded"): lambda: task(AuthError("401")),
    ("model", "unknown model (404), after other calls succeeded"): lambda: task(ModelNotFoundError("404")),
    ("model", "request not accepted (400, 422), after other calls succeeded"): lambda: task(BadRequestError("400")),
    ("model", "too many requests, quota (429) after the client's own retries"): lambda: task(RateLimitError("429")),
    ("model", "no full reply in time"): lambda: task(ModelTimeoutError("late")),
    ("model", "connection cut, reply not of the protocol"): lambda: task(ModelConnectionError("cut")),
    ("model", "endpoint failed (5xx)"): lambda: task(ServerError("500")),
    ("model", "an LM object of your own raised"): lambda: (Triage(lm=RaisingLM(answer, name="task")), None),
    ("model", "prompt and reply longer than the context window"): lambda: task(ContextWindowError("too long")),
    ("model", "the content was refused"): lambda: task(RefusedError("no")),
    ("parser", "reply without the declared outputs, after the module's visible retries"): lambda: (
        Triage(lm=ScriptedLM(lambda request: unparsable(request, "stop"), name="task")),
        None,
    ),
    ("parser", "a reply cut off at its token limit"): lambda: (
        Triage(lm=ScriptedLM(lambda request: unparsable(request, "length"), name="task")),
        None,
    ),
    ("program", "an exception"): lambda: (Raising(lm=ScriptedLM(answer, name="task")), None),
    ("program", "an outage that the program caught"): lambda: task(ServerError("500"), Caught),
    ("judge", "its model is down"): lambda: judged(ServerError("500")),
    ("judge", "an outage that the feedback function caught"): lambda: judged(ServerError("500"), caught=True),
    ("judge", "its reply can't be read"): lambda: judged("no number"),
    ("feedback", "an exception"): lambda: scoring(lambda: 1 / 0),
    ("feedback", "no score, or NaN"): lambda: scoring(lambda: float("nan")),
    ("feedback", "a score out of range"): lambda: scoring(lambda: 7.0),
}


def unparsable(request: gl.Request, finish: str) -> Any:
    text = request.messages[-1]["content"]
    if VALIDATION[SICK]["message"] in text and "urgent" in request.messages[0]["content"]:
        return gl.Completion("I would rather", finish)
    return answer(request)


@dataclass(frozen=True)
class Seen:
    """What became of the sick example's rollout."""

    kind: str
    score: str
    kept: bool
    runs: int
    end: str


def observe(program_: Triage, feedback: Any) -> Seen:
    """Run the seed on the validation examples with one worker, and look."""
    spec = prepare(
        program_, TRAIN, VALIDATION, feedback=feedback, reflection_lm=reflector(), budget=gl.Budget(rollouts=100), workers=1
    ).spec
    store, seed, runs = MemoryStore(), Candidate(spec.program.prompts), 0
    store.begin_session({})
    sick = spec.validation[SICK]

    def count(rollout: Any, saved: bool) -> None:
        nonlocal runs
        runs += rollout.key.example_id == sick.id and not saved

    engine = Engine(spec, store, spec.budget, lambda: None, count)
    key = RolloutKey(seed.id, sick.id)
    try:
        rollout = engine.evaluate(seed, spec.validation)[0][SICK]
    except RunError as error:
        return Seen("-", "-", key in store.rollouts_at([key]), runs, type(error).__name__)
    finally:
        engine.close()
    # nothing but the sick one is touched
    assert len(store.rollouts_at([RolloutKey(seed.id, example.id) for example in spec.validation])) >= len(VALIDATION) - 1
    score = "missing" if rollout.value is None else "worst" if rollout.value == spec.search.objective.worst else "another"
    assert rollout.failure is not None
    if score == "worst":
        assert rollout.feedback is not None
        assert rollout.feedback.text
    return Seen(rollout.failure.kind, score, key in store.rollouts_at([key]), runs, "goes on")


def test_the_table_has_a_case_for_each_row_and_a_row_for_each_case() -> None:
    assert set(ROWS) == set(CASES)


@pytest.mark.parametrize("row", CASES, ids=lambda row: f"{row[0]}: {row[1]}")
def test_a_failure_in_a_rollout_is_what_the_table_says(row: tuple[str, str]) -> None:
    kind, score, kept, again, end = ROWS[row]
    seen = observe(*CASES[row]())
    assert (seen.kind, seen.score, seen.end) == (kind.strip("`"), score, end)
    assert seen.kept == (kept == "yes")
    assert seen.runs == (0 if end == "FeedbackError" else 2 if again == "once" else 1)


def test_every_test_that_the_second_table_names_is_there() -> None:
    tests = "\n".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    for row in table("In a step and in a run"):
        names = re.findall(r"`(test_\w+)`", row[3])
        assert names, row
        for name in names:
            assert f"def {name}(" in tests, name


def test_every_call_that_failed_is_in_the_ledger() -> None:
    spec = prepare(*task(ServerError("500"))[:1], TRAIN, VALIDATION, reflection_lm=reflector(), workers=1).spec
    store = MemoryStore()
    store.begin_session({})
    engine = Engine(spec, store, spec.budget, lambda: None, lambda rollout, saved: None)
    engine.evaluate(Candidate(spec.program.prompts), spec.validation)
    engine.close()
    lm = spec.program.models["gist"]
    assert isinstance(lm, ScriptedLM)
    assert store.paid().total.calls == lm.calls


# --- the breaker


def fail(breaker: Breaker, *keys: object) -> None:
    for key in keys:
        breaker.failure("task", "m", ServerError("500"), str(key))


def test_after_a_success_it_takes_twelve_in_a_row() -> None:
    breaker = Breaker()
    breaker.success("task", "m")
    fail(breaker, *range(11))
    breaker.success("task", "m")
    fail(breaker, *range(11, 22))
    with pytest.raises(ModelsDownError, match="12 calls in a row"):
        fail(breaker, 22)
    with pytest.raises(ModelsDownError):
        breaker.check("task", "m")


def test_a_call_that_fails_again_says_nothing_new() -> None:
    breaker = Breaker()
    fail(breaker, *[number % 4 for number in range(40)])
    breaker.check("task", "m")
    with pytest.raises(ModelsDownError, match="5 calls in a row"):
        fail(breaker, "another")


def test_a_partial_outage_reaches_the_verdict_indecisive(tmp_path: Path) -> None:
    # every third test message fails until the outage has passed: 20 of 60, and again in a row when they are tried once more
    test, recovered = rows(60, 3), [False]
    sick = {row["message"] for row in test[::3]}

    def script(request: gl.Request) -> Any:
        down = not recovered[0] and any(message in request.messages[-1]["content"] for message in sick)
        return ServerError("503") if down else answer(request)

    lm = ScriptedLM(script, name="task")
    common: dict[str, Any] = {
        "testset": test,
        "reflection_lm": reflector(),
        "budget": gl.Budget(rollouts=260),
        "run": tmp_path / "run",
        "workers": 1,
    }
    result = gl.optimize(Triage(lm=lm), rows(20, 1), rows(16, 2), **common)
    assert (result.verdict, result.test) == ("indecisive", None)
    assert any("20 of 60 test examples have no score" in notice for notice in result.notices)
    paid, recovered[0] = lm.calls, True
    again = gl.optimize(Triage(lm=lm), rows(20, 1), rows(16, 2), **common)
    assert again.verdict == "improved"
    assert again.test is not None
    assert (again.test.n, again.test.missing, again.test.looks) == (60, 0, 1)
    assert lm.calls - paid <= 2 * 2 * len(sick), "only what was missing is paid for"


def test_a_missing_cell_of_the_seed_stops_the_run_and_a_resume_goes_on(tmp_path: Path) -> None:
    down = [True]

    def script(request: gl.Request) -> Any:
        return ServerError("503") if down[0] and VALIDATION[SICK]["message"] in request.messages[-1]["content"] else answer(request)

    lm = ScriptedLM(script, name="task")
    common: dict[str, Any] = {"reflection_lm": reflector(), "budget": gl.Budget(rollouts=90), "run": tmp_path / "run", "workers": 1}
    with pytest.raises(ModelsDownError, match="1 of 8 rollouts are missing"):
        gl.optimize(Triage(lm=lm), TRAIN, VALIDATION, **common)
    paid, down[0] = lm.calls, False
    result = gl.optimize(Triage(lm=lm), TRAIN, VALIDATION, **common)
    assert result.validation.missing == 0
    assert result.costs.paid.calls == lm.calls + reflections(result)
    assert paid >= 15


MANY = rows(20, 2)
"""A validation set of which one example is a twentieth."""


def refusing(message: str, times: float, fault: Exception) -> ScriptedLM:
    """A model that fails on one message so many times."""
    left = [times]

    def script(request: gl.Request) -> Any:
        if message in request.messages[-1]["content"] and left[0] > 0:
            left[0] -= 1
            return fault
        return answer(request)

    return ScriptedLM(script, name="task")


@pytest.mark.parametrize("workers", [1, 4])
def test_a_validation_example_that_never_gets_a_score_is_set_aside_and_said(workers: int, tmp_path: Path) -> None:
    sick = MANY[SICK]["message"]
    common: dict[str, Any] = {"reflection_lm": reflector(), "run": tmp_path / "run", "workers": workers}
    fault = ModelTimeoutError("no reply in 60 s")
    result = gl.optimize(Triage(lm=refusing(sick, math.inf, fault)), TRAIN, MANY, budget=gl.Budget(rollouts=200), **common)
    assert result.validation.n == 19
    assert result.validation.missing == 0
    assert result.validation.after > result.validation.before
    aside = result.state.set_aside
    assert aside is not None
    assert len(aside.example_ids) == 1
    assert "no reply in 60 s" in aside.reason
    assert "1 validation example is set aside and counted nowhere" in str(result)
    shown = report_markdown(tmp_path / "run"), report_html(tmp_path / "run")
    assert all("set aside" in text for text in shown)
    # it is run for no later candidate, and a resume with a larger budget goes on without it
    with RunStore.open(tmp_path / "run") as store:
        assert {event.spend.rollouts for event in store.events() if isinstance(event, SetAside)} == {1}
    lm = refusing(sick, math.inf, fault)
    more = gl.optimize(Triage(lm=lm), TRAIN, MANY, budget=gl.Budget(rollouts=300), **common)
    assert more.state.set_aside == aside
    assert more.costs.logical.rollouts > result.costs.logical.rollouts
    assert not any(sick in request.messages[-1]["content"] for request in lm.requests)
    # who takes the example out of the data goes on with the run; another one is another validation set
    well = [row for row in MANY if row["message"] != sick]
    assert gl.optimize(Triage(lm=lm), TRAIN, well, budget=gl.Budget(rollouts=300), **common).validation == more.validation
    with pytest.raises(gl.UsageError, match="validation set has changed"):
        gl.optimize(Triage(lm=lm), TRAIN, well[1:], budget=gl.Budget(rollouts=300), **common)


def test_a_short_outage_of_the_seed_is_tried_again_and_sets_nothing_aside(tmp_path: Path) -> None:
    lm = refusing(MANY[SICK]["message"], 1, ServerError("503"))
    result = gl.optimize(Triage(lm=lm), TRAIN, MANY, reflection_lm=reflector(), budget=gl.Budget(rollouts=90), run=tmp_path / "run")
    assert result.state.set_aside is None
    assert result.validation.n == 20


@pytest.mark.parametrize("search", [{"coverage": 1.0}, {"pins": (MANY[SICK],)}], ids=["strict", "pinned"])
def test_nothing_is_set_aside_where_every_score_is_asked_for(search: dict[str, Any], tmp_path: Path) -> None:
    lm = refusing(MANY[SICK]["message"], math.inf, RateLimitError("429"))
    with pytest.raises(ModelsDownError, match="1 of 20 rollouts are missing"):
        gl.optimize(
            Triage(lm=lm),
            TRAIN,
            MANY,
            reflection_lm=reflector(),
            budget=gl.Budget(rollouts=90),
            search=gl.Search(**search),
            run=tmp_path / "run",
        )


def reflections(result: gl.Result[Any]) -> int:
    return result.costs.logical.reflection.calls


def test_a_missing_cell_voids_the_proposal_and_five_in_a_row_end_the_session(tmp_path: Path) -> None:
    # one training message of each minibatch can't be answered
    sick = {row["message"] for row in TRAIN[::3]}

    def script(request: gl.Request) -> Any:
        return ServerError("503") if any(message in request.messages[-1]["content"] for message in sick) else answer(request)

    with pytest.raises(ModelsDownError, match="proposals were lost to outages"):
        gl.optimize(
            Triage(lm=ScriptedLM(script, name="task")),
            TRAIN,
            VALIDATION,
            reflection_lm=reflector(),
            budget=gl.Budget(rollouts=200),
            search=gl.Search.paper(minibatch=12),
            run=tmp_path / "run",
            workers=1,
        )
