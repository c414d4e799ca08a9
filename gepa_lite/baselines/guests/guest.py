"""The entry of a guest process: ``python guest.py NAME`` reads its task as one line of JSON and runs ``with_NAME.run(desk, task)``.

Needs Python 3.9 and the optimizer's package, nothing else.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any, TextIO


class ReplyError(Exception):
    """The reflection model gave no reply after retries."""


class Desk:
    """The way to the run that started this process: one question, one answer, each a line of JSON.

    Attributes:
        asked: questions so far.

    Args:
        questions: where they are written.
        answers: where answers are read.
    """

    def __init__(self, questions: TextIO, answers: TextIO) -> None:
        self._questions = questions
        self._answers = answers
        self.asked = 0

    def task(self) -> dict[str, Any]:
        """What is to be optimized: the first line."""
        return self._read()

    def evaluate(self, texts: dict[str, str], example_ids: list[str]) -> list[dict[str, Any]]:
        """Rollouts of the program with these texts by module, in the order of the examples."""
        return list(self._ask({"ask": "evaluate", "texts": texts, "ids": example_ids})["rollouts"])

    def reflect(self, messages: list[dict[str, str]]) -> str:
        """A reply of the reflection model.

        Raises:
            ReplyError: it gave none.
        """
        answer = self._ask({"ask": "reflect", "messages": messages})
        if "error" in answer:
            raise ReplyError(answer["error"])
        return str(answer["text"])

    def end(self, reason: str) -> None:
        """Say that the optimizer ended by its own rules, and which."""
        self._write({"ask": "end", "reason": reason})

    def fail(self, reason: str) -> None:
        """Say that the optimizer raised, and what."""
        self._write({"ask": "fail", "reason": reason})

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        self.asked += 1
        self._write(question)
        return self._read()

    def _write(self, question: dict[str, Any]) -> None:
        self._questions.write(json.dumps(question) + "\n")
        self._questions.flush()

    def _read(self) -> dict[str, Any]:
        line = self._answers.readline()
        if not line:
            # the run is over: what an optimizer would do on its way out is of no use
            os._exit(0)
        return dict(json.loads(line))


def open_desk() -> Desk:
    """The desk on this process's standard streams; what a package prints goes to the error stream instead."""
    questions = os.fdopen(os.dup(1), "w", encoding="utf-8")
    answers = os.fdopen(os.dup(0), "r", encoding="utf-8")
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout = sys.stderr
    return Desk(questions, answers)


def main(name: str) -> None:
    """Run an optimizer to its end."""
    folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - as light as can be
    # files beside this one must not stand in for packages
    sys.path = [place for place in sys.path if os.path.abspath(place) != folder]  # noqa: PTH100
    desk = open_desk()
    task = desk.task()
    spec = spec_from_file_location(f"with_{name}", os.path.join(folder, f"with_{name}.py"))  # noqa: PTH118
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    try:
        reason = module.run(desk, task)
    except Exception as error:
        if desk.asked and not is_ours(error):
            desk.fail(" ".join(f"{type(error).__name__}: {error}".split())[:300])
        raise
    desk.end(reason)


def is_ours(error: BaseException) -> bool:
    """Whether an exception was raised by a file beside this one, not by a package."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    return place is not None and os.path.dirname(os.path.abspath(place.tb_frame.f_code.co_filename)) == folder  # noqa: PTH100, PTH120


if __name__ == "__main__":
    main(sys.argv[1])
