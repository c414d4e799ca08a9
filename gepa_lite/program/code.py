"""A step that is Python code instead of a model's call: its text is the code, and runs in the sandbox."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from gepa_lite.core.contract import Contract
from gepa_lite.core.ids import content_hash
from gepa_lite.errors import SandboxError, UsageError
from gepa_lite.lm.protocol import Completion, LMInfo, Request
from gepa_lite.program.module import Module
from gepa_lite.program.outputs import Outputs
from gepa_lite.program.recorder import require_recorder
from gepa_lite.program.signature import Signature
from gepa_lite.sandbox.sandbox import Sandbox


class Code(Module):
    """One step of a program that is a Python function: its source is what the optimizer rewrites, and every candidate's runs in the sandbox.

    Declare and call it as a ``Module``. Its calls stand in the trace, cost nothing, and fail as the candidate's: an exception, a breach of the sandbox, or a value that is not of the
    declared type is told to the reflection model in words. The contract holds every text to valid Python that keeps the function, before a rollout is paid for.

    Args:
        signature: as of a ``Module``: the function gets the inputs by position, and returns the output, or a dict of several. Values travel as JSON.
        source: Python that defines the function; the standard library alone is there.
        function: its name.
        describe: a few words on a field, by field name.
        types: your own types used in a signature string, by name.
        sandbox: the limits; ``Sandbox()`` where it is None. Without walls on this machine, running code must be allowed by name: ``Sandbox(unconfined=True)``.
        contract: further rules for every rewritten source.
        optimize: False leaves the source as it is.

    Raises:
        UsageError: the signature does not parse, or the source is no valid Python or does not define the function.

    Example:
        >>> import gepa_lite as gl
        >>> from gepa_lite.sandbox.sandbox import Sandbox
        >>> from gepa_lite.testing import ScriptedLM
        >>> class Answer(gl.Program):
        ...     respond = gl.Module("question -> reply", "Think, then write 'Answer: ...'.")
        ...     extract = gl.Code("reply -> answer", "def extract(reply): return reply.split('Answer:')[-1].strip()", function="extract", sandbox=Sandbox(unconfined=True))
        ...     def forward(self, question):
        ...         return self.extract(reply=self.respond(question=question).reply)
        >>> Answer(lm=ScriptedLM("Two and two. Answer: 4"))(question="2 + 2?").answer
        '4'
    """

    calls_model = False

    def __init__(
        self,
        signature: str | Signature | tuple[type[BaseModel], type[BaseModel]],
        source: str,
        *,
        function: str,
        describe: Mapping[str, str] | None = None,
        types: Mapping[str, Any] | None = None,
        sandbox: Sandbox | None = None,
        contract: Contract | None = None,
        optimize: bool = True,
    ) -> None:
        if not function.isidentifier():
            raise UsageError(f"Code(function={function!r}): the name of a Python function is needed.")
        super().__init__(signature, source, describe=describe, types=types, retries=0, optimize=optimize)
        self.instruction = textwrap.dedent(source).strip()
        head, rules = f"def {function}(", contract or Contract()
        # braces in code are no placeholders
        self.contract = dataclasses.replace(
            rules, form="python", frozen=tuple(dict.fromkeys((*rules.frozen, head))), placeholders=rules.placeholders or ()
        )
        self.function, self.sandbox = function, sandbox or Sandbox()
        if breach := self.contract.breach(self.instruction):
            raise UsageError(f"Code({self.signature.text!r}): {breach}.")

    @property
    def fingerprint(self) -> str:
        return content_hash([self.signature.fingerprint, self.function])

    @property
    def identity(self) -> tuple[Any, ...]:
        return (*super().identity, self.function, *dataclasses.astuple(self.sandbox))

    def __call__(self, **inputs: Any) -> Outputs:
        """Run the code within the program's ``forward``.

        Raises:
            UsageError: called outside a program, with inputs that are not the signature's or have no JSON form, or nothing here can hold the code.
            SandboxError: the code failed, or returned what was not declared.
        """
        return require_recorder(f"the code {self.function!r}").run_code(self, inputs, self._run)

    def _run(self, source: str, values: Mapping[str, Any]) -> dict[str, Any]:
        value = self.sandbox.call(source, self.function, *values.values())
        names = self.signature.output_names
        if len(names) == 1:
            value = {names[0]: value}
        elif not isinstance(value, dict):
            raise SandboxError(f"{self.function} returned {json.dumps(value)[:200]}; a dict with {', '.join(names)} is needed.")
        try:
            return dict(self.signature.output_model.model_validate(value))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise SandboxError(
                f"{self.function} returned {json.dumps(value)[:200]}, which is not what was declared: {place}: {first['msg']}."
            ) from None


class NoModel:
    """Stands where a module has no model. It is never called."""

    def complete(self, request: Request) -> Completion:
        raise UsageError("code calls no model.")

    def describe(self) -> LMInfo:
        return LMInfo("")
