"""A module: one named, optimizable prompt with typed inputs and outputs."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from gepa_lite.core.contract import Contract
from gepa_lite.errors import UsageError
from gepa_lite.lm.protocol import Params
from gepa_lite.lm.resolve import LMSpec
from gepa_lite.program.bridge import in_thread
from gepa_lite.program.outputs import Outputs
from gepa_lite.program.recorder import require_recorder
from gepa_lite.program.signature import Signature, as_signature


class Module:
    """One call of a model: a signature, an instruction, and how to sample.

    A module is a declaration and is never changed; the text it runs with is its program's. Declare it as an attribute of a ``Program``, directly or
    in a list or dict, and call it in ``forward``.

    Args:
        signature: ``"message, gist -> urgency: Literal['low', 'high'], reason"``, a ``Signature``, or a pair of pydantic models (inputs, outputs).
        instruction: the prompt: what the optimizer rewrites. It is data, never rendered as a template.
        describe: a few words on a field, by field name; they are sent with every call and are not optimized.
        types: your own types used in a signature string, by name.
        max_tokens: upper bound of the reply's length in tokens.
        temperature: sampling temperature; None leaves it to the endpoint.
        params: all sampling parameters; then ``max_tokens`` and ``temperature`` must be left alone.
        retries: 1 allows a second, recorded and counted call after a reply that can't be parsed; 0 allows none.
        lm: a model for this module alone; None takes the program's.
        contract: what every rewritten instruction must keep to; without one its placeholders and a length.
        optimize: False for a module whose instruction stays as it is: its calls are traced and in the ledger, and no proposal is spent on it.

    Raises:
        UsageError: the signature does not parse, or an argument is out of range.
    """

    calls_model = True
    """Whether it needs a model."""

    def __init__(  # noqa: PLR0913, a declaration reads best with its options by name
        self,
        signature: str | Signature | tuple[type[BaseModel], type[BaseModel]],
        instruction: str,
        *,
        describe: Mapping[str, str] | None = None,
        types: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        params: Params | None = None,
        retries: int = 1,
        lm: LMSpec | None = None,
        contract: Contract | None = None,
        optimize: bool = True,
    ) -> None:
        self.declared: Module = self
        """The module that a class declares; each of its instances has a copy of its own."""
        self.signature = as_signature(signature, describe=describe or {}, types=types or {})
        if not isinstance(instruction, str) or not instruction.strip():
            raise UsageError(f"Module({self.signature.text!r}): the instruction is empty; write one sentence that says what to do.")
        if retries not in (0, 1):
            raise UsageError(f"Module({self.signature.text!r}, retries={retries!r}): 0 or 1 is needed.")
        if params is not None and (max_tokens is not None or temperature is not None):
            raise UsageError(f"Module({self.signature.text!r}): give params, or max_tokens and temperature, not both.")
        self.instruction = inspect.cleandoc(instruction)
        self.params = params or Params(max_tokens=max_tokens or Params().max_tokens, temperature=temperature)
        self.retries = retries
        if contract is not None and not isinstance(contract, Contract):
            raise UsageError(f"Module({self.signature.text!r}, contract={contract!r}): a gl.Contract(...) is needed.")
        self.lm = lm
        self.contract = contract or Contract()
        self.optimize = optimize

    @property
    def fingerprint(self) -> str:
        """A hash of what its text must fit."""
        return self.signature.fingerprint

    @property
    def identity(self) -> tuple[Any, ...]:
        """What else fixes its behaviour, beside signature, sampling, text and model; empty for a plain module."""
        return ()

    def copied(self) -> Module:
        """The same declaration for another program instance."""
        return copy.copy(self)

    def __call__(self, **inputs: Any) -> Outputs:
        """Run the module within its program's ``forward``.

        Raises:
            UsageError: called outside a program, or with inputs that are not the signature's.
            OutputError: the reply does not hold the declared outputs.
            ModelError: the model call failed.
        """
        return require_recorder(f"the module {self.signature.text!r}").run(self, inputs)

    async def acall(self, **inputs: Any) -> Outputs:
        """The same within an ``async def forward``: it waits without holding up the loop that all async rollouts share."""
        return await in_thread(self, **inputs)

    def __repr__(self) -> str:
        return f"Module({self.signature.text!r}, {self.instruction!r})"
