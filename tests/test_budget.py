"""The budget: every kind, at any concurrency, across resumes, with prices by hand."""

from __future__ import annotations

import itertools
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gepa_lite as gl
from gepa_lite import api
from gepa_lite.core.call import Usage
from gepa_lite.core.events import Proposed, Stopped
from gepa_lite.errors import BudgetSpentError, ModelTimeoutError, UsageError
from gepa_lite.lm.breaker import Breaker
from gepa_lite.lm.client import ModelClient
from gepa_lite.lm.meter import Meter, call_bound
from gepa_lite.lm.prices import PriceTable, read_prices
from gepa_lite.search.state import replay
from gepa_lite.session import Session
from gepa_lite.store.memory import MemoryStore
from gepa_lite.testing import ScriptedLM
from tests.triage import Triage, answer, program, reflect, reflector, rows

PRICE = 2e-6


class RandomCosts:
    """Takes a random part of what each request allows, up to all of it."""

    def __init__(self, script: Any, name: str, seed: int = 0, price: float | None = PRICE) -> None:
        self.info = gl.LMInfo(name, usd_per_input_token=price, usd_per_output_token=price)
        self._script, self._seed, self._price = script, seed, price
        self._number, self._lock = itertools.count(), threading.Lock()

    def describe(self) -> gl.LMInfo:
        return self.info

    def complete(self, request: gl.Request) -> gl.Completion:
        with self._lock:
            draw = random.Random(f"{self._seed} {next(self._number)}")
        bound = call_bound(self.info, request)
        tokens_in = draw.choice([bound.input_tokens, draw.randint(0, bound.input_tokens)])
        tokens_out = draw.choice([bound.output_tokens, draw.randint(0, bound.output_tokens)])
        usd = None if self._price is None else self._price * (tokens_in + tokens_out)
        return gl.Completion(self._script(request), usage=Usage(1, tokens_in, tokens_out, usd), model=self.info.name)


class Short(Triage):
    """With small replies, so that a small budget pays for some steps."""

    gist = gl.Module("message -> gist", "Say in one sentence what the sender wants.", max_tokens=20)
    route = gl.Module("message, gist -> urgency: Literal['low', 'medium', 'high']", "Decide how urgent it is.", max_tokens=20, retries=0)


def session(store: MemoryStore, budget: gl.Budget, seed: int = 0, fan: int = 2, workers: int = 16, test: int = 4) -> Any:
    """One session of a small run with random costs; None where the budget can't even pay for the seed's validation."""
    task = Short(lm=RandomCosts(answer, "task", seed))
    options: dict[str, Any] = {
        "testset": rows(test, 3) if test else None,
        "reflection_lm": RandomCosts(reflect, "reflector", seed + 1),
        "budget": budget,
        "search": gl.Search(fan=fan, reflection_tokens=100),
        "workers": workers,
    }
    try:
        return Session(api.prepare(task, rows(24, 1), rows(16, 2), **options).spec, store).run()
    except UsageError as error:
        if "can't pay for" not in str(error):
            raise
        return None


@settings(max_examples=25, deadline=None)
@given(tokens=st.integers(100, 3_000), calls=st.integers(1, 40), seed=st.integers(0, 10**6), workers=st.integers(1, 16))
def test_no_call_passes_tokens_or_dollars_at_any_concurrency(tokens: int, calls: int, seed: int, workers: int) -> None:
    lm, store = RandomCosts(lambda request: "hi", "task", seed), MemoryStore()
    way = ModelClient(store, Meter(gl.Budget(tokens=tokens, usd=tokens * PRICE * 0.9), Usage()), Breaker(), lambda: None)

    def call(number: int) -> bool:
        request = gl.Request(({"role": "user", "content": f"{number} {'x' * (number % 90)}"},), gl.Params(max_tokens=50 + number))
        try:
            way.call(lm, request, role=("task", "judge", "reflection", "training")[number % 4], sample=0, address=(number,))
        except BudgetSpentError:
            return False
        return True

    with ThreadPoolExecutor(workers) as pool:
        answered = sum(pool.map(call, range(calls)))
    paid = store.paid()
    assert paid.total.tokens <= tokens
    assert (paid.total.usd or 0.0) <= tokens * PRICE * 0.9 + 1e-12
    assert paid.total.calls == answered == sum(usage.calls for usage in paid.settled.values()), "what was refused is not booked"


BUDGETS = st.fixed_dictionaries(
    {},
    optional={
        "rollouts": st.integers(50, 250),
        "tokens": st.integers(3_000, 60_000),
        "usd": st.floats(0.004, 0.12),
        "proposals": st.integers(2, 12),
    },
).filter(bool)


@settings(max_examples=20, deadline=None)
@given(bounds=BUDGETS, seed=st.integers(0, 10**6), fan=st.sampled_from([1, 2, 3]))
def test_no_kind_of_budget_is_passed_by_a_run_or_its_resumes(bounds: dict[str, Any], seed: int, fan: int) -> None:
    """Invariant 3, for rollouts, tokens, dollars and proposals, under random costs, with a test set, over three sessions of which two are cut short."""
    store, budget = MemoryStore(), gl.Budget(**bounds)
    for number in range(3):
        if number < 2:
            cut_short(store, budget, seed + number, fan, after=15 + 25 * number)
        outcome = session(store, budget, seed + number, fan)
    paid, state = store.paid().total, replay(store.events())
    assert paid.tokens <= bounds.get("tokens", paid.tokens)
    assert (paid.usd or 0.0) <= bounds.get("usd", float("inf")) + 1e-12
    assert state.spend.rollouts <= bounds.get("rollouts", state.spend.rollouts)
    assert state.spend.proposals <= bounds.get("proposals", state.spend.proposals)
    if outcome is not None:
        assert not any("passed" in notice for notice in outcome.notices)
        assert outcome.state.best.mean is not None, "the best so far is kept"


def cut_short(store: MemoryStore, budget: gl.Budget, seed: int, fan: int, after: int) -> None:
    """A session that ends by an error after so many rollouts."""

    class Power:
        count = itertools.count()

        def on_event(self, *_: Any) -> None: ...
        def on_notice(self, _: str) -> None: ...
        def close(self) -> None: ...
        def on_rollout(self, _: Any, saved: bool) -> None:
            if next(self.count) >= after:
                raise RuntimeError("the power is gone")

    task = Short(lm=RandomCosts(answer, "task", seed))
    rules = gl.Search(fan=fan, reflection_tokens=100)
    lm = RandomCosts(reflect, "reflector", seed + 1)
    try:
        spec = api.prepare(task, rows(24, 1), rows(16, 2), testset=rows(4, 3), reflection_lm=lm, budget=budget, search=rules).spec
        Session(spec, store, [Power()]).run()
    except (RuntimeError, UsageError):
        return


def test_running_out_keeps_every_paid_rollout_and_returns_the_best_so_far() -> None:
    store = MemoryStore()
    outcome = session(store, gl.Budget(tokens=9_000), test=0)
    assert any(isinstance(event, Stopped) and event.code == "budget" for event in store.events())
    kept = list(store.rollouts())
    again = session(store, gl.Budget(tokens=400_000, rollouts=200), test=0)
    assert [rollout.key for rollout in list(store.rollouts())[: len(kept)]] == [rollout.key for rollout in kept]
    assert again.state.best.mean >= outcome.state.best.mean


def test_a_bound_below_a_cent_is_not_said_to_be_nothing() -> None:
    assert gl.Budget(usd=0.001, rollouts=2_000).describe() == "2,000 rollouts, 0.0010 USD"
    request = gl.Request(({"role": "user", "content": "Repeat the word."},), gl.Params(max_tokens=4))
    way = ModelClient(MemoryStore(), Meter(gl.Budget(usd=0.00034), Usage()), Breaker(), lambda: None)
    with pytest.raises(BudgetSpentError, match=r"0\.00034 of 0\.00034 USD are left; the next call may take \d\.\d"):
        way.call(ScriptedLM("one", name="task", usd_per_token=0.0002), request, role="task", sample=0, address=())


def test_a_deadline_ends_the_search_in_time_for_the_test_set() -> None:
    """Time is cut call by call, so a step in flight does not pass it; what the test set needs is kept free by the pace so far."""
    store = MemoryStore()
    task = Triage(lm=ScriptedLM(answer, name="task", seconds=0.005))
    options: dict[str, Any] = {"reflection_lm": reflector(seconds=0.05), "budget": gl.Budget(seconds=1.5), "testset": rows(8, 3)}
    spec = api.prepare(task, rows(24, 1), rows(16, 2), search=gl.Search(skip_perfect=False), **options, workers=4).spec
    state = Session(spec, store).run().state
    assert state.stopped is not None
    assert state.stopped.code in ("budget", "perfect")
    assert state.tested is not None


def test_no_call_is_sent_after_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that jumps past the deadline within a step: the step's next call is refused, and the run ends with what it has."""
    store, clock = MemoryStore(), [0.0]
    spec = api.prepare(program(), rows(24, 1), rows(16, 2), reflection_lm=reflector(), budget=gl.Budget(seconds=1_000), workers=1).spec
    run = Session(spec, store)
    monkeypatch.setattr(run, "elapsed", lambda: clock[0])

    class Jump:
        def on_event(self, event: Any, state: Any) -> None:
            if isinstance(event, Proposed):
                clock[0] = 2_000.0

        def on_notice(self, _: str) -> None: ...
        def close(self) -> None: ...
        def on_rollout(self, rollout: Any, saved: bool) -> None: ...

    run.observers = [Jump()]
    state = run.run().state
    assert state.stopped is not None
    assert "1,000 seconds are over" in state.stopped.reason
    assert state.next_step == 1
    assert state.best.mean is not None


def test_a_model_that_keeps_to_no_limit_passes_by_its_calls_in_flight_and_the_result_says_by_how_much() -> None:
    def verbose(request: gl.Request) -> gl.Completion:
        return gl.Completion(answer(request), usage=Usage(1, 10, 20 if next(count) < 35 else 900, 0.0))

    store, count = MemoryStore(), itertools.count()
    task = Short(lm=ScriptedLM(verbose, name="task"))
    spec = api.prepare(task, rows(24, 1), rows(16, 2), reflection_lm=reflector(), budget=gl.Budget(tokens=4_500), workers=2).spec
    outcome = Session(spec, store).run()
    over = outcome.paid.tokens - 4_500
    assert 0 < over <= 2 * 910, "at most the calls in flight"
    assert any(f"passed by {over:,} of 4,500 tokens" in notice for notice in outcome.notices)


def test_a_call_that_timed_out_counts_at_its_bound() -> None:
    """The endpoint may charge for a reply that came too late."""
    store = MemoryStore()
    meter = Meter(gl.Budget(tokens=10_000), Usage())
    way = ModelClient(store, meter, Breaker(), lambda: None)
    request = gl.Request(({"role": "user", "content": "hello"},), gl.Params(max_tokens=70))
    with pytest.raises(ModelTimeoutError):
        way.call(ScriptedLM(lambda _: ModelTimeoutError("late")), request, role="task", sample=0, address=())
    assert store.paid().total == meter.spent
    assert meter.spent.output_tokens == 70


# --- prices ---------------------------------------------------------------------------------------------------------


def test_an_unknown_price_is_asked_for_and_taken_by_hand(tmp_path: Path) -> None:
    task = program(usd_per_token=None)
    call: dict[str, Any] = {"reflection_lm": reflector(), "budget": gl.Budget(usd=1.0)}
    with pytest.raises(UsageError, match="prices=\\{'task': \\(USD per million input tokens"):
        gl.optimize(task, rows(24, 1), rows(16, 2), **call)
    result = gl.optimize(task, rows(24, 1), rows(16, 2), **call, prices={"task": (100.0, 400.0)}, run=tmp_path / "run")
    task_usage = result.costs.roles["task"]
    assert task_usage.usd == pytest.approx(task_usage.input_tokens * 1e-4 + task_usage.output_tokens * 4e-4)
    assert result.costs.paid.usd is not None
    assert result.costs.paid.usd <= 1.0
    assert f"{task_usage.usd:.4f}" in str(result), "the split by role is in the report"


def test_a_price_by_hand_comes_before_a_known_one_and_prices_a_judge_too() -> None:
    table = read_prices({"judge": (1, 2)})
    assert table.describe(ScriptedLM("x", name="judge", usd_per_token=5.0)).usd_per_output_token == 2e-6
    store = MemoryStore()
    way = ModelClient(store, Meter(gl.Budget(usd=1.0), Usage()), Breaker(), lambda: None, table)
    request = gl.Request(({"role": "user", "content": "one two"},))
    way.call(ScriptedLM("yes", name="judge", usd_per_token=None), request, role="judge", sample=0, address=())
    assert store.paid().settled["judge"].usd == pytest.approx(2e-6 + 2e-6)
    with pytest.raises(UsageError, match="its name"):
        way.call(ScriptedLM("yes", name="other", usd_per_token=None), request, role="judge", sample=0, address=())


@pytest.mark.parametrize(
    "spec", [{"m": 1.0}, {"m": (1.0,)}, {"m": (1.0, -2.0)}, {"m": "12"}, {"m": (True, 1)}, {"m": (1.0, float("nan"))}, 3]
)
def test_wrong_prices_are_named(spec: Any) -> None:
    with pytest.raises(UsageError, match="prices"):
        read_prices(spec)


def test_a_misspelt_name_in_prices_is_named() -> None:
    with pytest.raises(UsageError, match="Did you mean 'task'"):
        api.prepare(program(), rows(24, 1), rows(16, 2), prices={"taks": (1, 2)})
    PriceTable({"another/judge": (1.0, 2.0)}).check_names(["task"])


def test_priced_models_get_a_default_cap_that_is_said() -> None:
    prepared = api.prepare(program(usd_per_token=None), rows(24, 1), rows(16, 2), reflection_lm=reflector(), prices={"task": (1, 2)})
    assert prepared.spec.budget.usd == 2.0
    assert prepared.default_budget
    notices = Session(prepared.spec, MemoryStore(), keep_budget=prepared.default_budget).run().notices
    assert any("No budget was given" in notice and "2.00 USD" in notice for notice in notices)
    assert api.prepare(program(), rows(24, 1), rows(16, 2)).spec.budget.usd is None, "a free model needs no cap"
    assert api.prepare(program(usd_per_token=None), rows(24, 1), rows(16, 2)).spec.budget.usd is None, (
        "an unknown price is not held to a cap"
    )
