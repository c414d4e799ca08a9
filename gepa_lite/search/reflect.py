"""What the reflection model is shown: the module's prompt, its own calls and the feedback, cut to a stated budget."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, TemplateError, meta
from jinja2 import Template as JinjaTemplate

from gepa_lite.core.call import Call, Message
from gepa_lite.core.feedback import Feedback
from gepa_lite.core.finding import Finding
from gepa_lite.core.form import Form
from gepa_lite.core.ids import jsonable
from gepa_lite.core.rollout import Rollout
from gepa_lite.core.seeds import stream
from gepa_lite.errors import UsageError

CHARACTERS_PER_TOKEN = 4
"""A rule of thumb for English; estimates only steer what is shown, never the ledger."""


@dataclass(frozen=True, slots=True)
class ReflectionLimits:
    """How much the reflection prompt may show.

    Attributes:
        examples: rollouts shown at most.
        value_chars: characters of one field's value, reply or feedback; longer ones are cut in the middle.
        tokens: estimated tokens of the whole prompt; examples are dropped from the end, then values are halved, until it fits.
    """

    examples: int = 8
    value_chars: int = 2_000
    tokens: int = 12_000

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UsageError(f"ReflectionLimits({item.name}={value!r}): a whole number of at least 1 is needed.")


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A call of another step in the same rollout, with what the feedback says of that step."""

    module: str
    inputs: Mapping[str, Any] | str
    outputs: Mapping[str, Any] | str
    review: str


@dataclass(frozen=True, slots=True)
class Lesson:
    """One rollout as the reflection model sees it: one call of the module, the calls around it within the credit horizon, and the words on the rollout."""

    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    reply: str
    error: str | None
    feedback: str
    score: float | None
    context: tuple[Neighbour, ...] = ()


@dataclass(frozen=True, slots=True)
class Subject:
    """What is rewritten: a module of the program, its signature in words, its current text, what the program is for, and whether the text is code (``"python"``)."""

    module: str
    signature: str
    prompt: str
    purpose: str
    form: Form = "text"


@dataclass(frozen=True, slots=True)
class Template:
    """A reflection template: a file of ours, or a text of the user's, and further values it gets as data.

    Attributes:
        file: ``"reflect.j2"`` or ``"edit.j2"``.
        text: a Jinja2 text in its place, or None. It gets ``module``, ``signature``, ``prompt``, ``purpose``, ``form`` and ``lessons``.
        values: what the file needs beside these.
    """

    file: str
    text: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)


def once_more(subject: Subject, proposer: str, proposed: str, findings: Sequence[Finding], max_words: int) -> tuple[Message, ...]:
    """The one further question after a text that broke a rule: it shows that text and names what it broke, and none of the cases again.

    Args:
        subject: what is rewritten.
        proposer: ``"rewrite"`` or ``"edit"``: the form of the answer.
        proposed: the text that can't be used.
        findings: why.
        max_words: of the edits.
    """
    values = {
        "module": subject.module,
        "signature": subject.signature,
        "prompt": subject.prompt,
        "proposer": proposer,
        "proposed": proposed,
        "breaches": list(dict.fromkeys(finding.words for finding in findings)),
        "max_words": max_words,
    }
    return ({"role": "user", "content": _environment().get_template("again.j2").render(values).strip()},)


@dataclass(frozen=True, slots=True)
class ReflectionPrompt:
    """The messages, and how they were cut: ``examples``, ``dropped_examples``, ``shortened_values``, ``tokens`` (estimated)."""

    messages: tuple[Message, ...]
    shown: Mapping[str, int]


def lessons_of(module: str, rollouts: Sequence[Rollout], horizon: int | None, seed: int, address: tuple[int, ...]) -> list[Lesson]:
    """One lesson for each rollout in which the module ran.

    Where it ran several times, a call whose reply could not be used is preferred; among the rest one is drawn (papers: GEPA §1.6).

    Args:
        module: path of the module that is rewritten.
        rollouts: of the minibatch.
        horizon: calls shown before and after the module's own: 0 is that call alone, None the whole rollout.
        seed: the search's seed.
        address: names the proposal.
    """
    lessons = []
    for rollout in rollouts:
        calls = rollout.trace.of(module)
        if not calls or rollout.feedback is None:
            continue
        failed = [call for call in calls if call.error is not None]
        draw = stream(seed, "call", *address, rollout.key.example_id)
        lessons.append(_lesson(module, draw.choice(failed or list(calls)), rollout, horizon))
    return lessons


def _lesson(module: str, call: Call, rollout: Rollout, horizon: int | None) -> Lesson:
    feedback = rollout.feedback
    assert feedback is not None
    words = feedback.for_module(module) or f"score {feedback.score:g}"
    if module in feedback.scores:
        words = f"{words} (this step's own score: {feedback.scores[module]:g})"
    return Lesson(call.inputs, call.outputs or {}, call.reply, call.error, words, feedback.score, _around(call, rollout, horizon))


def _around(call: Call, rollout: Rollout, horizon: int | None) -> tuple[Neighbour, ...]:
    calls, feedback = rollout.trace.calls, rollout.feedback
    assert feedback is not None
    place = next(index for index, other in enumerate(calls) if other is call)
    first, last = (0, len(calls)) if horizon is None else (max(0, place - horizon), place + horizon + 1)
    return tuple(
        Neighbour(
            other.module,
            other.inputs,
            other.outputs if other.outputs is not None else f"failed: {other.error}",
            _review(other.module, feedback),
        )
        for other in calls[first:last]
        if other is not call
    )


def _review(module: str, feedback: Feedback) -> str:
    score = f"score {feedback.scores[module]:g}" if module in feedback.scores else ""
    return "; ".join(part for part in (feedback.modules.get(module, ""), score) if part)


def reflection_prompt(template: Template, subject: Subject, lessons: Sequence[Lesson], limits: ReflectionLimits) -> ReflectionPrompt:
    """Render the reflection prompt within its limits.

    Args:
        template: ours or the user's.
        subject: what is rewritten.
        lessons: at least one.
        limits: how much may be shown.

    Raises:
        UsageError: the user's template does not render.
    """
    kept = list(lessons[: limits.examples])
    chars = limits.value_chars
    while True:
        shortened, cut = _shorten(kept, chars)
        text = _render(template, subject, shortened)
        tokens = -(-len(text) // CHARACTERS_PER_TOKEN)
        if tokens <= limits.tokens or (len(kept) == 1 and chars <= 100):
            shown = {"examples": len(kept), "dropped_examples": len(lessons) - len(kept), "shortened_values": cut, "tokens": tokens}
            return ReflectionPrompt(({"role": "user", "content": text},), shown)
        if len(kept) > 1:
            kept.pop()
        else:
            chars //= 2


def _shorten(lessons: Sequence[Lesson], chars: int) -> tuple[list[Lesson], int]:
    count = 0

    def cut(value: Any) -> str:
        nonlocal count
        text = value if isinstance(value, str) else json.dumps(jsonable(value), ensure_ascii=False)
        if len(text) <= chars:
            return text
        count += 1
        half = chars // 2
        return f"{text[:half]} [... {len(text) - 2 * half} characters left out ...] {text[-half:]}"

    shortened = [
        replace(
            lesson,
            inputs={name: cut(value) for name, value in lesson.inputs.items()},
            outputs={name: cut(value) for name, value in lesson.outputs.items()},
            reply=cut(lesson.reply),
            error=None if lesson.error is None else cut(lesson.error),
            feedback=cut(lesson.feedback),
            context=tuple(Neighbour(c.module, cut(c.inputs), cut(c.outputs), cut(c.review)) for c in lesson.context),
        )
        for lesson in lessons
    ]
    return shortened, count


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("gepa_lite.search"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
    )


def template_sources() -> list[str]:
    """Our templates as they are written."""
    environment = _environment()
    assert environment.loader is not None
    return [environment.loader.get_source(environment, name)[0] for name in environment.list_templates(extensions=["j2"])]


_TOLD = ("module", "signature", "prompt", "purpose", "form", "lessons")
"""What a template of the user's is told."""


def template_problem(text: str) -> str | None:
    """Why a template of the user's can't be rendered, as far as that shows without a rollout, or None."""
    environment = _environment()
    if not text.strip():
        return "it is empty"
    try:
        unknown = meta.find_undeclared_variables(environment.parse(text)) - {*_TOLD, *environment.globals}
    except TemplateError as error:
        return str(error)
    return f"it uses {sorted(unknown)[0]!r}, which it does not get" if unknown else None


@lru_cache(maxsize=8)
def _compiled(text: str) -> JinjaTemplate:
    return _environment().from_string(text)


def _render(template: Template, subject: Subject, lessons: Sequence[Lesson]) -> str:
    values = {
        **template.values,
        "module": subject.module,
        "signature": subject.signature,
        "prompt": subject.prompt,
        "purpose": subject.purpose,
        "form": subject.form,
        "lessons": lessons,
    }
    if template.text is None:
        return _environment().get_template(template.file).render(values).strip()
    try:
        return _compiled(template.text).render(values).strip()
    except TemplateError as error:
        raise UsageError(
            f"Search(reflection_template=...) does not render: {error}. It may use module, signature, prompt, purpose, form and lessons "
            f"(each with inputs, outputs, reply, error, feedback, score, context)."
        ) from None
