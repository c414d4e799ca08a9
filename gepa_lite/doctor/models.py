"""What is known of the models: prices, and whether prompts fit into their context windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gepa_lite.core.example import Example
from gepa_lite.core.ids import jsonable
from gepa_lite.core.rollout import Rollout
from gepa_lite.core.rules import estimated_tokens
from gepa_lite.doctor.checkup import Diagnosis
from gepa_lite.run_spec import RunSpec

_TIGHT = 3_000
"""Tokens of a context window below which a reflection prompt has to leave out most of its cases."""


def check_models(spec: RunSpec) -> Iterator[Diagnosis]:
    """Keys were looked at when the run was prepared; prices are looked at here."""
    infos = {info.name: info for info in map(spec.describe, spec.models)}
    yield Diagnosis("ok", "keys", f"Provider and key are there for {', '.join(infos)}.")
    unpriced = [name for name, info in infos.items() if not info.priced]
    if not unpriced:
        yield Diagnosis("ok", "prices", f"The price of {', '.join(infos)} is known.")
        return
    yield Diagnosis(
        "warn",
        "prices",
        f"The price of {', '.join(unpriced)} is not known, so dollars can't be counted or capped.",
        "",
        f"Give it: prices={{{unpriced[0]!r}: (USD per million input tokens, per million output tokens)}}.",
    )


def check_context(spec: RunSpec, examples: Sequence[Example], rollouts: Sequence[Rollout]) -> Iterator[Diagnosis]:
    """Whether the longest example, with a prompt as long as it may become, fits into the task models' windows, and a reflection into its model's."""
    windows = {info.name: info.context_window for info in map(spec.describe, spec.program.models.values())}
    known = [size for size in windows.values() if size is not None]
    largest = max((call.usage.input_tokens for rollout in rollouts for call in rollout.trace.calls), default=0)
    longest = max(map(_size, spec.examples)) - min(map(_size, examples))
    room = largest + max(0, longest) + spec.search.max_prompt_tokens
    if not known:
        yield Diagnosis(
            "unknown",
            "context",
            f"The context window of {', '.join(windows)} is not known.",
            f"a call may take about {room:,} tokens",
            "Look up whether that fits.",
        )
    elif room <= min(known):
        yield Diagnosis(
            "ok", "context", "The longest example fits, with a prompt as long as one may become.", f"{room:,} of {min(known):,} tokens"
        )
    else:
        fits = min(known) - largest - max(0, longest)
        yield Diagnosis(
            "fail" if fits <= 0 else "warn",
            "context",
            f"A call may take about {room:,} tokens, and the window has {min(known):,}.",
            f"{largest:,} tokens in a sample call, {max(0, longest):,} more for the longest example, {spec.search.max_prompt_tokens:,} for a longer prompt",
            f"Use Search(max_prompt_tokens={fits // 100 * 100})."
            if fits >= 200
            else "Use a model with a larger window, or shorter inputs.",
        )
    small = [info for info in (lm.describe() for lm, _ in spec.reflectors.values()) if info.context_window and info.context_window < _TIGHT]
    for info in small:
        yield Diagnosis(
            "warn",
            "context",
            f"The reflection model {info.name} has a window of {info.context_window:,} tokens: most of the cases are cut to fit.",
            "",
            "Use a reflection model with a larger one.",
        )


def _size(example: Example) -> int:
    return estimated_tokens(" ".join(str(jsonable(value)) for value in example.inputs.values()))
