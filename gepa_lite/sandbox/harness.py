"""What runs inside the sandbox: reads a job, bounds itself, runs the code, reports one line of JSON.

It is a script of its own, on the standard library alone: the package is not visible in there. The walls are the kernel's (``walls``); the audit
hook here gives them words, and stops the process at the first attempt, so that the code can't catch and hide it.
"""

from __future__ import annotations

import io
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

NAME = "<candidate>"
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_PROCESSES = frozenset(
    ("os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.startfile", "subprocess.Popen", "pty.spawn")
)
_SOCKETS = frozenset(("socket.__new__", "socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"))
_CHANGES = frozenset(
    (
        "os.remove",
        "os.rename",
        "os.rmdir",
        "os.mkdir",
        "os.link",
        "os.symlink",
        "os.truncate",
        "os.chmod",
        "os.chown",
        "os.utime",
        "shutil.move",
    )
)
_OTHERS = frozenset(("os.kill", "os.killpg", "signal.pthread_kill", "resource.setrlimit", "resource.prlimit"))


class Report:
    """The one line that leaves the sandbox."""

    def __init__(self, printed: io.StringIO) -> None:
        # the code's own prints must not mix with the report: descriptor 1 goes nowhere from here on
        self._descriptor = os.dup(1)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        self._printed = printed
        self.steps: list[dict[str, Any]] = []

    def end(self, kind: str = "", words: str = "") -> NoReturn:
        """Write the report and end the process at once, whatever threads still run."""
        report = {"steps": self.steps, "printed": self._printed.getvalue(), "kind": kind, "words": words}
        data = json.dumps(report).encode()
        while data:
            data = data[os.write(self._descriptor, data) :]
        os._exit(0)


class _Printed(io.StringIO):
    """Keeps the first characters that were printed."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._left = limit

    def write(self, text: str) -> int:
        super().write(text[: self._left])
        self._left -= min(len(text), self._left)
        return len(text)


def breach_of(event: str, args: tuple[Any, ...], scratch: str) -> tuple[str, str] | None:
    """The kind and the words of a breach, or None where an audit event is none."""
    if event in _PROCESSES:
        return "process", "it tried to start another process"
    if event in _SOCKETS:
        return "socket", "it tried to open a network socket"
    if event.startswith("ctypes."):
        return "native", "it tried to call native code by ctypes"
    if event in _OTHERS:
        return "native", f"it called {event}"
    if event == "open" and isinstance(args[2], int) and args[2] & _WRITES and _outside(args[0], scratch):
        return "write", f"it tried to write to {args[0]!r}; only its working folder may be written to"
    if event in _CHANGES and any(_outside(path, scratch) for path in args[:2] if isinstance(path, (str, bytes, os.PathLike))):
        return "write", f"it tried to change {args[0]!r} ({event}); only its working folder may be written to"
    return None


def _outside(path: Any, scratch: str) -> bool:
    if not isinstance(path, (str, bytes, os.PathLike)):
        return False
    full = os.path.realpath(os.fsdecode(path))
    return full != os.devnull and not (full == scratch or full.startswith(scratch + os.sep))


def what_went_wrong(error: BaseException, code: str) -> str:
    """An exception in one line, with the line of the code where it arose."""
    lines = code.splitlines()
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, SyntaxError) and error.filename == NAME and error.lineno:
        return f"SyntaxError: {error.msg} (line {error.lineno}: {_line(lines, error.lineno)})"
    places = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == NAME and frame.lineno]
    return f"{words[:500]} (line {places[-1]}: {_line(lines, places[-1])})" if places else words[:500]


def _line(lines: list[str], number: int) -> str:
    return lines[number - 1].strip()[:120] if 0 < number <= len(lines) else ""


def bound(memory_bytes: int, file_bytes: int) -> None:
    """Bound memory and files of this process, where the system can."""
    try:
        import resource
    except ImportError:  # Windows has none
        return
    for name, value in (("RLIMIT_AS", memory_bytes), ("RLIMIT_FSIZE", file_bytes), ("RLIMIT_CORE", 0)):
        try:
            resource.setrlimit(getattr(resource, name), (value, value))
        except (ValueError, OSError):
            # macOS refuses an address-space limit; the time limit still holds
            continue


def run_step(step: dict[str, Any], space: dict[str, Any], code: str) -> dict[str, Any]:
    """Call a function of the code, or execute a check in its namespace."""
    try:
        if "check" in step:
            exec(compile(step["check"], "<check>", "exec"), space)
            return {"value": None, "error": None}
        function = space.get(step["call"])
        if not callable(function):
            return {"value": None, "error": f"the code defines no function {step['call']!r}"}
        value = function(*step["args"])
        try:
            return {"value": json.loads(json.dumps(value)), "error": None}
        except (TypeError, ValueError):
            return {"value": None, "error": f"{step['call']} returned a {type(value).__name__} that has no JSON form: {repr(value)[:200]}"}
    except MemoryError:
        raise
    except BaseException as error:  # also SystemExit and what derives from BaseException alone: the code is not trusted
        return {"value": None, "error": what_went_wrong(error, code)}


def main() -> None:
    """Run the job that comes on standard input."""
    job = json.loads(sys.stdin.read())
    scratch = os.path.realpath(".")
    printed = _Printed(job["output_chars"])
    report = Report(printed)
    sys.stdout = sys.stderr = printed
    sys.stdin = io.StringIO("")
    bound(job["memory_bytes"], job["file_bytes"])
    sys.addaudithook(_hook(report, scratch))
    space: dict[str, Any] = {"__name__": "candidate", "__builtins__": __builtins__}
    try:
        exec(compile(job["code"], NAME, "exec"), space)
        for step in job["steps"]:
            report.steps.append(run_step(step, space, job["code"]))
    except MemoryError:
        space.clear()
        report.end("memory", f"it needed more than {job['memory_bytes'] // 2**20} MB of memory")
    except BaseException as error:
        report.end("exception", what_went_wrong(error, job["code"]))
    report.end()


def _hook(report: Report, scratch: str) -> Callable[[str, tuple[Any, ...]], None]:
    def hook(event: str, args: tuple[Any, ...]) -> None:
        breach = breach_of(event, args, scratch)
        if breach is not None:
            report.end(*breach)

    return hook


if __name__ == "__main__":
    main()
