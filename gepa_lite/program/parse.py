"""Turn a model's reply into the outputs that a signature declares, or into an error that says in words what is wrong with it."""

from __future__ import annotations

import datetime
import enum
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError

from gepa_lite.core.call import Message
from gepa_lite.errors import OutputError
from gepa_lite.program.annotation import annotation_text, annotation_words, choice_values, is_union, members, unwrapped
from gepa_lite.program.choices import Ambiguous, choice_in_prose, whole_choice
from gepa_lite.program.loose_json import json_objects, json_value
from gepa_lite.program.render import message_text
from gepa_lite.program.signature import Signature

_EXCERPT = 300
_REPLY_LIMIT = 4_000
_ERRORS_SHOWN = 5
_THINKING = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_LINES_LIMIT = 1_000_000
_LABEL_MARKS = " \t*`#>-"
_NUMBERING = _LABEL_MARKS + "0123456789.)"
_SCALARS = (int, float, datetime.date, datetime.datetime)
_LISTS = (list, set, tuple)


def parse_reply(signature: Signature, text: str) -> dict[str, Any]:
    """The outputs that a reply holds, validated, as Python values by output name.

    Reasoning between ``<think>`` tags is left out. A reply of form ``"text"`` is otherwise taken as it stands, without surrounding white
    space. A choice is found regardless of case, markup and punctuation, or as the only choice named in a sentence. A JSON object is found
    amid prose and fences and with common slips; keys that the signature does not name are ignored; ``name: value`` lines are the last
    resort.

    Never guesses: a reply with two different answers is an error.

    Args:
        signature: what the module gives.
        text: the model's reply, of any length and content.

    Raises:
        OutputError: what was expected and what came, with an excerpt of the reply. No other exception leaves this function.

    Example:
        >>> parse_reply(Signature.parse("message -> urgency: Literal['low', 'high']"), "**High**.")
        {'urgency': 'high'}
    """
    if signature.reply_form == "json":
        whole = _whole_object(text)
        if whole is not None:  # before reasoning is looked for: a text inside the object may speak of such tags
            return _from_object(signature, whole, text)
    answer = _without_reasoning(signature, text)
    if signature.reply_form == "text":
        return _validated(signature, {signature.outputs[0].name: answer}, text)
    if signature.reply_form == "choice":
        return _parse_choice(signature, answer, text)
    return _parse_json(signature, answer, text)


def retry_messages(messages: Sequence[Message], reply: str, error: Exception | str) -> tuple[Message, ...]:
    """The messages of the one visible second call after a reply that can't be used.

    The first call's messages stay as they are, so that endpoints can cache them. Then come the reply, cut to 4,000 characters, and what is
    wrong with it, which for an ``OutputError`` of ``parse_reply`` names the expected form.
    """
    asked = message_text("retry.j2", problem=str(error))
    given = {"role": "assistant", "content": _shortened(reply, _REPLY_LIMIT) or "(no answer)"}
    return (*messages, given, {"role": "user", "content": asked})


def _shortened(text: str, limit: int = _EXCERPT) -> str:
    if len(text) <= limit:
        return text
    return f"{text[: limit * 2 // 3]} […] {text[len(text) - limit // 3 :]}"


def _expected(signature: Signature) -> str:
    if signature.reply_form == "text":
        return f"the {signature.outputs[0].name} as text"
    if signature.reply_form == "choice":
        return f"exactly one of {', '.join(signature.choices)}"
    keys = ", ".join(f'"{entry.name}" ({_shortened(annotation_words(entry.annotation), 200)})' for entry in signature.outputs)
    return f"one JSON object with {keys}"


def _unusable(signature: Signature, problem: str, text: str) -> OutputError:
    came = f"The reply was: {_shortened(text.strip())}" if text.strip() else "The reply was empty."
    return OutputError(f"{problem} Expected {_expected(signature)}. {came}")


def _without_reasoning(signature: Signature, text: str) -> str:
    """The reply without its reasoning blocks, stripped.

    A closing tag without an opening one ends a reasoning whose beginning the endpoint cut off. An opening tag amid text that is never
    closed is a mention of the tag and stays.
    """
    kept: list[str] = []
    place, opened = 0, -1
    for tag in _THINKING.finditer(text):
        if tag.group(1):
            kept = kept if opened >= 0 else []
            place, opened = tag.end(), -1
        elif opened < 0:
            kept.append(text[place : tag.start()])
            place = opened = tag.start()
    answer = "".join(kept).strip()
    if opened >= 0 and not answer:
        raise _unusable(signature, "The reply is reasoning that never ends: it opens <think>, and no answer follows.", text)
    answer = ("".join(kept) + text[place:]).strip()
    if not answer:
        raise _unusable(signature, "The reply holds reasoning and no answer." if text.strip() else "There is no answer.", text)
    return answer


def _validated(signature: Signature, values: Mapping[str, Any], text: str) -> dict[str, Any]:
    loosened = {entry.name: _loosened(entry.annotation, values[entry.name]) for entry in signature.outputs if entry.name in values}
    try:
        return dict(signature.output_model.model_validate(loosened))
    except ValidationError as error:
        raise _unusable(signature, _validation_words(error), text) from error
    except Exception as error:  # a validator of the user's own model may raise anything, and this reply set it off
        raise _unusable(signature, f"The outputs can't be validated: {type(error).__name__}: {_shortened(str(error))}.", text) from error


def _validation_words(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False)
    words = []
    for problem in problems[:_ERRORS_SHOWN]:
        where = ".".join(str(part) for part in problem["loc"]) or "the outputs"
        words.append(f"{where}: {problem['msg']}, found {_shortened(repr(problem['input']), 80)}")
    more = f" (and {len(problems) - _ERRORS_SHOWN} more)" if len(problems) > _ERRORS_SHOWN else ""
    return f"{'; '.join(words)}{more}."


def _loosened(annotation: Any, value: Any) -> Any:
    """The value with what a model commonly writes for a type put in that type's terms; anything else is left for pydantic to judge."""
    annotation = unwrapped(annotation)
    if isinstance(value, str):
        return _loosened_text(annotation, value)
    origin, arguments = get_origin(annotation), get_args(annotation)
    same_items = origin in (list, set) or (origin is tuple and arguments[1:] == (...,))
    if isinstance(value, list) and same_items:
        return [_loosened(arguments[0], item) for item in value]
    if isinstance(value, dict) and origin is dict:
        return {key: _loosened(arguments[1], item) for key, item in value.items()}
    return value


def _loosened_text(annotation: Any, value: str) -> Any:
    if is_union(annotation):
        others = [argument for argument in get_args(annotation) if argument is not type(None)]
        return _loosened_text(unwrapped(others[0]), value) if len(others) == 1 else value
    if annotation in (int, float):
        return value.replace(",", "") if _THOUSANDS.fullmatch(value.strip()) else value
    choices = choice_values(annotation)
    if choices:
        try:
            choice = whole_choice(value, choices)
        except Ambiguous:
            return value
        return value if choice is None else choices[choice]
    if get_origin(annotation) is Literal:
        return {str(argument): argument for argument in get_args(annotation)}.get(value.strip(), value)
    return value


def _parse_choice(signature: Signature, answer: str, text: str) -> dict[str, Any]:
    output = signature.outputs[0]
    choices = choice_values(output.annotation) or {}
    try:
        choice = whole_choice(answer, choices)
        if choice is None:
            labelled = _labelled(answer, [output.name]).get(_key(output.name), [])
            choice = _agreed([whole_choice(value.partition("\n")[0], choices) for value in labelled])
    except Ambiguous as error:
        raise _unusable(signature, f"The reply names more than one of the choices: {', '.join(error.found)}.", text) from error
    if choice is not None:
        return _validated(signature, {output.name: choices[choice]}, text)
    values = [_by_output(signature, found) for found in json_objects(answer).found]
    values = [value for value in values if output.name in value]
    if values and all(value == values[0] for value in values):
        return _validated(signature, values[0], text)
    try:
        choice = choice_in_prose(answer, choices)
    except Ambiguous as error:
        raise _unusable(signature, f"The reply names more than one of the choices: {', '.join(error.found)}.", text) from error
    if choice is None:
        raise _unusable(signature, "The reply names none of the choices clearly.", text)
    return _validated(signature, {output.name: choices[choice]}, text)


def _agreed(found: list[str | None]) -> str | None:
    return found[0] if found and all(choice == found[0] for choice in found) else None


def _key(name: str) -> str:
    return name.strip(_LABEL_MARKS).replace(" ", "_").replace("-", "_").casefold()


def _by_output(signature: Signature, found: Mapping[str, Any]) -> dict[str, Any]:
    """The object's values by output name: the exact key, else the only key that differs in case or joints.

    An object that is the only value of an object without any output is taken in its stead.
    """
    if len(found) == 1 and not any(_key(name) in map(_key, found) for name in signature.output_names):
        (inner,) = found.values()
        found = inner if isinstance(inner, dict) else found
    values: dict[str, Any] = {}
    for entry in signature.outputs:
        if entry.name in found:
            values[entry.name] = found[entry.name]
            continue
        near = [key for key in found if _key(str(key)) == _key(entry.name)]
        if len(near) == 1:
            values[entry.name] = found[near[0]]
    return values


def _whole_object(text: str) -> dict[str, Any] | None:
    try:
        value = json_value(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _missing(signature: Signature, values: Mapping[str, Any]) -> list[str]:
    return [entry.name for entry in signature.outputs if entry.required and entry.name not in values]


def _from_object(signature: Signature, found: dict[str, Any], text: str) -> dict[str, Any]:
    values = _by_output(signature, found)
    missing = _missing(signature, values)
    if not missing:
        return _validated(signature, values, text)
    if len(signature.outputs) == 1 and found:  # the one output's own object, without its name around it
        return _bare_object(signature, found, text)
    raise _unusable(signature, f"The JSON object lacks {', '.join(map(repr, missing))}; it has {_names(found)}.", text)


def _bare_object(signature: Signature, found: dict[str, Any], text: str) -> dict[str, Any]:
    output = signature.outputs[0]
    if annotation_text(output.annotation) not in ("Any", "dict"):
        try:
            return _validated(signature, {output.name: found}, text)
        except OutputError:
            pass
    raise _unusable(signature, f"The JSON object lacks {output.name!r}; it has {_names(found)}.", text)


def _names(found: Mapping[str, Any]) -> str:
    return _shortened(", ".join(repr(key) for key in found), 200) or "no keys"


def _parse_json(signature: Signature, answer: str, text: str) -> dict[str, Any]:
    objects = json_objects(answer)
    complete: list[dict[str, Any]] = []
    for found in objects.found:
        values = _by_output(signature, found)
        if not _missing(signature, values) and values not in complete:
            complete.append(values)
    if objects.cut_off and not complete:
        raise _unusable(signature, "The JSON object is cut off: it never ends.", text)
    if len(complete) > 1:
        raise _unusable(signature, f"The reply holds {len(complete)} JSON objects that differ.", text)
    if complete:
        return _validated(signature, complete[0], text)
    other_form = _bare_list(signature, answer) or _from_lines(signature, answer)
    if other_form is not None:
        return _validated(signature, other_form, text)
    if len(objects.found) == 1:
        return _from_object(signature, objects.found[0], text)
    if objects.found:
        raise _unusable(signature, f"None of the {len(objects.found)} JSON objects in the reply has all keys.", text)
    output = signature.outputs[0]
    if len(signature.outputs) == 1 and _is_scalar(output.annotation) and len(answer) <= _EXCERPT:
        return _validated(signature, {output.name: answer.strip("*_`\"' \t\r\n")}, text)
    if objects.broken:
        raise _unusable(signature, f"The JSON object can't be read; it breaks near: {objects.broken!r}.", text)
    raise _unusable(signature, "The reply holds no JSON object.", text)


def _bare_list(signature: Signature, answer: str) -> dict[str, Any] | None:
    """The one output's list without an object around it."""
    output = signature.outputs[0]
    if len(signature.outputs) > 1 or _kind(output.annotation) not in _LISTS:
        return None
    fenced = answer.split("```")
    try:
        value = json_value(f"```{fenced[1]}```" if len(fenced) == 3 else answer)
    except ValueError:
        return None
    return {output.name: value} if isinstance(value, list) else None


def _kind(annotation: Any) -> Any:
    """The type without extras and without what stands in its brackets."""
    return get_origin(unwrapped(annotation)) or unwrapped(annotation)


def _is_scalar(annotation: Any) -> bool:
    kind = _kind(annotation)
    return kind in _SCALARS or kind is Literal or (isinstance(kind, type) and issubclass(kind, enum.Enum))


def _labelled(answer: str, names: Sequence[str]) -> dict[str, list[str]]:
    """The texts after ``name:`` at the start of lines, each up to the next such label, by the name's key."""
    if len(answer) > _LINES_LIMIT:
        return {}
    keys = {_key(name) for name in names}
    found: dict[str, list[list[str]]] = {}
    current: list[str] | None = None
    for line in answer.splitlines():
        label, colon, rest = line.partition(":")
        key = _key(label.lstrip(_NUMBERING)) if colon and len(label) < 200 else ""
        if key in keys:
            current = [rest.lstrip("*_` \t")]
            found.setdefault(key, []).append(current)
        elif current is not None:
            current.append(line)
    return {key: ["\n".join(lines).strip() for lines in values] for key, values in found.items()}


def _from_lines(signature: Signature, answer: str) -> dict[str, Any] | None:
    """The outputs from ``name: value`` lines, each named once; None unless all are there and all are plain values."""
    found = _labelled(answer, signature.output_names)
    values = {}
    for entry in signature.outputs:
        texts = found.get(_key(entry.name), [])
        if len(texts) != 1 or _kind(entry.annotation) in (*_LISTS, dict) or members(unwrapped(entry.annotation)):
            return None
        values[entry.name] = texts[0] if unwrapped(entry.annotation) is str else texts[0].partition("\n")[0]
    return values
