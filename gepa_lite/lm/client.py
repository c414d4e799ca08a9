"""Every model call of a run goes through here: cache, join, reserve, call, save, settle.

The store and the ledger come as ports; a reply is durable before it is used, and a failure is never cached.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from gepa_lite.core.budget import Role
from gepa_lite.core.call import Usage
from gepa_lite.core.ids import content_hash
from gepa_lite.errors import GepaLiteError, ModelError, ModelTimeoutError, StoreError
from gepa_lite.lm.breaker import Breaker
from gepa_lite.lm.made import MadeCall
from gepa_lite.lm.meter import Meter, call_bound
from gepa_lite.lm.prices import PriceTable
from gepa_lite.lm.protocol import LM, AddressedLM, Completion, Request


class CompletionStore(Protocol):
    """Where paid replies are kept."""

    def completion(self, key: str) -> Completion | None:
        """The reply saved under this key, or None."""
        ...

    def save_completion(self, key: str, completion: Completion, role: Role, seconds: float, call_id: str | None = None) -> None:
        """Keep a reply and settle its call; durable before it returns."""
        ...

    def begin_call(self, call_id: str, role: Role, model: str, bound: Usage) -> None:
        """Note that a call is about to be paid for, so that a crash's losses are known; does not wait."""
        ...

    def end_call(self, call_id: str, usage: Usage, seconds: float, attempts: int, outcome: str) -> None:
        """Settle a call that brought no reply."""
        ...


def call_key(lm: LM, request: Request, sample: int, address: tuple[int | str, ...]) -> str:
    """What makes a call the same call: endpoint, model and its settings, messages, parameters, sample number, and its address within the rollout or proposal."""
    info = lm.describe()
    return content_hash([info.endpoint, info.name, info.settings, request, sample, list(address)])


class ModelClient:
    """The run's way to its models. Safe to use from many threads; identical calls in flight are joined and paid once.

    Args:
        store: where replies and what they cost are kept.
        meter: holds tokens and dollars to the budget.
        breaker: ends the run when models are down.
        interrupted: raises where no new work may be taken.
        prices: given by hand.
        earlier: a reply that another run paid for, by its key, or None.
    """

    def __init__(
        self,
        store: CompletionStore,
        meter: Meter,
        breaker: Breaker,
        interrupted: Callable[[], None],
        prices: PriceTable | None = None,
        earlier: Callable[[str], Completion | None] | None = None,
    ) -> None:
        self._store = store
        self._meter = meter
        self._breaker = breaker
        self._interrupted = interrupted
        self._prices = prices or PriceTable()
        self._earlier = earlier or (lambda key: None)
        self._in_flight: dict[str, Future[Completion]] = {}
        self._unsaved: StoreError | None = None
        self._lock = threading.Lock()

    def call(self, lm: LM, request: Request, *, role: Role, sample: int, address: tuple[int | str, ...]) -> Completion:
        """The reply to a request: a saved one, one that another thread is waiting for, or a new one.

        Raises:
            ModelError: the call failed after the model's own retries.
            ModelsDownError: too many calls failed in a row.
            BudgetSpentError: the call's bound does not fit in what is left.
        """
        key = call_key(lm, request, sample, address)
        if isinstance(lm, MadeCall):
            return self._book(key, lm, role)
        with self._lock:
            other = self._in_flight.get(key)
            mine: Future[Completion] = Future()
            if other is None:
                self._in_flight[key] = mine
        if other is not None:
            return other.result()
        try:
            completion = self._store.completion(key) or self._borrowed(key, role) or self._pay(key, lm, request, role, (sample, address))
        except BaseException as error:
            mine.set_exception(error)
            raise
        else:
            mine.set_result(completion)
            return completion
        finally:
            with self._lock:
                del self._in_flight[key]

    def _borrowed(self, key: str, role: Role) -> Completion | None:
        completion = self._earlier(key)
        if completion is not None:
            self._store.save_completion(key, completion, role, 0.0)
        return completion

    def _book(self, key: str, made: MadeCall, role: Role) -> Completion:
        """Book a call that was made past the run: none is taken for another, and none is refused."""
        name, seconds = self._prices.describe(made).name, made.seconds
        call_id = uuid.uuid4().hex
        if isinstance(made.outcome, ModelError):
            spent = Usage(calls=1)
            self._store.begin_call(call_id, role, name, spent)
            self._store.end_call(call_id, spent, seconds, 1, made.outcome.kind)
            self._meter.book(spent)
            self._breaker.failure(role, name, made.outcome, key)
            raise made.outcome
        completion = self._prices.settle(name, made.outcome)
        self._store.begin_call(call_id, role, name, completion.usage)
        self._store.save_completion(key, completion, role, seconds, call_id)
        self._meter.book(completion.usage)
        self._breaker.success(role, name)
        return completion

    def _pay(self, key: str, lm: LM, request: Request, role: Role, at: tuple[int, tuple[int | str, ...]]) -> Completion:
        info = self._prices.describe(lm)
        self._interrupted()
        self._breaker.check(role, info.name)
        if self._unsaved is not None:
            raise self._unsaved
        bound = call_bound(info, request)
        self._meter.reserve(bound)
        spent = Usage()
        try:
            call_id = uuid.uuid4().hex
            self._store.begin_call(call_id, role, info.name, bound)
            started = time.perf_counter()
            try:
                completion = self._prices.settle(info.name, _complete(lm, request, at))
            except ModelError as error:
                spent = _charged(bound, error)
                self._store.end_call(call_id, spent, time.perf_counter() - started, error.attempts, error.kind)
                self._breaker.failure(role, info.name, error, key)
                raise
            spent = completion.usage
            try:
                self._store.save_completion(key, completion, role, time.perf_counter() - started, call_id)
            except StoreError as error:
                # a reply that can't be kept is lost: no other call is paid for
                self._unsaved = error
                raise
            self._breaker.success(role, info.name)
            return completion
        finally:
            self._meter.settle(bound, spent)


def _charged(bound: Usage, error: ModelError) -> Usage:
    """What a failed call may cost: an endpoint may charge for a reply that came too late to be read, in each of its attempts."""
    if not isinstance(error, ModelTimeoutError):
        return Usage(calls=1)
    times = error.attempts
    usd = None if bound.usd is None else times * bound.usd
    return Usage(1, times * bound.input_tokens, times * bound.output_tokens, usd)


def _complete(lm: LM, request: Request, at: tuple[int, tuple[int | str, ...]]) -> Completion:
    """Ask a model; what an LM object raises that is no error of ours is the world's fault, never the candidate's."""
    try:
        return lm.complete_at(request, *at) if isinstance(lm, AddressedLM) else lm.complete(request)
    except GepaLiteError:
        raise
    except Exception as error:
        raise ModelError(f"{lm.describe().name} raised {type(error).__name__}: {error}") from error
