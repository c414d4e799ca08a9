"""The task that faults are injected into: a mail desk of two modules and a judge, behind a real HTTP server that answers by the rules that a prompt holds."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gepa_lite as gl
from gepa_lite.core.ids import content_hash
from gepa_lite.core.rollout import Rollout
from gepa_lite.testing import OpenAIServer, Reply

RULES = {"invoice": "desk A", "parcel": "desk B", "password": "desk C", "praise": "desk D"}
WORKERS = 4
FAN = 2
ROLLOUTS = 90

Fault = Callable[[str, int], Reply | None]
"""From a role and the number of requests of that role so far to a faulty reply, or None for a good one."""


class Desk(gl.Program):
    """Send each mail to a desk."""

    gist = gl.Module("mail -> gist", "Give the gist of the mail.")
    desk = gl.Module("mail, gist -> desk", "Name the desk for the mail.")

    def forward(self, mail: str) -> gl.Outputs:
        switch(mail)
        return self.desk(mail=mail, gist=self.gist(mail=mail).gist)


class Grader(gl.Program):
    """A judge that is a model."""

    grade = gl.Module("answer, right -> grade: Literal['same', 'other']", "Grade the answer.")

    def forward(self, answer: str, right: str) -> gl.Outputs:
        return self.grade(answer=answer, right=right)


def switch(mail: str) -> None:
    """What a hostile program does, as the environment tells it: raise, never return, or end its process once."""
    what = os.environ.get("GEPA_LITE_FAULT_PROGRAM", "")
    if what == "raise" and content_hash(mail)[0] in "0123":
        raise ZeroDivisionError("the program divides by zero on this mail")
    if what.startswith("die:") and content_hash(mail)[0] in "01":
        marker = Path(what.removeprefix("die:")) / content_hash(mail)
        if not marker.exists():
            marker.touch()
            os.abort()
    if what == "block" and content_hash(mail)[0] == "0":
        threading.Event().wait()


def feedback(example: gl.Example, output: Any) -> gl.Feedback:
    """Right or wrong, with the rule; or what a hostile feedback does, as the environment tells it."""
    what = os.environ.get("GEPA_LITE_FAULT_FEEDBACK", "")
    if what == "raise":
        raise KeyError("the label is missing")
    if what == "block":
        threading.Event().wait()
    right = output.desk == example["desk"]
    return gl.Feedback(float(right), f"RULE:{example['kind']}")


def rows(count: int, start: int) -> list[dict[str, str]]:
    """Distinct mails of all kinds in turn."""
    kinds = list(RULES)
    return [{"mail": f"mail {start + i} about a {kinds[i % 4]}", "desk": RULES[kinds[i % 4]], "kind": kinds[i % 4]} for i in range(count)]


def answer(messages: list[dict[str, Any]]) -> tuple[str, str]:
    """The role of a request, and the good reply."""
    text, last = messages[0]["content"], messages[-1]["content"]
    if "Grade the answer" in text:
        values = re.findall(r"desk [A-D]|none", last)
        return "judge", "same" if len(values) == 2 and values[0] == values[1] else "other"
    if "RULE:" in text:
        current = text.split("<current>")[1].split("</current>")[0].strip()
        new = next((kind for kind in re.findall(r"RULE:(\w+)", text) if f"rule {kind}" not in current), None)
        return "reflection", f"<prompt>\n{current}{'' if new is None else f' rule {new}.'}\n</prompt>"
    if "Name the desk" not in text:
        return "task", "a gist"
    kind = next(kind for kind in RULES if f"a {kind}" in last)
    return "task", RULES[kind] if f"rule {kind}" in text else "none"


def invented(rollout: Rollout) -> bool:
    """Whether a stored score follows neither from the model's good replies, or its one huge one, nor from the program's own failure."""
    if rollout.failure is not None:
        return (
            rollout.failure.fault != "candidate"
            or rollout.value != 0
            or not re.search("divides by zero|did not end within", rollout.failure.message)
        )
    replies = [(call.reply, answer([dict(message) for message in call.messages])[1]) for call in rollout.trace.calls]
    mail = rollout.trace.calls[0].inputs["mail"]
    right = RULES[next(kind for kind in RULES if f"a {kind}" in mail)]
    honest = all(reply == good or len(reply) > 1_000_000 for reply, good in replies)
    return not honest or rollout.value != float(rollout.output["desk"] == right)


class FaultyServer:
    """The model server of a run, which counts what it answered in full.

    Args:
        fault: what goes wrong; may be changed at any time.
    """

    def __init__(self, fault: Fault | None = None) -> None:
        self.fault = fault
        self.answered: list[str] = []
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()
        self._server = OpenAIServer(self._reply)

    @property
    def base_url(self) -> str:
        """What a client takes."""
        return self._server.base_url

    def close(self) -> None:
        """Stop."""
        self._server.close()

    def _reply(self, messages: list[dict[str, Any]]) -> str | Reply:
        role, good = answer(messages)
        with self._lock:
            count = self._counts.get(role, 0)
            self._counts[role] = count + 1
            bad = None if self.fault is None else self.fault(role, count)
            if bad is None:
                self.answered.append(content_hash(messages))
        return good if bad is None else bad


def prepare_options(lm: Any, *, judged: bool = False, workers: int | str = WORKERS, **changes: Any) -> Mapping[str, Any]:
    """The arguments of ``api.prepare`` for a run on a model."""
    grader = Grader(lm=lm)

    def graded(example: gl.Example, output: Any) -> gl.Feedback:
        same = grader(answer=output.desk, right=example["desk"]).grade == "same"
        return gl.Feedback(float(same), f"RULE:{example['kind']}")

    return {
        "program": Desk(lm=lm),
        "trainset": rows(12, 0),
        "valset": rows(8, 100),
        "testset": rows(8, 200),
        "feedback": graded if judged else feedback,
        "reflection_lm": lm,
        "budget": gl.Budget(rollouts=ROLLOUTS),
        "search": gl.Search(fan=FAN),
        "workers": workers,
        **changes,
    }
