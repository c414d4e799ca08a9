"""The contracts of a run, from those of the parts and of the call; the seed is held to them first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gepa_lite.core.contract import PROGRAM, Contract, Contracts
from gepa_lite.core.rules import identify_language
from gepa_lite.errors import UsageError
from gepa_lite.program.optimizable import Optimizable, check_parts

ContractSpec = Contract | Mapping[str, Contract]
"""A program's contract; or contracts by module path, in place of the module's own, with ``"*"`` for the program's."""


def run_contracts(program: Optimizable, spec: ContractSpec | None, max_tokens: int) -> Contracts:
    """Resolve the contracts of a program and check its seed prompts.

    Args:
        program: with the seed prompts.
        spec: what the call says.
        max_tokens: the length of a module whose contract names none.

    Raises:
        UsageError: a wrong argument, or a seed prompt that breaks its own contract.
    """
    given = _by_path(program, spec)
    whole = given.pop(PROGRAM, None)
    if whole is not None and (whole.form != "text" or whole.placeholders):
        raise UsageError("contract: a program as a whole has no form and no placeholders; declare them in a module's contract.")
    parts = program.parts
    modules = {path: given.get(path, part.contract).resolved(part.text, max_tokens) for path, part in parts.items()}
    contracts = Contracts(modules, whole, max_tokens)
    if any(contract.language for contract in [*modules.values(), *([whole] if whole else [])]):
        identify_language("Is the detector there?")
    for path, part in parts.items():
        if breaches := modules[path].breaches(part.text):
            hint = "; raise Contract(max_tokens=) or Search(max_prompt_tokens=)" if breaches[0].rule == "length" else ""
            raise UsageError(
                f"the seed prompt of {path!r} breaks its own contract: {'; '.join(b.words for b in breaches)}. Change the prompt or the contract{hint}."
            )
    if breaches := contracts.program_breaches(program.prompts):
        raise UsageError(
            f"the seed prompts break the program's contract: {'; '.join(b.words for b in breaches)}. Change the prompts or the contract."
        )
    return contracts


def _by_path(program: Optimizable, spec: Any) -> dict[str, Contract]:
    if spec is None:
        return {}
    contracts = dict(spec) if isinstance(spec, Mapping) else {PROGRAM: spec}
    for path, contract in contracts.items():
        if not isinstance(contract, Contract):
            raise UsageError(f"contract: {contract!r} is no contract; gl.Contract(...) is needed, or a dict of them by module path.")
        if path != PROGRAM:
            check_parts(program, {path: ""}, "contract")
    return contracts
