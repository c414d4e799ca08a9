"""The budget before a run: a default where none is given, and whether it can pay for anything."""

from __future__ import annotations

from gepa_lite.core.budget import Budget
from gepa_lite.errors import UsageError
from gepa_lite.run_spec import DEFAULT_PROPOSALS, RunSpec

DEFAULT_ACCEPTED = 6
"""Of ``DEFAULT_PROPOSALS`` so many are accepted and validated in what the default budget pays for."""

DEFAULT_USD = 2.0
"""The cap that applies to models with a price when no budget is given."""


def default_budget(spec: RunSpec) -> Budget:
    """Rollouts for the seed's validation, 20 proposals of which 6 are accepted, and the test set twice; 2 USD where a model has a price above zero."""
    validation = len(spec.validation) + len(spec.pins)
    proposals = spec.minibatch_rollouts(DEFAULT_PROPOSALS)
    rollouts = spec.search.repeats * ((1 + len(spec.starts)) * validation + proposals + DEFAULT_ACCEPTED * validation) + spec.rollouts_after
    rollouts = max(rollouts, spec.least_rollouts())
    return Budget(rollouts=rollouts, usd=DEFAULT_USD if costs_dollars(spec) else None)


def costs_dollars(spec: RunSpec) -> bool:
    """Whether the prices of all models are known, the program's too, and one of them is above zero."""
    infos = [spec.describe(lm) for lm in spec.models]
    # what is asked is not known beforehand where the program names no model
    return (
        bool(spec.program.models)
        and all(info.priced for info in infos)
        and any((info.usd_per_input_token or 0) + (info.usd_per_output_token or 0) > 0 for info in infos)
    )


def check_budget(spec: RunSpec) -> None:
    """Refuse a budget that can't pay for the seed's validation and one proposal, or that caps dollars where a price is unknown.

    Raises:
        UsageError: naming the bound, what is needed and what to do.
    """
    budget, least = spec.budget, spec.least_rollouts()
    if not budget.bounded:
        raise UsageError("Budget() bounds nothing: give at least one of rollouts, tokens, usd, seconds or proposals.")
    if budget.rollouts is not None and budget.rollouts < least:
        after = f", {spec.rollouts_after} for after the search: {after_words(spec)}" if spec.rollouts_after else ""
        scored = len(spec.validation) + len(spec.pins)
        starts = f", {len(spec.starts) * scored * spec.search.repeats} for that of {len(spec.starts)} further starts" if spec.starts else ""
        raise UsageError(
            f"Budget(rollouts={budget.rollouts}) can't pay for the seed's validation and one proposal: {least} rollouts are needed ({scored} for the seed's validation{starts}, "
            f"{least - (2 + len(spec.starts)) * scored - spec.rollouts_after} for a step's minibatches, {scored} for a child's validation{after}). Raise it, use fewer examples, or Search(fan=1)."
        )
    asked = spec.first_fan * (len(spec.program.parts) if spec.search.modules == "all" else 1)
    if budget.proposals is not None and budget.proposals < asked:
        raise UsageError(
            f"Budget(proposals={budget.proposals}) can't pay for one step of {asked} proposals. Raise it, or use Search(fan=1)."
        )
    if not spec.program.metered and (budget.usd is not None or budget.tokens is not None):
        raise UsageError(
            f"Budget({'usd' if budget.usd is not None else 'tokens'}=...): {spec.program.name} makes model calls that the run can't see, so it can't hold them to tokens or dollars. "
            f"Let it see them, gl.wrap(..., record=...), or bound rollouts and proposals instead."
        )
    unpriced = [lm.describe().name for lm in spec.models if not spec.describe(lm).priced]
    if budget.usd is not None and unpriced:
        raise UsageError(
            f"Budget(usd={budget.usd:g}): the price of {unpriced[0]} is not known, so dollars can't be held to it. Say it: "
            f"prices={{{unpriced[0]!r}: (USD per million input tokens, per million output tokens)}}; or bound rollouts or tokens instead."
        )


def after_words(spec: RunSpec) -> str:
    """What the rollouts that are kept for after the search are for."""
    parts = [f"{2 * len(spec.test)} test the seed and the winner"] if spec.test else []
    parts += (
        [f"{spec.search.milestones * len(spec.curve)} score {spec.search.milestones} milestones on the curve's examples"]
        if spec.curve
        else []
    )
    parts += [f"{spec.search.shorten} shorten the winner"] if spec.search.shorten else []
    return ", ".join(parts)
