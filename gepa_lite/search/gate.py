"""What a new text must pass before a rollout is paid for: its contract, and the leak guard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gepa_lite.core.candidate import Candidate
from gepa_lite.core.contract import Breach, Contracts
from gepa_lite.core.finding import Finding


@dataclass(frozen=True)
class Gate:
    """The checks of a run. Pure: the same texts give the same findings.

    Attributes:
        contracts: of each module and of the program.
    """

    contracts: Contracts = field(default_factory=Contracts)

    def check(self, module: str, text: str, parent: Candidate) -> list[Finding]:
        """What a proposed text of a module breaks.

        Args:
            module: its path.
            text: as proposed.
            parent: the candidate that it changes.
        """
        texts = parent.replace({module: text}).texts
        return [Finding(module, f"contract:{breach.rule}", breach.words) for breach in self.contracts.breaches(module, texts)]

    def breach(self, module: str, texts: Mapping[str, str]) -> str | None:
        """What a candidate breaks of its contracts by a module's text, in words, or None."""
        return in_words(self.contracts.breaches(module, texts))

    def program_breach(self, texts: Mapping[str, str]) -> str | None:
        """What texts that each pass alone break together, in words, or None."""
        return in_words(self.contracts.program_breaches(texts))


def in_words(found: Iterable[Breach | Finding]) -> str | None:
    """Findings or breaches in one line, or None where there are none."""
    return "; ".join(dict.fromkeys(item.words for item in found)) or None
