"""The sandbox: code in, values or a failure in words out."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gepa_lite.errors import RunError, SandboxError, UsageError
from gepa_lite.sandbox import walls

FailureKind = Literal["exception", "timeout", "memory", "process", "socket", "write", "native", "crash"]


@dataclass(frozen=True, slots=True)
class Call:
    """Call a function that the code defines, with arguments that have a JSON form."""

    function: str
    args: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """Execute a text after the code, e.g. ``"assert double(2) == 4"``. The code shares a process with it, so a check holds against mistakes, not against malice."""

    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """How one call or check went: its value, in JSON form, or its error in words."""

    value: Any = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Ran:
    """How a piece of code ran.

    Attributes:
        steps: one for each call or check that was reached.
        printed: the beginning of what the code printed.
        kind: why the whole failed, or None.
        words: the same in words, for the model that wrote the code.
    """

    steps: tuple[Step, ...] = ()
    printed: str = ""
    kind: FailureKind | None = None
    words: str = ""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Runs Python that a model wrote, in a process of its own, on the standard library alone.

    Behind walls (bubblewrap, on Linux) the code sees no files but the system's and Python's own, read-only; it has no network, no other process, no environment
    and no packages; it may write 16 MB in an empty folder that vanishes. What breaks out is stopped, and the attempt is named. See ``docs/sandbox.md``.

    Attributes:
        seconds: wall time for all, start included (about 50 ms).
        memory_mb: address space of the process; Python itself takes about 30.
        output_chars: how much of what it prints is kept.
        unconfined: run the code where this machine has no walls: then only time, memory and the audit hook hold it, and code that means harm gets through.

    Example:
        >>> sandbox = Sandbox(unconfined=True)
        >>> sandbox.call("def double(n): return 2 * n", "double", 21)
        42
        >>> sandbox.run("import socket; socket.socket()").words
        'it tried to open a network socket'
    """

    seconds: float = 5.0
    memory_mb: int = 256
    output_chars: int = 10_000
    unconfined: bool = False

    def __post_init__(self) -> None:
        """Check the limits.

        Raises:
            UsageError: a limit that no code could keep to.
        """
        if self.seconds <= 0 or self.memory_mb < 64 or self.output_chars < 0:
            raise UsageError(
                f"Sandbox(seconds={self.seconds}, memory_mb={self.memory_mb}, output_chars={self.output_chars}): more than 0 seconds, at least 64 MB and 0 characters are needed."
            )

    @property
    def walled(self) -> bool:
        """Whether code runs behind walls on this machine."""
        return walls.walled_command() is not None

    def check_ready(self) -> None:
        """Refuse to run code that nothing holds.

        Raises:
            UsageError: no walls here, and ``unconfined`` is not given.
        """
        if not self.unconfined and not self.walled:
            raise UsageError(
                "code that a model wrote would run here without walls: bubblewrap is missing, or this system does not let it work. Install it (Debian and Ubuntu: "
                "apt install bubblewrap), or allow it by name, if you trust the code or the machine is a throw-away: Sandbox(unconfined=True)."
            )

    def run(self, code: str, steps: Sequence[Call | Check] = ()) -> Ran:
        """Run the code, then the steps in its namespace, one after another; a step that fails does not end the rest.

        Returns:
            What came of it; a failure of the code is a value, never an exception.

        Raises:
            UsageError: no walls here, and ``unconfined`` is not given; or arguments without a JSON form.
            RunError: the sandbox itself could not start.
        """
        self.check_ready()
        job = self._job(code, steps)
        with (
            tempfile.TemporaryDirectory(prefix="gepa_lite_") as folder,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as errors,
        ):
            command = walls.walled_command()
            walled = command is not None
            options: dict[str, Any] = {} if walled else {"cwd": folder, "env": {**walls.ENVIRONMENT, "HOME": folder}}
            try:
                status = self._wait(command or walls.open_command(), job, {"stdout": out, "stderr": errors, **options}, walled)
            except subprocess.TimeoutExpired:
                return Ran(kind="timeout", words=f"it ran longer than {self.seconds:g} s and was stopped")
            out.seek(0)
            report = out.read()
            errors.seek(0)
            return _ran(report, status, errors.read()[-2000:].decode(errors="replace"))

    def call(self, code: str, function: str, *args: Any) -> Any:
        """The value of one function of the code, in JSON form.

        Raises:
            SandboxError: the code failed, in words; the candidate's fault.
            UsageError, RunError: as ``run``.
        """
        ran = self.run(code, [Call(function, args)])
        error = f"the code failed: {ran.words}" if ran.kind else ran.steps[0].error
        if error:
            raise SandboxError(f"{error}." if not error.endswith(".") else error)
        return ran.steps[0].value

    def _job(self, code: str, steps: Sequence[Call | Check]) -> bytes:
        plain = [{"check": step.text} if isinstance(step, Check) else {"call": step.function, "args": list(step.args)} for step in steps]
        job = {
            "code": code,
            "steps": plain,
            "output_chars": self.output_chars,
            "memory_bytes": self.memory_mb * 2**20,
            "file_bytes": walls.SCRATCH_BYTES,
        }
        try:
            return json.dumps(job).encode()
        except (TypeError, ValueError) as error:
            raise UsageError(f"Sandbox: the arguments of a call must have a JSON form: {error}.") from None

    def _wait(self, command: Sequence[str], job: bytes, options: dict[str, Any], walled: bool) -> int:
        if walled:
            return walls.run_filtered(command, input=job, timeout=self.seconds, **options).returncode
        with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, **options) as process:
            try:
                process.communicate(job, timeout=self.seconds)
            except subprocess.TimeoutExpired:
                # the group: without walls the code may have got past the hook and have children
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
            return process.returncode


def _ran(report: bytes, status: int, errors: str) -> Ran:
    try:
        read = json.loads(report.splitlines()[-1])
        steps = tuple(Step(step["value"], step["error"]) for step in read["steps"])
        return Ran(steps, str(read["printed"]), read["kind"] or None, str(read["words"]))
    except (ValueError, IndexError, KeyError, TypeError):
        if "bwrap:" in errors:
            raise RunError(f"the sandbox could not start: {errors.strip()}") from None
        # bubblewrap tells a signal as a shell does
        number = -status if status < 0 else status - 128
        name = signal.Signals(number).name if number in {one.value for one in signal.Signals} else f"exit status {status}"
        return Ran(kind="crash", words=f"its process ended without a result ({name})")
