"""Verified export: what is sent with the exported prompts is, byte for byte, what was sent inside the run.

Recorded examples are taken from the run with their calls and replies. What was written is read back by the tool it was written for. Then, on each example: the form's own messages, where it has
any, are made from the inputs of each recorded call; and the user's own program runs with the texts that were read back, its calls answered by the recorded replies. Nothing is called or paid for.
"""

from __future__ import annotations

import difflib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gepa_lite.adapters.adapt import adapt
from gepa_lite.core.call import Call, Message
from gepa_lite.core.candidate import Candidate
from gepa_lite.core.example import Example
from gepa_lite.core.rollout import Rollout
from gepa_lite.errors import UsageError
from gepa_lite.exports.source import Reading, Source
from gepa_lite.lm.protocol import LM, Completion, Request
from gepa_lite.store.run_store import RunStore


@dataclass(frozen=True, slots=True)
class Verified:
    """What was held against the run.

    Attributes:
        examples: recorded examples.
        rendered: messages made by the exported form itself that were equal to those inside.
        sent: calls of the user's own program that were equal to those inside.
    """

    examples: int
    rendered: int
    sent: int

    def __str__(self) -> str:
        return f"verified on {self.examples} recorded examples: {self.rendered} messages by the exported form and {self.sent} calls of the program are byte-equal to those inside the run"


class UnfaithfulExportError(UsageError):
    """What would be sent outside differs from what was sent inside; nothing was left in place. The message holds the difference as a unified diff."""


def recorded(source: Source, count: int) -> list[tuple[Example, Rollout]]:
    """The first examples of the run, test set first, on which the exported prompts were run without a failure.

    Raises:
        UsageError: there is no run, or none with these prompts.
    """
    if source.run is None:
        raise UsageError("there is no run to verify the export against: give the run's folder (run=...), or export the result itself.")
    identity = Candidate(dict(source.prompts)).id
    with RunStore.read(source.run) as store:
        examples = {example.id: example for split in ("test", "validation", "train") for example in store.examples(split)}
        if not examples:
            raise UsageError(
                f"the run in {source.run} keeps no messages and inputs to verify an export against. Export with verify_on=0 (--verify 0)."
            )
        rollouts = {r.key.example_id: r for r in store.rollouts_of(identity) if r.failure is None and r.key.sample == 0 and r.trace.calls}
    found = [(example, rollouts[key]) for key, example in examples.items() if key in rollouts][:count]
    if not found:
        raise UsageError(
            f"the run in {source.run} holds no rollout of these prompts: they are of another run, or were edited since. Export without verify, or run them first."
        )
    return found


def verify(source: Source, reading: Reading, cases: Sequence[tuple[Example, Rollout]]) -> Verified:
    """Hold what was read back against recorded rollouts.

    Raises:
        UnfaithfulExportError: the first difference.
    """
    rendered = sent = 0
    for example, rollout in cases:
        calls = [call for call in rollout.trace.calls if call.messages]
        if reading.messages is not None:
            for call in calls:
                # a module that is not optimized has its text in the program, and none in the export
                if not call.retry and call.module in reading.prompts:
                    _hold(call, reading.messages(call.module, call.inputs), f"the exported messages of {call.module!r}", example)
                    rendered += 1
        if source.program is not None:
            sent += _replay(source.program, reading.prompts, example, calls)
    if not rendered and not sent:
        raise UsageError(
            "nothing could be verified: this form holds no messages of its own, so the program is needed (program=..., or --program module:name)."
        )
    return Verified(len(cases), rendered, sent)


def _replay(program: Any, prompts: Mapping[str, str], example: Example, calls: Sequence[Call]) -> int:
    """The program as it is outside, on one example, its calls answered by the recorded replies."""
    replies = _Replies(calls)
    # by way of what is handed to the user, so that nothing of the run's is in it
    outside = adapt(adapt(program).with_prompts(prompts).deliverable)
    execution = outside.run(example.inputs, replies)
    if replies.strange:
        _hold(replies.strange[0][0], replies.strange[0][1], "a call of the program", example)
    if replies.left:
        why = f" It raised {type(execution.error).__name__}: {execution.error}" if execution.error else ""
        raise UnfaithfulExportError(
            f"on example {example.id} the program makes {len(replies.left)} calls less than inside the run, the first of them of {replies.left[0].module!r}.{why}"
        )
    return len(calls)


@dataclass
class _Replies:
    """Answers each request by the reply that its messages got inside. Calls may come in any order, and from several threads."""

    left: Sequence[Call]
    strange: list[tuple[Call | None, Sequence[Message]]] = field(default_factory=list)
    _lock: Any = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.left = list(self.left)

    def __call__(self, lm: LM, request: Request, occurrence: int) -> Completion:
        with self._lock:
            equal = next((call for call in self.left if list(call.messages) == list(request.messages)), None)
            if equal is None:
                # the program goes on as far as it can; the first difference is what is shown
                equal = self.left[0] if self.left else None
                self.strange.append((equal, request.messages))
            self.left = [call for call in self.left if call is not equal]
        return Completion("" if equal is None else equal.reply, "stop" if equal is None else equal.finish_reason or "stop")


def _hold(call: Call | None, outside: Sequence[Message], what: str, example: Example) -> None:
    inside = () if call is None else call.messages
    if list(inside) == list(outside):
        return
    lines = difflib.unified_diff(_lines(inside), _lines(outside), "inside the run", "outside", lineterm="", n=2)
    raise UnfaithfulExportError(
        f"{what} differ from those inside the run, on example {example.id}; nothing was exported:\n" + "\n".join(lines)
    )


def _lines(messages: Sequence[Message]) -> list[str]:
    """Messages by lines, each as a JSON text, so that space and line ends show."""
    return [f"{message['role']}: {json.dumps(line, ensure_ascii=False)}" for message in messages for line in _pieces(message["content"])]


def _pieces(content: Any) -> list[str]:
    return (content if isinstance(content, str) else json.dumps(content)).splitlines(keepends=True) or [""]
