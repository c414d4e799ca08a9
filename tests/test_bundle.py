"""The bundle says all that there is to know of shipped prompts, and is read by the standard library alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite.program.render import render_messages
from tests.triage import program, reflector, rows

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    result = gl.optimize(
        program(),
        rows(20, 1),
        rows(20, 2),
        testset=rows(20, 3),
        reflection_lm=reflector(),
        budget=gl.Budget(rollouts=400),
        run=folder / "run",
    )
    return result.save(folder / "triage.prompts.json")


def test_it_holds_what_the_format_page_lists_and_nothing_else(bundle: Path) -> None:
    data = json.loads(bundle.read_text())
    table = [line.split("|")[1] for line in (DOCS / "bundle-format.md").read_text().splitlines() if line.startswith("| `")]
    listed = {name.strip(" `") for cell in table for name in cell.split(",")}
    assert listed == set(data)


def test_it_is_sorted_and_indented(bundle: Path) -> None:
    data = json.loads(bundle.read_text())
    assert bundle.read_text() == json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def test_scores_models_and_fingerprints(bundle: Path) -> None:
    data = json.loads(bundle.read_text())
    route = data["modules"]["route"]
    assert route["seed"] == "Decide how urgent it is."
    assert "rule" in route["prompt"]
    assert route["params"] == {"max_tokens": 1024}
    assert route["model"] == "task"
    for split in ("validation", "test"):
        scores = data["scores"][split]
        assert scores["n"] == 20
        for who in ("seed", "winner"):
            low, high = scores[f"{who}_interval"]
            assert low <= scores[who] <= high
    assert data["versions"]["python"] == sys.version.split()[0]
    assert data["feedback"] == data["settings"]["feedback"]
    assert len(data["data"]["test"]) == 20


def test_the_frame_and_the_prompt_are_the_system_message(bundle: Path) -> None:
    module = program().modules["route"]
    entry = json.loads(bundle.read_text())["modules"]["route"]
    inside = render_messages(module.signature, entry["prompt"], {"message": "m", "gist": "g"})[0]["content"]
    assert entry["prompt"] + entry["frame"]["after"] == inside
    assert entry["frame"]["inputs"] == ["message", "gist"]


def test_loading_takes_nothing_but_the_standard_library(bundle: Path) -> None:
    code = (
        "import sys; before = set(sys.modules); import gepa_lite as gl; live = gl.LivePrompts(sys.argv[1]); assert len(live.now()) == 2;"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(bundle)], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded - set(sys.stdlib_module_names) == {"gepa_lite"}
    # each of them, and what it brings along, takes longer than all the rest
    assert loaded.isdisjoint({"dataclasses", "inspect", "typing", "ast", "pathlib", "string"})


def test_a_lone_surrogate_survives(tmp_path: Path) -> None:
    from gepa_lite.ship.atomic import write_atomically
    from gepa_lite.ship.bundle import bundle_text

    path = write_atomically(tmp_path / "x.json", bundle_text({"text": "cut \ud83d"}))
    assert json.loads(path.read_text())["text"] == "cut \ud83d"


def test_live_prompts_take_a_new_file_and_outlast_a_broken_one(bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "live.prompts.json"
    data: dict[str, Any] = json.loads(bundle.read_text())

    def put(text: str) -> None:
        fresh = tmp_path / "fresh"
        fresh.write_text(text)
        fresh.replace(path)

    put(json.dumps(data))
    live = gl.LivePrompts(path)
    assert live.now() is live.now(), "no change, no reading"
    data["modules"]["gist"]["prompt"] = "Another."
    put(json.dumps(data))
    assert live.now()["gist"] == "Another."
    put("{")
    assert live.now()["gist"] == "Another."
    assert "is not JSON" in str(live.problem)
    path.unlink()
    assert live.now()["gist"] == "Another."
    data["modules"]["gist"]["prompt"] = "A third."
    put(json.dumps(data))
    assert live.now()["gist"] == "A third."
    assert live.problem is None
    with pytest.raises(gl.UsageError, match="can't be read"):
        gl.LivePrompts(tmp_path / "nothing")
