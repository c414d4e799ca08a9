"""``gl.prompt``: a prompt's text wherever code stands. Within a rollout it is the candidate's, in production what was shipped, else the default.

Standard library alone, as the bundle's loader, since production imports it.
"""

from __future__ import annotations

import contextlib
import contextvars
import difflib
import os
import threading
from collections.abc import Iterator, Mapping

from gepa_lite.bundle import LivePrompts, Prompts, load_prompts
from gepa_lite.errors import UsageError

VARIABLE = "GEPA_LITE_PROMPTS"
"""The environment variable that holds the path of the bundle that is in force where code names none."""


class Reading(Mapping[str, str]):
    """The texts that hold in one context, by name; it keeps which of them were read. Safe to use from several threads.

    Attributes:
        lost: set where code asked for one of these prompts in a thread that does not know of them.

    Args:
        texts: by name.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = dict(texts)
        self._read: dict[str, None] = {}
        self.lost: UsageError | None = None

    @property
    def read(self) -> list[str]:
        """The names that were read so far, in order of the first time."""
        return list(self._read)

    @property
    def texts(self) -> Mapping[str, str]:
        """All texts; looking here counts as no reading."""
        return self._texts

    def __getitem__(self, name: str) -> str:
        if name not in self._texts:
            raise KeyError(
                f"there is no prompt {name!r}; there is {', '.join(map(repr, self._texts)) or 'none'}.{_near(name, self._texts)}"
            )
        self._read[name] = None
        _last.set(name)
        return self._texts[name]

    def __contains__(self, name: object) -> bool:
        return name in self._texts

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __repr__(self) -> str:
        return f"Prompts({', '.join(self._texts)})"


_last: contextvars.ContextVar[str | None] = contextvars.ContextVar("gepa_lite_last_read", default=None)
_reading: contextvars.ContextVar[Reading | None] = contextvars.ContextVar("gepa_lite_reading", default=None)
_lock = threading.Lock()
_active: dict[int, Reading] = {}
_given: Mapping[str, str] | LivePrompts | None = None
_from_files: dict[str, Prompts] = {}


@contextlib.contextmanager
def guarding(texts: Reading) -> Iterator[None]:
    """Within the block, threads that know of no texts are refused the names of these, since they may have lost their context."""
    with _lock:
        _active[id(texts)] = texts
    try:
        yield
    finally:
        with _lock:
            del _active[id(texts)]


@contextlib.contextmanager
def reading(texts: Reading, *, guard: bool = True) -> Iterator[Reading]:
    """Within the block, ``prompt`` returns these texts in this context.

    Args:
        texts: by name.
        guard: see ``guarding``; False where the defaults would do as well.
    """
    with guarding(texts) if guard else contextlib.nullcontext():
        token = _reading.set(texts)
        try:
            yield texts
        finally:
            _reading.reset(token)


def context_of(texts: Reading) -> contextvars.Context:
    """A copy of this context in which ``prompt`` returns these texts."""
    context = contextvars.copy_context()
    context.run(_reading.set, texts)
    return context


def prompt(name: str, default: str | None = None) -> str:
    """The text of a prompt, here and now.

    Within a rollout: the candidate's. Elsewhere: that of the bundle that ``gl.use_prompts`` was given; else of the bundle that the environment variable ``GEPA_LITE_PROMPTS`` names; else
    ``default``. It follows the context: into coroutines, ``asyncio.gather``, ``asyncio.to_thread`` and worker processes of a run by itself; into other threads through ``gl.carry``, and a
    thread without it gets an error, never another text.

    Args:
        name: as in ``gl.wrap(fn, prompts={name: ...})``.
        default: what it is where nothing else says so.

    Raises:
        UsageError: nothing says what it is; or the thread has lost its context.

    Example:
        >>> import gepa_lite as gl
        >>> gl.prompt("greet", "Greet the person.")
        'Greet the person.'
        >>> classify = gl.wrap(lambda word: f"{gl.prompt('greet')} {word}", prompts={"greet": "Say hello to"})
        >>> classify("Ada")
        'Say hello to Ada'
    """
    here = _reading.get()
    if here is not None and name in here:
        return here[name]
    if here is None:
        _refuse_if_lost(name)
    texts = shipped_prompts()
    if texts is not None and name in texts:
        return texts[name]
    if default is not None:
        return default
    known = [*(here or ()), *(texts or ())]
    raise UsageError(
        f"there is no prompt {name!r} here: call the function that gl.wrap returned, ship a bundle (gl.use_prompts(path), or {VARIABLE}=path), "
        f"or give a default, gl.prompt({name!r}, TEXT).{_near(name, known)}"
    )


def last_read() -> str | None:
    """The name of the prompt that was read last in this context: of calls that could carry several prompts, it tells which they carry."""
    return _last.get()


def use_prompts(prompts: LivePrompts | Mapping[str, str] | str | os.PathLike[str] | None) -> None:
    """Say which prompts ``gl.prompt`` returns outside of runs, in the whole process, from now on.

    Args:
        prompts: the path of a bundle, what ``gl.load_prompts`` read, or texts by name; ``gl.LivePrompts(folder)`` follows a registry: what is promoted there holds from the next call of a wrapped
            function on, and elsewhere from the next ``gl.prompt``. None goes back to ``GEPA_LITE_PROMPTS`` and the defaults.

    Raises:
        UsageError: the bundle can't be read.

    Example:
        >>> import gepa_lite as gl
        >>> gl.use_prompts({"greet": "Greet the person warmly."})
        >>> gl.prompt("greet", "Greet the person.")
        'Greet the person warmly.'
        >>> gl.use_prompts(None)
    """
    global _given  # noqa: PLW0603, what is shipped holds for the process, as the environment does
    texts: Mapping[str, str] | LivePrompts | None = load_prompts(prompts) if isinstance(prompts, (str, os.PathLike)) else prompts
    if texts is not None and not isinstance(texts, (Mapping, LivePrompts)):
        raise UsageError(
            f"use_prompts: the path of a bundle, texts by name or a gl.LivePrompts are needed, but got {type(texts).__name__}."
        )
    _given = texts


def shipped_prompts() -> Mapping[str, str] | None:
    """The prompts that are in force outside of runs, or None. A file that the environment names is read once."""
    if _given is not None:
        return _given.now() if isinstance(_given, LivePrompts) else _given
    path = os.environ.get(VARIABLE)
    if not path:
        return None
    with _lock:
        if path not in _from_files:
            _from_files[path] = load_prompts(path)
        return _from_files[path]


def _refuse_if_lost(name: str) -> None:
    with _lock:
        asked = [texts for texts in _active.values() if name in texts]
        if not asked:
            return
        error = UsageError(
            f"gl.prompt({name!r}) was called in a thread that does not know which rollout it belongs to: wrap the function that the thread runs, "
            f"executor.submit(gl.carry(fn), ...), use asyncio.to_thread, or read the text before and pass it on. Context variables do not travel into threads by themselves."
        )
        for texts in asked:
            texts.lost = texts.lost or error
    raise error


def _near(name: str, known: object) -> str:
    names = [str(item) for item in known] if isinstance(known, (list, Mapping)) else []
    near = difflib.get_close_matches(name, names, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
