"""A dspy program as a run takes it. The user's program, its LMs and dspy's settings are never changed: a run works on copies."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

from gepa_lite.adapters.dspy import is_dspy_lm, is_dspy_module, load_dspy
from gepa_lite.adapters.dspy.calls import RECORDER, DspyLM, as_lm, routed
from gepa_lite.adapters.dspy.clone import clone, reachable
from gepa_lite.adapters.dspy.examples import dspy_examples
from gepa_lite.adapters.dspy.faults import as_our_error
from gepa_lite.adapters.dspy.metric import DspyMetric
from gepa_lite.adapters.dspy.recorder import PATH, Recorder
from gepa_lite.adapters.dspy.texts import (
    Layout,
    description_of,
    fingerprint_of,
    layout_of,
    read_text,
    signature_line,
    spans_to_keep,
    words_of,
    write_texts,
)
from gepa_lite.core.call import Call, Trace, Usage
from gepa_lite.core.contract import Contract
from gepa_lite.core.example import Example
from gepa_lite.core.ids import content_hash, jsonable
from gepa_lite.errors import RunError, UsageError
from gepa_lite.lm.protocol import LM
from gepa_lite.lm.resolve import open_lm
from gepa_lite.program.bridge import run_coroutine
from gepa_lite.program.optimizable import Execution, Part, check_parts
from gepa_lite.program.recorder import CallModel, way_out

_HISTORY = 100_000


class DspyProgram:
    """Implements ``Optimizable`` for any ``dspy.Module``. ``gl.optimize`` makes one itself; make one by hand to optimize more than the predictors' instructions.

    dspy's settings (LM, adapter, callbacks) are those at the moment it is made, also in threads. Each predictor's instructions are a module, under dspy's own path.

    Args:
        program: any ``dspy.Module``; never changed.
        fields: field descriptions are modules too, ``"predictor:field"``.
        tools: descriptions of an agent's tools are modules too, ``"predictor:tool name"``.

    Raises:
        UsageError: no dspy program, or one without a predictor or an LM.

    Example:
        >>> import dspy, gepa_lite as gl  # doctest: +SKIP
        >>> agent = dspy.ReAct("question -> answer", tools=[search])  # doctest: +SKIP
        >>> gl.optimize(gl.DspyProgram(agent, tools=True), trainset, valset, feedback=metric)  # doctest: +SKIP
    """

    def __init__(self, program: Any, *, fields: bool = False, tools: bool = False) -> None:
        if not is_dspy_module(program):
            raise UsageError(f"DspyProgram: a dspy.Module is needed, but got {type(program).__name__}.")
        dspy = load_dspy()
        self._program = program
        self._settings: dict[str, Any] = dict(dspy.settings.copy())
        self._layout: Layout = layout_of(program, fields=fields, tools=tools)
        if not self._layout.spots:
            raise UsageError(
                f"{type(program).__name__} has no predictor that dspy lists (named_predictors()): assign dspy.Predict modules to attributes."
            )
        self._texts: dict[str, str] = {path: read_text(program, spot) for path, spot in self._layout.spots.items()}
        self._lms = _Lms([program, self._settings.get("lm"), self._settings.get("adapter")])
        self._lock = threading.Lock()
        self._made: Any = None

    @property
    def name(self) -> str:
        return type(self._program).__name__

    @property
    def purpose(self) -> str:
        cls = type(self._program)
        own = cls.__doc__ if not cls.__module__.startswith("dspy.") else None
        return " ".join((own or "").split())

    @property
    def notices(self) -> Sequence[str]:
        frozen = self._layout.frozen
        if not frozen:
            return ()
        return (
            f"{len(frozen)} of the program's predictors stay as they are, since dspy does not list them (of a compiled submodule, or deep in containers): {', '.join(frozen)}.",
        )

    @cached_property
    def parts(self) -> dict[str, Part]:
        predictors = dict(self._program.named_predictors())
        parts = {}
        for path, spot in self._layout.spots.items():
            signature = predictors[spot.owner].signature
            # dspy fills nothing into instructions: braces in them are only braces
            contract = Contract(placeholders=(), frozen=spans_to_keep(self._program, spot))
            parts[path] = Part(
                self._texts[path],
                signature_line(signature),
                fingerprint_of(signature),
                words_of(self._program, spot),
                self._model_of(predictors[spot.owner]).describe().name,
                contract,
            )
        return parts

    @property
    def prompts(self) -> dict[str, str]:
        return dict(self._texts)

    @property
    def models(self) -> Mapping[str, LM]:
        found = {path: self._model_of(predictor) for path, predictor in self._program.named_predictors()}
        others = {f"(LM {number})": lm for number, lm in enumerate(self._lms.all, 1) if lm not in found.values()}
        return {**found, **others}

    def _model_of(self, predictor: Any) -> DspyLM:
        own = getattr(predictor, "lm", None) or self._settings.get("lm")
        if own is not None and is_dspy_lm(own):
            return self._lms.of(own)
        if self._lms.all:
            return self._lms.all[0]
        raise UsageError(
            "the dspy program has no LM: call dspy.configure(lm=dspy.LM('openai/gpt-4.1-mini')) first, or program.set_lm(...)."
        )

    @property
    def metered(self) -> bool:
        return True

    @property
    def calls_held(self) -> bool:
        return True

    @cached_property
    def fingerprint(self) -> str:
        modules = [value for _, value in reachable(self._program) if is_dspy_module(value)]
        sources = sorted({_source(type(module)) for module in modules})
        predictors = {}
        for path, predictor in self._program.named_predictors():
            signature = predictor.signature
            described = {name: description_of(signature, name) for name in signature.fields if f"{path}:{name}" not in self._texts}
            predictors[path] = [
                fingerprint_of(signature),
                described,
                jsonable(predictor.demos),
                jsonable(predictor.config),
                self._layout.spots[path].kept,
            ]
        adapter = self._settings.get("adapter")
        return content_hash({"modules": sources, "predictors": predictors, "adapter": type(adapter).__name__})

    @property
    def deliverable(self) -> Any:
        made = clone(self._program, {id(lm.lm): lm.lm for lm in self._lms.all})
        write_texts(made, self._layout.spots, self._texts)
        return made

    def texts_of(self, program: Any) -> dict[str, str]:
        """The texts that stand in another dspy program of this layout, by path."""
        return {path: read_text(program, spot) for path, spot in self._layout.spots.items()}

    def with_prompts(self, prompts: Mapping[str, str]) -> DspyProgram:
        check_parts(self, prompts, "with_prompts")
        empty = [path for path, text in prompts.items() if not text.strip() and text != self._texts[path]]
        if empty:
            raise UsageError(f"with_prompts: the text of {empty[0]!r} is empty; dspy would put its default instructions in its place.")
        changed = DspyProgram.__new__(DspyProgram)
        changed.__dict__.update({name: value for name, value in self.__dict__.items() if name != "parts"})
        changed._texts = {**self._texts, **prompts}
        changed._made, changed._lock = None, threading.Lock()
        if "parts" in self.__dict__:
            changed.__dict__["parts"] = {path: replace(part, text=changed._texts[path]) for path, part in self.parts.items()}
        return changed

    def run(self, inputs: Mapping[str, Any], call: CallModel | None = None) -> Execution:
        module, output = self._runnable(), None
        error: Exception | None = None
        with self._recording(call or way_out(), trace=[]) as recorder:
            try:
                output = run_coroutine(module.acall(**inputs)) if _only_async(module) else module(**inputs)
            except RunError:
                raise
            except UsageError as raised:
                if recorder.stop is None:
                    raise
                error = raised
            except Exception as raised:
                error = as_our_error(raised, recorder.faults)
        if recorder.stop is not None:
            raise recorder.stop
        return Execution(output, error, self._with_shadows(recorder.trace), recorder.outage)

    def _runnable(self) -> Any:
        """The copy that runs: with our LMs and texts, and each predictor knowing its path."""
        with self._lock:
            if self._made is None:
                made = clone(self._program, self._lms.routed)
                write_texts(made, self._layout.spots, self._texts)
                for path, value in reachable(made):
                    if isinstance(value, load_dspy().Predict):
                        vars(value)[PATH] = path
                for path, predictor in made.named_predictors():
                    vars(predictor)[PATH] = path
                self._made = made
            return self._made

    @contextmanager
    def _recording(self, call: CallModel, **settings: Any) -> Iterator[Recorder]:
        """Dspy's settings as they were when this was made, with our LMs, and a recorder."""
        dspy = load_dspy()
        recorder = Recorder(call, dspy.Predict)
        ours = {
            "lm": self._lms.in_place(self._settings.get("lm")),
            "adapter": self._lms.in_place(self._settings.get("adapter")),
            "callbacks": [*(self._settings.get("callbacks") or []), recorder],
            "caller_modules": [*(self._settings.get("caller_modules") or []), recorder.sink],
            "disable_history": False,
            "max_history_size": _HISTORY,
            RECORDER: recorder,
        }
        with dspy.context(**{**self._settings, **ours, **settings}):
            yield recorder

    def _with_shadows(self, trace: Trace) -> Trace:
        """The trace with calls of no cost under the paths of descriptions: what they shape is their owner's call."""
        spots = [spot for spot in self._layout.spots.values() if spot.kind != "instructions"]
        shadows = [_shadow(call, spot.path) for spot in spots for call in trace.of(spot.owner)]
        return Trace((*trace.calls, *shadows)) if shadows else trace

    def open(self, spec: Any) -> LM:
        if is_dspy_lm(spec):
            return self._lms.of(spec)
        return open_lm(spec)

    def examples(self, source: Any, what: str) -> Sequence[Example]:
        return dspy_examples(self._program, source, what)

    def judged_by(self, feedback: Callable[..., Any] | None) -> Callable[..., Any]:
        # a method of the class; an attribute of this name may be a predictor
        own = vars(type(self._program)).get("feedback")
        chosen = feedback or (own.__get__(self._program) if inspect.isfunction(own) else None)
        if chosen is None:
            raise UsageError("no feedback: pass feedback=metric, a dspy metric(example, prediction) or one of ours.")
        predictors = dict(self._program.named_predictors())
        return DspyMetric(chosen, lambda: self._recording(way_out()), predictors)

    def sendable(self) -> DspyProgram:
        raise UsageError("a dspy program runs in threads, since its LMs are objects of this process: use workers=16.")


class _Lms:
    """The dspy LMs that a program can reach, each with its ``LM`` and its routed copy.

    Args:
        roots: where to look: the program, the LM and the adapter of dspy's settings.
    """

    def __init__(self, roots: Sequence[Any]) -> None:
        found = [value for root in roots if root is not None for _, value in reachable(root) if is_dspy_lm(value)]
        self._known = {id(lm): DspyLM(lm) for lm in found}
        self.routed: dict[int, Any] = {key: routed(known.lm, known) for key, known in self._known.items()}
        self._placed: dict[int, Any] = {}

    @property
    def all(self) -> list[DspyLM]:
        """In the order they were found."""
        return list(self._known.values())

    def of(self, lm: Any) -> DspyLM:
        """The ``LM`` of a dspy LM, the same each time."""
        known = as_lm(lm)
        assert known is not None
        return self._known.setdefault(id(lm), known)

    def in_place(self, value: Any) -> Any:
        """An LM's routed copy; a copy of an adapter with routed LMs in the places of its own; anything else as it is."""
        if value is None or id(value) in self.routed:
            return self.routed.get(id(value))
        if not any(id(held) in self.routed for held in getattr(value, "__dict__", {}).values()):
            return value
        if id(value) not in self._placed:
            made = value.__class__.__new__(value.__class__)
            made.__dict__.update({name: self.routed.get(id(held), held) for name, held in vars(value).items()})
            self._placed[id(value)] = made
        return self._placed[id(value)]


def _only_async(module: Any) -> bool:
    return not hasattr(type(module), "forward") and hasattr(type(module), "aforward")


def _shadow(call: Call, path: str) -> Call:
    return replace(call, module=path, messages=(), usage=Usage(), seconds=0.0)


def _source(cls: type) -> str:
    for name in ("forward", "aforward"):
        try:
            return f"{cls.__qualname__}: {inspect.getsource(vars(cls)[name])}"
        except (KeyError, OSError, TypeError):
            continue
    return cls.__qualname__
