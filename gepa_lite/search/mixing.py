"""Which reflection model, and which kind of proposer, a proposal uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gepa_lite.core.seeds import stream
from gepa_lite.search.search import Search
from gepa_lite.search.state import RunState

ProposerName = Literal["rewrite", "edit"]

_UNUSABLE = ("empty", "cut_off", "no_block", "several_blocks", "unchanged")
"""Codes of rejected rewrites whose reply held no new text."""

_ENOUGH = 4
"""Rewrites before they are judged by their replies: one fan of the default."""


def choose_model(state: RunState, search: Search, models: Mapping[str, float], step: int, slot: int) -> str:
    """The name of the model to ask.

    With ``Search(mixing="weights")`` by the given weights. With ``"bandit"`` by Thompson sampling of refinement per cost: each model's rate of accepted proposals has a Beta posterior
    whose draw is divided by its mean cost a proposal (dollars where all have a price, else tokens); the prior is weak, so every model is tried. After a plateau a model that was not the last one asked is preferred.

    Args:
        state: as committed.
        search: the rules.
        models: weight by name.
        step: the step's index.
        slot: place in its fan.
    """
    names = list(models)
    draw = stream(search.seed, "model", step, slot)
    if plateaued(state, search) and len(names) > 1:
        last = state.proposals[len(state.proposals) - 1].model
        names = [name for name in names if name != last] or names
    if len(names) == 1:
        return names[0]
    if search.mixing == "weights":
        return draw.choices(names, weights=[models[name] for name in names])[0]
    priced = all(p.spend.reflection.usd is not None and p.spend.reflection.usd > 0 for p in state.proposals if p.spend.reflection.calls)
    costs, won, lost = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for proposal in state.proposals:
        if proposal.model in costs and proposal.spend.reflection.calls:
            usage = proposal.spend.reflection
            costs[proposal.model] += (usage.usd or 0.0) if priced else usage.tokens
            won[proposal.model] += proposal.status == "accepted"
            lost[proposal.model] += proposal.status == "rejected"
    total = sum(costs.values()) / max(1, sum(won.values()) + sum(lost.values()))
    score = {}
    for name in names:
        tries = won[name] + lost[name]
        # two imagined proposals at the common price, so that a model's first answer does not decide for good
        price = (costs[name] + 2 * total) / (tries + 2) or 1.0
        score[name] = draw.betavariate(1 + won[name], 1 + lost[name]) / price
    return max(names, key=lambda name: score[name])


def choose_proposer(state: RunState, search: Search) -> ProposerName:
    """``Search(proposer=)``, or what ``"auto"`` stands for by now; the other kind while a plateau lasts."""
    if search.proposer == "auto":
        usual: ProposerName = "edit" if rewrites_fail(state) else "rewrite"
    else:
        usual = search.proposer
    if not plateaued(state, search):
        return usual
    return "edit" if usual == "rewrite" else "rewrite"


def rewrites_fail(state: RunState) -> bool:
    """Whether of the rewrites asked for so far, four at least, half or more gave no new text: small models repeat a prompt badly, and add to it well."""
    asked = [proposal for proposal in state.proposals if proposal.proposer == "rewrite" and proposal.status in ("accepted", "rejected")]
    return len(asked) >= _ENOUGH and 2 * sum(proposal.code in _UNUSABLE for proposal in asked) >= len(asked)


def plateaued(state: RunState, search: Search) -> bool:
    """Whether the last ``Search(plateau=)`` proposals, or more, brought no accepted one; in the second half of each such stretch the usual choice gets another chance."""
    if not search.plateau:
        return False
    row = 0
    for proposal in reversed(state.proposals):
        if proposal.status == "accepted":
            break
        row += 1
    return (row // search.plateau) % 2 == 1
