"""Records without what was said: messages, inputs, outputs and words of the feedback are left out; scores, prompts, costs and kinds of failures stay."""

from __future__ import annotations

from dataclasses import replace

from gepa_lite.core.call import Call, Trace
from gepa_lite.core.closing_events import Shortened
from gepa_lite.core.events import Event, Merged, Proposed, SetAside, Stopped, Unjoined
from gepa_lite.core.feedback import Feedback
from gepa_lite.core.rollout import Failure, Rollout

WITHHELD = "(not kept: this run stores no messages and no inputs)"
"""Stands where words were left out, so that a person who reads the run knows why."""

_OWN_WORDS = frozenset({"improved", "not_better", "tried", "perfect", "known", "no_lessons", "candidate", "not_validated", "unmoved"})
"""Codes of proposals whose reason is words and numbers of our own; other reasons may quote a reply or an endpoint."""
_OWN_STOPS = frozenset({"budget", "perfect", "nothing_to_learn", "asked", "rule", "no_modules"})


def is_bare(rollout: Rollout) -> bool:
    """Whether a rollout's words were left out."""
    return rollout.feedback is not None and rollout.feedback.text == WITHHELD


def bare_rollout(rollout: Rollout) -> Rollout:
    """A rollout with its scores, costs and the kind of its failure alone; bare ones come back as they are."""
    feedback, failure = rollout.feedback, rollout.failure
    return replace(
        rollout,
        feedback=None if feedback is None else Feedback(feedback.score, WITHHELD, {}, feedback.objectives, feedback.scores),
        output=None,
        trace=Trace(tuple(map(_bare_call, rollout.trace.calls))),
        failure=None if failure is None else Failure(failure.kind, failure.fault, WITHHELD),
    )


def _bare_call(call: Call) -> Call:
    return replace(
        call,
        inputs={},
        messages=(),
        reply="",
        outputs=None if call.outputs is None else {},
        error=None if call.error is None else WITHHELD,
    )


def bare_event(event: Event) -> Event:
    """An event without words that may quote what models were sent or said; nothing of it decides anything."""
    match event:
        case Proposed():
            findings = tuple(replace(finding, words=WITHHELD) for finding in event.findings)
            return replace(event, findings=findings, reason=event.reason if event.code in _OWN_WORDS else WITHHELD)
        case Merged() | Shortened() if event.status == "void":
            return replace(event, reason=WITHHELD)
        case SetAside() | Unjoined():
            return replace(event, reason=WITHHELD)
        case Stopped() if event.code not in _OWN_STOPS:
            return replace(event, reason=WITHHELD)
        case _:
            return event
