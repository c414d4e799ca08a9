"""What the reflection model is told of a program, and how much fits into its context window."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from gepa_lite.core.contract import Contract
from gepa_lite.lm.protocol import LM
from gepa_lite.program.optimizable import Part
from gepa_lite.run_spec import RunSpec
from gepa_lite.search.gate import Gate, open_gate
from gepa_lite.search.ports import ProgramFacts
from gepa_lite.search.search import Search


def program_facts(spec: RunSpec, gate: Gate) -> ProgramFacts:
    """What the search is told of a run's program.

    Args:
        spec: the run.
        gate: what every new text must pass.
    """
    words = {path: _words(part, spec.contracts.of(path)) for path, part in spec.program.parts.items()}
    return ProgramFacts(spec.program.purpose, words, gate)


def gate_of(spec: RunSpec) -> Gate:
    """What every new text of a run must pass: its contracts and the leak guard, which knows all examples."""
    program = spec.program
    told = [program.purpose, *(part.words for part in program.parts.values())]
    return open_gate(spec.contracts, spec.search, spec.splits, program.prompts, told)


def fitted(search: Search, models: Sequence[LM]) -> Search:
    """The rules with reflection's token limits cut to the smallest context window of the models, where one is known."""
    window = min((size for lm in models if (size := lm.describe().context_window) is not None), default=None)
    if window is None:
        return search
    reply = min(search.reflection_tokens, window // 3)
    room = int(0.8 * (window - reply))
    limits = dataclasses.replace(search.reflection_limits, tokens=min(search.reflection_limits.tokens, room))
    return dataclasses.replace(search, reflection_tokens=reply, reflection_limits=limits)


def _words(part: Part, contract: Contract) -> str:
    spans = (*(contract.placeholders or ()), *contract.frozen)
    if not spans:
        return part.words
    return "\n".join((part.words, "", "These parts of the prompt must stay in it as they are, letter by letter:", *spans))
