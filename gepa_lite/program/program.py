"""A program: named modules and the Python that connects them."""

from __future__ import annotations

import asyncio
import copy
import difflib
import inspect
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from gepa_lite.bundle import load_prompts
from gepa_lite.core.code_id import code_id
from gepa_lite.core.ids import content_hash
from gepa_lite.errors import RunError, UsageError
from gepa_lite.lm.protocol import LM
from gepa_lite.lm.resolve import LMSpec, open_lm
from gepa_lite.program.bridge import in_thread, run_coroutine
from gepa_lite.program.code import NoModel
from gepa_lite.program.module import Module
from gepa_lite.program.optimizable import Execution
from gepa_lite.program.recorder import Binding, CallModel, Recorder, activate, active_recorder, deactivate, way_out

_INTERNAL = frozenset(("_lm", "_lms", "_texts", "_opened", "_bindings"))


@dataclass(frozen=True, slots=True)
class _Slot:
    """A module found in a program: its declaration, its text there and where its model comes from."""

    module: Module
    text: str
    lm: LMSpec | None

    @property
    def fixed(self) -> tuple[str, ...]:
        """The text where it is no candidate's, and so a part of the program."""
        return () if self.module.optimize else (self.text,)


class Program:
    """Base of a program. Declare modules as attributes, write ``forward``.

    A program is never changed in place: ``with_prompts`` gives a new one. ``forward`` runs in many threads at once and must not write to ``self``.
    It may be a coroutine (``async def``): call modules by ``await module.acall(...)`` there.

    Args:
        lm: the model of all modules that name none: a litellm string such as ``"openai/gpt-4.1-mini"``, ``"local/qwen2.5-coder-1.5b"``, an ``LM`` or a callable.
        lms: models of single modules, by path.

    Example:
        >>> import gepa_lite as gl
        >>> from gepa_lite.testing import ScriptedLM
        >>> class Greet(gl.Program):
        ...     hello = gl.Module("name -> greeting", "Greet the person.")
        ...     def forward(self, name):
        ...         return self.hello(name=name)
        >>> Greet(lm=ScriptedLM(["Good morning, Ada."]))(name="Ada").greeting
        'Good morning, Ada.'
    """

    _lm: LMSpec | None = None
    _lms: Mapping[str, LMSpec] = {}
    _texts: Mapping[str, str] = {}

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        program = super().__new__(cls)
        # two instances of one class have modules, and so texts, of their own
        copies: dict[int, Any] = {}
        for name, value in _attributes(program).items():
            owned = _owned(value, copies)
            if owned is not value:
                program.__dict__[name] = owned
        return program

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__.pop("_bindings", None)
        super().__setattr__(name, value)

    def __init__(self, lm: LMSpec | None = None, *, lms: Mapping[str, LMSpec] | None = None) -> None:
        self._lm = lm
        self._lms = dict(lms or {})

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Connect the modules; written by you. Its parameters are the program's inputs."""
        raise UsageError(f"{type(self).__name__} has no forward: write one that calls the modules and returns the output.")

    def __call__(self, **inputs: Any) -> Any:
        """Run the program and return what ``forward`` returns. Inside another program's ``forward`` its calls join that rollout."""
        if active_recorder() is not None:
            result = self.forward(**inputs)
            return run_coroutine(result) if inspect.iscoroutine(result) and not _in_a_loop() else result
        execution = self.run(inputs)
        if execution.error is not None:
            raise execution.error
        return execution.output

    async def acall(self, **inputs: Any) -> Any:
        """The same within ``async`` code: it waits without holding up the loop."""
        if active_recorder() is not None and inspect.iscoroutinefunction(self.forward):
            return await self.forward(**inputs)
        return await in_thread(self, **inputs)

    def run(self, inputs: Mapping[str, Any], call: CallModel | None = None) -> Execution:
        """Run the program and keep its trace. An exception of ``forward`` is returned, not raised; a ``UsageError`` or ``RunError`` is raised."""
        recorder = Recorder(self._binding, call or way_out())
        token = activate(recorder)
        try:
            output = self.forward(**inputs)
            if inspect.iscoroutine(output):
                output = run_coroutine(output)
        except (UsageError, RunError):
            raise
        except Exception as error:
            if recorder.stop is not None:
                raise recorder.stop from error
            return Execution(None, error, recorder.trace, recorder.outage)
        finally:
            deactivate(token)
        if recorder.stop is not None:
            raise recorder.stop
        return Execution(output, None, recorder.trace, recorder.outage)

    @property
    def prompts(self) -> dict[str, str]:
        """The text of each module, by path, in order of declaration."""
        return {path: slot.text for path, slot in self._slots().items()}

    @property
    def modules(self) -> dict[str, Module]:
        """The modules by path. A module in two places has its first path."""
        return {path: slot.module for path, slot in self._slots().items()}

    @property
    def models(self) -> dict[str, LM]:
        """The model of each module, by path; opening one costs nothing and calls nothing.

        Raises:
            UsageError: a module has no model.
        """
        for path in self._lms:
            self._require(path, "lms")
        return {path: self._model(path, slot) for path, slot in self._slots().items() if slot.module.calls_model}

    def with_prompts(self, prompts: Mapping[str, str]) -> Self:
        """A program with these texts in place of its own; this one is unchanged.

        Args:
            prompts: text by module path; modules that are not named keep theirs.

        Raises:
            UsageError: a path that this program does not have, or a text that is not a str.
        """
        for path, text in prompts.items():
            self._require(path, "with_prompts")
            if not isinstance(text, str):
                raise UsageError(f"with_prompts: the text of {path!r} is of type {type(text).__name__}; a str is needed.")
        changed = self._copy()
        changed._texts = {**self._texts, **prompts}
        return changed

    def with_lm(self, lm: LMSpec) -> Self:
        """A program on another model: all modules that name none take it; this one is unchanged."""
        changed = self._copy()
        changed._lm = lm
        return changed

    def with_models(self, models: Mapping[str, LM]) -> Self:
        """A program whose modules, by path, reach these models; this one is unchanged."""
        changed = self._copy()
        changed._lms = {**self._lms, **models}
        return changed

    def load(self, path: str | Path) -> Self:
        """A program with the prompts of a bundle that ``result.save`` wrote.

        Raises:
            UsageError: the bundle's modules or signatures are not this program's; the message names the difference.
        """
        bundle = load_prompts(path)
        modules = self.modules
        bundle.check_modules({path: found for path, found in self.fingerprints.items() if modules[path].optimize})
        return self.with_prompts(bundle)

    @property
    def fingerprints(self) -> dict[str, str]:
        """The signature's fingerprint of each module: names, types and direction of its fields; of code also the function's name."""
        return {path: slot.module.fingerprint for path, slot in self._slots().items()}

    @property
    def fingerprint(self) -> str:
        """A hash of what the optimizer must know of a program: its modules, their signatures and sampling, and the code of ``forward`` and the other methods, also of programs in it.

        ``feedback`` is left out, since a run fingerprints it by itself.
        """
        modules = {
            path: [slot.module.signature.fingerprint, slot.module.params, slot.module.retries, *slot.module.identity, *slot.fixed]
            for path, slot in self._slots().items()
        }
        return content_hash(
            {"modules": modules, "code": sorted({type(part).__qualname__: _code(type(part)) for part in _parts(self)}.items())}
        )

    @property
    def input_names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The inputs of ``forward``: required ones, and those with a default.

        Raises:
            UsageError: ``forward`` takes ``*args``, ``**kwargs`` or nothing.
        """
        parameters = list(inspect.signature(self.forward).parameters.values())
        for parameter in parameters:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise UsageError(
                    f"{type(self).__name__}.forward takes {parameter}: name its inputs, so that examples can be split into inputs and labels."
                )
        if not parameters:
            raise UsageError(f"{type(self).__name__}.forward has no inputs: name at least one field of the examples.")
        required = tuple(p.name for p in parameters if p.default is p.empty)
        return required, tuple(p.name for p in parameters if p.default is not p.empty)

    def open(self, spec: LMSpec) -> LM:
        """The LM of a spec, opened once for this program and all its copies, so that they share connections and limits."""
        opened: dict[Any, LM] = self.__dict__.setdefault("_opened", {})
        key = spec if isinstance(spec, str) else id(spec)
        # setdefault is atomic: of two threads that open at once, both get the same LM
        return opened.get(key) or opened.setdefault(key, open_lm(spec))

    def _copy(self) -> Self:
        self.__dict__.setdefault("_opened", {})
        changed = copy.copy(self)
        changed.__dict__["_opened"] = self.__dict__["_opened"]
        return changed

    def __getstate__(self) -> dict[str, Any]:
        # both hold identities of objects, which mean nothing in a copy
        return {name: value for name, value in self.__dict__.items() if name not in ("_bindings", "_opened")}

    def _binding(self, module: Module) -> Binding:
        bindings: dict[int, Binding] = self.__dict__.get("_bindings") or {}
        if id(module) not in bindings:
            # the first call, or a module that was set since
            slots = self._slots()
            bindings = {id(slot.module): Binding(path, slot.text, self._model(path, slot)) for path, slot in slots.items()}
            of_class = Counter(id(slot.module.declared) for slot in slots.values())
            # called on the class, Answer.hello(...), it is meant where only one instance has it
            bindings |= {
                id(slot.module.declared): bindings[id(slot.module)] for slot in slots.values() if of_class[id(slot.module.declared)] == 1
            }
            self.__dict__["_bindings"] = bindings
        if id(module) not in bindings:
            known = ", ".join(dict.fromkeys(binding.path for binding in bindings.values())) or "none"
            raise UsageError(
                f"a module ({module.signature.text!r}) was called that is no attribute of {type(self).__name__}: declare it on the class or in "
                f"__init__, so that the optimizer sees it, and call it on the instance. Known: {known}."
            )
        return bindings[id(module)]

    def _model(self, path: str, slot: _Slot) -> LM:
        if not slot.module.calls_model:
            return NoModel()
        spec = self._lms.get(path) or slot.lm or self._lm
        if spec is None:
            raise UsageError(f"the module {path!r} has no model: pass one, e.g. {type(self).__name__}(lm='openai/gpt-4.1-mini').")
        return self.open(spec)

    def _require(self, path: str, what: str) -> None:
        known = self._slots()
        if path not in known:
            near = difflib.get_close_matches(path, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"{what}: {type(self).__name__} has no module {path!r}; it has {', '.join(map(repr, known)) or 'none'}.{hint}")

    def _slots(self) -> dict[str, _Slot]:
        """Every module by path: of the class, of the instance, of nested programs and of lists, tuples and dicts of these."""
        slots: dict[str, _Slot] = {}
        seen: set[int] = set()
        for path, module, text, lm in _walk(self, "", None, (id(self),)):
            if id(module) not in seen:
                seen.add(id(module))
                slots[path] = _Slot(module, self._texts.get(path, text), lm)
        return slots


def _attributes(program: Program) -> dict[str, Any]:
    """Attributes in order of declaration: base classes first, instance attributes last; an overriding one keeps its first place."""
    found: dict[str, Any] = {}
    for cls in reversed(type(program).__mro__):
        found.update({name: value for name, value in vars(cls).items() if not name.startswith("__")})
    found.update(vars(program))
    return found


def _owned(value: Any, copies: dict[int, Any]) -> Any:
    """The modules of a class's attribute as copies for one instance; anything else as it is. What is one object there is one here."""
    if id(value) in copies:
        return copies[id(value)]
    owned = value
    if isinstance(value, Module):
        owned = value.copied()
    elif isinstance(value, Program):
        owned = copy.copy(value)
        owned.__dict__.update({name: _owned(part, copies) for name, part in vars(value).items() if name not in _INTERNAL})
    elif isinstance(value, (list, tuple)) and any(_items("", value)):
        owned = type(value)([_owned(item, copies) for item in value])
    elif isinstance(value, dict) and any(_items("", value)):
        owned = {key: _owned(item, copies) for key, item in value.items()}
    copies[id(value)] = owned
    return owned


def _parts(program: Program) -> Iterator[Program]:
    """The program and the programs in it."""
    yield program
    for name, value in _attributes(program).items():
        if name not in _INTERNAL:
            for _, item in _items("", value):
                if isinstance(item, Program):
                    yield from _parts(item)


def _walk(program: Program, prefix: str, lm: LMSpec | None, parents: tuple[int, ...]) -> Iterator[tuple[str, Module, str, LMSpec | None]]:
    for name, value in _attributes(program).items():
        if name in _INTERNAL:
            continue
        for path, item in _items(f"{prefix}{name}", value):
            if isinstance(item, Module):
                yield path, item, item.instruction, item.lm or lm
            elif id(item) in parents:
                raise UsageError(f"the program at {path!r} holds itself; a program can't be part of itself.")
            else:
                for inner, module, text, model in _walk(item, f"{path}.", item._lm or lm, (*parents, id(item))):
                    local = inner[len(path) + 1 :]
                    yield inner, module, item._texts.get(local, text), item._lms.get(local) or model


def _items(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (Module, Program)):
        yield path, value
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _items(f"{path}[{index}]", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _items(f"{path}[{key}]", item)


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _code(cls: type) -> dict[str, str]:
    """The code of a program class's own methods, by name."""
    own = [base for base in cls.__mro__ if issubclass(base, Program) and base is not Program]
    methods = {name: value for base in reversed(own) for name, value in vars(base).items()}
    return {
        name: code_id(getattr(value, "__func__", value))
        for name, value in methods.items()
        if name != "feedback" and inspect.isroutine(getattr(value, "__func__", value))
    }
