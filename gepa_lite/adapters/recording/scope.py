"""One rollout of code that we don't own: its model calls on the way to the run or booked after, and the trace that comes of them."""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from gepa_lite.adapters.recording.attribution import carried_by, inputs_without_prompt
from gepa_lite.core.call import Call, Trace, Usage
from gepa_lite.core.ids import content_hash, jsonable
from gepa_lite.errors import ModelError, RunError, UsageError
from gepa_lite.lm.made import MadeCall
from gepa_lite.lm.protocol import LM, Completion, Request
from gepa_lite.program.recorder import CallModel
from gepa_lite.prompting import Reading, last_read

OTHER = "(other calls)"
"""The path of calls that carry none of the prompts."""


@runtime_checkable
class CallSource(Protocol):
    """Where calls of the user's own code are seen: a proxy, callbacks, spans. It must survive pickling, for worker processes."""

    @property
    def holds(self) -> bool:
        """Whether a call comes here before it is made, and not only once it has its answer."""
        ...

    def listen(self) -> None:
        """Begin to watch, in this process; called before every rollout, so it costs nothing the second time."""
        ...


@dataclass(frozen=True, slots=True)
class _Recorded:
    request: Request
    reply: str
    completion: Completion | None
    fault: ModelError | None
    model: str
    seconds: float
    module: str | None
    last_read: str | None
    place: int


_scope: contextvars.ContextVar[Scope | None] = contextvars.ContextVar("gepa_lite_scope", default=None)
_module: contextvars.ContextVar[str | None] = contextvars.ContextVar("gepa_lite_attributed", default=None)
_lock = threading.Lock()
_scopes: dict[str, Scope] = {}


class Scope:
    """Implements ``CallModel``, so that whatever is called through us inside the function joins its trace. Used by several threads.

    Attributes:
        token: names the rollout in URLs and keys.
        texts: the prompts in force.
        sources: as they were given.
        stop: an error that ends the run, also where the function swallowed it.

    Args:
        texts: the prompts in force.
        forms: of the prompts, see ``Contract``.
        call: how calls reach their models.
        sources: where its calls are seen; others that watch in this process leave it alone.
    """

    def __init__(self, texts: Reading, forms: Mapping[str, str], call: CallModel, sources: Sequence[CallSource] = ()) -> None:
        self.token = uuid.uuid4().hex
        self.texts = texts
        self.sources = tuple(sources)
        self._forms = forms
        self._call = call
        self._occurrences: Counter[str] = Counter()
        self._recorded: list[_Recorded] = []
        self._failed: dict[str, ModelError] = {}
        self._places = itertools.count()
        self._open: dict[int, Callable[[], None]] = {}
        self._changed = threading.Condition()
        self.stop: RunError | UsageError | None = None

    @contextlib.contextmanager
    def active(self) -> Iterator[Scope]:
        """Within the block it is the rollout of this context, and known by its token."""
        token = _scope.set(self)
        with _lock:
            _scopes[self.token] = self
        try:
            yield self
        finally:
            _scope.reset(token)
            with _lock:
                del _scopes[self.token]

    def __call__(self, lm: LM, request: Request, occurrence: int) -> Completion:
        """See ``CallModel``; equal requests are counted here, for all that the function calls."""
        return self.pay(lm, request)

    def pay(
        self,
        lm: LM,
        request: Request,
        *,
        module: str | None = None,
        read: str | None = None,
        shown: Callable[[str], str] = str,
        place: int | None = None,
    ) -> Completion:
        """Make a call through the run, or book one that was made (``MadeCall``), and record it.

        Args:
            lm: who is asked.
            request: what.
            module: the prompt that it carries, where that is known; else the one found in the messages.
            read: the prompt that was read last where the call was made; None asks this context.
            shown: a reply as the reflection model sees it.
            place: of the call in the trace, from ``opened``; None puts it after those that have begun.

        Raises:
            ModelError: the call failed.
            RunError: the run can't go on.
        """
        if self.stop is not None and not isinstance(lm, MadeCall):
            raise self.stop
        info = lm.describe()
        digest = content_hash([info.endpoint, info.name, request])
        with self._changed:
            occurrence = self._occurrences[digest]
            self._occurrences[digest] += 1
            place = next(self._places) if place is None else place
        module, read = module or _module.get(), read or last_read()
        started = time.perf_counter()
        completion: Completion | None = None
        fault: ModelError | None = None
        # what is seen of the way out itself is this call, not one more
        outside = _scope.set(None)
        try:
            completion = self._call(lm, request, occurrence)
        except ModelError as error:
            fault = error
            raise
        except (RunError, UsageError) as error:
            self.stop = self.stop or error
            raise
        finally:
            _scope.reset(outside)
            seconds = lm.seconds if isinstance(lm, MadeCall) else time.perf_counter() - started
            made = completion or (lm.outcome if isinstance(lm, MadeCall) and isinstance(lm.outcome, Completion) else None)
            reply = "" if made is None else shown(made.text)
            name = info.name if made is None else made.model or info.name
            recorded = _Recorded(request, reply, made, fault, name, seconds, module, read, place)
            self._keep(digest, occurrence, recorded)
        return completion

    def book(self, made: MadeCall, request: Request, *, module: str | None, read: str | None, place: int | None) -> None:
        """``pay`` for a call that was made past the run, where nobody could take an error: the scope itself keeps what it means for the rollout and for the run."""
        with contextlib.suppress(ModelError, RunError, UsageError):
            self.pay(made, request, module=module, read=read, place=place)

    def _keep(self, digest: str, occurrence: int, recorded: _Recorded) -> None:
        with self._changed:
            if recorded.fault is None and recorded.completion is None:
                return
            self._recorded.append(recorded)
            if recorded.fault is None:
                # a client that tries again and gets its answer has had no outage
                self._failed.pop(digest, None)
                return
            if self._occurrences[digest] == occurrence + 1:
                self._occurrences[digest] = occurrence
            if recorded.fault.fault == "world":
                self._failed.setdefault(digest, recorded.fault)

    def next_place(self) -> int:
        """The place of a call that is about to begin; what its client does before it goes out may take longer than for the calls behind it."""
        with self._changed:
            return next(self._places)

    def opened(self, abandoned: Callable[[], None] = lambda: None, place: int | None = None) -> int:
        """A call began whose end will be told later, perhaps by another thread.

        Args:
            abandoned: called where the rollout ends and the call's end was not told in time.
            place: from ``next_place``; None takes the next one, and so does one that a call holds already, e.g. of a request that was sent on.

        Returns:
            Its place among the calls, for ``pay`` and ``closed``: the trace is in the order the calls began, and the threads that tell their ends may come in any.
        """
        with self._changed:
            place = next(self._places) if place is None or place in self._open else place
            self._open[place] = abandoned
            return place

    def closed(self, place: int) -> None:
        """Such a call has ended and is recorded."""
        with self._changed:
            self._open.pop(place, None)
            self._changed.notify_all()

    def settle(self, seconds: float) -> None:
        """Wait for calls that have begun, at most so long: their ends are told after the function has its answers."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open, seconds)
            left = list(self._open.values())
        for abandoned in left:
            abandoned()

    @property
    def outage(self) -> ModelError | None:
        """The first failure of a call that was the world's fault and that no repeat of the call made good."""
        with self._changed:
            return next(iter(self._failed.values()), None)

    @property
    def recorded(self) -> bool:
        """Whether any call was seen."""
        with self._changed:
            return bool(self._recorded)

    def trace(self, inputs: Mapping[str, Any], output: Any, error: Exception | None, unseen: Usage) -> Trace:
        """Each call under the prompt that it carries, in the order they began; prompts that were read and that no call carries have the function's own inputs and output.

        Args:
            inputs: of the function.
            output: of the function.
            error: what it raised, or None.
            unseen: what a prompt's calls that were not seen consumed.
        """
        with self._changed:
            recorded = sorted(self._recorded, key=lambda item: item.place)
        calls = [self._call_of(item) for item in recorded]
        carried = {call.module for call in calls}
        words = None if error is None else f"{type(error).__name__}: {error}"
        outputs = None if error is not None else {"output": jsonable(output)}
        shadows = [
            Call(name, dict(inputs), (), outputs=outputs, error=words, error_kind=None if words is None else "exception", usage=unseen)
            for name in self.texts.read
            if name not in carried
        ]
        return Trace((*calls, *shadows))

    def _call_of(self, item: _Recorded) -> Call:
        found = carried_by(item.request.messages, self.texts.texts, self._forms, item.last_read)
        fault, completion = item.fault, item.completion
        return Call(
            module=item.module or (OTHER if found is None else found.module),
            inputs=inputs_without_prompt(item.request.messages) if found is None else found.inputs,
            messages=item.request.messages,
            reply=item.reply,
            outputs=None if fault is not None else {"text": item.reply},
            error=None if fault is None else str(fault),
            error_kind=None if fault is None else fault.kind,
            finish_reason=None if completion is None else completion.finish_reason,
            model=item.model,
            usage=Usage(calls=1) if completion is None else completion.usage,
            seconds=item.seconds,
        )


def current_scope(kind: type[Any] | None = None) -> Scope | None:
    """The rollout that this code runs in, or None.

    Args:
        kind: of source; a rollout whose calls are not to be seen by one of these is None.
    """
    scope = _scope.get()
    if scope is None or kind is None or any(isinstance(source, kind) for source in scope.sources):
        return scope
    return None


def scope_of(token: str) -> Scope | None:
    """The rollout of a token, or None."""
    with _lock:
        return _scopes.get(token)


def only_scope() -> Scope | None:
    """The one rollout that runs in this process; None where there is none or more than one."""
    with _lock:
        return next(iter(_scopes.values())) if len(_scopes) == 1 else None


def all_scopes() -> list[Scope]:
    """The rollouts that run in this process."""
    with _lock:
        return list(_scopes.values())


def attributed() -> str | None:
    """The module that ``attribute_to`` names in this context, or None."""
    return _module.get()


@contextlib.contextmanager
def attribute_to(name: str) -> Iterator[None]:
    """Model calls within the block belong to this prompt, whatever their messages hold.

    Needed only where code changes a prompt so much that it can't be found in what is sent. Calls through a proxy don't know of it: use ``proxy.url(name)``.

    Args:
        name: as in ``gl.wrap(fn, prompts={name: ...})``.

    Example:
        >>> import gepa_lite as gl
        >>> with gl.attribute_to("summarize"):
        ...     pass
    """
    token = _module.set(name)
    try:
        yield
    finally:
        _module.reset(token)
