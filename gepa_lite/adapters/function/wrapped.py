"""``gl.wrap``: a user's own function as a program, without a change to what it does."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gepa_lite.adapters.function.calling import Collect, call_reading, finished, innermost, name_of, read_signature, yields
from gepa_lite.adapters.function.faults import as_fault
from gepa_lite.adapters.recording.scope import CallSource, Scope
from gepa_lite.adapters.recording.sources import SourceSpec, read_sources
from gepa_lite.bundle import load_prompts
from gepa_lite.core.call import Usage
from gepa_lite.core.contract import Contract
from gepa_lite.core.example import Example
from gepa_lite.core.ids import content_hash
from gepa_lite.core.placeholders import likely_form, placeholders_of
from gepa_lite.data import load_rows
from gepa_lite.errors import RunError, UsageError
from gepa_lite.lm.protocol import LM
from gepa_lite.lm.resolve import LMSpec, open_lm
from gepa_lite.program.chat import ChatModel
from gepa_lite.program.optimizable import Execution, Part, check_parts
from gepa_lite.program.recorder import CallModel, calling_through, way_out
from gepa_lite.prompting import Reading, reading, shipped_prompts

_SETTLING = 10.0
"""Seconds that a rollout waits for the ends of calls that its function has its answers of."""

_FORM_WORDS = {
    "format": "Code fills it in by str.format: write every other brace twice, {{ and }}.",
    "template": "Code fills it in by string.Template: write every other dollar sign twice, $$.",
    "jinja": "It is a Jinja2 template, which code renders.",
}


class Wrapped:
    """A callable with prompts that can be optimized: what ``gl.wrap`` returns, and what ``result.program`` is. It is never changed.

    Called, it does what the callable does, and returns what it returns, coroutines and iterators too, with these prompts in force. One that was just wrapped lets shipped prompts go first
    (see ``gl.prompt``); one with chosen prompts (``result.program``, ``load``, ``with_prompts``) keeps to them.

    Implements ``Optimizable``.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        prompts: Mapping[str, str],
        *,
        lm: LM | None,
        sources: Sequence[CallSource],
        inputs: Sequence[str] | None,
        collect: Collect | None,
        name: str,
    ) -> None:
        self._fn = fn
        self._takes = read_signature(fn)
        self._texts = dict(prompts)
        self._chosen = False
        self._lm = lm
        self._sources = tuple(sources)
        self._inputs = None if inputs is None else tuple(inputs)
        self._collect: Collect | None = collect
        self._name = name
        given: Mapping[str, Contract] = getattr(prompts, "contracts", {})
        self._contracts = {path: given.get(path) or Contract(form=likely_form(text)) for path, text in self._texts.items()}
        self._forms = {path: contract.form for path, contract in self._contracts.items()}
        self._fingerprints = {
            path: content_hash([contract.form, sorted(contract.resolved(self._texts[path], 1).placeholders or ())])
            for path, contract in self._contracts.items()
        }

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, with these prompts in force. A parameter ``prompts`` is filled in."""
        shipped = {} if self._chosen else {name: text for name, text in (shipped_prompts() or {}).items() if name in self._texts}
        texts = Reading({**self._texts, **shipped})
        if self._takes.prompts:
            kwargs.setdefault("prompts", texts)
        return call_reading(self._fn, args, kwargs, texts, guard=self._chosen)

    def __repr__(self) -> str:
        return f"Wrapped({self._name}: {', '.join(self._texts)})"

    @property
    def name(self) -> str:
        return self._name

    @property
    def purpose(self) -> str:
        target = self._fn if not inspect.isroutine(innermost(self._fn)) else innermost(self._fn)
        return " ".join((inspect.getdoc(target) or "").split())

    @property
    def notices(self) -> Sequence[str]:
        if self.metered:
            return ()
        return (
            f"Model calls that {self._name} makes by itself are not seen: their tokens and dollars are unknown, and the budget counts rollouts. "
            f"To see and count them, see gl.wrap(record=...).",
        )

    @property
    def metered(self) -> bool:
        return self._lm is not None or bool(self._sources)

    @property
    def calls_held(self) -> bool:
        return self.metered and all(source.holds for source in self._sources)

    @property
    def parts(self) -> dict[str, Part]:
        model = "" if self._lm is None else self._lm.describe().name
        return {
            path: Part(text, self._signature, self._fingerprints[path], self._words(path), model, self._contracts[path])
            for path, text in self._texts.items()
        }

    @property
    def prompts(self) -> dict[str, str]:
        return dict(self._texts)

    @property
    def models(self) -> Mapping[str, LM]:
        return {} if self._lm is None else dict.fromkeys(self._texts, self._lm)

    @property
    def fingerprint(self) -> str:
        target = innermost(self._fn)
        try:
            source = inspect.getsource(target)
        except (OSError, TypeError):
            source = getattr(target, "__qualname__", type(target).__qualname__)
        return content_hash([source, self._collect, self._inputs, self._fingerprints])

    @property
    def deliverable(self) -> Wrapped:
        return self

    def with_prompts(self, prompts: Mapping[str, str]) -> Wrapped:
        check_parts(self, prompts, "with_prompts")
        changed = Wrapped.__new__(Wrapped)
        changed.__dict__.update(self.__dict__)
        changed._texts = {**self._texts, **prompts}
        changed._chosen = True
        return changed

    def load(self, path: str | os.PathLike[str]) -> Wrapped:
        """The same with the prompts of a bundle.

        Raises:
            UsageError: the bundle can't be read, or its prompts have other names or placeholders than this function's.
        """
        bundle = load_prompts(path)
        bundle.check_modules(self._fingerprints)
        return self.with_prompts(bundle)

    def run(self, inputs: Mapping[str, Any], call: CallModel | None = None) -> Execution:
        for source in self._sources:
            source.listen()
        texts = Reading(self._texts)
        scope = Scope(texts, self._forms, call or way_out(), self._sources)
        args, kwargs = self._takes.arguments(inputs, texts)
        output: Any = None
        error: Exception | None = None
        with reading(texts), scope.active(), calling_through(scope):
            try:
                output = finished(self._fn(*args, **kwargs), self._collect, self._name)
            except (RunError, UsageError) as raised:
                scope.stop = scope.stop or raised
            except Exception as raised:
                error = as_fault(raised)
            scope.settle(_SETTLING)
        if (stop := scope.stop or texts.lost) is not None:
            raise stop
        unseen = Usage() if self.metered or scope.recorded else Usage(usd=None)
        return Execution(output, error, scope.trace(inputs, output, error, unseen), scope.outage)

    def open(self, spec: Any) -> LM:
        return open_lm(spec)

    def examples(self, source: Any, what: str) -> Sequence[Example]:
        return self._takes.split(load_rows(source, what).rows, self._inputs, what)

    def judged_by(self, feedback: Callable[..., Any] | None) -> Callable[..., Any]:
        if feedback is None:
            raise UsageError(
                f"no feedback: pass feedback=..., a function (example, output) or (example, output, trace) of what {self._name} returns."
            )
        return feedback

    def sendable(self) -> Wrapped:
        return self

    @property
    def _signature(self) -> str:
        takes = self._takes
        names = ["example"] if takes.example else [*takes.required, *takes.optional]
        return f"{self._name}({', '.join(names)})"

    def _words(self, path: str) -> str:
        lines = [
            f"The text is the prompt {path!r} of a program's function {self._signature}, which sends it to a model by code of its own. What is sent beside it stands in the cases."
        ]
        if self._forms[path] in _FORM_WORDS:
            lines.append(_FORM_WORDS[self._forms[path]])
        found = placeholders_of(self._texts[path], self._forms[path])
        if found:
            lines.append(f"Code fills in {', '.join(sorted(found))}.")
        return "\n".join(lines)


def wrap(
    fn: Callable[..., Any],
    prompts: Mapping[str, str],
    *,
    lm: LMSpec | ChatModel | None = None,
    record: SourceSpec = (),
    inputs: Sequence[str] | None = None,
    collect: Collect | None = None,
    name: str | None = None,
) -> Wrapped:
    """Any callable as a program, so that ``gl.optimize`` can improve the prompts it uses. It is called as it is: nothing in it is patched.

    It gets its prompts by a parameter ``prompts`` (texts by name), or reads them by ``gl.prompt(name)`` anywhere inside. Its other parameters get the fields of an example by their names; one
    that is called ``example`` gets all of them. Functions, methods, partials, objects with ``__call__``, coroutine functions and generators are taken. It is called from many threads at once.

    Placeholders in the prompts (``{x}``, ``$x``, ``{{ x }}``, ``%(x)s``) are found and held: no rewrite may lose one or add one. Filling them in stays the function's own affair.

    Args:
        fn: the callable.
        prompts: its prompts by name, as they are now; also what ``gl.prompts_from`` read.
        lm: the ``gl.ChatModel`` that it asks, or its model, if it asks one: reflects too where no other is named, and tells the run its price beforehand.
        record: where its model calls are seen, so that each prompt has traces of its own, and tokens and dollars count: ``"litellm"``, a ``gl.proxy()``, ``gl.spans()``, or several. Calls by
            ``gl.ChatModel`` and by a ``gl.Program`` are seen in any case. Without it other calls work, unseen: the budget counts rollouts, and dollars are unknown.
        inputs: the fields of an example that are inputs; by default its parameters decide, and with a parameter ``example`` all are.
        collect: what the output of a generator is: its ``"last"`` value, the ``"list"`` of all, or all joined as one ``"text"``. Needed for generators alone.
        name: what to call it; by default the function's name.

    Returns:
        The callable, to call as before and to give to ``gl.optimize`` and ``gl.evaluate``.

    Raises:
        UsageError: no callable, no prompts, or a signature that examples can't fill.

    Example:
        >>> import gepa_lite as gl
        >>> def shout(word, prompts):
        ...     return word.upper() if "capital" in prompts["style"] else word
        >>> wrapped = gl.wrap(shout, prompts={"style": "Repeat the word in capital letters."})
        >>> wrapped("red")
        'RED'
        >>> print(gl.evaluate(wrapped, [{"word": "hi"}, {"word": "HO"}], feedback=lambda example, output: output.isupper()))
        1.000 [1.000, 1.000] (n=2)
    """
    if isinstance(fn, type) or not callable(fn):
        kind = f"the class {fn.__name__}; make an instance" if isinstance(fn, type) else f"of type {type(fn).__name__}"
        raise UsageError(f"wrap: fn is {kind}; a callable is needed: a function, a method, an object with __call__.")
    if not isinstance(prompts, Mapping) or not prompts:
        raise UsageError("wrap: prompts={name: text} is needed, with at least one prompt.")
    for key, text in prompts.items():
        if not isinstance(key, str) or not isinstance(text, str) or not key:
            raise UsageError(f"wrap: prompts[{key!r}] is of type {type(text).__name__}; names and texts are needed.")
    if yields(fn) and collect is None:
        raise UsageError(f"wrap: {name_of(fn)} yields: say what its output is, collect='last' (value), 'list' (of all) or 'text' (joined).")
    if collect not in (None, "last", "list", "text"):
        raise UsageError(f"wrap: collect={collect!r}; 'last', 'list' or 'text' is needed.")
    return Wrapped(
        fn,
        prompts,
        lm=_opened(lm),
        sources=read_sources(record),
        inputs=inputs,
        collect=collect,
        name=name or name_of(fn),
    )


def _opened(lm: LMSpec | ChatModel | None) -> LM | None:
    return lm.lm if isinstance(lm, ChatModel) else None if lm is None else open_lm(lm)
