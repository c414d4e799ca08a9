"""What a probe found: each variant's rates on the same parents and minibatches, who is not beaten in both cost and rate, and whether the data can tell."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from gepa_lite.core.call import Usage
from gepa_lite.core.events import Proposed
from gepa_lite.insight.distance import cosine_distances, hashed_ngrams
from gepa_lite.insight.trajectory import share_interval
from gepa_lite.insight.transitions import TransitionRecord
from gepa_lite.search.verdict import sign_test

LEVEL = 0.05
"""Of the test between two variants; it is not corrected for their number, since the question is whether to look on, not whether to publish."""


@dataclass(frozen=True, slots=True)
class Tried:
    """How one variant fared.

    Attributes:
        name: of the variant.
        asked: rounds in which it was asked, those lost to outages apart.
        refined: in which its child was strictly better than the parent on the round's examples, none of which it was shown.
        rate: ``refined / asked``: a reply that can't be used was paid for too.
        low: lower end of the 95 % Wilson interval.
        high: upper end.
        valid: rounds in which its child was run: the study's local refinement rate is ``refined / valid``.
        unusable: replies without a usable text, by reason.
        gain: mean score gained an example over all rounds asked; nothing where there was no child.
        distance: mean distance of parent's and child's text; NaN where there is none.
        lost: rounds lost to outages.
        why_lost: what was said of the last of them; "" for none.
        tokens: of its reflections, with those that it was asked for once more.
        usd: of its reflections, likewise; None where a price is unknown.
        seconds: of its reflections, mean; NaN where the run keeps no messages.
        cost: a round, in dollars where all prices are known and one is above zero, else in tokens.
        cost_per_refinement: likewise; None without a refinement.
        rounds: refined or not, by step.
    """

    name: str
    asked: int
    refined: int
    rate: float
    low: float
    high: float
    valid: int
    unusable: Mapping[str, int]
    gain: float
    distance: float
    lost: int
    why_lost: str
    tokens: int
    usd: float | None
    seconds: float
    cost: float
    cost_per_refinement: float | None
    rounds: Mapping[int, bool]


@dataclass(frozen=True, slots=True)
class Against:
    """The leader beside another variant, on the rounds that both were asked in.

    Attributes:
        name: of the other.
        won: rounds in which the leader's child was a refinement and the other's was not.
        lost: the other way round.
        p: two-sided exact sign test.
        needed: rounds after which a difference of this size would show in four of five probes; None where there is no difference.
    """

    name: str
    won: int
    lost: int
    p: float
    needed: int | None


@dataclass(frozen=True)
class ProbeResult:
    """What ``gl.probe`` found; ``print`` it.

    Attributes:
        tried: the variants, in the order given.
        unit: of costs: ``"USD"`` or ``"tokens"``.
        front: names of variants that no other beats in cost and rate at once.
        leader: the one whose rate's interval begins highest, which is the highest rate where none lost a round; of equal ones the cheapest.
        against: the leader beside each other one.
        recommended: the leader, or of those that the data can't tell from it, and that were asked in at least half as many rounds, the one with the cheapest refinement; None where nothing was refined.
        told: whether the leader is shown to refine more than every other one.
        rounds: that were made.
        judged: training examples that a round's children were judged on, and no reflection was shown; 0 where the training set had no such others, so that they were judged on what was shown.
        stopped: why it ended.
        run: its folder.
    """

    tried: Sequence[Tried]
    unit: str
    front: tuple[str, ...]
    leader: str
    against: Sequence[Against]
    recommended: str | None
    told: bool
    rounds: int
    judged: int
    stopped: str
    run: Path

    def of(self, name: str) -> Tried:
        """A variant by its name."""
        return next(each for each in self.tried if each.name == name)

    def to_data(self) -> dict[str, Any]:
        """JSON types; what is not a number is null."""
        data: dict[str, Any] = _plain({**dataclasses.asdict(self), "run": str(self.run)})
        return data

    def __str__(self) -> str:
        from gepa_lite.probing.table import probe_table

        return probe_table(self)


@dataclass(frozen=True)
class Turns:
    """One variant's turns in the rounds that all had.

    Attributes:
        name: of the variant.
        proposals: by step.
        records: of each step, one a module; they share their scores.
    """

    name: str
    proposals: Mapping[int, Proposed]
    records: Mapping[int, Sequence[TransitionRecord]]

    @property
    def asked(self) -> list[int]:
        """Steps that were not lost to an outage."""
        return [step for step, proposal in self.proposals.items() if proposal.status != "void"]

    @property
    def bills(self) -> list[Usage]:
        """What the reflections of these steps took, with those that were asked for once more: a record knows the last alone."""
        return [self.proposals[step].spend.reflection for step in self.asked]


def turns_of(proposals: Sequence[Proposed], records: Sequence[TransitionRecord], names: Sequence[str]) -> list[Turns]:
    """The turns of each variant. A step in which the parent could not be run is nobody's round."""
    by_step: dict[int, dict[int, Proposed]] = {}
    for proposal in proposals:
        by_step.setdefault(proposal.step, {})[proposal.slot] = proposal
    whole = {step: row for step, row in by_step.items() if len(row) == len(names)}
    found = []
    for slot, name in enumerate(names):
        mine: dict[int, list[TransitionRecord]] = {step: [] for step in whole}
        for record in records:
            if record.slot == slot and record.iteration in whole:
                mine[record.iteration].append(record)
        found.append(Turns(name, {step: row[slot] for step, row in whole.items()}, mine))
    return found


def outcome_of(turns: Sequence[Turns], stopped: str, run: Path, judged: int) -> ProbeResult:
    """What the turns of a probe show.

    Args:
        turns: of each variant.
        stopped: why it ended.
        run: its folder.
        judged: see ``ProbeResult``.
    """
    prices = [bill.usd for each in turns for bill in each.bills if bill.calls]
    priced = None not in prices and any(prices)
    tried = [_tried(each, priced) for each in turns]
    leader = max(tried, key=lambda each: (each.low, -each.cost))
    against = [_against(leader, each) for each in tried if each is not leader]
    alike = [leader, *(each for each, row in zip([t for t in tried if t is not leader], against, strict=True) if row.p >= LEVEL)]
    # a refinement in the one round that came through is no ground to recommend anybody
    paying = [each for each in alike if each.cost_per_refinement is not None and 2 * each.asked >= leader.asked]
    recommended = min(paying, key=lambda each: each.cost_per_refinement or 0.0).name if paying else None
    return ProbeResult(
        tried=tried,
        unit="USD" if priced else "tokens",
        front=tuple(each.name for each in tried if not any(_beats(other, each) for other in tried)),
        leader=leader.name,
        against=against,
        recommended=recommended,
        told=len(alike) == 1 and bool(leader.refined),
        rounds=len({step for each in turns for step in each.asked}),
        judged=judged,
        stopped=stopped,
        run=run,
    )


def _tried(turns: Turns, priced: bool) -> Tried:
    asked, bills = turns.asked, turns.bills
    # one record a module, which share their scores
    rows = {step: turns.records[step] for step in asked}
    refined = {step: bool(row) and row[0].label == "improved" for step, row in rows.items()}
    deltas = [row[0].delta if row else None for row in rows.values()]
    records = [record for row in rows.values() for record in row]
    unusable: dict[str, int] = {}
    for record in records:
        if not record.child_text:
            unusable[record.code] = unusable.get(record.code, 0) + 1
    wins, lost = sum(refined.values()), [proposal.reason for proposal in turns.proposals.values() if proposal.status == "void"]
    low, high = share_interval(wins, len(asked))
    tokens = sum(bill.input_tokens + bill.output_tokens for bill in bills)
    usd = None if any(bill.usd is None for bill in bills) else math.fsum(bill.usd or 0.0 for bill in bills)
    spent, timed = (usd or 0.0) if priced else float(tokens), [record.wall for record in records if record.messages]
    return Tried(
        name=turns.name,
        asked=len(asked),
        refined=wins,
        rate=wins / len(asked) if asked else 0.0,
        low=low,
        high=high,
        valid=sum(delta is not None for delta in deltas),
        unusable=unusable,
        gain=fmean(delta or 0.0 for delta in deltas) if asked else 0.0,
        distance=_distance(records),
        lost=len(lost),
        why_lost=lost[-1] if lost else "",
        tokens=tokens,
        usd=usd,
        seconds=fmean(timed) if timed else math.nan,
        cost=spent / len(asked) if asked else math.inf,
        cost_per_refinement=spent / wins if wins else None,
        rounds=refined,
    )


def _distance(records: Sequence[TransitionRecord]) -> float:
    written = [record for record in records if record.child_text]
    if not written:
        return math.nan
    old, new = (hashed_ngrams(texts) for texts in ([r.parent_text for r in written], [r.child_text for r in written]))
    return float(cosine_distances(old, new).diagonal().mean())


def _against(leader: Tried, other: Tried) -> Against:
    both = [step for step in leader.rounds if step in other.rounds]
    won = sum(leader.rounds[step] and not other.rounds[step] for step in both)
    lost = sum(other.rounds[step] and not leader.rounds[step] for step in both)
    return Against(other.name, won, lost, sign_test(won, lost), rounds_needed(won, lost, len(both)))


def rounds_needed(won: int, lost: int, rounds: int) -> int | None:
    """Paired rounds after which McNemar's test shows a difference of this size at 5 % in four of five probes (normal approximation, Connor 1987); None for no difference.

    Example:
        >>> rounds_needed(6, 2, 20)
        77
    """
    if won <= lost or not rounds:
        return None
    apart, differ = (won - lost) / rounds, (won + lost) / rounds
    root = 1.959964 * math.sqrt(differ) + 0.841621 * math.sqrt(max(0.0, differ - apart**2))
    return math.ceil(root**2 / apart**2)


def _beats(one: Tried, other: Tried) -> bool:
    return one.cost <= other.cost and one.rate >= other.rate and (one.cost < other.cost or one.rate > other.rate)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
