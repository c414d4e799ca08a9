"""How a mutator is trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gepa_lite.core.ids import jsonable
from gepa_lite.lm.policy.engine import Lora
from gepa_lite.search.checks import TRUTH, Check, above, at_least, check_fields, count


@dataclass(frozen=True)
class Tuning:
    """Settings of one training. The paper says nothing of its learning rate, epochs and lengths; these defaults are ours, for LoRA on a small model.

    Attributes:
        epochs: times that each row is trained on.
        learning_rate: at its highest, after a tenth of the updates; it falls to zero as a cosine.
        batch: rows an update.
        max_length: tokens of question and reply together; longer records are left out, never cut.
        held_out: share of the rows that is not trained on, in ``[0, 1)``, and whose loss is measured before and after; rows about the same text of a module stay together. 0 measures nothing.
        min_gain: a record is learned from where its ``delta`` is above it.
        min_records: fewer rows than this are refused.
        preferences: after the replies that improved, train on pairs of a better and a worse reply (DPO, arXiv 2305.18290), at a tenth of the learning rate.
        beta: of the pairs: how strongly the model is kept to what it was before them.
        seed: of the adapter's random half, of what is held out and of the order of rows.
        lora: shape of the adapter.
    """

    epochs: int = 2
    learning_rate: float = 2e-4
    batch: int = 4
    max_length: int = 2048
    held_out: float = 0.1
    min_gain: float = 0.0
    min_records: int = 8
    preferences: bool = False
    beta: float = 0.1
    seed: int = 0
    lora: Lora = field(default_factory=lambda: Lora(rank=8, alpha=16, dropout=0.0))

    def __post_init__(self) -> None:
        check_fields(self, CHECKS)

    def settings(self) -> Mapping[str, Any]:
        """As JSON types."""
        return {item.name: jsonable(getattr(self, item.name)) for item in dataclasses.fields(self)}


def _share(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1


CHECKS: Mapping[str, Check] = {
    **dict.fromkeys(("epochs", "batch", "min_records"), count(1)),
    "max_length": count(8),
    **dict.fromkeys(("learning_rate", "beta"), above(0)),
    "held_out": Check("a share of at least 0 and below 1", _share),
    "min_gain": at_least(0),
    "preferences": TRUTH,
    "seed": count(0),
    "lora": Check("a Lora(rank=, alpha=, dropout=, targets=) of gepa_lite.lm.policy", lambda value: isinstance(value, Lora)),
}
"""By field."""
