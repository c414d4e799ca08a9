"""What commands print: text for people, one JSON object for machines. Standard output is the answer, standard error is everything else."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from gepa_lite.core.call import Usage
    from gepa_lite.core.events import Proposed
    from gepa_lite.search.state import Member, RunState
    from gepa_lite.search.verdict import Comparison
    from gepa_lite.ship.result import Result


def plain(text: str) -> str:
    r"""A text without control characters but for line ends and tabs: what a model wrote must not drive a terminal.

    >>> plain("red: \x1b[31m\n")
    'red:  [31m\n'
    """
    return "".join(c if c.isprintable() or c in "\n\t" else " " for c in text)


def say(text: str) -> None:
    """A line for a person, on standard error."""
    typer.echo(plain(text), err=True)


def answer(text: str) -> None:
    """A command's answer, on standard output."""
    typer.echo(plain(text))


def answer_json(data: Any) -> None:
    """A command's answer for a machine: one JSON object on standard output, in ASCII."""
    typer.echo(json.dumps(data, indent=2))


@contextmanager
def only_the_answer(wanted: bool) -> Iterator[None]:
    """Within the block, send what a program prints to standard error, so that standard output holds the answer alone."""
    if not wanted:
        yield
        return
    with redirect_stdout(sys.stderr):
        yield


def result_data(result: Result[Any]) -> dict[str, Any]:
    """A result as JSON types, scores in the user's own direction."""
    spend = result.costs.logical
    return {
        "run": None if result.run is None else str(result.run),
        "verdict": result.verdict,
        "improved": result.improved,
        "finished": result.finished,
        "stopped": result.stopped,
        "validation": _comparison_data(result.validation, result),
        "test": None if result.test is None else _comparison_data(result.test, result),
        "optimism": result.optimism,
        "objectives": {name: _objective_data(row) for name, row in result.objectives.items()},
        "curve": [{**dataclasses.asdict(milestone), "gap": milestone.gap} for milestone in result.curve],
        "starts": [dataclasses.asdict(start) for start in result.starts],
        "vetoed": len(result.state.vetoes),
        "prompt_tokens": dict(zip(("seed", "winner"), result.prompt_tokens, strict=True)),
        "prompts": result.prompts,
        "winner": result.winner_index,
        "candidates": [_candidate_data(member, result) for member in result.candidates],
        "proposals": outcome_counts(result.state),
        "findings": [dataclasses.asdict(found) for found in result.findings],
        "cost": {
            "rollouts": spend.rollouts,
            "proposals": spend.proposals,
            "seconds": result.costs.seconds,
            "roles": {role: _usage_data(usage) for role, usage in result.costs.roles.items()},
            "paid": _usage_data(result.costs.paid),
        },
        "notices": list(result.notices),
    }


def outcome_counts(state: RunState) -> dict[str, Any]:
    """How many proposals were accepted, and how many were not by reason, the most frequent first."""
    refused = Counter(outcome_of(proposal) for proposal in state.proposals if proposal.status != "accepted")
    return {"accepted": sum(proposal.status == "accepted" for proposal in state.proposals), "not_accepted": dict(refused.most_common())}


def outcome_of(proposal: Proposed) -> str:
    """A proposal's status with the reason's short word, e.g. ``"rejected: not_better"``."""
    return f"{proposal.status}: {proposal.code}"


def changed_modules(member: Member, state: RunState) -> list[str]:
    """The modules whose text a candidate has changed from its first parent's."""
    if not member.parents:
        return []
    before = state.pool[member.parents[0]].candidate.texts
    return [path for path, text in member.candidate.texts.items() if text != before[path]]


def _candidate_data(member: Member, result: Result[Any]) -> dict[str, Any]:
    return {
        "index": member.index,
        "id": member.candidate.id,
        "step": member.step if member.parents else None,
        "parents": list(member.parents),
        "changed": changed_modules(member, result.state),
        "validation_mean": None if member.mean is None else result.objective.score(member.mean),
        "on_front": member.index in result.front,
        "prompts": dict(member.candidate.texts),
    }


def _comparison_data(row: Comparison, result: Result[Any]) -> Mapping[str, Any]:
    score = result.objective.score
    low, high = sorted((score(row.low), score(row.high)))
    return {
        "before": score(row.before),
        "after": score(row.after),
        "gain": score(row.after) - score(row.before),
        "interval_95": [low, high],
        "n": row.n,
        "missing": row.missing,
        "won": row.won,
        "lost": row.lost,
        "p": row.p,
        "sign_p": row.sign_p,
        "looks": row.looks,
        "detectable": row.detectable,
    }


def _objective_data(row: Comparison) -> Mapping[str, Any]:
    """Objectives are higher-is-better whatever the score's direction."""
    return {"before": row.before, "after": row.after, "gain": row.gain, "interval_95": [row.low, row.high], "n": row.n, "p": row.p}


def _usage_data(usage: Usage) -> dict[str, Any]:
    return {"calls": usage.calls, "input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens, "usd": usage.usd}
