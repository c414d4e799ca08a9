"""Optimizers of other packages, each in a process of its own that asks us for every rollout and every reply."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from gepa_lite.baselines.desk import Desk, EndedError
from gepa_lite.core.example import Example
from gepa_lite.core.ids import jsonable
from gepa_lite.core.rollout import Rollout
from gepa_lite.errors import BudgetSpentError, ModelError, RunError, UsageError
from gepa_lite.run_spec import RunSpec
from gepa_lite.search.state import RunState
from gepa_lite.search.step import Course
from gepa_lite.search.trail import Trail

_SILENCE = 1_800.0
"""Seconds without a question after which a guest is taken for stuck: it makes no model call itself."""

_KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "LD_LIBRARY_PATH")
"""Variables that a guest sees; keys are not among them, nor a home with settings, so that no call can go past the ledger."""


@dataclass(frozen=True)
class Kind:
    """A package that can be a guest.

    Attributes:
        script: ``guests/with_<script>.py``.
        packages: as distributions: the optimizer's own first, and what it needs beside.
        extra: of ours that installs them.
        optimizer: which one of the package's.
    """

    script: str
    packages: tuple[str, ...]
    extra: str
    optimizer: str = ""


KINDS: Mapping[str, Kind] = {
    "dspy_gepa": Kind("dspy", ("dspy", "gepa"), "dspy", "gepa"),
    "dspy_miprov2": Kind("dspy", ("dspy", "optuna"), "mipro", "mipro"),
    "textgrad": Kind("textgrad", ("textgrad",), "textgrad"),
    "trace": Kind("trace", ("trace-opt",), "trace"),
}
"""The guests by name."""


@dataclass(frozen=True)
class Guest:
    """Runs another package's optimizer within our run.

    It gets what our own search gets: the program's prompts and signatures, the training examples, and for each rollout its score, the calls of each module and the feedback's words. A rollout
    that an outage took is missing in our record; packages that know no missing ones take the worst score for it.

    Attributes:
        kind: one of ``KINDS``.
        options: further arguments of the optimizer, e.g. ``{"use_merge": False}``.
        python: the interpreter of the environment that has the package; by default ``GEPA_LITE_PYTHON_<KIND>``, or this one.
        spec: the run; given by ``fit``.
    """

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    python: str | Path | None = None
    spec: RunSpec | None = None

    def settings(self) -> Mapping[str, Any]:
        """See ``Procedure``; here it is found out whether the package is installed.

        Raises:
            UsageError: it is not.
        """
        kind = KINDS[self.kind]
        found = versions(self._python, kind.packages)
        missing = [package for package in kind.packages if package not in found]
        if missing:
            raise UsageError(
                f"the optimizer {self.kind!r} needs the package {missing[0]}, which {self._python} does not have: pip install 'gepa-lite[{kind.extra}]', or name the Python of "
                f"another environment that has it: baselines.optimizer({self.kind!r}, python='...') or the variable {self._variable}."
            )
        return {"name": self.kind, "version": found[kind.packages[0]], "options": jsonable(dict(self.options))}

    def fit(self, spec: RunSpec, folder: Path) -> RunSpec:
        """See ``baselines.optimizer.Fitting``."""
        return replace(spec, procedure=replace(self, spec=spec))

    def __call__(self, trail: Trail, course: Course) -> RunState:
        """See ``Procedure``."""
        desk = Desk(trail, course, self.kind)
        if desk.state.stopped is not None:
            return desk.state
        assert self.spec is not None
        with (
            tempfile.TemporaryDirectory(prefix="gepa-lite-guest-") as folder,
            Process(self._python, KINDS[self.kind].script, folder) as process,
        ):
            process.tell(_task(self.spec, course, KINDS[self.kind].optimizer, self.options))
            while True:
                question = process.hear()
                try:
                    answer = _answer(question, desk)
                except BudgetSpentError as error:
                    return desk.close("budget", str(error))
                except EndedError as error:
                    return desk.close(error.code, str(error))
                if answer is None:
                    return desk.close(*_ending(question, self.kind))
                process.tell(answer)

    @property
    def _variable(self) -> str:
        return f"GEPA_LITE_PYTHON_{self.kind.upper()}"

    @property
    def _python(self) -> str:
        return str(self.python or os.environ.get(self._variable) or sys.executable)


@cache
def versions(python: str, packages: tuple[str, ...]) -> Mapping[str, str]:
    """The versions of those packages that an interpreter has.

    Raises:
        UsageError: there is no such interpreter.
    """
    code = (
        "import importlib.metadata as m, json, sys\nfound = {}\nfor name in sys.argv[1:]:\n try: found[name] = m.version(name)\n"
        " except m.PackageNotFoundError: pass\nprint(json.dumps(found))"
    )
    try:
        done = subprocess.run(
            [python, "-c", code, *packages],
            capture_output=True,
            text=True,
            check=True,
            env=_environment(tempfile.gettempdir()),
            timeout=120,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(f"{python} can't be run as a Python interpreter: {error}.") from error
    return dict(json.loads(done.stdout))


class Process:
    """A guest's process, ended on the way out.

    Args:
        python: the interpreter.
        script: which guest.
        folder: where it runs and writes.
    """

    def __init__(self, python: str, script: str, folder: str) -> None:
        self._said = (Path(folder) / "said.txt").open("w+b")
        path = Path(__file__).parent / "guests" / "guest.py"
        # a session of its own: Ctrl-C is ours to handle
        self._process = subprocess.Popen(
            [python, str(path), script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            cwd=folder,
            env=_environment(folder),
            start_new_session=os.name == "posix",
        )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            # what a dead process never read is still to be written
            with suppress(BrokenPipeError):
                stream.close()
        self._process.wait()
        self._said.close()

    def tell(self, answer: Mapping[str, Any]) -> None:
        """Send a line. That nobody reads it any more shows when its question is awaited."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(answer).encode() + b"\n")
            self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """Wait for its next question.

        Raises:
            RunError: it died, or asks nothing for half an hour.
        """
        assert self._process.stdout is not None
        watch = threading.Timer(_SILENCE, self._kill)
        watch.daemon = True
        watch.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watch.cancel()
        if not line:
            self._process.wait()
            self._said.seek(0)
            last = self._said.read().decode(errors="replace").strip()[-1_500:]
            raise RunError(
                f"the other optimizer's process ended with code {self._process.returncode}. What was paid is kept. Its last words: {last}"
            )
        return dict(json.loads(line))

    def _kill(self) -> None:
        if self._process.poll() is not None:
            return
        if os.name == "posix":
            os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._process.kill()


def _environment(folder: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {
        **kept,
        "HOME": folder,
        "USERPROFILE": folder,
        "DSPY_CACHEDIR": folder,
        "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1",
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TQDM_DISABLE": "1",
        # litellm asks the network for prices otherwise
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }


def _task(spec: RunSpec, course: Course, optimizer: str, options: Mapping[str, Any]) -> dict[str, Any]:
    program, objective = spec.program, course.search.objective
    modules = [{"name": path, "text": part.text, "signature": part.signature} for path, part in program.parts.items()]
    return {
        "optimizer": optimizer,
        "program": program.name,
        "purpose": program.purpose,
        "source": _source(program.deliverable),
        "modules": modules,
        "train": [_row(example) for example in spec.train],
        "validation": [_row(example) for example in spec.validation],
        "best": objective.best,
        "worst": objective.worst,
        "seed": course.search.seed,
        "rollouts": _free_rollouts(spec),
        "options": jsonable(dict(options)),
    }


def _free_rollouts(spec: RunSpec) -> int | None:
    """What the budget leaves for candidates."""
    budget = spec.budget.rollouts
    return None if budget is None else max(0, budget - spec.rollouts_after - len(spec.validation) - len(spec.pins))


def _source(program: Any) -> str:
    try:
        return textwrap.dedent(inspect.getsource(program if inspect.isroutine(program) else type(program)))
    except (OSError, TypeError):
        return ""


def _row(example: Example) -> dict[str, Any]:
    return {"id": example.id, "inputs": jsonable(dict(example.inputs)), "labels": jsonable(dict(example.labels))}


def _answer(question: Mapping[str, Any], desk: Desk) -> dict[str, Any] | None:
    """What a guest is told; None where it ended or failed."""
    if question["ask"] == "evaluate":
        return {"rollouts": [_shown(rollout) for rollout in desk.evaluate(question["texts"], question["ids"])]}
    if question["ask"] == "reflect":
        try:
            return {"text": desk.reflect(tuple(question["messages"])).text}
        except ModelError as error:
            return {"error": str(error)}
    return None


def _ending(question: Mapping[str, Any], kind: str) -> tuple[str, str]:
    """The stop's code and reason."""
    if question["ask"] == "fail":
        return "failed", f"{kind} ended with an error of its own: {question['reason']}"
    return "rule", str(question["reason"])


def _shown(rollout: Rollout) -> dict[str, Any]:
    feedback = rollout.feedback
    output = jsonable(rollout.output)
    return {
        "score": rollout.value,
        "feedback": (feedback.text if feedback is not None else "") or ("" if rollout.failure is None else rollout.failure.message),
        "words": {} if feedback is None else dict(feedback.modules),
        "output": output if isinstance(output, dict) else {} if output is None else {"output": output},
        "calls": [
            {
                "module": call.module,
                "inputs": jsonable(dict(call.inputs)),
                "outputs": None if call.outputs is None else jsonable(dict(call.outputs)),
                "reply": call.reply,
                "user": "\n\n".join(str(message["content"]) for message in call.messages if message["role"] != "system"),
            }
            for call in rollout.trace.calls
        ],
    }
