"""What is shipped of a wrapped function: every export format, and a registry that a running pipeline follows."""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite.exports.formats import FORMATS
from tests.triage import reflector, rows
from tests.wrapped_task import ASK, PROMPTS, feedback, triage


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> gl.Result[gl.Wrapped]:
    return gl.optimize(
        gl.wrap(triage, PROMPTS, lm=ASK),
        rows(12, 1),
        rows(8, 2),
        feedback=feedback,
        reflection_lm=reflector(),
        budget=gl.Budget(rollouts=110),
        run=tmp_path_factory.mktemp("run"),
    )


@pytest.mark.parametrize("form", sorted(FORMATS.keys() - {"dspy", "mlflow"}))
def test_a_wrapped_function_is_exported_and_verified(form: str, result: gl.Result[gl.Wrapped], tmp_path: Path) -> None:
    assert result.prompts != PROMPTS
    done = gl.export(result, form, tmp_path / "out")
    assert done.verified is not None
    texts: dict[str, Any] = {
        "markdown": lambda: dict(gl.import_prompts(tmp_path / "out")),
        "py": lambda: runpy.run_path(str(tmp_path / "out"))["PROMPTS"],
        "messages": lambda: {k: v["messages"][0]["content"] for k, v in json.loads((tmp_path / "out").read_text()).items()},
        "langchain": lambda: result.prompts,
    }
    assert texts[form]() == result.prompts


def test_a_wrapped_function_is_no_dspy_program(result: gl.Result[gl.Wrapped], tmp_path: Path) -> None:
    with pytest.raises(gl.UsageError, match="dspy"):
        gl.export(result, "dspy", tmp_path / "state.json")
    assert not (tmp_path / "state.json").exists()


@pytest.mark.heavy
def test_a_wrapped_function_goes_into_mlflows_registry(result: gl.Result[gl.Wrapped], tmp_path: Path) -> None:
    assert gl.export(result, "mlflow", f"sqlite:///{tmp_path / 'mlflow.db'}").verified is not None


def text_of(name: str) -> str:
    return gl.prompt(name, PROMPTS[name])


@pytest.fixture
def folder(result: gl.Result[gl.Wrapped], tmp_path: Path) -> Iterator[Path]:
    bundle = result.save(tmp_path / "t.prompts.json")
    registry = gl.Registry(tmp_path / "prompts")
    registry.add(bundle, why="first", promote=True)
    data = json.loads(bundle.read_text())
    for module in data["modules"].values():
        module["prompt"] += " Second version."
    bundle.write_text(json.dumps(data))
    registry.add(bundle, why="second")
    yield tmp_path / "prompts"
    gl.use_prompts(None)


def test_promotes_take_effect_in_a_running_pipeline(folder: Path, result: gl.Result[gl.Wrapped]) -> None:
    registry, live = gl.Registry(folder), gl.LivePrompts(folder)
    gl.use_prompts(live)
    pipeline = gl.wrap(lambda message: text_of("route"), PROMPTS)
    assert text_of("route") == pipeline("x") == result.prompts["route"]
    registry.promote(2, why="try")
    assert text_of("route") == pipeline("x") == f"{result.prompts['route']} Second version."
    registry.rollback(why="worse")
    assert text_of("route") == pipeline("x") == result.prompts["route"]
    (folder / "registry.json").write_text("{")
    assert pipeline("x") == result.prompts["route"]
    assert live.problem


def test_a_call_keeps_to_one_version_while_another_is_promoted(folder: Path) -> None:
    registry = gl.Registry(folder)
    gl.use_prompts(gl.LivePrompts(folder))

    def both(message: str) -> tuple[str, str]:
        first = text_of("gist")
        registry.promote(2, why="in between")
        return first, text_of("route")

    first, second = gl.wrap(both, PROMPTS)("x")
    assert not first.endswith("Second version.")
    assert not second.endswith("Second version.")
    assert text_of("route").endswith("Second version.")


def test_what_is_no_source_of_prompts_is_refused() -> None:
    with pytest.raises(gl.UsageError, match=r"a gl.LivePrompts are needed, but got int"):
        gl.use_prompts(3)  # type: ignore[arg-type]
