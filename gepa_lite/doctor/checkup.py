"""What the doctor found."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gepa_lite.core.call import Usage

Level = Literal["ok", "unknown", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One thing that was looked at.

    Attributes:
        level: ``ok``; ``unknown``: it could not be looked at, which stops nothing; ``warn``: a run works, but perhaps not well; ``fail``: a run would be wasted.
        code: a short stable word.
        what: what is so, in words.
        evidence: what was seen.
        do: what to do about it; "" where there is nothing to do.
    """

    level: Level
    code: str
    what: str
    evidence: str = ""
    do: str = ""


@dataclass(frozen=True)
class Checkup:
    """Everything the doctor found; ``print`` it.

    Attributes:
        program: its name.
        findings: in the order in which they were looked at.
        rollouts: how many were run, those found on disk not counted.
        cost: what the calls of this check consumed.
        planned: what it was told to cost at most, in words.
    """

    program: str
    findings: Sequence[Diagnosis]
    rollouts: int
    cost: Usage
    planned: str

    @property
    def failed(self) -> bool:
        """Whether anything would waste a run."""
        return any(finding.level == "fail" for finding in self.findings)

    @property
    def warned(self) -> bool:
        """Whether anything is worth a look."""
        return any(finding.level == "warn" for finding in self.findings)

    def of(self, code: str) -> list[Diagnosis]:
        """The findings of one kind."""
        return [finding for finding in self.findings if finding.code == code]

    def __str__(self) -> str:
        counts = {level: sum(finding.level == level for finding in self.findings) for level in ("fail", "warn", "unknown", "ok")}
        head = f"Check of {self.program}: {counts['fail']} failed, {counts['warn']} to look at, {counts['ok']} fine"
        head += f", {counts['unknown']} not known" if counts["unknown"] else ""
        return "\n".join([head, "", *(_lines(finding) for finding in self.findings), "", self._costs()])

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """As JSON types."""
        cost = self.cost
        return {
            "program": self.program,
            "failed": self.failed,
            "warned": self.warned,
            "findings": [dataclasses.asdict(finding) for finding in self.findings],
            "cost": {
                "planned": self.planned,
                "rollouts": self.rollouts,
                "calls": cost.calls,
                "input_tokens": cost.input_tokens,
                "output_tokens": cost.output_tokens,
                "usd": cost.usd,
            },
        }

    def _costs(self) -> str:
        usd = "dollars unknown, since a price is" if self.cost.usd is None else f"{self.cost.usd:.4f} USD"
        return f"Cost: {self.rollouts} rollouts, {self.cost.calls} calls, {self.cost.tokens:,} tokens, {usd}. Planned: {self.planned}."


def _lines(finding: Diagnosis) -> str:
    mark = {"ok": "ok  ", "unknown": "?   ", "warn": "warn", "fail": "FAIL"}[finding.level]
    lines = [f"{mark}  {finding.what}"]
    lines += [f"Seen: {finding.evidence}"] if finding.evidence else []
    lines += [f"Do: {finding.do}"] if finding.do and finding.level != "ok" else []
    first, *rest = (textwrap.fill(line, 134, break_long_words=False, break_on_hyphens=False) for line in lines)
    return "\n".join([first, *(textwrap.indent(line, "        ") for line in rest)])
