"""A shipped bundle beside its seed on new data, another model and a changed judge; two bundles side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import gepa_lite as gl
from gepa_lite.aftercare.recheck import decide
from gepa_lite.cli.app import app
from gepa_lite.core.feedback import Objective
from gepa_lite.errors import ModelsDownError, ServerError
from gepa_lite.search.verdict import compare
from gepa_lite.testing import ScriptedLM
from tests import triage
from tests.triage import Triage, program, reflector, rows


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    result = gl.optimize(
        program(),
        rows(20, 1),
        rows(20, 2),
        testset=rows(30, 3),
        reflection_lm=reflector(),
        budget=gl.Budget(rollouts=400),
        run=folder / "run",
    )
    assert result.verdict == "improved"
    return result.save(folder / "triage.prompts.json")


def task(answer: Any) -> Triage:
    return Triage(lm=ScriptedLM(answer, name="task"))


def backwards(request: gl.Request) -> str:
    """A model that follows the rules of the house the wrong way round, and is right without them."""
    system, user = request.messages[0]["content"], request.messages[-1]["content"]
    if "urgent" not in system:
        return "the gist"
    kind = next(kind for kind in triage.RULES if f" {kind} " in user)
    right = triage.RULES[kind]
    return right if "rule" not in system else ("low" if right == "high" else "high")


def test_the_same_model_on_new_data_keeps_it(bundle: Path) -> None:
    found = gl.recheck(bundle, program(), rows(40, 5))
    assert found.decision == "keep"
    assert found.verdict == "improved"
    assert found.shipped_on == "test"
    assert found.comparison.n == 40
    assert found.seed[1] <= found.seed[0] <= found.seed[2]
    assert "KEEP: the bundle is better than its seed" in str(found)


def test_another_model_that_the_prompts_harm_rolls_back(bundle: Path) -> None:
    found = gl.recheck(bundle, program(), rows(40, 5), lm=ScriptedLM(backwards, name="new"))
    assert found.decision == "roll back"
    assert found.comparison.high < 0


def test_a_model_that_ignores_prompts_asks_for_a_new_run(bundle: Path) -> None:
    found = gl.recheck(bundle, task(lambda request: "low" if "urgent" in request.messages[0]["content"] else "the gist"), rows(40, 5))
    assert found.decision == "optimize again"
    assert "intervals do not meet" in found.reason


def test_a_changed_judge_is_named(bundle: Path) -> None:
    found = gl.recheck(bundle, program(), rows(40, 5), feedback=lambda example, output: output.urgency == example["urgency"])
    assert found.decision == "keep"
    assert "another one than that of the run" in found.reason


def test_an_outage_is_no_score(bundle: Path) -> None:
    def flaky(request: gl.Request) -> str:
        if "urgent" in request.messages[0]["content"] and any(f"number {i} " in request.messages[-1]["content"] for i in (3, 11, 19, 27)):
            raise ServerError("down")
        return triage.answer(request)

    found = gl.recheck(bundle, task(flaky), rows(30, 5))
    assert found.decision == "undecided"
    assert found.comparison.missing == 4

    def dead(request: gl.Request) -> str:
        raise ServerError("down")

    with pytest.raises(ModelsDownError):
        gl.recheck(bundle, task(dead), rows(5, 4))


def test_a_program_that_the_bundle_does_not_fit_is_refused_before_a_call(bundle: Path) -> None:
    class Other(Triage):
        route = gl.Module("message, gist, sender -> urgency", "Decide.")

    lm = ScriptedLM("x")
    with pytest.raises(gl.UsageError, match="signature of 'route' has changed"):
        gl.recheck(bundle, Other(lm=lm), rows(5, 4))
    assert lm.calls == 0


@pytest.mark.parametrize(
    ("seed", "now", "gain", "shipped", "decision"),
    [
        ([0.0] * 20, [1.0] * 20, 0.5, (0.9, 0.8, 1.0), "keep"),
        ([0.0] * 20, [0.0] * 20, 0.5, None, "optimize again"),
        ([0.0] * 20, [0.0] * 20, None, None, "keep"),
        ([0.0, 1.0] * 10, [1.0, 0.0] * 10, 0.2, None, "keep"),
        ([1.0] * 20, [0.0] * 20, 0.5, None, "roll back"),
        ([0.0] * 20, [0.5] * 20, 0.4, (0.9, 0.8, 1.0), "optimize again"),
        ([None, None, None, *[0.0] * 7], [1.0] * 10, 0.5, None, "undecided"),
    ],
)
def test_the_decision(seed: Any, now: Any, gain: Any, shipped: Any, decision: str) -> None:
    row = compare(seed, now)
    mean = sum(now) / len(now)
    assert decide(row, gain, (mean, mean, mean), shipped, Objective())[0] == decision


def test_minimized_scores_are_told_apart_the_right_way_round() -> None:
    row = compare([-5.0] * 20, [-3.0] * 20)
    smaller, larger = (1.0, 0.5, 1.5), (3.0, 2.5, 3.5)
    lower = Objective("minimize", (0.0, 9.0))
    assert decide(row, 2.0, larger, smaller, lower)[0] == "optimize again"
    assert decide(row, 2.0, smaller, larger, lower)[0] == "keep"


def test_two_bundles_side_by_side(bundle: Path, tmp_path: Path) -> None:
    data = json.loads(bundle.read_text())
    data["modules"]["gist"]["prompt"] = "Say in one line what the sender wants."
    data["data"]["test"] = ["other"]
    other = tmp_path / "other.prompts.json"
    other.write_text(json.dumps(data))
    found = gl.diff_bundles(gl.load_prompts(bundle), gl.load_prompts(other))
    assert dict(found.words) == {"gist": "Say in one [-sentence-]{+line+} what the sender wants."}
    assert "can't be compared" in str(found)
    same = CliRunner().invoke(app, ["diff", str(bundle), str(bundle)])
    assert "The prompts are the same." in same.stdout
    assert "improved" in same.stdout
    asked = CliRunner().invoke(app, ["diff", str(bundle), str(other), "--json"])
    assert json.loads(asked.stdout)["same_data"] is False


def made() -> Triage:
    """What the command line makes."""
    return program()


def made_backwards() -> Triage:
    return task(backwards)


@pytest.mark.parametrize(("name", "code"), [("made", 0), ("made_backwards", 7)])
def test_the_command_line_ends_with_a_code_for_a_pipeline(name: str, code: int, bundle: Path, tmp_path: Path) -> None:
    data = tmp_path / "new.jsonl"
    data.write_text("\n".join(map(json.dumps, rows(40, 5))))
    done = CliRunner().invoke(app, ["recheck", str(bundle), "--program", f"tests.test_recheck:{name}", "--data", str(data), "--json"])
    assert done.exit_code == code, done.output
    assert json.loads(done.stdout)["decision"] == ("keep" if code == 0 else "roll back")
