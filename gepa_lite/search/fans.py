"""How many proposals a step makes at once."""

from __future__ import annotations

from typing import Literal

Fan = int | Literal["auto"]

ALONE = 4
"""Proposals of a step of ``"auto"`` for a program with one prompt, where all but one are let go, and for everybody's first steps."""
SEVERAL = 8
"""Of a program with several prompts, whose best texts join in one child."""
FIRST_STEPS = 2
"""Steps of ``ALONE``: with little to spend, more and smaller ones are better."""


def fan_at(fan: Fan, step: int, prompts: int) -> int:
    """Proposals of one step.

    Args:
        fan: the rule.
        step: the step's index.
        prompts: of the program.

    Example:
        >>> [fan_at("auto", step, prompts=3) for step in range(4)], fan_at("auto", 9, prompts=1), fan_at(2, 9, prompts=3)
        ([4, 4, 8, 8], 4, 2)
    """
    if fan != "auto":
        return fan
    return SEVERAL if prompts > 1 and step >= FIRST_STEPS else ALONE


def proposals_before(fan: Fan, step: int, prompts: int) -> int:
    """Proposals of all steps before one.

    Example:
        >>> proposals_before("auto", 4, prompts=3), proposals_before(2, 4, prompts=3)
        (24, 8)
    """
    first = min(step, FIRST_STEPS)
    return first * fan_at(fan, 0, prompts) + (step - first) * fan_at(fan, FIRST_STEPS, prompts)
