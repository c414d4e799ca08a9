"""A ``gl.Program`` as a run takes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gepa_lite.core.example import Example, make_example
from gepa_lite.core.ids import jsonable
from gepa_lite.data import load_rows
from gepa_lite.errors import UsageError
from gepa_lite.lm.protocol import LM, Params
from gepa_lite.program.optimizable import Execution, Frame, Part
from gepa_lite.program.program import Program
from gepa_lite.program.recorder import CallModel
from gepa_lite.program.render import describe_inputs_outputs, system_text
from gepa_lite.program.signature import Signature


class NativeProgram:
    """Implements ``Optimizable`` for a ``gl.Program``. A class beside it, since a program's own names belong to its modules.

    Args:
        program: as the user wrote it.
    """

    def __init__(self, program: Program) -> None:
        self._program = program

    @property
    def name(self) -> str:
        return type(self._program).__name__

    @property
    def purpose(self) -> str:
        return " ".join((type(self._program).__doc__ or "").split())

    @property
    def notices(self) -> Sequence[str]:
        return ()

    @property
    def parts(self) -> dict[str, Part]:
        modules, models, fingerprints = self._program.modules, self._program.models, self._program.fingerprints
        names = {path: models[path].describe().name if path in models else "" for path in modules}
        return {
            path: Part(
                text,
                modules[path].signature.text,
                fingerprints[path],
                describe_inputs_outputs(modules[path].signature),
                names[path],
                modules[path].contract,
                _params(modules[path].params),
                _frame(modules[path].signature) if modules[path].calls_model else None,
            )
            for path, text in self.prompts.items()
        }

    @property
    def prompts(self) -> dict[str, str]:
        modules = self._program.modules
        return {path: text for path, text in self._program.prompts.items() if modules[path].optimize}

    @property
    def models(self) -> Mapping[str, LM]:
        return self._program.models

    @property
    def metered(self) -> bool:
        return True

    @property
    def calls_held(self) -> bool:
        return True

    @property
    def fingerprint(self) -> str:
        return self._program.fingerprint

    @property
    def deliverable(self) -> Program:
        return self._program

    def with_prompts(self, prompts: Mapping[str, str]) -> NativeProgram:
        return NativeProgram(self._program.with_prompts(prompts))

    def run(self, inputs: Mapping[str, Any], call: CallModel | None = None) -> Execution:
        return self._program.run(inputs, call)

    def open(self, spec: Any) -> LM:
        return self._program.open(spec)

    def examples(self, source: Any, what: str) -> Sequence[Example]:
        required, optional = self._program.input_names
        return [make_example(row, required, optional, what) for row in load_rows(source, what).rows]

    def judged_by(self, feedback: Callable[..., Any] | None) -> Callable[..., Any]:
        name = self.name
        chosen = feedback or getattr(self._program, "feedback", None)
        if chosen is None:
            raise UsageError(f"no feedback: pass feedback=..., or give {name} a method feedback(self, example, output, trace).")
        if self._program.modules and not self.prompts:
            raise UsageError(f"{name} has no module that may be rewritten: all are declared with optimize=False.")
        if not self._program.modules:
            raise UsageError(f"{name} has no module: declare at least one, e.g. answer = gl.Module('question -> answer', '...').")
        return chosen

    def sendable(self) -> NativeProgram:
        return NativeProgram(self._program.with_models(self._program.models))


def _frame(signature: Signature) -> Frame:
    mark = "\N{OBJECT REPLACEMENT CHARACTER}"
    return Frame(system_text(signature, mark).removeprefix(mark), tuple(entry.name for entry in signature.inputs))


def _params(params: Params) -> dict[str, Any]:
    """Those that are set; the endpoint's own parameters by name."""
    values = {item.name: getattr(params, item.name) for item in dataclasses.fields(params) if item.name != "extra"}
    given = {**params.extra, **values}
    return {name: jsonable(value) for name, value in given.items() if value not in (None, ())}
