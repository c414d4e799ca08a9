"""Whether each prompt reaches the model, and whether the feedback function tells good from bad."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gepa_lite.core.example import Example
from gepa_lite.core.ids import content_hash
from gepa_lite.core.rollout import Rollout
from gepa_lite.doctor.bench import Bench
from gepa_lite.doctor.checkup import Diagnosis
from gepa_lite.errors import FeedbackError
from gepa_lite.program.outputs import Outputs

_NONSENSE = "zzqx nothing of the kind zzqx"
_NUMBER = -987_654_321


def check_samples(rollouts: Sequence[Rollout]) -> Diagnosis:
    """Whether the program as it stands gives outputs that can be judged."""
    failed = [rollout.failure for rollout in rollouts if rollout.failure is not None]
    count = len(rollouts)
    if not failed:
        return Diagnosis("ok", "program_runs", f"The program ran on {count} examples without a failure.")
    all_failed = len(failed) == count
    return Diagnosis(
        "fail" if all_failed else "warn",
        "program_runs",
        f"The program failed on {len(failed)} of {count} examples.",
        _line(failed[0].message),
        "Mend what the message names; only where the prompt is at fault can a run repair it.",
    )


def check_prompts(bench: Bench, examples: Sequence[Example]) -> Iterator[Diagnosis]:
    """Whether a mark put into each module's text stands in the messages that are sent. One rollout, a second where modules did not run."""
    # code goes to no model
    prompts = {path: part.text for path, part in bench.spec.program.parts.items() if part.contract.form != "python"}
    left = {path: f"(mark {content_hash(['check', path])[:10]})" for path in prompts}
    reached: list[str] = []
    lost: list[str] = []
    for example in examples[:2]:
        rollout, sent = bench.run_texts({path: f"{prompts[path]} {mark}".strip() for path, mark in left.items()}, example)
        text = "\n".join(message["content"] for messages in sent for message in messages)
        for path, mark in list(left.items()):
            if mark in text:
                reached.append(path)
            elif rollout.trace.of(path):
                lost.append(path)
            else:
                continue
            del left[path]
        if not left:
            break
    if reached:
        yield Diagnosis("ok", "prompt_reaches_model", f"The text of {_names(reached)} stands in what is sent to the model.")
    for path in lost:
        yield Diagnosis(
            "fail",
            "prompt_reaches_model",
            f"The text of {path!r} does not reach the model: to rewrite it would change nothing.",
            "A mark put into it is in none of the messages that were sent.",
            "See that the program sends the module's own text, and not a copy made beforehand.",
        )
    for path in left:
        yield Diagnosis(
            "warn",
            "prompt_reaches_model",
            f"{path!r} did not run on the examples that were tried, so its text could not be followed.",
            f"{len(examples[:2])} examples.",
            "Fine where it is seldom needed; else see that the program calls it.",
        )


def check_feedback(bench: Bench, examples: Sequence[Example], rollouts: Sequence[Rollout]) -> Iterator[Diagnosis]:
    """Words, range, sameness, and whether the score moves when the output is wrecked."""
    pairs = [(example, rollout) for example, rollout in zip(examples, rollouts, strict=True) if rollout.failure is None]
    if not pairs:
        yield Diagnosis("warn", "feedback_moves", "The feedback function could not be tried: no sample rollout has an output.")
        return
    yield _words([rollout for _, rollout in pairs], bench.spec.search.objective.range)
    unlike: list[tuple[float, float]] = []
    moved: list[tuple[float, float]] = []
    stuck: list[tuple[float, float]] = []
    floor = 0
    for example, rollout in pairs:
        execution = bench.output_of(example)
        assert rollout.feedback is not None
        try:
            again = bench.judge(example, execution.output, execution)
            if again.score != rollout.feedback.score:
                unlike.append((rollout.feedback.score, again.score))
            wreck = wrecked(execution.output)
            if wreck is None:
                continue
            score = bench.judge(example, wreck, execution).score
        except FeedbackError as error:
            yield Diagnosis(
                "warn",
                "feedback_moves",
                "The feedback function raised on a wrecked output.",
                _line(str(error)),
                "A run stops at an exception in the feedback function: let it give the worst score with a reason instead.",
            )
            return
        value = bench.spec.search.objective.value
        if rollout.value is not None and rollout.value <= bench.spec.search.objective.worst + 1e-9:
            floor += 1
        (moved if value(score) < value(rollout.feedback.score) - 1e-12 else stuck).append((rollout.feedback.score, score))
    if unlike:
        yield Diagnosis(
            "warn",
            "feedback_repeats",
            "The feedback function gives another score for the same output.",
            f"{unlike[0][0]:g}, then {unlike[0][1]:g}.",
            "Take what is random out of it, or use Search(repeats=3).",
        )
    else:
        yield Diagnosis("ok", "feedback_repeats", f"The feedback function gives the same score for the same output ({len(pairs)} tries).")
    yield _moves(moved, stuck, floor)


def _words(rollouts: Sequence[Rollout], allowed: tuple[float, float]) -> Diagnosis:
    texts = [rollout.feedback.text or "".join(rollout.feedback.modules.values()) for rollout in rollouts if rollout.feedback is not None]
    scores = ", ".join(f"{rollout.feedback.score:g}" for rollout in rollouts if rollout.feedback is not None)
    empty = sum(not text.strip() for text in texts)
    if empty:
        return Diagnosis(
            "warn",
            "feedback_words",
            f"The feedback has no words on {empty} of {len(texts)} outputs: the reflection model learns from words, not from scores.",
            f"scores {scores}",
            "Return gl.Feedback(score, text) that says what was wrong, what is right and why.",
        )
    low, high = allowed
    return Diagnosis("ok", "feedback_words", f"The feedback has a score from {low:g} to {high:g} and words.", f"scores {scores}")


def _moves(moved: Sequence[tuple[float, float]], stuck: Sequence[tuple[float, float]], floor: int) -> Diagnosis:
    if moved:
        before, after = moved[0]
        return Diagnosis("ok", "feedback_moves", "The score falls when the output is wrecked.", f"from {before:g} to {after:g}")
    if not stuck:
        return Diagnosis(
            "warn", "feedback_moves", "Outputs of this type could not be wrecked, so the feedback function was not tried on a bad one."
        )
    if floor == len(stuck):
        return Diagnosis(
            "warn",
            "feedback_moves",
            "All sample outputs have the worst score already, so it could not be seen to fall.",
            f"{floor} of {floor} at the worst of the range",
            "See that a right answer gets a better score.",
        )
    return Diagnosis(
        "fail",
        "feedback_moves",
        "The score does not change when every field of the output is wrecked.",
        f"{stuck[0][0]:g} before and {stuck[0][1]:g} after, on {len(stuck)} outputs",
        "See that the feedback function looks at the output it is given.",
    )


def wrecked(value: Any) -> Any:
    """The value with every text and number in it replaced by nonsense; None where it is of a type that can't be.

    >>> wrecked({"label": "high", "points": [1, 2]})
    {'label': 'zzqx nothing of the kind zzqx', 'points': []}
    """
    for kinds, nonsense in ((str, _NONSENSE), (bool, None), ((int, float), _NUMBER), ((list, tuple, set), None)):
        if isinstance(value, kinds):
            return (not value) if isinstance(value, bool) else type(value)() if nonsense is None else nonsense
    if isinstance(value, Outputs):
        return Outputs(**{key: wrecked(item) for key, item in value.items()})
    if isinstance(value, Mapping):
        return {key: wrecked(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(
            value, **{item.name: wrecked(getattr(value, item.name)) for item in dataclasses.fields(value) if item.init}
        )
    if hasattr(value, "model_copy") and hasattr(value, "model_dump"):
        return value.model_copy(update={key: wrecked(item) for key, item in value.model_dump().items()})
    # a dspy.Prediction has keys and takes items, and is no Mapping
    if hasattr(value, "keys") and hasattr(value, "__setitem__"):
        twin = copy.copy(value) if not hasattr(value, "copy") else value.copy()
        for key in list(value.keys()):
            twin[key] = wrecked(value[key])
        return twin
    return None


def _names(paths: Sequence[str]) -> str:
    return ", ".join(map(repr, paths))


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 240 else f"{line[:237]}..."
