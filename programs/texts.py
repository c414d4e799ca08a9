"""Everyday programs on texts: support triage, extraction, summaries, simple language."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel

from gepa_lite.lm.resolve import LMSpec
from gepa_lite.program.module import Module
from gepa_lite.program.outputs import Outputs
from gepa_lite.program.program import Program
from gepa_lite.program.signature import Field, Signature


class SupportTriage(Program):
    """Sort a support message by urgency, sentiment and categories.

    message ─► sort ─► urgency, sentiment, categories

    Source: the task of the facility support analyzer (llama-prompt-ops), with a prompt of our own.

    Args:
        categories: the possible categories.
        lm: the model.
    """

    def __init__(self, categories: Sequence[str], lm: LMSpec | None = None) -> None:
        super().__init__(lm)
        outputs = (
            Field("urgency", Literal["low", "medium", "high"]),
            Field("sentiment", Literal["negative", "neutral", "positive"]),
            Field("categories", list[Literal[tuple(categories)]]),  # type: ignore[misc]
        )
        self.sort = Module(
            Signature((Field("message"),), outputs), "Sort the message: urgency, sentiment, and all categories that fit.", max_tokens=96
        )

    def forward(self, message: str) -> Outputs:
        """Sort one message."""
        return self.sort(message=message)


class Extraction(Program):
    """Read a record out of a text.

    text ─► extract ─► record

    Source: our own.

    Args:
        record: a pydantic model; its descriptions are sent with every call.
        lm: the model.

    Example:
        >>> from gepa_lite.testing import ScriptedLM
        >>> class Order(BaseModel):
        ...     plant: str
        ...     count: int
        >>> Extraction(Order, ScriptedLM('{"record": {"plant": "fern", "count": 2}}'))(text="Two ferns, please.").record
        {'plant': 'fern', 'count': 2}
    """

    def __init__(self, record: type[BaseModel], lm: LMSpec | None = None) -> None:
        super().__init__(lm)
        self.extract = Module(
            Signature((Field("text"),), (Field("record", record),)),
            "Fill in the record from the text. Take only what stands there.",
            max_tokens=512,
        )

    def forward(self, text: str) -> Outputs:
        """Read one text; the record is a plain dict."""
        return Outputs(record=self.extract(text=text).record.model_dump(mode="json"))


class Summarization(Program):
    """Sum up a dialogue or text in a sentence or two.

    text ─► summarize ─► summary

    Source: our own, for SAMSum-like data.
    """

    summarize = Module("text -> summary", "Summarize the text in one or two sentences.", max_tokens=96)

    def forward(self, text: str) -> Outputs:
        """Sum up one text."""
        return self.summarize(text=text)


class Simplification(Program):
    """Say a sentence in simple words.

    source ─► simplify ─► simple

    Source: our own, for ASSET-like data.
    """

    simplify = Module("source -> simple", "Rewrite the sentence in simpler words.", max_tokens=96)

    def forward(self, source: str) -> Outputs:
        """Simplify one sentence."""
        return self.simplify(source=source)
