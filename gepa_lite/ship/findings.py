"""What the contract and the leak guard found over a run, by the event log alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gepa_lite.core.events import ProposalStatus
from gepa_lite.core.finding import Finding
from gepa_lite.search.merge import ancestors
from gepa_lite.search.state import RunState

_SHOWN = 3

_HINT = '  If such words may stand in a prompt: gl.Search(guard=gl.Guard(allow=[...], ignore=[fields])), or guard="warn".'


@dataclass(frozen=True, slots=True)
class Found:
    """A finding and what became of the proposal. A secret or a person's data is never in it.

    Attributes:
        finding: module, rule, words, place and, for a copy, the example.
        step: of the proposal.
        slot: of the proposal within its step.
        status: what became of the proposal: a finding of the first reply may have been mended by the second.
        mended: whether it is of a first reply that was replaced by another one.
        in_winner: whether the text it is in is part of the winner's line, and so may stand in the winner's prompts.
    """

    finding: Finding
    step: int
    slot: int
    status: ProposalStatus
    mended: bool
    in_winner: bool


def findings_of(state: RunState, winner: int) -> list[Found]:
    """All findings of a run, in order.

    Args:
        state: of the run.
        winner: its place in the pool.
    """
    line = [state.pool[index] for index in sorted({*ancestors(state.pool, winner), winner})]
    texts = {(module, text) for member in line for module, text in member.candidate.texts.items()}
    found = []
    for proposal in state.proposals:
        last = {f.module: f.attempt for f in proposal.findings}
        for finding in proposal.findings:
            text = proposal.texts.get(finding.module)
            # a text that broke a rule and was let through was the last one of its module
            mended = finding.blocks and (text is not None or finding.attempt < last[finding.module])
            kept = not mended and text is not None and (finding.module, text) in texts
            found.append(Found(finding, proposal.step, proposal.slot, proposal.status, mended, kept))
    return found


def findings_text(found: Sequence[Found]) -> str:
    """Counts by rule; of what was refused and of what may stand in the winner's prompts the first few; "" where nothing was found."""
    if not found:
        return ""
    lines = ["Checks of proposed prompts:"]
    refused = [item for item in found if item.finding.blocks and not item.mended]
    groups = (
        ("rejected before a rollout", refused),
        ("written once more", [item for item in found if item.mended]),
        ("warned of", [item for item in found if not item.finding.blocks]),
    )
    for words, items in groups:
        proposals = len({(item.step, item.slot) for item in items})
        rules = Counter(item.finding.rule for item in items)
        if proposals:
            lines.append(f"  {words}: {proposals} ({', '.join(f'{rule} {count}' for rule, count in sorted(rules.items()))})")
    lines += _first("refused", refused)
    if any(not item.finding.rule.startswith("contract:") for item in refused):
        lines.append(_HINT)
    lines += _first("in the winner's line", [item for item in found if item.in_winner])
    return "\n".join(lines)


def _first(what: str, items: Sequence[Found]) -> list[str]:
    said = list(dict.fromkeys(f"  {what}, {item.finding.module}: {_said(item.finding)}" for item in items))
    more = [f"  {what}: {len(said) - _SHOWN} more, see result.findings"] if len(said) > _SHOWN else []
    return said[:_SHOWN] + more


def _said(finding: Finding) -> str:
    example = f" [{finding.split} example {finding.example_id}]" if finding.example_id else ""
    return f"{finding.rule}: {finding.words}{example}"
