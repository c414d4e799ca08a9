"""Export fidelity: what is sent outside is what was sent inside, byte for byte, and a difference is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import gepa_lite as gl
from gepa_lite.cli.app import app
from gepa_lite.exports import formats
from gepa_lite.exports.user_message import user_message
from gepa_lite.program.render import render_messages
from gepa_lite.store.run_store import RunStore
from gepa_lite.testing import ScriptedLM
from tests import triage

EXAMPLES = 50
LONG = "It spans two lines\nand has <message> tags, {braces}, {{two}}, $money and a \\ in it. " * 4


class Desk(triage.Triage):
    """The triage task with a prompt that every format must quote with care."""

    route = gl.Module(
        "message, gist -> urgency: Literal['low', 'medium', 'high'], reason",
        'Decide how urgent it is. Answer {"urgency": "low"} as JSON.\n  Keep  this: 100 % — «ok» \\n \'\'\' """.',
        retries=1,
        contract=gl.Contract(placeholders=()),
    )


def answer(request: gl.Request) -> str:
    """As the triage task does, in JSON; on some messages a first reply that can't be parsed."""
    if "urgent" not in request.messages[0]["content"]:
        return "the {gist}\n of it" if "number 3" in request.messages[1]["content"] else "the gist"
    if "number 7 " in request.messages[1]["content"] and len(request.messages) == 2:
        return "unsure"
    kind = next(kind for kind in triage.RULES if f" {kind} " in request.messages[1]["content"])
    known = f"rule {kind}" in request.messages[0]["content"]
    return json.dumps({"urgency": triage.RULES[kind] if known else "low", "reason": "so"})


def rows(count: int, seed: int) -> list[dict[str, Any]]:
    return [{**row, "message": row["message"] + (f" {LONG}" if i % 3 == 0 else " ")} for i, row in enumerate(triage.rows(count, seed))]


def desk() -> Desk:
    return Desk(lm=ScriptedLM(answer, name="task"))


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> gl.Result[Desk]:
    run = tmp_path_factory.mktemp("run") / "run"
    found = gl.optimize(
        desk(),
        rows(12, 1),
        rows(12, 2),
        testset=rows(EXAMPLES, 3),
        reflection_lm=triage.reflector(),
        budget=gl.Budget(rollouts=300),
        run=run,
    )
    assert "rule" in found.prompts["route"]
    return found


TARGETS = {"markdown": "prompts", "messages": "messages.json", "py": "desk_prompts.py", "langchain": "templates"}


@pytest.mark.parametrize("form", [*TARGETS, pytest.param("mlflow", marks=pytest.mark.heavy)])
def test_messages_outside_equal_messages_inside_on_50_examples(form: str, result: gl.Result[Desk], tmp_path: Path) -> None:
    target = tmp_path / TARGETS[form] if form in TARGETS else f"sqlite:///{tmp_path}/mlflow.db"
    done = gl.export(result, form, target, verify_on=EXAMPLES)
    assert done.verified is not None
    assert done.verified.examples == EXAMPLES
    assert done.verified.sent >= 2 * EXAMPLES, "two calls each, and a retry on some"
    if form != "markdown":
        assert done.verified.rendered == 2 * EXAMPLES
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]


def inside(result: gl.Result[Desk]) -> Iterator[gl.Call]:
    assert result.run is not None
    with RunStore.read(result.run) as store:
        for rollout in store.rollouts_of(result.candidates[result.shipped].candidate.id):
            yield from (call for call in rollout.trace.calls if not call.retry)


def test_the_python_module_runs_without_this_package(result: gl.Result[Desk], tmp_path: Path) -> None:
    gl.export(result, "py", tmp_path / "desk_prompts.py")
    calls = list(inside(result))[:EXAMPLES]
    (tmp_path / "calls.json").write_text(json.dumps([[call.module, call.inputs, call.messages] for call in calls]))
    code = (
        "import sys, json; sys.path = [p for p in sys.path if 'site-packages' not in p]; import desk_prompts as d\n"
        "for module, inputs, messages in json.load(open('calls.json')):\n    assert d.messages(module, **inputs) == messages\n"
        "assert not [name for name in sys.modules if 'gepa' in name]; print('equal')\n"
        "try: d.messages('gist')\nexcept TypeError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": ""}, check=False
    )
    assert done.stdout == "equal\ngist takes message; it got nothing\n", done.stderr


def test_langchain_itself_loads_the_templates(result: gl.Result[Desk], tmp_path: Path) -> None:
    load = pytest.importorskip("langchain_core.load")
    gl.export(result, "langchain", tmp_path / "templates")
    for call in list(inside(result))[:10]:
        template = load.loads((tmp_path / "templates" / f"{call.module}.langchain.json").read_text(), allowed_objects="core")
        assert template.input_variables == ["inputs"]
        sent = template.invoke({"inputs": user_message(call.inputs)}).to_messages()
        assert [message.content for message in sent] == [message["content"] for message in call.messages]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@settings(deadline=None)
@given(st.text(max_size=300) | st.just("</a>\n<a>") | json_values)
def test_the_exported_user_message_is_the_templates(value: Any) -> None:
    signature = gl.Signature.parse("a -> b") if hasattr(gl.Signature, "parse") else gl.Module("a -> b", "x").signature
    assert user_message({"a": value}) == render_messages(signature, "x", {"a": value})[1]["content"]


def planted(monkeypatch: pytest.MonkeyPatch, form: str, spoil: Callable[[Path], None]) -> None:
    """The format's writer spoils what it wrote."""
    good = formats.FORMATS[form]

    def write(source: Any, target: str) -> None:
        good.write(source, target)
        spoil(Path(target))

    monkeypatch.setitem(formats.FORMATS, form, formats.Format(good.words, write, good.read, good.in_place))  # type: ignore[arg-type]


def replace_in(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


SPOILS: dict[str, tuple[Callable[[Path], None], str]] = {
    "markdown": (lambda path: replace_in(path / "route.md", "100 %", "100%"), "does not come back"),
    "messages": (lambda path: replace_in(path, "{inputs}", " {inputs}"), "differ from those inside"),
    "py": (lambda path: replace_in(path, 'return "\\n".join', 'return " ".join'), "differ from those inside"),
    "langchain": (lambda path: replace_in(path / "route.langchain.json", "{inputs}", "{inputs} "), "differ from those inside"),
}


@pytest.mark.parametrize("form", SPOILS)
def test_a_planted_infidelity_is_refused(form: str, result: gl.Result[Desk], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil, words = SPOILS[form]
    planted(monkeypatch, form, spoil)
    with pytest.raises(gl.UsageError, match=words) as refused:
        gl.export(result, form, tmp_path / TARGETS[form])
    assert not list(tmp_path.iterdir()), "nothing was left in place"
    if form != "markdown":
        assert isinstance(refused.value, gl.UnfaithfulExportError)
        assert "--- inside the run" in str(refused.value)
        assert re.search(r"^\+user: ", str(refused.value), re.MULTILINE)


def test_a_pipeline_that_sends_something_else_is_refused(result: gl.Result[Desk], tmp_path: Path) -> None:
    class Polite(Desk):
        def forward(self, message: str) -> gl.Outputs:
            return self.route(message=f"Dear desk, {message}", gist=self.gist(message=message).gist)

    class Hasty(Desk):
        def forward(self, message: str) -> gl.Outputs:
            return self.route(message=message, gist="")

    with pytest.raises(gl.UnfaithfulExportError, match=r"a call of the program differ(.|\n)*\+user: .*Dear desk"):
        gl.export(result, "py", tmp_path / "x.py", program=Polite(lm="openai/gpt-4.1-mini"))
    with pytest.raises(gl.UnfaithfulExportError):
        gl.export(result, "py", tmp_path / "x.py", program=Hasty(lm="openai/gpt-4.1-mini"))
    assert not list(tmp_path.iterdir())


def test_a_folder_is_edited_and_comes_back(result: gl.Result[Desk], tmp_path: Path) -> None:
    bundle = result.save(tmp_path / "desk.prompts.json")
    gl.export(bundle, "markdown", tmp_path / "prompts", run=result.run, program=desk())
    back = gl.import_prompts(tmp_path / "prompts", tmp_path / "back.prompts.json")
    assert dict(back) == result.prompts
    assert (tmp_path / "back.prompts.json").read_text() == bundle.read_text()
    (tmp_path / "prompts" / "gist.md").write_text("Say what the sender wants.\nIn one line.\n")
    edited = gl.import_prompts(tmp_path / "prompts")
    assert edited["gist"] == "Say what the sender wants.\nIn one line."
    assert edited.data["edited"] == ["gist"]
    with pytest.raises(gl.UsageError, match="holds no rollout of these prompts"):
        gl.export(edited, "py", tmp_path / "x.py", run=result.run)
    (tmp_path / "prompts" / "gist.md").unlink()
    with pytest.raises(gl.UsageError, match="is missing"):
        gl.import_prompts(tmp_path / "prompts")


def test_a_prompt_that_no_text_file_can_hold_is_named(result: gl.Result[Desk], tmp_path: Path) -> None:
    prompts = gl.load_prompts(result.save(tmp_path / "desk.prompts.json"))
    modules = {**prompts.data["modules"], "gist": {**prompts.data["modules"]["gist"], "prompt": "cut \ud83d"}}
    cut = gl.Prompts({**prompts.data, "modules": modules}, "cut")
    with pytest.raises(gl.UsageError, match="the prompt of 'gist' holds half of a character"):
        gl.export(cut, "markdown", tmp_path / "prompts")
    assert not (tmp_path / "prompts").exists()
    gl.export(cut, "py", tmp_path / "cut.py")


def test_live_compares_scores(result: gl.Result[Desk], tmp_path: Path) -> None:
    done = gl.export(result, "py", tmp_path / "x.py", live=True, verify_on=20)
    assert done.live is not None
    assert done.live.inside == done.live.outside
    assert "within noise" in str(done)
    forgetful = Desk(
        lm=ScriptedLM(
            lambda request: json.dumps({"urgency": "low", "reason": ""}) if "urgent" in request.messages[0]["content"] else "the gist"
        )
    )
    with pytest.raises(gl.UsageError, match="beyond chance"):
        gl.export(result, "py", tmp_path / "y.py", program=forgetful, live=True, verify_on=EXAMPLES)
    assert not (tmp_path / "y.py").exists()


def test_without_a_run_it_says_that_nothing_was_verified(result: gl.Result[Desk], tmp_path: Path) -> None:
    bundle = result.save(tmp_path / "desk.prompts.json")
    done = gl.export(bundle, "messages", tmp_path / "m.json")
    assert done.verified is None
    assert "not verified" in str(done)
    for options, words in (({"verify_on": 5}, "no run to verify"), ({"live": True}, "needs the program"), ({"verify_on": -1}, "0 or more")):
        with pytest.raises(gl.UsageError, match=words):
            gl.export(bundle, "messages", tmp_path / "n.json", **options)
    with pytest.raises(gl.UsageError, match="one of 'dspy', 'langchain'"):
        gl.export(bundle, "xml", tmp_path / "n.json")
    with pytest.raises(gl.UsageError, match="does not exist"):
        gl.export(bundle, "messages", tmp_path / "no" / "n.json")
    with pytest.raises(gl.UsageError, match="needs the dspy program"):
        gl.export(bundle, "dspy", tmp_path / "n.json")


def test_the_command_line(result: gl.Result[Desk], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runner, bundle = CliRunner(), str(result.save(tmp_path / "desk.prompts.json"))

    def call(*words: str) -> Any:
        return runner.invoke(app, list(words))

    done = call("export", str(result.run), "--format", "py", "--to", "p.py", "--program", "tests.test_export:desk", "--verify", "5")
    assert done.exit_code == 0, done.output
    assert "verified on 5 recorded examples: 10 messages" in done.stdout
    done = call("export", bundle, "--format", "markdown", "--to", "prompts", "--json")
    assert json.loads(done.stdout)["verified"] is None
    done = call("import", "prompts", "back.prompts.json")
    assert done.stdout == "back.prompts.json: as it was exported\n"
    assert call("export", bundle, "--format", "nothing", "--to", "p").exit_code == 2
