"""Whether two formulas are the same, in a process beside ours that is stopped where it takes too long."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gepa_lite.errors import UsageError

_START = 120.0
"""Seconds within which the libraries must have loaded."""


class Equivalence:
    r"""Compares LaTeX formulas by the package ``math-verify`` (on sympy). Safe to call from many threads; one comparison runs at a time.

    A formula can keep sympy busy for ever, so the work is done in a process of its own, which lives on between calls, ends with ours, and is killed after ``seconds``.

    Args:
        seconds: for one comparison.

    Raises:
        UsageError: the package is not installed (the extra ``math``).

    Example:
        >>> same = Equivalence()
        >>> same.check(r"\frac{1}{2}", "0.5"), same.check("x^2", "x^2 + C", up_to_constant=True)
        ((True, ''), (True, ''))
    """

    def __init__(self, seconds: float = 8.0) -> None:
        if importlib.util.find_spec("math_verify") is None:
            raise UsageError("to compare formulas the package math-verify is needed: pip install 'gepa-lite[math]'.")
        self._seconds = seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def check(self, gold: str, answer: str, *, up_to_constant: bool = False) -> tuple[bool, str]:
        """Whether they are equal, and what kept them from being compared, in words; "" where nothing did.

        Args:
            gold: LaTeX, without dollar signs.
            answer: likewise.
            up_to_constant: whether they may differ by a constant, as indefinite integrals (in x) do.
        """
        job = {"gold": gold, "answer": answer, "up_to_constant": up_to_constant}
        with self._lock:
            process = self._process if self._process is not None and self._process.poll() is None else self._started()
            reply = self._ask(process, job, self._seconds)
            if reply is None:
                return False, f"comparing it with the right one took longer than {self._seconds:g} s"
        return bool(reply["equal"]), str(reply["problem"])

    def _started(self) -> subprocess.Popen[str]:
        script = Path(__file__).with_name("equivalence_child.py")
        process = subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        if self._ask(process, None, _START) is None:
            raise UsageError(f"to compare formulas math-verify must load, and {sys.executable} {script} does not get ready.")
        self._process = process
        return process

    def _ask(self, process: subprocess.Popen[str], job: dict[str, Any] | None, seconds: float) -> dict[str, Any] | None:
        """Its next line, or None where it ended or had to be killed."""
        assert process.stdin is not None
        assert process.stdout is not None
        if job is not None:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
        with ThreadPoolExecutor(1) as reader:
            line = reader.submit(process.stdout.readline)
            try:
                told = line.result(seconds)
            except TimeoutError:
                process.kill()  # which ends the read
                told = ""
        if not told:
            process.kill()
            process.wait()
            self._process = None
            return None
        return dict(json.loads(told))

    def __reduce__(self) -> tuple[type[Equivalence], tuple[float]]:
        # a worker process has one of its own
        return Equivalence, (self._seconds,)
