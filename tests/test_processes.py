"""Worker processes: the same log as threads, one ledger in the driver, and a death that costs nothing but a fresh start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite import api
from gepa_lite.errors import FeedbackError, ModelsDownError, ServerError, UsageError
from gepa_lite.executors.workers import read_workers
from gepa_lite.lm.litellm_client import LiteLLM
from gepa_lite.store.run_store import RunStore
from gepa_lite.testing import OpenAIServer, ScriptedLM
from tests.triage import Triage, program, reflector, rows

pytestmark = pytest.mark.timeout(120)


def eventually(holds: Callable[[], bool]) -> bool:
    """Whether something comes true before the test's own time-out is near."""
    for _ in range(300):
        if holds():
            return True
        time.sleep(0.1)
    return False


def run(folder: Path, workers: Any, **changes: Any) -> Any:
    options: dict[str, Any] = {
        "testset": rows(6, 3),
        "reflection_lm": reflector(),
        "budget": gl.Budget(rollouts=110),
        "search": gl.Search(),
        "workers": workers,
        **changes,
    }
    seed = options.pop("program", None) or program()
    return api.execute(api.prepare(seed, rows(12, 1), rows(8, 2), **options), folder, [])


def test_processes_give_the_log_that_threads_give_and_pay_once(tmp_path: Path) -> None:
    run(tmp_path / "threads", 4)
    run(tmp_path / "processes", "processes:2")
    with RunStore.read(tmp_path / "threads") as a, RunStore.read(tmp_path / "processes") as b:
        assert b.events() == a.events()
        assert {r.key: (r.value, r.output) for r in b.rollouts()} == {r.key: (r.value, r.output) for r in a.rollouts()}
        assert b.paid().total == a.paid().total


class Where(gl.Program):
    """Says which process runs it."""

    say = gl.Module("word -> reply", "Repeat the word.")

    def forward(self, word: str) -> dict[str, Any]:
        return {"reply": self.say(word=word).reply, "process": os.getpid()}


def in_another_process(example: gl.Example, output: Any) -> float:
    return float(output["process"] == os.getpid())


def test_program_and_feedback_run_in_the_worker_and_the_model_in_the_driver() -> None:
    drivers = set()

    def reply(request: gl.Request) -> str:
        drivers.add(os.getpid())
        return "hi"

    result = gl.evaluate(
        Where(lm=ScriptedLM(reply)), [{"word": str(i)} for i in range(4)], feedback=in_another_process, workers="processes:2"
    )
    assert result.mean == 1.0
    assert drivers == {os.getpid()}
    assert os.getpid() not in {rollout.output["process"] for rollout in result.rollouts}


def test_a_program_of_the_main_script_or_a_closure_travels() -> None:
    bonus = 0.5

    class Local(gl.Program):
        say = gl.Module("word -> reply", "Repeat the word.")

        def forward(self, word: str) -> gl.Outputs:
            return self.say(word=word)

    result = gl.evaluate(Local(lm=ScriptedLM("hi")), [{"word": "a"}], feedback=lambda example, output: bonus, workers="processes:1")
    assert result.mean == 0.5


class Threads(gl.Program):
    """Calls its module from threads of its own."""

    say = gl.Module("word -> reply", "Repeat the word.")

    def forward(self, word: str) -> dict[str, Any]:
        replies: list[str] = []
        threads = [threading.Thread(target=gl.carry(lambda i=i: replies.append(self.say(word=f"{word}{i}").reply))) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"replies": sorted(replies)}


def test_calls_of_one_rollout_overlap() -> None:
    together = threading.Barrier(4, timeout=20)

    def reply(request: gl.Request) -> str:
        together.wait()
        return "hi"

    result = gl.evaluate(
        Threads(lm=ScriptedLM(reply)), [{"word": "a"}], feedback=lambda e, o: float(len(o["replies"]) == 4), workers="processes:1"
    )
    assert result.mean == 1.0


class Dies(gl.Program):
    """Ends its own process, once for each marker file that is there, or always."""

    say = gl.Module("word -> reply", "Repeat the word.")

    def __init__(self, folder: Path, always: bool, **options: Any) -> None:
        super().__init__(**options)
        self.folder, self.always = folder, always

    def forward(self, word: str) -> gl.Outputs:
        out = self.say(word=word)
        marker = self.folder / word
        if word == "b" and (self.always or not marker.exists()):
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return out


def judge(example: gl.Example, output: Any) -> float:
    return float(output.reply == "hi")


def test_a_killed_worker_is_replaced_and_its_rollout_run_again_without_paying_twice(tmp_path: Path) -> None:
    sent = []

    def reply(request: gl.Request) -> str:
        sent.append(request)
        return "hi"

    result = gl.evaluate(Dies(tmp_path, False, lm=ScriptedLM(reply)), [{"word": w} for w in "abc"], feedback=judge, workers="processes:2")
    assert (result.mean, result.missing) == (1.0, 0)
    assert len(sent) == 3, "the second life's call comes from the cache"


def test_a_rollout_that_kills_every_worker_is_missing_never_a_score(tmp_path: Path) -> None:
    result = gl.evaluate(Dies(tmp_path, True, lm=ScriptedLM("hi")), [{"word": w} for w in "abc"], feedback=judge, workers="processes:1")
    assert (result.mean, result.n, result.missing) == (1.0, 2, 1)
    failure = result.rollouts[1].failure
    assert failure is not None
    assert (failure.kind, failure.fault) == ("worker", "world")
    assert "signal 9" in failure.message


def broken(example: gl.Example, output: Any) -> float:
    raise KeyError("label")


def test_a_feedback_that_raises_in_the_worker_stops_the_run_and_names_the_example(tmp_path: Path) -> None:
    with pytest.raises(FeedbackError, match="KeyError: 'label'") as caught:
        run(tmp_path / "run", "processes:2", feedback=broken)
    assert caught.value.example_id


def test_an_outage_seen_from_a_worker_is_missing_not_scored() -> None:
    def down(request: gl.Request) -> str:
        raise ServerError("503")

    with pytest.raises(ModelsDownError):
        gl.evaluate(Where(lm=ScriptedLM(down)), [{"word": "a"}], feedback=in_another_process, workers="processes:1")


class Judge(gl.Program):
    """An LM judge."""

    grade = gl.Module("reply -> grade: int", "Grade the reply from 0 to 1.")

    def forward(self, reply: str) -> gl.Outputs:
        return self.grade(reply=reply)


def test_a_judge_program_of_the_feedback_is_paid_by_the_driver() -> None:
    with OpenAIServer(lambda messages: '{"grade": 1}') as server:
        grader = Judge(lm=LiteLLM("openai/judge", api_base=server.base_url, api_key="k"))

        def graded(example: gl.Example, output: Any) -> float:
            return float(grader(reply=output["reply"]).grade)

        result = gl.evaluate(Where(lm=ScriptedLM("hi")), [{"word": "a"}, {"word": "b"}], feedback=graded, workers="processes:1")
        assert result.mean == 1.0
        assert server.calls == 1, "two equal requests: the second comes from the driver's cache"
        assert result.rollouts[0].judge_usage.calls == 1


class Stubborn(Triage):
    """Holds what no process can send."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.lock = threading.Lock()


def test_what_can_t_be_sent_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the program can't be sent to a worker process .*lock"):
        run(tmp_path / "run", "processes:1", program=Stubborn(lm=program().models["gist"]))


class OddInput(gl.Program):
    """Gives its module what no pickle takes."""

    say = gl.Module("word -> reply", "Repeat the word.")

    def forward(self, word: str) -> gl.Outputs:
        return self.say(word=threading.Lock())


def grades_by_a_model_of_its_own(example: gl.Example, output: Any) -> float:
    return float(Judge(lm=ScriptedLM(lambda request: '{"grade": 1}'))(reply="x").grade)


def test_a_model_made_in_the_worker_that_can_t_be_sent_is_an_error_and_no_score() -> None:
    with pytest.raises(UsageError, match="made in a worker process"):
        gl.evaluate(Where(lm=ScriptedLM("hi")), [{"word": "a"}], feedback=grades_by_a_model_of_its_own, workers="processes:1")


def test_a_rollout_that_can_t_be_sent_back_is_an_error_in_words() -> None:
    with pytest.raises(UsageError, match="plain inputs"):
        gl.evaluate(OddInput(lm=ScriptedLM("hi")), [{"word": "a"}], feedback=judge, workers="processes:1")


def test_no_worker_outlives_the_run() -> None:
    result = gl.evaluate(Where(lm=ScriptedLM("hi")), [{"word": "a"}], feedback=in_another_process, workers="processes:1")
    with pytest.raises(ProcessLookupError):
        os.kill(result.rollouts[0].output["process"], 0)


@pytest.mark.parametrize("spec", [0, -1, True, 2.5, "many", "processes:0", "processes:x", "rays:3", None])
def test_wrong_workers_are_refused(spec: Any) -> None:
    with pytest.raises(UsageError, match="workers="):
        read_workers(spec)


def test_workers_end_with_a_driver_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "drive.py"
    script.write_text(
        "import os, time\nfrom pathlib import Path\nimport gepa_lite as gl\nfrom gepa_lite.testing import ScriptedLM\n"
        "class Slow(gl.Program):\n    say = gl.Module('word -> reply', 'Repeat the word.')\n"
        "    def forward(self, word):\n        Path('worker').write_text(str(os.getpid()))\n        time.sleep(60)\n"
        "if __name__ == '__main__':\n    gl.evaluate(Slow(lm=ScriptedLM('hi')), [{'word': 'a'}], feedback=lambda e, o: 1.0, workers='processes:1')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    driver = subprocess.Popen([sys.executable, str(script)], cwd=tmp_path, env=environment)
    try:
        told = tmp_path / "worker"
        assert eventually(lambda: told.exists() and told.read_text() != "")
        worker = int(told.read_text())
        driver.kill()
        driver.wait()
        assert eventually(lambda: not Path(f"/proc/{worker}").exists() or "State:\tZ" in Path(f"/proc/{worker}/status").read_text())
    finally:
        driver.kill()
