"""Sampling: many prompts at once, each with random numbers of its own, with the log-probability of every token that was really drawn."""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from gepa_lite.core.ids import content_hash


@dataclass(frozen=True, slots=True)
class Draw:
    """One reply to sample.

    Attributes:
        prompt_ids: at least one token.
        max_tokens: tokens of the reply at most, the end token included.
        temperature: 0 takes the likeliest token.
        top_p: the likeliest tokens that together have this probability; 1 for all.
        seed: of its random numbers: the same draw gives the same reply whatever is sampled beside it, but for rounding.
    """

    prompt_ids: tuple[int, ...]
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One reply as it was sampled.

    Attributes:
        prompt_ids: what was asked, chat template included.
        completion_ids: what was drawn, the end token included.
        logprobs: natural log-probability of each, at the temperature it was drawn at (at 1 where that is 0).
    """

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    logprobs: tuple[float, ...]

    @property
    def id(self) -> str:
        """Content hash."""
        return content_hash([list(self.prompt_ids), list(self.completion_ids), list(self.logprobs)])


def sample(model: Any, draws: Sequence[Draw], ends: Sequence[int], pad: int) -> list[Sample]:
    """Sample replies from a model in evaluation mode, in one batch. Equal prompts are worked through once.

    Args:
        model: a causal language model of ``transformers``.
        draws: at least one.
        ends: tokens that end a reply.
        pad: the token that prompts are filled up with.
    """
    torch = import_module("torch")
    prompts = list(dict.fromkeys(draw.prompt_ids for draw in draws))
    width = max(map(len, prompts))
    device = next(model.parameters()).device
    ids = torch.tensor([[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts], device=device)
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=device)
    rows = torch.tensor([prompts.index(draw.prompt_ids) for draw in draws], device=device)
    streams = [random.Random(draw.seed) for draw in draws]
    tokens: list[list[int]] = [[] for _ in draws]
    logprobs: list[list[float]] = [[] for _ in draws]
    with torch.no_grad(), warnings.catch_warnings():
        # the cache's argument has another name from transformers 5.40 on
        warnings.simplefilter("ignore", FutureWarning)
        places = (mask.cumsum(-1) - 1).clamp(min=0)
        out = model(input_ids=ids, attention_mask=mask, position_ids=places, use_cache=True, logits_to_keep=1)
        cache, logits, mask = out.past_key_values, out.logits[rows, -1], mask[rows]
        cache.batch_select_indices(rows)
        alive = list(range(len(draws)))
        while alive:
            drawn = _draw(logits.float(), [draws[index] for index in alive], [streams[index] for index in alive])
            for index, (token, logprob) in zip(alive, drawn, strict=True):
                tokens[index].append(token)
                logprobs[index].append(logprob)
            kept = [
                place for place, index in enumerate(alive) if tokens[index][-1] not in ends and len(tokens[index]) < draws[index].max_tokens
            ]
            if not kept:
                break
            if len(kept) < len(alive):
                chosen = torch.tensor(kept, device=device)
                cache.batch_select_indices(chosen)
                mask, alive = mask[chosen], [alive[place] for place in kept]
            mask = torch.cat([mask, mask.new_ones((len(alive), 1))], dim=1)
            newest = torch.tensor([[tokens[index][-1]] for index in alive], device=device)
            places = mask.sum(-1, keepdim=True) - 1
            logits = model(input_ids=newest, attention_mask=mask, position_ids=places, past_key_values=cache, use_cache=True).logits[:, -1]
    return [Sample(draw.prompt_ids, tuple(ids), tuple(row)) for draw, ids, row in zip(draws, tokens, logprobs, strict=True)]


def logprobs_of(model: Any, prompt_ids: Sequence[int], completion_ids: Sequence[int]) -> tuple[float, ...]:
    """The natural log-probability that a model gives each token of a reply, at temperature 1.

    Args:
        model: a causal language model of ``transformers``, in evaluation mode.
        prompt_ids: at least one token.
        completion_ids: at least one token.
    """
    torch = import_module("torch")
    device = next(model.parameters()).device
    with torch.no_grad():
        ids = torch.tensor([[*prompt_ids, *completion_ids]], device=device)
        logits = model(input_ids=ids, logits_to_keep=len(completion_ids) + 1).logits[0, :-1]
        chosen = torch.tensor(list(completion_ids), device=device).unsqueeze(-1)
        found = torch.log_softmax(logits.float(), -1).gather(-1, chosen)
    return tuple(found.squeeze(-1).tolist())


def _draw(logits: Any, draws: Sequence[Draw], streams: Sequence[random.Random]) -> list[tuple[int, float]]:
    """One token of each row and its log-probability."""
    torch = import_module("torch")
    device = logits.device
    logprobs = torch.log_softmax(logits / torch.tensor([[draw.temperature or 1.0] for draw in draws], device=device), -1)
    tokens = logits.argmax(-1)
    drawn = [place for place, draw in enumerate(draws) if draw.temperature]
    if drawn:
        shares = logprobs[drawn].double().exp()
        narrow = [place for place, index in enumerate(drawn) if draws[index].top_p < 1]
        if narrow:
            shares[narrow] = _nucleus(shares[narrow], torch.tensor([[draws[drawn[place]].top_p] for place in narrow], device=device))
        reach = shares.cumsum(-1)
        points = torch.tensor([[streams[index].random()] for index in drawn], dtype=reach.dtype, device=device) * reach[:, -1:]
        tokens[drawn] = torch.searchsorted(reach, points, right=True).squeeze(-1).clamp(max=reach.shape[-1] - 1)
    return list(zip(tokens.tolist(), logprobs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1).tolist(), strict=True))


def _nucleus(shares: Any, top_p: Any) -> Any:
    """Probabilities, zero outside the nucleus: the likeliest tokens up to the first at which their sum reaches ``top_p``."""
    torch = import_module("torch")
    ordered, order = torch.sort(shares, dim=-1, descending=True, stable=True)
    reach = ordered.cumsum(-1)
    ordered[reach - ordered >= top_p * reach[:, -1:]] = 0
    return torch.zeros_like(shares).scatter(-1, order, ordered)
