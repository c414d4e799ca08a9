"""Whether the reflection model answers in the asked form, and how often its texts are better: a few proposals on one minibatch, by the search's own code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gepa_lite.core.events import Proposed, SeedValidated
from gepa_lite.doctor.bench import Bench
from gepa_lite.doctor.checkup import Diagnosis
from gepa_lite.search.plan import plan_step
from gepa_lite.search.propose import take_slot
from gepa_lite.search.state import RunState
from gepa_lite.search.step import proposals_of


def check_reflection(bench: Bench, count: int, idle: tuple[str, ...]) -> Iterator[Diagnosis]:
    """Make a few proposals from the seed, all on one minibatch of training examples.

    Args:
        bench: runs them.
        count: how many.
        idle: modules that no sample ran.
    """
    proposals = propose(bench, count, idle)
    if not proposals:
        return
    yield _format(proposals)
    yield _rate(proposals)


def propose(bench: Bench, count: int, idle: tuple[str, ...]) -> list[Proposed]:
    """The proposals; none where no module could be rewritten."""
    spec = bench.spec
    # a perfect minibatch is reflected upon too: the form of the answer is what is asked
    search = replace(bench.search, fan=count, window=1, merge="none", skip_perfect=False, modules="round_robin")
    started = spec.started()
    worst = (spec.search.objective.worst,) * len(started.validation_ids)
    pins = (spec.search.objective.worst,) * len(started.pin_ids)
    # the seed's scores on the validation set are of no account for the first step
    state = RunState().apply(started).apply(SeedValidated(worst, idle, pins=pins))
    if not state.rotation:
        return []
    slots = plan_step(state, search, bench.models, 0).slots
    made = [take_slot(replace(slot, example_ids=slots[0].example_ids, unpaid=()), state, search, bench.facts, bench) for slot in slots]
    return proposals_of(made)


def _format(proposals: list[Proposed]) -> Diagnosis:
    lost = [proposal for proposal in proposals if proposal.status == "void"]
    if lost:
        return Diagnosis(
            "fail",
            "reflection_format",
            f"{len(lost)} of {len(proposals)} proposals were lost to an outage.",
            lost[0].reason,
            "Check again when it has passed.",
        )
    usable = [proposal for proposal in proposals if proposal.texts]
    without = [proposal for proposal in proposals if not proposal.texts]
    reasons = "; ".join(dict.fromkeys(f"{proposal.code}: {proposal.reason}" for proposal in without))
    if not without:
        models = ", ".join(dict.fromkeys(proposal.model for proposal in proposals))
        return Diagnosis("ok", "reflection_format", f"{models} answers in the asked form ({len(usable)} of {len(proposals)}).")
    return Diagnosis(
        "warn" if usable else "fail",
        "reflection_format",
        f"{len(without)} of {len(proposals)} replies of the reflection model gave no usable prompt.",
        reasons[:300],
        "Use a stronger reflection model, raise Search(reflection_tokens=) where replies are cut off, or Search(proposer='edit') for a small model.",
    )


def _rate(proposals: list[Proposed]) -> Diagnosis:
    better = sum(proposal.status == "accepted" for proposal in proposals)
    size = len(proposals[0].example_ids)
    gains = "; ".join(proposal.reason for proposal in proposals if proposal.after)
    what = f"{better} of {len(proposals)} proposals were better than the prompts as they stand, on one minibatch of {size}."
    return Diagnosis("ok", "refinement_rate", what, gains)
