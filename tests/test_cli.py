"""The command line, in this process where it can be and in a process of its own where signals and exit codes count."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import gepa_lite as gl
from benchmarks.ui_recording import Size, write_large_run
from gepa_lite.cli.app import app
from gepa_lite.cli.output import plain
from gepa_lite.insight.progress import Progress
from gepa_lite.insight.stored import read_run
from gepa_lite.origin import ORIGIN_KEY, without_secrets
from gepa_lite.store.run_store import RunStore
from gepa_lite.testing import ScriptedLM

PROGRAM = """
    import os
    import time
    import gepa_lite as gl
    from gepa_lite.testing import ScriptedLM


    class Shout(gl.Program):
        answer = gl.Module("word -> reply", "Repeat the word.")

        def forward(self, word):
            return self.answer(word=word)

        def feedback(self, example, output):
            if os.environ.get("NOISY"):
                print("judging", example["word"])
            return gl.Feedback(float(output.reply.isupper()), "Answer in capital letters.")


    class Mute(Shout):
        feedback = None


    class Picky(Shout):
        def __init__(self, depth):
            super().__init__()


    def reply(request):
        with open("calls", "a") as calls:
            calls.write("x")
        time.sleep(float(os.environ.get("STALL", "0")))
        if "<prompt>" in str(request.messages):
            return "<prompt>Repeat the word in capital letters.</prompt>"
        return "HI" if "capital" in request.messages[0]["content"] else "hi"


    def make():
        return Shout(lm=ScriptedLM(reply, seconds=float(os.environ.get("SLOW", "0"))))


    def broken(example, output):
        raise RuntimeError("no judge today")


    number = 3
"""

WORDS = [f"word{index}" for index in range(18)]


class Desk:
    """A folder with a program, data and a config, as a user has one."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        (folder / f"{name}.py").write_text(textwrap.dedent(PROGRAM))
        for split, words in (("train", WORDS[:6]), ("val", WORDS[6:12]), ("test", WORDS[12:])):
            (folder / f"{split}.jsonl").write_text("".join(json.dumps({"word": word}) + "\n" for word in words))

    @property
    def arguments(self) -> list[str]:
        return [
            "--program",
            f"{self.name}:make",
            "--train",
            "train.jsonl",
            "--val",
            "val.jsonl",
            "--test",
            "test.jsonl",
            "--budget-rollouts",
            "60",
            "--search",
            "fan=1",
        ]

    @property
    def calls(self) -> int:
        file = self.folder / "calls"
        return len(file.read_text()) if file.exists() else 0

    def run(self, *arguments: str, env: dict[str, str] | None = None):
        return CliRunner(env=env).invoke(app, list(arguments))

    def start(self, *arguments: str, slow: float = 0.0) -> subprocess.Popen[str]:
        env = {**os.environ, "SLOW": str(slow)}
        command = [sys.executable, "-m", "gepa_lite", *arguments]
        return subprocess.Popen(command, cwd=self.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for_calls(self, count: int) -> None:
        end = time.monotonic() + 60
        while self.calls < count:
            assert time.monotonic() < end, "the run makes no calls"
            time.sleep(0.02)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    # a module of another test must not be found in this one's place
    name = f"shout_{tmp_path.name.replace('-', '_')}"
    yield Desk(tmp_path, name)
    sys.modules.pop(name, None)


def scripted_models(monkeypatch: pytest.MonkeyPatch, answer: Callable[[gl.Request], str], usd_per_token: float = 0.0) -> list[str]:
    """From here on every name of a model means a scripted one; the list fills with the names."""
    asked: list[str] = []

    def open_scripted(name: str) -> ScriptedLM:
        asked[:] = sorted({*asked, name})
        return ScriptedLM(answer, name=name, usd_per_token=usd_per_token)

    monkeypatch.setattr("gepa_lite.program.program.open_lm", open_scripted)
    return asked


def test_a_run_from_options(desk: Desk) -> None:
    done = desk.run("run", *desk.arguments, "--run", "a", "--out", "out.prompts.json")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("Verdict: improved")
    assert gl.load_prompts("out.prompts.json")["answer"] == "Repeat the word in capital letters."
    steps = [line for line in done.stderr.splitlines() if line.startswith("step ")]
    # the second's proposal was begun beside the first one's validation, which left nothing to learn
    assert len(steps) == 2
    assert "#1: skipped" in steps[1]
    assert "answer of #0: accepted (0 to 3 on 3 examples); #1 validated: 1.000, the best so far  [18/60 rollouts" in steps[0]


def test_quiet_says_nothing_on_standard_error(desk: Desk) -> None:
    done = desk.run("run", *desk.arguments, "--quiet")
    assert done.exit_code == 0
    assert done.stderr == ""


def test_json_is_the_only_thing_on_standard_output(desk: Desk) -> None:
    done = desk.run("run", *desk.arguments, "--run", "a", "--json", env={"NOISY": "1"})
    data = json.loads(done.stdout)
    assert "judging word" in done.stderr
    assert (data["verdict"], data["improved"], data["finished"]) == ("improved", True, True)
    assert data["prompts"] == {"answer": "Repeat the word in capital letters."}
    assert data["validation"]["before"] == 0.0
    assert data["test"] == {**data["test"], "after": 1.0, "n": 6, "won": 6, "interval_95": [1.0, 1.0]}
    assert data["cost"]["paid"]["calls"] == desk.calls == 34
    assert [candidate["parents"] for candidate in data["candidates"]] == [[], [0]]


def test_the_program_class_takes_the_model_from_the_option(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = scripted_models(monkeypatch, lambda request: "HI")
    arguments = [f"{desk.name}:Shout" if argument == f"{desk.name}:make" else argument for argument in desk.arguments]
    assert desk.run("run", *arguments, "--lm", "some/model", "--reflection-lm", "other/model").exit_code == 0
    assert asked == ["other/model", "some/model"]


CONFIG_TOML = """
    program = "{name}:make"
    train = "train.jsonl"
    val = "val.jsonl"
    test = "test.jsonl"
    out = "{suffix}.prompts.json"
    workers = 2
    [budget]
    rollouts = 60
    proposals = 9
    [search]
    seed = 5
    objective = {{ direction = "maximize", range = [0, 1] }}
"""
CONFIG_YAML = """
    program: "{name}:make"
    train: train.jsonl
    val: val.jsonl
    test: test.jsonl
    out: "{suffix}.prompts.json"
    workers: 2
    budget: {{rollouts: 60, proposals: 9}}
    search: {{seed: 5, objective: {{direction: maximize, range: [0, 1]}}}}
"""


@pytest.mark.parametrize(("suffix", "text"), [("toml", CONFIG_TOML), ("yaml", CONFIG_YAML)])
def test_a_config_file_from_another_folder_with_options_on_top(desk: Desk, monkeypatch: pytest.MonkeyPatch, suffix: str, text: str) -> None:
    (desk.folder / f"run.{suffix}").write_text(textwrap.dedent(text).format(name=desk.name, suffix=suffix))
    (desk.folder / "elsewhere").mkdir()
    monkeypatch.chdir(desk.folder / "elsewhere")
    done = desk.run("run", f"../run.{suffix}", "--run", "a", "--budget-rollouts", "70", "--search", "fan=2", "--json")
    assert done.exit_code == 0, done.stderr
    assert (desk.folder / f"{suffix}.prompts.json").exists()
    with RunStore.read(desk.folder / "runs" / "a") as store:
        started, kept = store.events()[0], store.meta("config")
    assert (started.budget.rollouts, started.budget.proposals) == (70, 9)
    assert (started.settings["search"]["seed"], started.settings["search"]["fan"]) == (5, 2)
    assert (kept["kind"], kept["program"], kept["workers"]) == ("cli", f"{desk.name}:make", 2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--search", "fann=2"], "search: unknown key 'fann'. Did you mean 'fan'?"),
        (["--search", "objective.rang=2"], "search.objective: unknown key 'rang'. Did you mean 'range'?"),
        (["--search", "fan=many"], "search.fan='many': input should be a valid integer"),
        (["--search", "fan=0"], "Search(fan=0): one of 'auto' or a whole number of at least 1 is needed."),
        (["--search", "fan"], "write KEY=VALUE"),
        (["--budget-rollouts", "7"], "Budget(rollouts=7) can't pay"),
        (["--budget-usd", "-1"], "Budget(usd=-1.0): a positive number is needed"),
        (["--workers", "0"], "workers='0': a whole number of at least 1 (threads)"),
        (["--program", "NAME.py:make"], "write module:name"),
        (["--program", "NAME:makee"], "NAME has no 'makee'. Did you mean 'make'?"),
        (["--program", "NAMEE:make"], "there is no module 'NAMEE'"),
        (["--program", "NAME:number"], "is of type int; a gl.Program, a dspy.Module or a gl.wrap(...) is needed"),
        (["--program", "NAME:Picky"], "can't be called without arguments"),
        (["--program", "NAME:Mute"], "no feedback: pass feedback=..."),
        (["--program", "NAME:Shout"], "the module 'answer' has no model"),
        (["--feedback", "NAME:number"], "feedback is of type int"),
        (["--train", "nothing.jsonl"], "the file does not exist"),
        (["--val", "train.jsonl"], "overlap"),
        (["--out", "nowhere/out.json"], "does not exist or takes no new files"),
        (["run.ini"], "a config is a .toml, .yaml or .yml file"),
        (["missing.toml"], "the config can't be read"),
        (["broken.toml"], "the config is not TOML"),
        (["typo.toml"], "unknown key 'reflexion_lm'. Did you mean 'reflection_lm'?"),
        (["list.yaml"], "must be a table"),
    ],
)
def test_a_wrong_call_is_one_clear_error_before_anything_is_paid_for(desk: Desk, arguments: list[str], said: str) -> None:
    (desk.folder / "broken.toml").write_text("program = ")
    (desk.folder / "typo.toml").write_text("reflexion_lm = 'x'")
    (desk.folder / "list.yaml").write_text("- 1")
    arguments = [argument.replace("NAME", desk.name) for argument in arguments]
    done = desk.run("run", *desk.arguments, *arguments)
    assert done.exit_code == 2
    assert said.replace("NAME", desk.name) in done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert desk.calls == 0
    assert not (desk.folder / "runs").exists()


def test_nothing_given_says_what_is_needed(desk: Desk) -> None:
    done = desk.run("run")
    assert (done.exit_code, done.stderr) == (2, "error: program is not given: pass --program, or write it in the config file.\n")


def test_a_traceback_on_demand(desk: Desk) -> None:
    assert "Traceback" in desk.run("run", env={"GEPA_LITE_TRACEBACK": "1"}).stderr


def test_a_failing_judge_is_a_run_error_that_says_how_to_resume(desk: Desk) -> None:
    done = desk.run("run", *desk.arguments, "--feedback", f"{desk.name}:broken", "--run", "a")
    assert done.exit_code == 3
    assert "error: the feedback function raised RuntimeError: no judge today" in done.stderr
    assert f"Resume it: gepa-lite resume {desk.folder / 'runs' / 'a'}" in done.stderr


def test_a_run_of_another_process_is_locked(desk: Desk) -> None:
    with RunStore.create(desk.folder / "runs" / "a"):
        done = desk.run("run", *desk.arguments, "--run", "a")
    assert done.exit_code == 4
    assert "is being written by" in done.stderr


def test_an_unknown_tracker_is_refused_before_a_call(desk: Desk) -> None:
    done = desk.run("run", *desk.arguments, "--tracker", "abacus")
    assert done.exit_code == 2
    assert "trackers='abacus': one of 'mlflow', " in done.stderr
    assert not desk.calls
    demo = desk.run("demo", "--tracker", "abacus", "--run", "d")
    assert demo.exit_code == 2
    assert "trackers='abacus'" in demo.stderr
    assert not (desk.folder / "runs" / "d").exists()


@pytest.mark.heavy
def test_a_tracker_is_told_of_a_run_and_of_the_session_that_resumes_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{desk.folder / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    (desk.folder / "run.toml").write_text('trackers = ["mlflow"]\n')
    first = desk.run("run", "run.toml", *desk.arguments, "--budget-rollouts", "40", "--run", "a")
    assert first.exit_code == 0, first.stderr
    again = desk.run("resume", "a", "--budget-rollouts", "80")
    assert again.exit_code == 0, again.stderr
    client = mlflow.MlflowClient(uri)
    (told,) = client.search_runs([client.get_experiment_by_name("gepa_lite").experiment_id])
    spent = [point.value for point in client.get_metric_history(told.info.run_id, "rollouts")]
    assert spent[0] < spent[-1]


def test_require_improved(desk: Desk) -> None:
    arguments = [argument for argument in desk.arguments if argument not in ("--test", "test.jsonl")]
    assert desk.run("run", *arguments, "--require-improved").exit_code == 5
    assert desk.run("run", *desk.arguments, "--require-improved").exit_code == 0


def test_ctrl_c_keeps_what_was_paid_and_resume_pays_only_the_rest(desk: Desk) -> None:
    process = desk.start("run", *desk.arguments, "--workers", "1", "--run", "a", "--out", "out.prompts.json", slow=0.1)
    desk.wait_for_calls(8)
    seen = json.loads(desk.run("show", "a", "--json").stdout)
    assert seen["status"] == "running"
    assert f"process {process.pid} is working on it" in desk.run("show", "a").stdout
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Search not finished: interrupted" in out
    assert f"Resume it: gepa-lite resume {desk.folder / 'runs' / 'a'}" in out
    assert "is not written, since the run is not finished" in err
    assert json.loads(desk.run("show", "a", "--json").stdout)["status"] == "stopped"

    paid = desk.calls
    resumed = desk.run("resume", "a", "--json")
    assert resumed.exit_code == 0, resumed.stderr
    data = json.loads(resumed.stdout)
    # what an uninterrupted run pays, see above: not one call was paid twice
    assert paid < desk.calls == data["cost"]["paid"]["calls"] == 34
    assert (data["verdict"], data["out"]) == ("improved", str(desk.folder / "out.prompts.json"))


def test_a_run_goes_on_with_the_rules_it_began_with_where_a_default_has_changed_since(desk: Desk) -> None:
    assert desk.run("run", *desk.arguments, "--run", "a").exit_code == 0
    begun = read_run(desk.folder / "runs" / "a")
    assert begun.state.started.settings["search"]["fan"] == 1
    with RunStore.open(begun.folder) as store:
        # as a release leaves it whose default this is
        store.put_meta(ORIGIN_KEY, {**begun.recipe, "search": {}})
    resumed = desk.run("resume", "a", "--budget-rollouts", "90", "--json")
    assert resumed.exit_code == 0, resumed.stderr
    state = read_run(begun.folder).state
    assert state.budget.rollouts == 90
    assert list(state.proposals)[: len(begun.state.proposals)] == list(begun.state.proposals)
    assert {proposal.slot for proposal in state.proposals} == {0}


def test_a_second_ctrl_c_ends_the_process_within_the_calls_in_flight(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALL", "600")
    process = desk.start("run", *desk.arguments, "--workers", "2", "--run", "a")
    desk.wait_for_calls(2)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    # the first one is known to have arrived once it says so
    assert any("Press it again to stop now" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    # neither call ever ends: the process does not wait for them
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert json.loads(desk.run("show", "a", "--json").stdout)["status"] == "stopped"
    monkeypatch.delenv("STALL")
    resumed = desk.run("resume", "a", "--json")
    assert resumed.exit_code == 0, resumed.stderr
    assert json.loads(resumed.stdout)["verdict"] == "improved"


def test_ctrl_c_before_there_is_a_result(desk: Desk) -> None:
    process = desk.start("run", *desk.arguments, "--workers", "1", "--run", "a", "--json", slow=0.2)
    desk.wait_for_calls(2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert "Resume it: gepa-lite resume" in err
    assert "validating the seed" in desk.run("show", "a").stdout


def test_a_finished_run_is_shown_again_without_its_code_and_at_no_cost(desk: Desk) -> None:
    first = desk.run("run", *desk.arguments, "--run", "a")
    (desk.folder / f"{desk.name}.py").unlink()
    calls = desk.calls
    again = desk.run("resume", "a")
    assert again.exit_code == 0
    assert again.stdout == first.stdout
    assert desk.calls == calls


def test_a_larger_budget_goes_on(desk: Desk) -> None:
    arguments = [argument for argument in desk.arguments if argument not in ("--test", "test.jsonl")]
    arguments[arguments.index("60")] = "18"
    # another text for every minibatch: one that repeats itself ends the search
    varied = textwrap.dedent(PROGRAM).replace(
        '"<prompt>Repeat the word in capital letters.</prompt>"', 'f"<prompt>Repeat it {sum(map(ord, str(request.messages)))}.</prompt>"'
    )
    (desk.folder / f"{desk.name}.py").write_text(varied)
    assert json.loads(desk.run("run", *arguments, "--run", "a", "--json").stdout)["cost"]["rollouts"] <= 18
    data = json.loads(desk.run("resume", "a", "--budget-rollouts", "30", "--json").stdout)
    assert 18 < data["cost"]["rollouts"] <= 30


def test_a_changed_program_is_refused(desk: Desk) -> None:
    desk.run("run", *desk.arguments, "--run", "a", "--budget-proposals", "1", "--feedback", f"{desk.name}:broken")
    file = desk.folder / f"{desk.name}.py"
    file.write_text(file.read_text().replace("Repeat the word.", "Say the word."))
    done = CliRunner().invoke(app, ["resume", "a"])
    assert done.exit_code == 3, "the module is imported already, so nothing has changed for this process"
    process = desk.start("resume", "a")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "the seed prompt of 'answer' has changed" in err


SCRIPT = """
    import sys
    import gepa_lite as gl
    from {module} import {program}
    {definition}
    words = [{{"word": f"word{{i}}"}} for i in range(8)]
    gl.optimize({made}, words[:4], words[4:], run=sys.argv[1], budget=gl.Budget(rollouts=20), search=gl.Search.paper())
"""


def _start_script(desk: Desk, **parts: str) -> None:
    (desk.folder / "train.py").write_text(textwrap.dedent(SCRIPT).format(module=desk.name, **parts))
    command = [sys.executable, "train.py", "a", "--api-key", "s3cret"]
    subprocess.run(command, cwd=desk.folder, check=False, capture_output=True, timeout=60)


def test_a_run_of_a_script_that_holds_its_program_names_the_command(desk: Desk) -> None:
    definition = "class Mine(Shout):\n        def feedback(self, example, output): raise ValueError"
    _start_script(desk, program="Shout, make", definition=textwrap.dedent(definition).replace("\n", "\n    "), made="Mine(lm=make()._lm)")
    done = desk.run("resume", "a")
    assert done.exit_code == 2
    assert "the program Mine is defined in the script itself" in done.stderr
    assert f"python {desk.folder / 'train.py'} a --api-key '***'" in done.stderr
    assert f"run={str(desk.folder / 'runs' / 'a')!r}" in done.stderr


NAMED_MODELS = """
    import gepa_lite.program.program

    gepa_lite.program.program.open_lm = lambda name: ScriptedLM(reply, name=name)
"""


def test_a_run_of_a_script_with_an_importable_program_goes_on(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted_models(monkeypatch, lambda request: "")
    file = desk.folder / f"{desk.name}.py"
    failing = "if os.path.exists('down'): raise OSError\n        return gl.Feedback("
    file.write_text(file.read_text().replace("return gl.Feedback(", failing) + textwrap.dedent(NAMED_MODELS))
    (desk.folder / "down").touch()
    _start_script(desk, program="Shout", definition="", made="Shout(lm='some/model')")
    (desk.folder / "down").unlink()
    assert desk.calls == 4
    done = desk.run("resume", "a", "--json")
    assert done.exit_code == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["prompts"] == {"answer": "Repeat the word in capital letters."}
    assert data["cost"]["paid"]["calls"] == desk.calls


def test_show_lists_runs_and_prints_candidates(desk: Desk) -> None:
    assert "There are no runs" in desk.run("show").stdout
    desk.run("run", *desk.arguments, "--run", "a")
    (desk.folder / "runs" / "broken").mkdir()
    (desk.folder / "runs" / "broken" / "run.db").write_text("not a database, but long enough to look like a file with something in it")
    listed = desk.run("show").stdout
    assert "finished    0.000   1.000        33" in listed
    assert "Can't read" in listed
    shown = desk.run("show", "a").stdout
    assert "Verdict: improved" in shown
    assert "#1    1.000     0      #0  answer  [best, front]" in shown
    assert "Proposals: 1 accepted" in shown
    assert desk.run("show", "a", "--candidate", "0").stdout == "--- answer ---\nRepeat the word.\n"
    assert json.loads(desk.run("show", "a", "--candidate", "1", "--json").stdout) == {"answer": "Repeat the word in capital letters."}
    for arguments in (["a", "--candidate", "7"], ["--candidate", "0"], ["aa"]):
        assert desk.run("show", *arguments).exit_code == 2


def test_show_lists_the_candidates_that_count_of_a_long_run(desk: Desk) -> None:
    write_large_run(desk.folder / "runs" / "long", Size(120, 2_400), 0)
    lines = desk.run("show", "long").stdout.splitlines()
    listed = [line.split()[0] for line in lines if line.strip().startswith("#")]
    data = json.loads(desk.run("show", "long", "--json").stdout)
    assert len(listed) == 40
    assert "#0" in listed
    assert len(data["candidates"]) == 120
    means = {f"#{candidate['index']}": candidate["validation_mean"] for candidate in data["candidates"]}
    assert max(means.values()) == max(means[index] for index in listed)
    assert any(line.startswith("80 more are not listed") for line in lines)
    assert "rejected: not better" in lines[-1]


def test_models(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEPA_LITE_CACHE", str(desk.folder / "cache"))
    listed = desk.run("models").stdout
    assert "local/qwen2.5-coder-1.5b" in listed
    assert "Apache-2.0; 1.1 GB; sha256 cc324af070c2" in listed
    rows = json.loads(desk.run("models", "--json").stdout)["models"]
    assert not any(row["present"] for row in rows)
    # its size is what counts, once it has its name
    file = desk.folder / "cache" / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    file.parent.mkdir(parents=True)
    with file.open("wb") as sparse:
        sparse.truncate(next(row["bytes"] for row in rows if row["name"] == "local/smollm2-135m"))
    assert str(file) in desk.run("models").stdout
    assert desk.run("models", "fetch", "local/smollm2-135m").stdout == f"{file}\n"
    assert desk.run("models", "remove", "smollm2-135m").stdout == "98 MB freed.\n"
    assert "nothing to remove" in desk.run("models", "remove", "smollm2-135m").stdout
    assert desk.run("models", "fetch", "smollm").exit_code == 2


def test_the_demo_on_a_priced_model_says_its_cap_and_saves_its_prompts(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: gl.Request) -> str:
        text = str(request.messages)
        if "<edit>" in text:
            return "<edit><add>Decide well.</add></edit>"
        return "plants" if "subscription" in text else "fern"

    scripted_models(monkeypatch, answer, usd_per_token=1e-7)
    done = desk.run("demo", "--lm", "some/model", "--rollouts", "290", "--run", "d")
    assert done.exit_code == 0, done.stderr
    assert "Budget:   290 rollouts, 2.00 USD, 20 proposals." in done.stderr
    assert "Cost:     at most 2.00 USD" in done.stderr
    assert "gepa-lite show" in done.stderr
    assert set(gl.load_prompts(desk.folder / "runs" / "d" / "fernpost.prompts.json")) == {"team", "topic"}
    assert "Verdict" in done.stdout
    assert "2.00 USD" in desk.run("show", "d", "--json").stdout


def test_the_demo_tells_trackers(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = pytest.importorskip("opentelemetry.trace")
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", lambda name, tracer_provider=None: provider.get_tracer(name))
    scripted_models(monkeypatch, lambda request: "fern", usd_per_token=0.0)
    done = desk.run("demo", "--lm", "some/model", "--rollouts", "290", "--run", "d", "--tracker", "opentelemetry")
    assert done.exit_code == 0, done.stderr
    (told,) = [span for span in exporter.get_finished_spans() if span.name == "gepa_lite.run"]
    assert told.attributes is not None
    assert told.attributes["gepa_lite.run"] == "d"


def test_help_is_quick_and_imports_no_heavy_library() -> None:
    code = (
        "import sys; from gepa_lite.cli import main; sys.argv = ['gepa-lite', '--help']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([name for name in ('litellm', 'numpy', 'pydantic', 'rich', 'jinja2', 'yaml') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert "Usage: gepa-lite" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_version_and_usage(desk: Desk) -> None:
    assert desk.run("--version").stdout == f"gepa-lite {gl.__version__}\n"
    assert desk.run("runn").exit_code == 2
    assert desk.run("show", "--nope").exit_code == 2


def test_control_characters_are_taken_out() -> None:
    assert plain("a\x1b[2Jb\x9b\tc\n") == "a [2Jb \tc\n"


def test_secrets_are_struck_out_of_arguments() -> None:
    arguments = ["--lm", "openai/x", "--openai-key", "abc", "sk-abcdefghijklmnop", "--keys", "-v"]
    assert without_secrets(arguments) == ["--lm", "openai/x", "--openai-key", "***", "***", "--keys", "-v"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _optimize(folder: Path, progress: Progress) -> None:
    from gepa_lite.api import execute, prepare

    class Echo(gl.Program):
        say = gl.Module("word -> reply", "Repeat the word.")

        def forward(self, word: str) -> gl.Outputs:
            return self.say(word=word)

    words = [{"word": word} for word in WORDS]
    lm = ScriptedLM(lambda request: "<prompt>" + "A very long prompt. " * 20 + "</prompt>" if "<prompt>" in str(request.messages) else "hi")
    prepared = prepare(
        Echo(lm=lm), words[:6], words[6:], feedback=lambda example, output: 0.0, budget=gl.Budget(proposals=3), search=gl.Search.paper()
    )
    execute(prepared, folder, [progress])


def test_a_terminal_gets_lines_of_its_width_and_is_left_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    _optimize(tmp_path / "run", Progress(stream=terminal))
    written = terminal.getvalue()
    steps = [line for line in written.split("\n") if "step " in line]
    assert len(steps) == 3
    assert all(len(line.split("\x1b[2K")[-1]) <= 60 for line in steps)
    assert "\x1b[?25l" in written
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l"), "the cursor is shown again"
    assert written.endswith("\x1b[2K"), "the line that changes is erased"


def test_a_stream_that_is_gone_does_not_end_the_run(tmp_path: Path) -> None:
    stream = io.StringIO()
    stream.close()
    progress = Progress(stream=stream)
    _optimize(tmp_path / "run", progress)
    progress.close()
