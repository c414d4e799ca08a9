"""How the weights are trained: the settings of GRPO, the paper's by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from gepa_lite.baselines.grpo.rows import BASELINES, Baseline, GroupBuilder
from gepa_lite.core.ids import jsonable
from gepa_lite.lm.policy.engine import Lora
from gepa_lite.search.checks import TRUTH, Check, above, at_least, check_fields, count, one_of, optional

VLLM = ("colocate", "server")


@dataclass(frozen=True)
class Training:
    """Settings of one training; the defaults are for a small model on a CPU.

    Attributes:
        steps: updates at most.
        examples: examples an update.
        group: rollouts of each: what an advantage is relative to.
        calls: rows of training kept free for each rollout; None for one of each trained module. Where rollouts call more often, rows are drawn among them.
        temperature: of the rollouts of training; validation keeps to the modules' own.
        max_tokens: of a reply in training, at most.
        learning_rate: constant after the warm-up.
        warmup: updates over which it rises.
        kl: weight of the divergence from the weights that the training starts from.
        clip: bound of the ratio, ``1 - clip`` to ``1 + clip``.
        grad_norm: gradients are scaled down to it.
        micro_batch: rows worked through at once, at most; all rows of an update count in it.
        checkpointing: recompute activations, for less memory.
        validate_every: updates between validations; each is a candidate of the run and a checkpoint.
        patience: validations in a row without a better score that end the training; None to go on to the end.
        lora: shape of the adapter.
        baseline: what a rollout is compared with (``GroupBuilder``).
        scaled: whether advantages are divided by the group's standard deviation.
        shuffled: a control: the scores are dealt anew among the rollouts of each update, so that nothing can be learned.
        vllm: who samples on a GPU: ``"colocate"``, ``"server"``, or None for the trained model itself.
    """

    steps: int = 40
    examples: int = 2
    group: int = 8
    calls: int | None = None
    temperature: float = 1.0
    max_tokens: int = 64
    learning_rate: float = 2e-4
    warmup: int = 0
    kl: float = 0.0
    clip: float = 0.2
    grad_norm: float = 1.0
    micro_batch: int = 8
    checkpointing: bool = False
    validate_every: int = 10
    patience: int | None = None
    lora: Lora = field(default_factory=lambda: Lora(rank=8, alpha=16, dropout=0.0))
    baseline: Baseline = "rollout"
    scaled: bool = True
    shuffled: bool = False
    vllm: Literal["colocate", "server"] | None = None

    def __post_init__(self) -> None:
        check_fields(self, CHECKS)

    @classmethod
    def paper(cls, **changes: Any) -> Self:
        """The paper's settings for programs of several modules (arXiv 2507.19457): 500 updates of 4 examples with 12 rollouts each, 24,000 rollouts in all.

        One thing differs: where modules run a varying number of times the paper fills a group up with duplicates; here nothing is trained on twice.

        >>> Training.paper().steps * Training.paper().examples * Training.paper().group
        24000
        """
        given: dict[str, Any] = {
            "steps": 500,
            "examples": 4,
            "group": 12,
            "temperature": 0.6,
            "max_tokens": 4096,
            "learning_rate": 1e-5,
            "warmup": 10,
            "kl": 0.01,
            "grad_norm": 0.1,
            "micro_batch": 1,
            "checkpointing": True,
            "validate_every": 20,
            "patience": 5,
            "lora": Lora(),
        }
        return cls(**{**given, **changes})

    @property
    def builder(self) -> GroupBuilder:
        """What turns rollouts into rows."""
        return GroupBuilder(self.baseline, self.scaled)

    def settings(self) -> Mapping[str, Any]:
        """As JSON types."""
        return {item.name: jsonable(getattr(self, item.name)) for item in dataclasses.fields(self)}


CHECKS: Mapping[str, Check] = {
    **dict.fromkeys(("steps", "examples", "max_tokens", "micro_batch", "validate_every"), count(1)),
    "group": count(2),
    "warmup": count(0),
    **dict.fromkeys(("calls", "patience"), optional(count(1))),
    **dict.fromkeys(("temperature", "learning_rate", "grad_norm", "clip"), above(0)),
    "kl": at_least(0),
    **dict.fromkeys(("checkpointing", "scaled", "shuffled"), TRUTH),
    "lora": Check("a Lora(rank=, alpha=, dropout=, targets=) of gepa_lite.lm.policy", lambda value: isinstance(value, Lora)),
    "baseline": one_of(BASELINES),
    "vllm": optional(one_of(VLLM)),
}
"""By field."""
