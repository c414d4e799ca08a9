"""A program whose weights are one more of its parts: a candidate is then prompts and an adapter, and the whole run knows it by its content."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gepa_lite.adapters.native import NativeProgram
from gepa_lite.baselines.grpo.settings import Training
from gepa_lite.core.example import Example
from gepa_lite.errors import UsageError
from gepa_lite.lm.policy.draws import Sample
from gepa_lite.lm.policy.engine import BASE, Engine, is_adapter
from gepa_lite.lm.policy.lm import PolicyLM
from gepa_lite.lm.protocol import LM
from gepa_lite.program.optimizable import Execution, Optimizable, Part
from gepa_lite.program.program import Program
from gepa_lite.program.recorder import CallModel

WEIGHTS = "weights"
"""The part that names the adapter: ``"base"``, its hash, or its hash and ``SAMPLED``."""
SAMPLED = " sampled"


class Trainable:
    """Implements ``Optimizable`` for a ``gl.Program`` on an open model. Its part ``weights`` is never rewritten, since no call is made under its name.

    Args:
        program: with the seed prompts.
        settings: of the training: how its rollouts sample.
        folder: where adapters are kept, each under its hash.
        keep: told of every sample of a rollout of training.
        weights: the value of the part.

    Raises:
        UsageError: it is no ``gl.Program`` on one open model.
    """

    def __init__(self, program: Optimizable, settings: Training, folder: Path, keep: Callable[[Sample], None], weights: str = BASE) -> None:
        self._inner, self._settings, self._folder, self._keep, self._weights = program, settings, folder, keep, weights
        self.engine, self.name_of_base, self.trained = _policy(program)

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def purpose(self) -> str:
        return self._inner.purpose

    @property
    def notices(self) -> Sequence[str]:
        return self._inner.notices

    @property
    def parts(self) -> Mapping[str, Part]:
        words = "the weights of the model: its own, or an adapter by its hash"
        return {**self._inner.parts, WEIGHTS: Part(self._weights, "weights", "weights", words, f"policy/{self.name_of_base}", setting=True)}

    @property
    def prompts(self) -> dict[str, str]:
        return {**self._inner.prompts, WEIGHTS: self._weights}

    @property
    def models(self) -> Mapping[str, LM]:
        return {**self._inner.models, **dict.fromkeys(self.trained, self._model())}

    @property
    def metered(self) -> bool:
        return self._inner.metered

    @property
    def calls_held(self) -> bool:
        return self._inner.calls_held

    @property
    def fingerprint(self) -> str:
        return self._inner.fingerprint

    @property
    def deliverable(self) -> Program:
        program: Program = self._inner.deliverable
        return program.with_models(dict.fromkeys(self.trained, self._model()))

    def with_prompts(self, prompts: Mapping[str, str]) -> Trainable:
        texts = {path: text for path, text in prompts.items() if path != WEIGHTS}
        weights = prompts.get(WEIGHTS, self._weights)
        return Trainable(self._inner.with_prompts(texts), self._settings, self._folder, self._keep, weights)

    def run(self, inputs: Mapping[str, Any], call: CallModel | None = None) -> Execution:
        return self.deliverable.run(inputs, call)

    def open(self, spec: Any) -> LM:
        return self._inner.open(spec)

    def examples(self, source: Any, what: str) -> Sequence[Example]:
        return self._inner.examples(source, what)

    def judged_by(self, feedback: Callable[..., Any] | None) -> Callable[..., Any]:
        return self._inner.judged_by(feedback)

    def sendable(self) -> Trainable:
        raise UsageError("a model in training lives in one process: workers='processes' can't be used with it; workers=16 are threads.")

    def _model(self) -> PolicyLM:
        adapter = self._weights.removesuffix(SAMPLED)
        sampled = adapter != self._weights
        kept = self._folder / adapter
        folder = kept if adapter != BASE and is_adapter(kept) else None
        name = self.name_of_base if folder is None else str(kept)
        if not sampled:
            return PolicyLM(self.engine, name, adapter, folder)
        settings = self._settings
        return PolicyLM(
            self.engine, name, adapter, folder, temperature=settings.temperature, max_tokens=settings.max_tokens, keep=self._keep
        )


def _policy(program: Optimizable) -> tuple[Engine, str, tuple[str, ...]]:
    """The engine, the base's name, and the modules that run on it."""
    if not isinstance(program, NativeProgram):
        raise UsageError(
            f"the weights behind {program.name} can't be trained: a gl.Program is needed, whose calls are seen token by token."
        )
    found = {path: lm for path, lm in program.models.items() if isinstance(lm, PolicyLM)}
    engines = {id(lm.engine): lm for lm in found.values()}
    if len(engines) != 1 or any(lm.adapter != BASE for lm in found.values()):
        names = ", ".join(sorted({lm.describe().name for lm in program.models.values()}))
        raise UsageError(
            f"the modules of {program.name} run on {names}: training needs one open model in this process behind those that are to be trained, "
            f"e.g. {program.name}(lm='policy/smollm2-135m')."
        )
    (lm,) = engines.values()
    return lm.engine, lm.name, tuple(found)
