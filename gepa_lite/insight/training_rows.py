"""Rows to train a mutator on, made of transition records: chat examples, pairs, and single desirable or undesirable replies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Literal

from gepa_lite.core.call import Message
from gepa_lite.core.ids import canonical_json
from gepa_lite.errors import UsageError
from gepa_lite.insight.transitions import TOLERANCE, TransitionRecord

Form = Literal["transitions", "sft", "preferences", "kto"]
FORMS: tuple[Form, ...] = ("transitions", "sft", "preferences", "kto")


def training_rows(records: Sequence[TransitionRecord], form: str) -> Iterator[dict[str, Any]]:
    """Rows of a form, JSON types, in the forms that ``trl`` takes.

    Args:
        records: of one run or of several.
        form: ``"transitions"``: every record with its label and mark. The others leave out records that are marked, merges, and those whose messages were not kept. ``"sft"``: ``messages`` of each
            improved one, the reply last. ``"preferences"``: ``prompt``, ``chosen``, ``rejected``: an improved reply and one that did not improve, to the very same question, or, with
            ``same_prompt`` false, to another question about the same text of the same module. ``"kto"``: ``prompt``, ``completion`` and ``label``, of each improved or regressed one.

    Raises:
        UsageError: another form.

    Example:
        >>> list(training_rows([], "sft"))
        []
    """
    if form not in FORMS:
        raise UsageError(f"form={form!r}: one of {', '.join(map(repr, FORMS))} is needed.")
    if form == "transitions":
        return (record.to_data() for record in records)
    usable = [record for record in records if record.op == "mutation" and not record.dropped and record.messages and record.response]
    if form == "sft":
        return (_sft(record) for record in usable if record.label == "improved")
    if form == "kto":
        return (_kto(record) for record in usable if record.label in ("improved", "regressed"))
    return _preferences(usable)


def _sft(record: TransitionRecord) -> dict[str, Any]:
    return {"messages": [*_plain(record.messages), _answer(record)], **_origin(record)}


def _kto(record: TransitionRecord) -> dict[str, Any]:
    return {
        "prompt": _plain(record.messages),
        "completion": [_answer(record)],
        "label": record.label == "improved",
        **_origin(record),
    }


def _preferences(records: Sequence[TransitionRecord]) -> Iterator[dict[str, Any]]:
    """Each improved reply with the worst other one: first of the same question, else of the same text and module, each of these used once."""

    def subject(record: TransitionRecord) -> tuple[str, str]:
        return record.module, record.parent_text

    for _, group in groupby(sorted(records, key=subject), key=subject):
        members = list(group)
        losers = sorted((record for record in members if _gain(record) <= TOLERANCE), key=_gain)
        # once each: a group of a long run has many pairs
        asked = {id(record): canonical_json(_plain(record.messages)) for record in members}
        for chosen in (record for record in members if _gain(record) > TOLERANCE):
            same = [loser for loser in losers if asked[id(loser)] == asked[id(chosen)] and loser.response != chosen.response]
            rejected = next(iter(same or (loser for loser in losers if loser.response != chosen.response)), None)
            if rejected is None:
                continue
            losers.remove(rejected)
            yield {
                "prompt": _plain(chosen.messages),
                "chosen": [_answer(chosen)],
                "rejected": [_answer(rejected)],
                "same_prompt": bool(same),
                "margin": _gain(chosen) - _gain(rejected),
                "chosen_uid": chosen.uid,
                "rejected_uid": rejected.uid,
            }


def _gain(record: TransitionRecord) -> float:
    assert record.delta is not None
    return record.delta


def _answer(record: TransitionRecord) -> dict[str, str]:
    reasoning = {} if record.reasoning is None else {"reasoning_content": record.reasoning}
    return {"role": "assistant", "content": record.response, **reasoning}


def _plain(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [dict(message) for message in messages]


def _origin(record: TransitionRecord) -> dict[str, Any]:
    return {"uid": record.uid, "delta": record.delta, "model": record.model, "module": record.module}
