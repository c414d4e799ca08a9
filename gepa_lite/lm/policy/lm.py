"""An ``LM`` over an open model in this process that keeps what it really sampled."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from gepa_lite.core.call import Usage
from gepa_lite.core.ids import content_hash
from gepa_lite.errors import ContextWindowError
from gepa_lite.lm.policy.draws import Draw, Sample
from gepa_lite.lm.policy.engine import BASE, Engine, engine_of, is_adapter, need, read_card
from gepa_lite.lm.protocol import Completion, LMInfo, Request

MARK = "#"
"""Between a model's name and the id of the sample, in ``Completion.model``."""


class PolicyLM:
    """Implements ``LM`` and ``AddressedLM``. Safe to call from many threads; calls that wait at the same time are sampled in one batch.

    A request without a temperature gets the likeliest reply. ``Params.stop`` cuts the text; what was sampled after it is kept in the sample.

    Args:
        engine: the model.
        name: what follows ``policy/``.
        adapter: hash of the adapter, or ``"base"``.
        folder: where the adapter is kept; None where it is the one in training, or none.
        temperature: of every draw, in place of the request's and without its ``top_p``; for training, whose tokens must come from the distribution that is trained.
        max_tokens: bounds the request's; None for no bound.
        keep: told of each sample before the reply is handed on; the reply's ``model`` then names it.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        adapter: str = BASE,
        folder: Path | None = None,
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        keep: Callable[[Sample], None] | None = None,
    ) -> None:
        self.engine, self.name, self.adapter, self.folder = engine, name, adapter, folder
        self._temperature, self._max_tokens, self._keep = temperature, max_tokens, keep

    def __repr__(self) -> str:
        return f"PolicyLM({self.describe().name!r})"

    def describe(self) -> LMInfo:
        """Its name, its adapter and how it samples; it costs nothing."""
        parts = [] if self.adapter == BASE else [f"adapter {self.adapter}"]
        parts += [] if self._temperature is None else [f"temperature {self._temperature:g}"]
        parts += [] if self._max_tokens is None else [f"{self._max_tokens} tokens"]
        return LMInfo(
            f"policy/{self.name}",
            usd_per_input_token=0.0,
            usd_per_output_token=0.0,
            max_in_flight=self.engine.batch,
            settings=", ".join(parts),
        )

    def check_ready(self) -> None:
        """Refuse a model that could not be called for want of the extra.

        Raises:
            UsageError: says what to install.
        """
        need("torch", "transformers", "gguf")

    def complete(self, request: Request) -> Completion:
        """Sample a reply.

        Raises:
            ContextWindowError: prompt and reply do not fit.
        """
        return self.complete_at(request, 0, ())

    def complete_at(self, request: Request, sample: int, address: tuple[int | str, ...]) -> Completion:
        """Sample the reply at an address: the same address gives the same one."""
        params, engine = request.params, self.engine
        prompt = engine.encode(request.messages)
        most = params.max_tokens if self._max_tokens is None else min(params.max_tokens, self._max_tokens)
        if len(prompt) + most > engine.window:
            raise ContextWindowError(f"{self.name}: a prompt of {len(prompt)} tokens and a reply of {most} do not fit in {engine.window}.")
        training = self._temperature is not None
        temperature = self._temperature if training else params.temperature
        top_p = 1.0 if training else params.top_p or 1.0
        seed = int(content_hash([self.adapter, list(prompt), params.seed, sample, list(address)])[:12], 16)
        found = engine.ask(self.adapter, self.folder, Draw(prompt, most, temperature or 0.0, top_p, seed))
        if self._keep is not None:
            self._keep(found)
        text = engine.decode(found.completion_ids)
        cut = min((place for stop in params.stop if (place := text.find(stop)) >= 0), default=len(text))
        ended = found.completion_ids[-1] in engine.ends or cut < len(text)
        usage = Usage(1, len(prompt), len(found.completion_ids), 0.0)
        model = self.describe().name if self._keep is None else f"policy/{self.name}{MARK}{found.id}"
        return Completion(text[:cut], "stop" if ended else "length", usage, model)


@functools.cache
def open_policy(name: str, batch: int = 32) -> PolicyLM:
    """The model that ``policy/NAME`` means. Nothing is loaded or fetched before the first call.

    Args:
        name: a model of the catalogue of local models, the path of a ``.gguf`` file, a folder or hub name of ``transformers``, or the folder of a trained adapter, which names its base.
        batch: replies that are sampled at once.

    Raises:
        UsageError: a folder of an adapter that can't be read.
    """
    folder = Path(name)
    if is_adapter(folder):
        card = read_card(folder)
        return PolicyLM(engine_of(card["base"], batch), name, card["adapter"], folder)
    return PolicyLM(engine_of(name, batch), name)
