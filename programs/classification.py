"""Classification with one module: a text in, one of the labels out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gepa_lite.lm.resolve import LMSpec
from gepa_lite.program.module import Module
from gepa_lite.program.outputs import Outputs
from gepa_lite.program.program import Program
from gepa_lite.program.signature import Field, Signature


class Classification(Program):
    """Assign one of the given labels to a text.

    text ─► label

    Args:
        labels: the possible labels, at least two.
        lm: the model.
        instruction: the prompt to start from.

    Example:
        >>> from gepa_lite.testing import ScriptedLM
        >>> Classification(["question", "praise"], lm=ScriptedLM("Praise."))(text="Lovely ferns!").label
        'praise'
    """

    def __init__(
        self, labels: Sequence[str], lm: LMSpec | None = None, *, instruction: str = "Choose the label that fits the text."
    ) -> None:
        super().__init__(lm)
        label = Field("label", Literal[tuple(labels)])
        self.classify = Module(Signature((Field("text"),), (label,)), instruction, max_tokens=32)

    def forward(self, text: str) -> Outputs:
        """Classify one text."""
        return self.classify(text=text)
