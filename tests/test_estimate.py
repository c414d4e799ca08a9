"""An estimate: three samples that the run does not pay for again, ranges that hold, and advice that mends what it warns of."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import gepa_lite as gl
from gepa_lite.cli.app import app
from gepa_lite.forecast.advice import ENOUGH_PROPOSALS, Caution
from gepa_lite.forecast.course import Case, Cost, Shape, follow
from gepa_lite.testing import ScriptedLM
from tests.triage import answer, program, reflector, rows

TRAIN, VALIDATION, TEST = rows(30, 1), rows(40, 2), rows(20, 3)


def estimate_of(tmp_path: Path, **options: Any) -> gl.Estimate:
    settings = {"reflection_lm": reflector(), "run": tmp_path / "run", **options}
    return gl.estimate(settings.pop("program", program()), TRAIN, settings.pop("validation", VALIDATION), **settings)


def advice_of(estimate: gl.Estimate, code: str) -> Caution:
    return next(advice for advice in estimate.warnings if advice.code == code)


def test_the_run_does_not_pay_for_the_samples_again(tmp_path: Path) -> None:
    def calls_of(run: Path, *, estimated: bool) -> tuple[int, gl.Result[Any]]:
        task = program()
        common: dict[str, Any] = {"reflection_lm": reflector(), "budget": gl.Budget(rollouts=200), "run": run}
        if estimated:
            assert gl.estimate(task, TRAIN, VALIDATION, **common).sample_cost.calls == 6
        result = gl.optimize(task, TRAIN, VALIDATION, **common)
        lm = task.models["gist"]
        assert isinstance(lm, ScriptedLM)
        return lm.calls, result

    plain, expected = calls_of(tmp_path / "plain", estimated=False)
    sampled, result = calls_of(tmp_path / "sampled", estimated=True)
    assert sampled == plain
    assert result.costs.paid.calls == expected.costs.paid.calls
    assert result.costs.logical == expected.costs.logical
    assert result.prompts == expected.prompts


def test_a_second_estimate_costs_nothing_and_at_most_three_rollouts_are_run(tmp_path: Path) -> None:
    task = program()
    first = estimate_of(tmp_path, program=task)
    again = estimate_of(tmp_path, program=task)
    assert (first.samples, first.sample_cost.calls, again.sample_cost.calls) == (3, 6, 0)
    assert again.proposals == first.proposals
    assert estimate_of(tmp_path / "one", samples=1).sample_cost.calls == 2


@pytest.mark.parametrize("samples", [0, 4, True, 2.0])
def test_no_more_than_three_samples_can_be_asked_for(samples: Any, tmp_path: Path) -> None:
    with pytest.raises(gl.UsageError, match="from 1 to 3"):
        estimate_of(tmp_path, samples=samples)


@pytest.mark.parametrize("rollouts", [200, 400, 900])
@pytest.mark.parametrize("search", [gl.Search(stop=()), gl.Search.paper(), gl.Search(fan=1, validation="full")])
def test_the_truth_lies_in_the_ranges_where_the_budget_ends_the_run(rollouts: int, search: gl.Search, tmp_path: Path) -> None:
    # no rule ever helps for good, so that only the budget ends the run
    def hard(request: gl.Request) -> str:
        return "the gist" if "urgent" not in request.messages[0]["content"] else ("low", "medium")[len(request.messages[-1]["content"]) % 2]

    task = ScriptedLM(hard, name="task")
    count = iter(range(10_000))
    writer = ScriptedLM(
        lambda request: f"<prompt>Decide how urgent it is, by rule {next(count)}.</prompt>", name="writer", deterministic=False
    )
    common: dict[str, Any] = {"reflection_lm": writer, "budget": gl.Budget(rollouts=rollouts), "search": search, "run": tmp_path / "run"}
    found = gl.estimate(type(program())(lm=task), TRAIN, VALIDATION, **common)
    result = gl.optimize(type(program())(lm=task), TRAIN, VALIDATION, **common)
    assert result.state.stopped is not None
    assert result.state.stopped.code == "budget"
    spend = result.costs.logical
    assert found.rollouts.low * 0.85 <= spend.rollouts <= rollouts
    # nothing is ever accepted here, which is beyond the low end of what is assumed
    assert found.proposals.low <= spend.proposals <= found.proposals.high * 1.6
    assert found.proposals.low <= found.proposals.likely <= found.proposals.high


def test_an_unknown_price_is_said_and_never_zero(tmp_path: Path) -> None:
    unpriced = estimate_of(tmp_path, program=program(usd_per_token=None))
    assert (unpriced.usd, unpriced.roles["task"].usd) == (None, None)
    assert unpriced.roles["reflection"].usd is not None
    assert unpriced.to_dict()["usd"] is None
    assert "prices={'task'" in str(advice_of(unpriced, "price"))
    assert re.search(r"USD in all +unknown", str(unpriced))
    priced = estimate_of(tmp_path / "priced", program=program(usd_per_token=None), prices={"task": (10.0, 30.0)})
    assert priced.usd is not None
    assert 0 < priced.usd.low < priced.usd.high
    assert not [advice for advice in priced.warnings if advice.code == "price"]


def test_without_a_budget_it_says_what_the_default_one_buys(tmp_path: Path) -> None:
    found = estimate_of(tmp_path, program=program(usd_per_token=1e-6))
    assert found.default_budget
    assert found.budget.usd == 2.0
    assert "by default" in str(found)
    assert found.proposals.likely >= ENOUGH_PROPOSALS


def test_few_proposals_are_warned_of_and_each_advice_mends_it(tmp_path: Path) -> None:
    few = estimate_of(tmp_path, budget=gl.Budget(rollouts=140))
    assert few.proposals.likely < 5
    advice = advice_of(few, "few_proposals")
    raised = int(next(words for words in advice.do if "Raise" in words).split(" to ")[1].rstrip("."))
    mended = estimate_of(tmp_path / "raised", budget=gl.Budget(rollouts=raised))
    assert mended.proposals.likely >= ENOUGH_PROPOSALS
    smaller = int(re.search(r"Use (\d+) validation", " ".join(advice.do))[1])  # type: ignore[index]
    cut = estimate_of(tmp_path / "cut", budget=gl.Budget(rollouts=140), validation=VALIDATION[:smaller])
    assert cut.proposals.likely >= ENOUGH_PROPOSALS


def test_a_validation_set_that_eats_the_budget_is_warned_of(tmp_path: Path) -> None:
    found = estimate_of(tmp_path, budget=gl.Budget(rollouts=700), validation=rows(150, 7), search=gl.Search(validation="full", fan=1))
    advice = advice_of(found, "validation")
    assert "staged" in advice.do[0]
    assert "validation examples instead of 150" in advice.do[-1]


@pytest.mark.parametrize("bound", ["rollouts", "proposals", "tokens", "usd", "seconds"])
def test_each_bound_ends_the_course(bound: str, tmp_path: Path) -> None:
    amounts = {"rollouts": 200, "proposals": 9, "tokens": 30_000, "usd": 0.03, "seconds": 60.0}
    task = program(usd_per_token=1e-6, seconds=0.01)
    found = estimate_of(tmp_path, program=task, workers=1, budget=gl.Budget(**{bound: amounts[bound]}))
    assert found.ended_by == bound
    assert found.proposals.likely > 0
    limits = {"rollouts": found.rollouts.high, "proposals": found.proposals.high, "tokens": found.tokens.high}
    assert limits.get(bound, 0) <= amounts[bound] * 1.001
    if bound == "seconds":
        assert 1.0 <= found.minutes.high <= 1.5, "no later than the calls in flight take"


def test_a_larger_budget_never_buys_fewer_proposals() -> None:
    case = Case(0.3, 0.7, 0.1, 0.9, Cost(2, 100, 0.1), Cost(0, 50, 0.1), Cost(), Cost(1, 500, 0.2), 0.7, 1.0, 4.0, 5.0)
    shape = Shape(50, 40, 0, 1, 4, 3, 1, 10, gl.Budget(rollouts=100))
    counts = [follow(Shape(50, 40, 0, 1, 4, 3, 1, 10, gl.Budget(rollouts=rollouts)), case).proposals for rollouts in range(100, 2_000, 50)]
    assert counts == sorted(counts)
    assert follow(shape, case).rollouts <= 100


def test_failing_perfect_and_missing_samples_are_told(tmp_path: Path) -> None:
    perfect = gl.estimate(program(), TRAIN, VALIDATION, feedback=lambda example, output: 1.0, run=tmp_path / "perfect")
    assert "best possible score" in advice_of(perfect, "perfect").what
    given: dict[str, Any] = {"feedback": lambda example, output: 1.0, "run": tmp_path / "few"}
    few = gl.estimate(program(), TRAIN, VALIDATION[:5], **given)
    assert (few.proposals.low, few.rollouts.low) == (0, 5)
    run = gl.optimize(program(), TRAIN, VALIDATION[:5], **given)
    assert (run.costs.logical.proposals, run.costs.logical.rollouts) == (0, 5)
    broken = type(program())(lm=ScriptedLM("no such label", name="task"))
    failing = gl.estimate(broken, TRAIN, VALIDATION, run=tmp_path / "failing")
    assert advice_of(failing, "failing").what.startswith("3 of 3")
    down = type(program())(lm=ScriptedLM([gl.ModelError("the line is cut")] * 50, name="task"))
    with pytest.raises(gl.RunError, match="line is cut"):
        gl.estimate(down, TRAIN, VALIDATION, run=tmp_path / "down")


def test_samples_of_another_model_are_refused(tmp_path: Path) -> None:
    estimate_of(tmp_path)
    other = type(program())(lm=ScriptedLM(answer, name="other"))
    with pytest.raises(gl.UsageError, match=r"task_models was .*'task'.*Use another run name"):
        gl.optimize(other, TRAIN, VALIDATION, reflection_lm=reflector(), budget=gl.Budget(rollouts=200), run=tmp_path / "run")


def test_a_run_that_has_begun_is_not_estimated(tmp_path: Path) -> None:
    gl.optimize(program(), TRAIN, VALIDATION, reflection_lm=reflector(), budget=gl.Budget(rollouts=200), run=tmp_path / "run")
    with pytest.raises(gl.UsageError, match="has begun"):
        estimate_of(tmp_path)


def test_a_judge_model_has_a_role_of_its_own(tmp_path: Path) -> None:
    class Judge(gl.Program):
        grade = gl.Module("urgency -> grade: float", "Grade it.")

        def forward(self, urgency: str) -> gl.Outputs:
            return self.grade(urgency=urgency)

    judge = Judge(lm=ScriptedLM("0.5", name="judge"))
    found = gl.estimate(
        program(), TRAIN, VALIDATION, feedback=lambda example, output: judge(urgency=output.urgency).grade, run=tmp_path / "run"
    )
    assert found.roles["judge"].calls.likely == pytest.approx(found.rollouts.likely)


def write_task(folder: Path) -> Path:
    (folder / "task.py").write_text(
        "import gepa_lite as gl\nfrom gepa_lite.testing import ScriptedLM\nfrom tests.triage import Triage, answer, reflect\n"
        "def reply(request):\n    return reflect(request) if '<current>' in request.messages[0]['content'] else answer(request)\n"
        "def make():\n    return Triage(lm=ScriptedLM(reply, name='task'))\n",
        encoding="utf-8",
    )
    for name, data in (("train", TRAIN), ("val", VALIDATION)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, data)), encoding="utf-8")
    config = folder / "run.toml"
    config.write_text(
        'program = "task:make"\ntrain = "train.jsonl"\nval = "val.jsonl"\nrun = "first"\n[budget]\nrollouts = 200\n', encoding="utf-8"
    )
    return config


def test_the_command_says_it_and_the_run_goes_on_from_its_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write_task(tmp_path)
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(app, ["estimate", str(config), "--json"])
    assert told.exit_code == 0, told.output
    data = json.loads(told.stdout)
    assert data["samples"]["paid"]["calls"] == 6
    assert data["ended_by"] == "rollouts"
    plain = CliRunner().invoke(app, ["estimate", str(config)])
    assert "nothing: they were on disk" in plain.stdout.replace("\n", " ")
    run = CliRunner().invoke(app, ["run", str(config), "--json", "-q"])
    assert run.exit_code == 0, run.output
    listed = CliRunner().invoke(app, ["estimate", str(config)])
    assert listed.exit_code == 2
