"""Which modules of the parent a proposal rewrites."""

from __future__ import annotations

from collections.abc import Sequence

from gepa_lite.core.feedback import Objective
from gepa_lite.core.rollout import Rollout


def choose_modules(rule: str, rotation: Sequence[str], rollouts: Sequence[Rollout], objective: Objective) -> tuple[str, ...]:
    """The modules to rewrite; empty where none ran in the minibatch.

    Args:
        rule: ``"round_robin"`` (the paper's): the first in rotation that ran; ``"all"``: every one that ran; ``"blame"``: the one that the feedback and its own failed
            calls blame most, round robin where none is blamed.
        rotation: the modules, the one whose turn it is first.
        rollouts: the parent's on the minibatch.
        objective: scales blame.
    """
    ran = {module for rollout in rollouts for module in rollout.trace.modules}
    present = tuple(module for module in rotation if module in ran)
    if rule == "all" or not present:
        return present
    if rule == "blame":
        blame = {module: sum(_blame(module, rollout, objective) for rollout in rollouts) for module in present}
        if max(blame.values()) > 0:
            return (max(present, key=lambda module: blame[module]),)
    return present[:1]


def _blame(module: str, rollout: Rollout, objective: Objective) -> float:
    """From 0 to 1 for what the feedback says of the module's part, and 1 for a call of it that failed.

    Where the feedback scores modules, what is missing to the best counts. Where it only has words for single modules, they share the blame of an imperfect rollout.
    """
    failed = float(any(call.error is not None for call in rollout.trace.of(module)))
    feedback = rollout.feedback
    if feedback is None or rollout.value is None:
        return failed
    scale = objective.best - objective.worst
    if feedback.scores:
        value = objective.value(feedback.scores.get(module, objective.score(objective.best)))
        return failed + (objective.best - value) / scale
    if module in feedback.modules:
        return failed + (objective.best - rollout.value) / scale / len(feedback.modules)
    return failed
