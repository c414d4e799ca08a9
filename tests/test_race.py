"""The race of several starts: side by side, within the budget, paid once, and shown."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

import gepa_lite as gl
from gepa_lite import api
from gepa_lite.cli.app import app
from gepa_lite.core.events import SeedValidated, Stopped, Validated
from gepa_lite.errors import BudgetSpentError, ModelConnectionError, ModelsDownError
from gepa_lite.insight.distance import TextSpace
from gepa_lite.insight.measures import read_trail
from gepa_lite.insight.race import race_of
from gepa_lite.insight.trail import Trail
from gepa_lite.report.pages import Look
from gepa_lite.search.race import race
from gepa_lite.search.state import replay
from gepa_lite.session import Session
from gepa_lite.store.browse import Browse
from gepa_lite.store.memory import MemoryStore
from gepa_lite.store.run_store import RunStore
from gepa_lite.testing import ScriptedLM
from tests.test_starts import GOOD, LM, OTHER, answer_to, events_of, run
from tests.triage import Triage, answer, reflector, rows


class Bench:
    """Ports that count what is asked for at once, and refuse it."""

    def __init__(self) -> None:
        self.raced = [0]

    def gather(self, tasks: Any) -> list[Any]:
        self.raced.append(len(tasks))
        return [task() for task in tasks]

    def evaluate(self, *arguments: Any, **options: Any) -> Any:
        raise BudgetSpentError("no token is left")


def test_as_many_starts_run_at_once_as_the_budget_has_room_for_at_their_worst() -> None:
    seed = replay(events_of([GOOD, OTHER, {"gist": "x"}], rollouts=200)[:2])
    cases = {31: 0, 32: 1, 47: 1, 48: 2, 63: 2, 64: 3, 200: 3}
    for rollouts, raced in cases.items():
        bench = Bench()
        outcomes = list(race(seed.under(gl.Budget(rollouts=rollouts)), gl.Search(), cast("Any", bench)))
        assert bench.raced[-1] == raced, rollouts
        # the first one is refused by the meter: nothing behind it is handed out
        assert [type(outcome) for outcome in outcomes] == [Stopped]
    each = seed.costs.rollout_tokens * 16
    tokens = gl.Budget(tokens=int(seed.spend.tokens + 2.5 * each))
    bench = Bench()
    list(race(seed.under(tokens), gl.Search(), cast("Any", bench)))
    assert bench.raced[-1] == 2


def test_all_starts_are_in_flight_at_once() -> None:
    together = threading.Barrier(2, timeout=20)
    first_calls, met = {"rule refund. rule leak", "rule praise"}, set()
    lock = threading.Lock()

    def meet(request: gl.Request) -> str:
        system = request.messages[0]["content"]
        with lock:
            mark = next((mark for mark in first_calls if mark in system), None)
            first_calls.discard(mark or "")
        if mark is not None:
            # broken after a while unless the other start's first call waits here too
            together.wait()
            met.add(mark)
        return answer(request)

    prepared = api.prepare(
        [Triage(lm=ScriptedLM(meet, name="task")), GOOD, OTHER],
        rows(24, 1),
        rows(4, 2),
        reflection_lm=reflector(),
        budget=gl.Budget(rollouts=60),
        workers=2 * 4,
    )
    store = MemoryStore()
    Session(prepared.spec, store).run()
    assert len(met) == 2
    assert [type(event) for event in store.events()[2:4]] == [Validated, Validated]


def test_a_race_that_breaks_off_keeps_the_starts_before_and_pays_no_rollout_twice() -> None:
    whole = events_of([GOOD, OTHER, {"gist": "One line."}])
    calls: Counter[tuple[str, str]] = Counter()
    down = True

    def flaky(request: gl.Request) -> str:
        system, user = request.messages[0]["content"], request.messages[-1]["content"]
        if down and "rule praise" in system and "number 3 of" in user:
            raise ModelConnectionError("down")
        calls[system, user] += 1
        return answer(request)

    store = MemoryStore()

    def go() -> None:
        prepared = api.prepare(
            [Triage(lm=ScriptedLM(flaky, name="task")), GOOD, OTHER, {"gist": "One line."}],
            rows(24, 1),
            rows(16, 2),
            reflection_lm=reflector(),
            budget=gl.Budget(rollouts=300),
        )
        Session(prepared.spec, store).run()

    with pytest.raises(ModelsDownError, match="1 of 16 rollouts are missing"):
        go()
    assert store.events() == whole[:3]
    paid = sum(calls.values())
    down = False
    go()
    assert store.events() == whole
    assert paid > 16
    assert set(calls.values()) == {1}


def raced(folder: Path) -> gl.Result[Triage]:
    """A run of four starts, of which one breaks a pin and one is read from a bundle with a hostile name."""
    pin = next(row for row in rows(9, 8) if answer_to({"route": "Decide how urgent it is."}, row) == row["urgency"] == "low")
    worse = {"route": f"Decide how urgent it is. rule {pin['kind']}."}
    assert answer_to(worse, pin) == "low"
    broken = {"route": "Decide how urgent it is. rule refund!"}

    def task(request: gl.Request) -> str:
        system, user = request.messages[0]["content"], request.messages[-1]["content"]
        return "high" if "rule refund!" in system and pin["message"] in user else answer(request)

    first = run(folder / "first")
    bundle = first.save(folder / "<b>x|y@z.prompts.json")
    return run(
        folder / "run",
        [OTHER, broken],
        Triage(lm=ScriptedLM(task, name="task", usd_per_token=1e-6)),
        search=gl.Search(pins=(pin,), start=bundle),
        budget=gl.Budget(rollouts=400),
    )


def test_the_report_the_command_and_the_live_pages_show_the_race(tmp_path: Path) -> None:
    result = raced(tmp_path)
    assert [(start.index, start.vetoed) for start in result.starts] == [(0, False), (1, False), (None, True), (2, False)]
    assert [start.rollouts for start in result.starts] == [17, 17, 1, 17]
    assert all(start.tokens > 0 and start.usd == pytest.approx(start.tokens * 1e-6) for start in result.starts)
    assert sum(start.won for start in result.starts) >= 1
    with Browse(tmp_path / "run") as browse:
        trail = read_trail(browse)
        assert Look(trail, browse, TextSpace(trail.modules)).race == result.starts
    text, page, markdown = str(result), gl.report_html(result), gl.report_markdown(result)
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "run")]).stdout
    for start in result.starts[:2]:
        assert f"{start.mean:.3f}   [{start.low:.3f}, {start.high:.3f}]" in text
        assert f"{start.mean:.3f}   [{start.low:.3f}, {start.high:.3f}]" in shown
        assert f"| {start.mean:.3f} | {start.low:.3f} to {start.high:.3f} | 17 | {start.tokens:,} | {start.usd:.4f} |" in markdown
        assert f">{start.low:.3f} to {start.high:.3f}</td>" in page
    for words in ("vetoed: worse than the first program on a pin", "the winner comes from here"):
        assert all(words in place for place in (text, shown, markdown, page))
    assert "<b>x" not in page
    assert "&lt;b>x\\|y\\@z.prompts.json" in markdown
    testclient = pytest.importorskip("starlette.testclient")
    from gepa_lite.ui.app import make_app

    with testclient.TestClient(make_app(tmp_path, None), base_url="http://localhost") as pages:
        live = pages.get("/run/run").text
        assert "<h2>Starts</h2>" in live
        assert '<a href="/run/run/candidate/1">#1</a>' in live
        assert "<h2>Starts</h2>" not in pages.get("/run/first").text
    assert "<h2>Starts</h2>" not in gl.report_html(str(tmp_path / "first"))
    assert "### Starts" not in gl.report_markdown(str(tmp_path / "first"))


def test_a_race_that_goes_on_is_shown_as_far_as_it_is_known(tmp_path: Path) -> None:
    run(tmp_path / "run", [GOOD, OTHER])
    with Browse(tmp_path / "run") as browse:
        events = list(browse.events(0))
        known: list[Any] = []
        for count in range(1, 5):
            trail = Trail()
            trail.follow(events[:count])
            known.append([(start.mean is not None, start.words(trail.stopped is not None)) for start in race_of(trail)])
    ahead, waits = (True, "the best so far comes from here"), (False, "not run yet")
    assert known[0] == []
    assert known[1] == [ahead, waits, waits]
    assert known[2] == [(True, ""), ahead, waits]
    assert [scored for scored, _ in known[3]] == [True, True, True]


def test_show_says_of_a_run_cut_in_its_race_what_is_not_run_yet(tmp_path: Path) -> None:
    prepared = api.prepare([Triage(lm=LM), GOOD], rows(24, 1), rows(16, 2), reflection_lm=reflector(), budget=gl.Budget(rollouts=100))

    class Cut(Exception):
        pass

    class Cutter:
        def on_event(self, event: Any, state: Any) -> None:
            if isinstance(event, SeedValidated):
                raise Cut

        def on_rollout(self, rollout: Any, saved: bool) -> None:
            pass

        def on_notice(self, text: str) -> None:
            pass

        def close(self) -> None:
            pass

    with RunStore.create(tmp_path / "run") as store, pytest.raises(Cut):
        Session(prepared.spec, store, [Cutter()]).run()
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "run")])
    assert shown.exit_code == 0, shown.output
    assert "not run yet" in shown.stdout
    assert "the best so far comes from here" in shown.stdout
