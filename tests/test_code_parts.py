"""Steps that are code: rewritten as a whole, held to valid Python before a rollout, run in the sandbox; and modules that are metered and never rewritten."""

from __future__ import annotations

import json
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gepa_lite.feedback.bbeh import bbeh
from gepa_lite.programs.agents import EXTRACTION, BBEHAgent
from gepa_lite.programs.paper import Papillon

import gepa_lite as gl
from gepa_lite.core.contract import Contract
from gepa_lite.core.events import Proposed, Shortened
from gepa_lite.errors import SandboxError, UsageError
from gepa_lite.exports.formats import FORMATS
from gepa_lite.lm.protocol import Request
from gepa_lite.sandbox.sandbox import Sandbox
from gepa_lite.search.shorten import next_cut
from gepa_lite.search.state import replay
from gepa_lite.store.run_store import RunStore
from gepa_lite.testing import ScriptedLM

BOX = Sandbox(seconds=60, unconfined=True)
GOOD = "import re\n\n\ndef extract(reply):\n    found = re.findall(r'\\(([A-Z])\\)', reply)\n    return f'({found[0]})' if found else ''\n"
ROWS = [{"question": f"Which of A to D, number {n}?", "target": f"({'ABCD'[n % 4]})"} for n in range(14)]


def task(request: Request) -> str:
    number = int(request.messages[-1]["content"].split("number ")[1].split("?")[0])
    return task_reply(number)


def task_reply(number: int) -> str:
    return f"I would say ({'ABCD'[number % 4]}) it is, since (Z) is wrong."


def agent(**changes: Any) -> BBEHAgent:
    return BBEHAgent(ScriptedLM(task), sandbox=BOX, **changes)


def test_a_search_rewrites_code_and_what_is_no_python_is_asked_for_once_more(tmp_path: Path) -> None:
    asked: list[str] = []

    def reflect(request: Request) -> str:
        asked.append(text := request.messages[-1]["content"])
        if "can't be used" in text:
            return f"<prompt>\n```python\n{GOOD}```\n</prompt>"
        if "Python code of one step" in text:
            return "<prompt>\ndef extract(reply):\n    return reply.split('(')[1\n</prompt>"
        return "<prompt>\nGiven the question, think and answer.\n</prompt>"

    result = gl.optimize(
        agent(),
        ROWS[:6],
        ROWS[6:],
        feedback=bbeh(),
        reflection_lm=ScriptedLM(reflect, name="reflector"),
        budget=gl.Budget(rollouts=120),
        search=gl.Search(shorten=40),
        run=str(tmp_path / "run"),
    )
    assert result.program.prompts["extract"] == GOOD.strip()
    with RunStore.read(tmp_path / "run") as store:
        events = list(store.events())
    assert {event.module for event in events if isinstance(event, Shortened)} <= {"respond"}
    # the same text is cut where it is no code, so it is by its form that it was left alone
    state = replay(events)
    assert state.started is not None
    rules = state.started.settings["contract"]
    prose = {**rules, "modules": {**rules["modules"], "extract": {**rules["modules"]["extract"], "form": None}}}
    as_prose = replace(state, started=replace(state.started, settings={**state.started.settings, "contract": prose}))
    cut = next_cut(as_prose, gl.Search())
    assert cut is not None
    assert cut.module == "extract"
    left = next_cut(state, gl.Search())
    assert left is None or left.module != "extract"
    assert gl.evaluate(result.program, ROWS[6:], feedback=bbeh()).mean == 1.0
    first = next(text for text in asked if "Python code of one step" in text)
    assert "def extract(reply):" in first
    assert "Write the next version of the code." in first
    assert "Wrong: the answer should be" in first
    assert "letter by letter:\ndef extract(" in first
    again = next(text for text in asked if "can't be used" in text)
    assert "the text must be valid Python, and it is not: '[' was never closed in line 2" in again
    result.save(tmp_path / "agent.prompts.json")
    loaded = agent().load(tmp_path / "agent.prompts.json")
    assert loaded(question="Which of A to D, number 3?").answer == "(D)"
    data = json.loads((tmp_path / "agent.prompts.json").read_text())
    assert data["modules"]["extract"]["contract"]["form"] == "python"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> gl.Result[BBEHAgent]:
    """An agent whose prompt and code were both rewritten."""

    def reflect(request: Request) -> str:
        code = "Python code of one step" in request.messages[-1]["content"]
        return f"<prompt>\n```python\n{GOOD}```\n</prompt>" if code else "<prompt>\nGiven the question, think and answer.\n</prompt>"

    options: dict[str, Any] = {"feedback": bbeh(), "reflection_lm": ScriptedLM(reflect, name="reflector"), "budget": gl.Budget(rollouts=90)}
    result = gl.optimize(agent(), ROWS[:6], ROWS[6:], run=tmp_path_factory.mktemp("run") / "run", **options)
    assert result.prompts["extract"] == GOOD.strip()
    return result


REFUSING = sorted(name for name, form in FORMATS.items() if not form.code)


def test_each_form_carries_code_apart_from_prompts_or_refuses_it() -> None:
    assert REFUSING == ["dspy", "langchain", "messages", "mlflow"]


@pytest.mark.parametrize("name", REFUSING)
def test_forms_that_hold_prompts_alone_refuse_code_by_name_and_leave_nothing(
    name: str, written: gl.Result[BBEHAgent], tmp_path: Path
) -> None:
    target = f"sqlite:///{tmp_path}/mlflow.db" if name == "mlflow" else str(tmp_path / "out")
    with pytest.raises(gl.UsageError, match=f"extract is code, not a prompt, and '{name}' holds prompts alone: use 'markdown' or 'py'"):
        gl.export(written, name, target)
    assert not list(tmp_path.iterdir())


def test_a_python_module_has_code_in_a_table_of_its_own(written: gl.Result[BBEHAgent], tmp_path: Path) -> None:
    done = gl.export(written, "py", tmp_path / "agent_prompts.py")
    assert done.verified is not None
    assert done.verified.rendered == done.verified.sent == 10
    text = (tmp_path / "agent_prompts.py").read_text()
    assert "# Python that a search has written for steps that are no model's: no prompts." in text
    assert "        'def extract(reply):\\n'\n" in text
    names = runpy.run_path(str(tmp_path / "agent_prompts.py"))
    assert names["CODE"] == {"extract": GOOD.strip()}
    assert all(list(names[table]) == ["respond"] for table in ("PROMPTS", "SYSTEM", "INPUTS", "PARAMS"))
    assert names["messages"]("respond", question="Why?")[0]["content"].startswith(written.prompts["respond"])
    with pytest.raises(KeyError):
        names["messages"]("extract", reply="x")
    plain = gl.export(written, "py", tmp_path / "again.py", verify_on=0)
    assert plain.verified is None


def test_a_folder_has_code_in_python_files_that_come_back(written: gl.Result[BBEHAgent], tmp_path: Path) -> None:
    folder = tmp_path / "prompts"
    gl.export(written, "markdown", folder)
    assert sorted(file.name for file in folder.iterdir()) == ["bundle.prompts.json", "extract.py", "respond.md"]
    assert (folder / "extract.py").read_text() == GOOD
    assert dict(gl.import_prompts(folder)) == dict(written.prompts)
    (folder / "extract.py").write_text(GOOD.replace("found[0]", "found[-1]"))
    edited = gl.import_prompts(folder, tmp_path / "edited.prompts.json")
    assert edited.data["edited"] == ["extract"]
    assert "found[-1]" in gl.load_prompts(tmp_path / "edited.prompts.json")["extract"]
    assert agent().load(tmp_path / "edited.prompts.json")(question="Which of A to D, number 3?").answer == "(Z)"
    (folder / "extract.py").write_text("def extract(reply:\n")
    with pytest.raises(gl.UsageError, match=r"the edited prompts break their contract: extract: .*valid Python"):
        gl.import_prompts(folder)
    (folder / "extract.py").write_text(GOOD)
    (folder / "extract.md").write_text("Take the letter.")
    with pytest.raises(gl.UsageError, match=r"extract.md is not read: 'extract' is code, and lies in another file"):
        gl.import_prompts(folder)
    (folder / "extract.md").unlink()
    (folder / "extract.py").unlink()
    with pytest.raises(gl.UsageError, match=r"extract.py is missing"):
        gl.import_prompts(folder)


def test_code_that_is_never_valid_costs_no_rollout() -> None:
    reflector = ScriptedLM("<prompt>\nTake the letter in brackets.\n</prompt>", name="reflector")
    code = gl.Code("reply -> answer", EXTRACTION, function="extract", sandbox=BOX)

    class Alone(gl.Program):
        """Take the answer out of a reply."""

        def __init__(self) -> None:
            super().__init__()
            self.extract = code

        def forward(self, reply: str) -> gl.Outputs:
            return self.extract(reply=reply)

    rows = [{"reply": f"{n} ({'ABCD'[n % 4]}), not (Z)", "target": f"({'ABCD'[n % 4]})"} for n in range(10)]
    events: list[Any] = []
    result = gl.optimize(
        Alone(),
        rows[:5],
        rows[5:],
        feedback=bbeh(),
        reflection_lm=reflector,
        budget=gl.Budget(rollouts=60, proposals=3),
        search=gl.Search(fan=1, proposer="edit"),
        on_event=events.append,
    )
    assert result.program.prompts["extract"] == EXTRACTION.strip()
    proposed = [event for event in events if isinstance(event, Proposed)]
    assert proposed
    for event in proposed:
        assert event.code == "contract"
        assert event.spend.rollouts <= 3  # the parent's minibatch alone


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def extract(reply): return 1 / 0", "the code failed: ZeroDivisionError|ZeroDivisionError: division by zero"),
        ("import os\nos.fork()\ndef extract(reply): return reply", "it tried to start another process"),
        (
            "def extract(reply): return [reply]",
            r"extract returned .*, which is not what was declared: answer: Input should be a valid string",
        ),
        ("def extract(reply): return {1, 2}", "extract returned a set that has no JSON form"),
        ("def extract(reply, more): return reply", "missing 1 required positional argument"),
    ],
)
def test_failing_code_is_the_candidates_failure_in_words(code: str, words: str) -> None:
    program = agent().with_prompts({"extract": code})
    with pytest.raises(SandboxError, match=words):
        program(question=ROWS[0]["question"])
    found = gl.evaluate(program, ROWS[:2], feedback=bbeh())
    assert (found.mean, found.missing) == (0.0, 0)
    call = found.rollouts[0].trace.of("extract")[0]
    assert (call.error_kind, call.usage.calls, call.inputs) == ("sandbox", 0, {"reply": task_reply(0)})
    assert found.rollouts[0].feedback is not None
    assert call.error in found.rollouts[0].feedback.text


def test_outputs_of_several_fields_come_as_a_dict() -> None:
    class Parse(gl.Program):
        """Split a line."""

        split = gl.Code(
            "line, mark -> left, count: int",
            "def split(line, mark):\n    parts = line.split(mark)\n    return {'left': parts[0], 'count': len(parts)}",
            function="split",
            sandbox=BOX,
        )

        def forward(self, line: str) -> gl.Outputs:
            return self.split(line=line, mark=",")

    assert Parse()(line="a,b,c") == gl.Outputs(left="a", count=3)
    with pytest.raises(SandboxError, match="a dict with left, count is needed"):
        Parse().with_prompts({"split": "def split(line, mark): return 3"})(line="a")
    assert Parse().fingerprint != agent().fingerprint


def test_wrong_code_is_refused_where_it_is_declared() -> None:
    with pytest.raises(UsageError, match="must be valid Python, and it is not"):
        gl.Code("a -> b", "def f(a: return a", function="f")
    with pytest.raises(UsageError, match=r"lost a part that must stay as it is, letter by letter: def f\("):
        gl.Code("a -> b", "def g(a): return a", function="f")
    with pytest.raises(UsageError, match="name of a Python function"):
        gl.Code("a -> b", "def f(a): return a", function="f(")
    with pytest.raises(UsageError, match="called outside its program"):
        gl.Code("a -> b", "def f(a): return a", function="f")(a="x")


def test_the_python_form_is_checked_and_never_run() -> None:
    contract = Contract(form="python")
    assert contract.breaches("raise SystemExit(1)\nx = f'{y}' + '\\d'") == []
    assert [breach.rule for breach in contract.breaches("x = (")] == ["form"]
    assert contract.breach("\0") is not None
    assert Contract.from_data(contract.to_data()) == contract


def test_a_check_and_an_estimate_of_a_program_with_code() -> None:
    checkup = gl.check(
        agent(), ROWS[:6], ROWS[6:], feedback=bbeh(), reflection_lm=ScriptedLM("<prompt>\nThink.\n</prompt>", name="reflector")
    )
    reached = checkup.of("prompt_reaches_model")
    assert [found.level for found in reached] == ["ok"]
    assert "extract" not in reached[0].what
    assert gl.estimate(agent(), ROWS[:6], ROWS[6:], feedback=bbeh(), budget=gl.Budget(rollouts=60))


CRAFTED = '{"reasoning": "r", "llm_request": "A letter"}'


def test_a_module_that_is_not_optimized_is_metered_and_never_rewritten() -> None:
    untrusted = ScriptedLM("Dear X", name="untrusted", usd_per_token=0.001)
    program = Papillon(ScriptedLM({"related_llm_request": "Dear Ada", "user_query": CRAFTED}, usd_per_token=0.001), untrusted)
    asked: list[str] = []

    def reflect(request: Request) -> str:
        asked.append(request.messages[-1]["content"])
        return f"<prompt>\nWrite it well, please, version {len(asked)}.\n</prompt>"

    rows = [{"user_query": f"A letter, number {n}"} for n in range(10)]
    events: list[Any] = []
    result = gl.optimize(
        program,
        rows[:5],
        rows[5:],
        feedback=lambda example, output: (0.5, "Could be warmer."),
        reflection_lm=ScriptedLM(reflect, name="reflector"),
        budget=gl.Budget(rollouts=60, proposals=6),
        on_event=events.append,
    )
    proposed = [event for event in events if isinstance(event, Proposed)]
    assert {module for event in proposed for module in event.modules} == {"craft_redacted_request", "respond_to_query"}
    assert set(result.program.prompts) == {"craft_redacted_request", "respond_to_query", "untrusted"}
    assert result.program.prompts["untrusted"] == "You are a helpful assistant."
    assert not any('the step "untrusted"' in text for text in asked)
    assert untrusted.calls > 0
    alone = gl.evaluate(program, rows[:1], feedback=lambda example, output: 1.0).rollouts[0].trace
    assert alone.of("untrusted")[0].usage.usd == pytest.approx(0.001 * alone.of("untrusted")[0].usage.tokens)
    assert alone.usage.calls == 3


def test_a_bundle_has_no_prompt_that_is_not_optimized_and_its_text_is_part_of_the_program(tmp_path: Path) -> None:
    class Two(gl.Program):
        """Two steps."""

        first = gl.Module("a -> b", "Do b.")
        second = gl.Module("b -> c", "Do c.", optimize=False)

        def forward(self, a: str) -> gl.Outputs:
            return self.second(b=self.first(a=a).b)

    rows = [{"a": str(n)} for n in range(8)]
    result = gl.optimize(
        Two(lm=ScriptedLM("x")),
        rows[:4],
        rows[4:],
        feedback=lambda example, output: 0.5,
        reflection_lm=ScriptedLM("<prompt>\nDo b well.\n</prompt>", name="r"),
        budget=gl.Budget(rollouts=40),
        run=str(tmp_path / "run"),
    )
    result.save(tmp_path / "two.prompts.json")
    exported = gl.export(tmp_path / "two.prompts.json", "messages", tmp_path / "two", run=tmp_path / "run")
    assert "not verified" not in str(exported)
    assert list(gl.load_prompts(tmp_path / "two.prompts.json")) == ["first"]
    assert Two(lm=ScriptedLM("x")).load(tmp_path / "two.prompts.json").prompts["second"] == "Do c."
    plain = Two(lm=ScriptedLM("x"))
    assert plain.fingerprint != plain.with_prompts({"second": "Do c otherwise."}).fingerprint
    assert plain.fingerprint == plain.with_prompts({"first": "Do b otherwise."}).fingerprint

    class Fixed(Two):
        """Nothing to optimize."""

        first = gl.Module("a -> b", "Do b.", optimize=False)

    with pytest.raises(UsageError, match="no module that may be rewritten"):
        gl.optimize(Fixed(lm=ScriptedLM("x")), rows[:4], rows[4:], feedback=lambda example, output: 0.5)


@pytest.mark.parametrize(
    ("target", "answer", "score", "words"),
    [
        ("(B)", "(A), no: (b)", 1, "Nothing needs to change"),
        ("(B)", "B", 0, "names no option"),
        ("(B)", "(B) (C)", 0, "should be '(B)'"),
        ("yes", "yes", 1, "Right"),
        ("yes", "Yes.", 0, "only in case"),
        ("} ]", "so } ]", 0, "give the answer alone"),
        ("3", "", 0, "It was empty"),
    ],
)
def test_bbeh_answers(target: str, answer: str, score: float, words: str) -> None:
    found = bbeh()(gl.Example("id", {}, {"target": target}), {"answer": answer})
    assert (found.score, words in found.text) == (score, True), found.text
