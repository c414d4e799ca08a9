"""How a user's callable is called: what it takes of an example, and how it is run to its end, whether it returns, awaits or yields."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gepa_lite.core.example import Example, make_example
from gepa_lite.errors import UsageError
from gepa_lite.program.bridge import run_coroutine
from gepa_lite.prompting import Reading, context_of, guarding, reading

Collect = Literal["last", "list", "text"]
"""What the output of a generator is: its last value, all values, or all values joined as one text."""

PROMPTS = "prompts"
EXAMPLE = "example"

_END: Any = object()


def innermost(fn: Any) -> Any:
    """The function behind partials and methods; of an object its ``__call__``."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if not inspect.isroutine(fn):
        fn = type(fn).__call__
    return inspect.unwrap(getattr(fn, "__func__", fn))


def name_of(fn: Any) -> str:
    """What to call it: the function's name, for objects that of their class."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = getattr(fn, "__name__", type(fn).__name__)
    return str(name) if str(name).isidentifier() else "function"


def yields(fn: Any) -> bool:
    """Whether it is a generator function, also an asynchronous one."""
    target = innermost(fn)
    return inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target)


@dataclass(frozen=True)
class Takes:
    """What a callable takes.

    Attributes:
        prompts: whether it has a parameter ``prompts``, which gets the texts by name.
        example: whether it has a parameter ``example``, which gets the fields of an example as one dict.
        anything: whether it takes ``**kwargs``, which get every field.
        required: its other parameters without a default, which get the fields of these names.
        optional: those with a default.
        positional: those of them that can't be named in a call.
    """

    prompts: bool
    example: bool
    anything: bool
    required: tuple[str, ...]
    optional: tuple[str, ...]
    positional: tuple[str, ...]

    def arguments(self, inputs: Mapping[str, Any], texts: Mapping[str, str]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a call on an example's inputs."""
        values: dict[str, Any] = {PROMPTS: texts} if self.prompts else {}
        if self.example:
            values[EXAMPLE] = dict(inputs)
        else:
            values.update(inputs)
        return [values.pop(name) for name in self.positional if name in values], values

    def split(self, rows: Sequence[Mapping[str, Any]], inputs: Sequence[str] | None, what: str) -> list[Example]:
        """Examples with inputs told from labels.

        Args:
            rows: field values by name.
            inputs: the fields that are inputs; None leaves it to the parameters.
            what: the set's name.

        Raises:
            UsageError: a row lacks an input.
        """
        if inputs is not None:
            return [make_example(row, inputs, self.optional, what) for row in rows]
        if self.example or self.anything:
            return [make_example(row, tuple(row), (), what) for row in rows]
        try:
            return [make_example(row, self.required, self.optional, what) for row in rows]
        except UsageError as error:
            if len(self.required) != 1:
                raise
            raise UsageError(
                f"{error} A function that takes the whole example at once has a parameter of the name 'example': def fn(example, prompts)."
            ) from None


def read_signature(fn: Any) -> Takes:
    """What a callable takes, by its signature.

    Raises:
        UsageError: it has none, or takes ``*args``, or nothing at all.
    """
    name = name_of(fn)
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        raise UsageError(
            f"wrap: Python knows no signature of {name}: wrap a function around it, lambda message: {name}(message)."
        ) from None
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        raise UsageError(f"wrap: {name} takes *args: name its inputs, so that the fields of an example find their places.")
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters)
    named = [p for p in parameters if p.kind is not p.VAR_KEYWORD and p.name not in (PROMPTS, EXAMPLE)]
    takes = Takes(
        prompts=any(p.name == PROMPTS for p in parameters),
        example=any(p.name == EXAMPLE for p in parameters),
        anything=anything,
        required=tuple(p.name for p in named if p.default is p.empty),
        optional=tuple(p.name for p in named if p.default is not p.empty),
        positional=tuple(p.name for p in parameters if p.kind is p.POSITIONAL_ONLY),
    )
    if takes.example and takes.required:
        raise UsageError(
            f"wrap: {name} takes the whole example, and {takes.required[0]!r} beside it: bind it first, functools.partial({name}, {takes.required[0]}=...)."
        )
    if not (takes.example or takes.anything or takes.required or takes.optional):
        raise UsageError(f"wrap: {name} takes no input: name a field of the examples, or 'example' for all of them.")
    return takes


def finished(value: Any, collect: Collect | None, name: str) -> Any:
    """The output of a call: what it returned, what its coroutine returned, or what its generator yielded.

    Raises:
        UsageError: it is a generator, and nothing says what its output is.
    """
    if inspect.isawaitable(value):
        value = run_coroutine(_awaited(value))
    if inspect.isasyncgen(value):
        return collected(run_coroutine(_all(value)), collect, name)
    return collected(list(value), collect, name) if inspect.isgenerator(value) else value


def collected(values: list[Any], collect: Collect | None, name: str) -> Any:
    """The output of a generator that yielded these values.

    Raises:
        UsageError: nothing says what it is.
    """
    if collect is None:
        raise UsageError(f"wrap: {name} yields: say what its output is, collect='last' (value), 'list' (of all) or 'text' (joined).")
    if collect == "text":
        return "".join(map(str, values))
    return values if collect == "list" else (values[-1] if values else None)


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


async def _all(values: AsyncIterator[Any]) -> list[Any]:
    return [value async for value in values]


def call_reading(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], texts: Reading, *, guard: bool) -> Any:
    """Call it as it is called without us, with these texts in force until it has ended: it gives back a value, an awaitable, or an iterator.

    Args:
        fn: the callable.
        args: by position.
        kwargs: by name.
        texts: by name.
        guard: see ``prompting.guarding``.
    """
    with reading(texts, guard=guard):
        value = fn(*args, **kwargs)
    if inspect.isawaitable(value):
        return _awaited_reading(value, texts, guard)
    if inspect.isgenerator(value):
        return _steps_reading(value, texts, guard)
    return _async_steps_reading(value, texts, guard) if inspect.isasyncgen(value) else value


async def _awaited_reading(value: Awaitable[Any], texts: Reading, guard: bool) -> Any:
    with reading(texts, guard=guard):
        return await value


def _steps_reading(steps: Iterator[Any], texts: Reading, guard: bool) -> Iterator[Any]:
    # in a context of their own: between two values the caller's is the caller's
    context = context_of(texts)
    with guarding(texts) if guard else contextlib.nullcontext():
        while (value := context.run(next, steps, _END)) is not _END:
            yield value


async def _async_steps_reading(steps: AsyncIterator[Any], texts: Reading, guard: bool) -> AsyncIterator[Any]:
    context, loop = context_of(texts), asyncio.get_running_loop()
    with guarding(texts) if guard else contextlib.nullcontext():
        while (value := await loop.create_task(_awaited(anext(steps, _END)), context=context)) is not _END:
            yield value
