"""What a new text must pass before a rollout is paid for: its contract, and the leak guard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gepa_lite.core.candidate import Candidate
from gepa_lite.core.contract import Contracts
from gepa_lite.core.example import Example
from gepa_lite.core.finding import Finding
from gepa_lite.core.rules import Breach
from gepa_lite.guard.review import Heard, LeakGuard
from gepa_lite.search.reflect import template_sources
from gepa_lite.search.search import Search

_TOLD = 3


@dataclass(frozen=True)
class Gate:
    """The checks of a run. Pure: the same texts give the same findings.

    Attributes:
        contracts: of each module and of the program.
        leaks: the leak guard; None where it is off.
    """

    contracts: Contracts = field(default_factory=Contracts)
    leaks: LeakGuard | None = None

    def check(self, module: str, text: str, parent: Candidate, heard: Heard = ()) -> list[Finding]:
        """What a proposed text of a module breaks.

        Args:
            module: its path.
            text: as proposed.
            parent: the candidate that it changes.
            heard: what the feedback said that led to it, by example id.
        """
        texts = parent.replace({module: text}).texts
        found = [Finding(module, f"contract:{breach.rule}", breach.words) for breach in self.contracts.breaches(module, texts)]
        return found + (self.leaks.review(module, text, parent.texts, heard) if self.leaks is not None else [])

    def breach(self, module: str, texts: Mapping[str, str]) -> str | None:
        """What a candidate breaks of its contracts by a module's text, in words, or None."""
        return in_words(self.contracts.breaches(module, texts))

    def program_breach(self, texts: Mapping[str, str]) -> str | None:
        """What texts that each pass alone break together, in words, or None."""
        return in_words(self.contracts.program_breaches(texts))


def open_gate(
    contracts: Contracts, search: Search, splits: Mapping[str, Sequence[Example]], seed: Mapping[str, str], told: Sequence[str]
) -> Gate:
    """The gate of a run; it looks through all examples once.

    Args:
        contracts: of the modules and of the program.
        search: its ``guard``.
        splits: the examples by split.
        seed: the seed prompts.
        told: what the reflection model is told of the program: purpose and signatures.
    """
    guard = search.leak_guard
    if guard.mode == "off":
        return Gate(contracts)
    # a template of the user's own may hold rules that belong in the prompt, so its words are free
    return Gate(contracts, LeakGuard(guard, splits, [*seed.values(), *told], template_sources()))


def in_words(found: Iterable[Breach | Finding]) -> str | None:
    """Findings or breaches in one line, the first few of many, or None where there are none."""
    words = list(dict.fromkeys(item.words for item in found))
    more = [f"and {len(words) - _TOLD} more"] if len(words) > _TOLD else []
    return "; ".join([*words[:_TOLD], *more]) or None
