"""The search on scripted models: invariants of a whole run, numbered as in docs/invariants.md."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite import api
from gepa_lite.core.events import Event, Proposed, SeedValidated, Stopped, Validated
from gepa_lite.errors import AuthError, FeedbackError, ModelsDownError, RateLimitError, UsageError
from gepa_lite.search.state import RunState, replay
from gepa_lite.session import Session
from gepa_lite.store.memory import MemoryStore
from gepa_lite.testing import ScriptedLM
from tests.triage import Triage, answer, program, reflect, reflector, rows


def search(
    store: MemoryStore | None = None, workers: int = 4, test: int = 0, task: Any = None, lm: Any = None, **options: Any
) -> list[Event]:
    """Run in memory; the journal."""
    options.setdefault("budget", gl.Budget(rollouts=300))
    options.setdefault("search", gl.Search.paper())
    prepared = api.prepare(
        task or program(),
        rows(24, 1),
        rows(16, 2),
        testset=rows(test, 3) if test else None,
        reflection_lm=lm or reflector(),
        workers=workers,
        **options,
    )
    store = store or MemoryStore()
    Session(prepared.spec, store).run()
    return store.events()


EVERY_OPTION: list[dict[str, Any]] = [
    {},
    {"fan": 4, "selector": "top_k_pareto", "modules": "blame", "validation": "staged", "merge": "complementary"},
    {"fan": 3},
    {"window": 4},
    {"fan": 2, "window": 3},
    {"reuse": False},
    {"repeats": 2},
    {"selector": "best"},
    {"selector": "likely"},
    {"selector": "elite", "frontier": "hybrid"},
    {"selector": "beam", "frontier": "product"},
    {"accept": "non_strict"},
    {"accept": "paired", "minibatch": 5},
    {"minibatch": ((0, 2), (5, 4))},
    {"sampling": "hard"},
    {"modules": "all"},
    {"modules": "blame"},
    {"merge": "paper"},
    {"merge": "complementary"},
    {"validation": "staged", "validation_block": 4, "validation_bound": 0.2},
    {"horizon": "episode"},
    {"horizon": "adaptive"},
    {"proposer": "edit"},
    {"plateau": 2},
    {"skip_perfect": False},
    {"prefer": "short"},
    {"frontier": "hybrid", "objectives": ("prompt_tokens",)},
    {"shorten": 60},
    {"pins": tuple(rows(3, 8)), "fan": 2},
    {"guard": "warn"},
    {"guard": "off", "fan": 2},
    {"overlap": True},
    {"overlap": True, "fan": 3, "merge": "paper", "modules": "blame"},
    {"overlap": True, "fan": 2, "merge": "complementary", "validation": "staged", "selector": "top_k_pareto"},
    {"overlap": True, "pins": tuple(rows(3, 8)), "fan": 2},
    {"overlap": True, "reuse": False, "proposer": "edit"},
]


@pytest.mark.parametrize("options", EVERY_OPTION, ids=str)
def test_invariant_1_the_log_does_not_depend_on_workers(options: dict[str, Any]) -> None:
    logs = [search(workers=workers, search=gl.Search.paper(**options)) for workers in (1, 4, 16)]
    assert logs[0] == logs[1] == logs[2]


def test_invariant_2_the_log_does_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    code = "from tests.test_search_run import search; from gepa_lite.core.ids import content_hash; print(content_hash(search()))"
    digests = set()
    for seed in ("0", "1", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[1])}
        digests.add(subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(digests) == 1


@pytest.mark.parametrize("rollouts", [39, 60, 97, 150, 211])
@pytest.mark.parametrize("workers", [1, 16])
def test_invariant_3_the_budget_is_never_passed(rollouts: int, workers: int) -> None:
    task = ScriptedLM(answer, name="task")
    state = replay(search(workers=workers, budget=gl.Budget(rollouts=rollouts), task=Triage(lm=task)))
    assert state.spend.rollouts <= rollouts
    assert state.stopped is not None
    assert task.calls <= 2 * rollouts


@pytest.mark.parametrize("tokens", [400, 1_500, 3_000, 6_000])
def test_tokens_are_never_passed_at_any_concurrency(tokens: int) -> None:
    task, reflection = ScriptedLM(answer, name="task"), reflector()
    store = MemoryStore()
    small = gl.Params(max_tokens=8)

    class Small(Triage):
        gist = gl.Module("message -> gist", "Say in one sentence what the sender wants.", params=small)
        route = gl.Module("message, gist -> urgency: Literal['low', 'medium', 'high']", "Decide how urgent it is.", params=small)

    rules = gl.Search.paper(reflection_tokens=64)
    budget = gl.Budget(tokens=tokens)
    if tokens < 1_000:
        with pytest.raises(UsageError, match="can't pay for the seed"):
            search(store, 16, task=Small(lm=task), lm=reflection, budget=budget, search=rules)
    else:
        events = search(store, 16, task=Small(lm=task), lm=reflection, budget=budget, search=rules)
        assert any(isinstance(event, Stopped) and event.code == "budget" for event in events)
    assert store.paid().total.tokens <= tokens


def test_invariant_4_fronts_never_fall_and_no_candidate_comes_twice() -> None:
    states = list(itertools.accumulate(search(), lambda state, event: state.apply(event), initial=RunState()))
    best: list[float] | None = None
    for state in states:
        if not state.seed_validated:
            continue
        now = state.table.array.max(axis=0).tolist()
        assert best is None or all(a >= b for a, b in zip(now, best, strict=True))
        best = now
    ids = [member.candidate.id for member in states[-1].pool]
    assert len(set(ids)) == len(ids)
    assert states[1].spend.rollouts == 0, "applying an event leaves older states as they were"


def test_invariant_5_each_rollout_is_paid_once() -> None:
    seen: list[Any] = []

    class Watch:
        def on_event(self, event: Event, state: RunState) -> None: ...
        def on_notice(self, text: str) -> None: ...
        def close(self) -> None: ...
        def on_rollout(self, rollout: Any, saved: bool) -> None:
            if not saved:
                seen.append(rollout.key)

    prepared = api.prepare(program(), rows(24, 1), rows(16, 2), reflection_lm=reflector(), budget=gl.Budget(rollouts=300))
    store = MemoryStore()
    state = Session(prepared.spec, store, [Watch()]).run().state
    assert len(seen) == len(set(seen)) == state.spend.rollouts


def test_rollouts_are_booked_as_the_paper_counts_them() -> None:
    events = search(search=gl.Search.paper(reuse=False))
    state = replay(events)
    proposals = [event for event in events if isinstance(event, Proposed)]
    tried = sum(3 + (3 if event.after else 0) for event in proposals)
    accepted = sum(isinstance(event, Validated) for event in events)
    assert state.spend.rollouts == 16 + tried + 16 * accepted
    assert accepted <= -(-(300 - 16) // (6 + 16))


def test_modules_rotate_per_candidate_on_selection() -> None:
    no_use = ScriptedLM("<prompt>Nothing that helps.</prompt>", name="reflector")
    events = [
        e for e in search(lm=no_use, search=gl.Search.paper(skip_perfect=False), budget=gl.Budget(rollouts=90)) if isinstance(e, Proposed)
    ]
    assert len(events) > 5
    assert [event.module for event in events[:6]] == ["gist", "route", "gist", "route", "gist", "route"]


def test_a_fan_joins_the_best_text_of_each_module_in_one_child() -> None:
    events = search(search=gl.Search.paper(fan=4))
    steps = {event.step for event in events if isinstance(event, Validated)}
    assert steps
    for step in steps:
        accepted = [e for e in events if isinstance(e, Proposed) and e.step == step and e.status == "accepted"]
        (child,) = [e for e in events if isinstance(e, Validated) and e.step == step]
        assert set(child.texts) == {e.module for e in accepted}
        batches = [e.example_ids for e in events if isinstance(e, Proposed) and e.step == step]
        assert len({tuple(sorted(batch)) for batch in batches}) == len(batches)


def test_the_seed_and_the_winner_are_tested_once_and_the_budget_holds_the_test() -> None:
    store = MemoryStore()
    state = replay(search(store, test=30, budget=gl.Budget(rollouts=200)))
    assert state.tested is not None
    assert state.spend.rollouts <= 200
    tested = {rollout.key.candidate_id for rollout in store.rollouts() if rollout.key.example_id in state.started.test_ids}
    assert tested == {state.pool[0].candidate.id, state.best.candidate.id}


def test_optimize_returns_the_evidence_and_resuming_costs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> gl.Result[Triage]:
        return gl.optimize(
            task,
            rows(24, 1),
            rows(16, 2),
            testset=rows(40, 3),
            reflection_lm=reflection,
            run=tmp_path / "run",
            budget=gl.Budget(rollouts=500),
        )

    task, reflection = program(), reflector()
    result = run()
    assert result.verdict == "improved"
    assert result.improved
    assert result.finished
    assert result.program.prompts == result.winner.prompts != result.seed.prompts
    assert result.test is not None
    assert result.test.n == 40
    text = str(result)
    assert "improved" in text
    assert "{+" in text
    path = result.save(tmp_path / "triage.prompts.json")
    assert dict(gl.load_prompts(path)) == result.prompts
    assert task.load(path).prompts == result.prompts
    paid = task.models["route"].calls, reflection.calls  # type: ignore[attr-defined]
    again = run()
    assert (task.models["route"].calls, reflection.calls) == paid  # type: ignore[attr-defined]
    assert str(again.test) == str(result.test)
    assert capsys.readouterr().out == "", "standard output is the user's"


def test_a_run_of_other_settings_is_refused(tmp_path: Path) -> None:
    def run(**changes: Any) -> None:
        options = {"run": tmp_path / "run", "budget": gl.Budget(rollouts=80), "reflection_lm": reflector(), **changes}
        gl.optimize(changes.pop("program", None) or program(), options.pop("trainset", rows(24, 1)), rows(16, 2), **options)

    run()
    with pytest.raises(UsageError, match=r"search[.]seed was 0 and is 1"):
        run(search=gl.Search(seed=1))
    with pytest.raises(UsageError, match="the train set has changed"):
        run(trainset=rows(24, 9))


def test_a_larger_budget_goes_on_and_a_smaller_run_is_its_prefix() -> None:
    short = MemoryStore()
    search(short, budget=gl.Budget(rollouts=80))
    events = search(short, budget=gl.Budget(rollouts=300))
    without = [event for event in events if type(event).__name__ not in ("Stopped", "BudgetChanged")]
    whole = [event for event in search() if not isinstance(event, Stopped)]
    assert without[1:] == whole[1:]


def test_no_valset_splits_the_trainset_and_says_so(tmp_path: Path) -> None:
    result = gl.optimize(program(), rows(40, 1), reflection_lm=reflector(), run=tmp_path / "run")
    assert any("split into 20 examples" in notice for notice in result.notices)
    assert any("No budget was given" in notice and "about 20 proposals" in notice for notice in result.notices)
    again = gl.optimize(program(), rows(40, 1), reflection_lm=reflector(), run=tmp_path / "run")
    (notice,) = [notice for notice in again.notices if "No budget was given" in notice]
    assert notice.startswith("No budget was given: the run goes on with its own, "), "not with the default that is made for a new run"
    assert result.verdict == "validated only"


def test_it_works_inside_a_running_event_loop_and_in_threads_at_once(tmp_path: Path) -> None:
    async def inside() -> gl.Result[Triage]:
        return gl.optimize(
            program(), rows(24, 1), rows(16, 2), reflection_lm=reflector(), run=tmp_path / "loop", budget=gl.Budget(rollouts=80)
        )

    assert asyncio.run(inside()).finished
    results: list[Any] = []

    def work(name: str) -> None:
        results.append(
            gl.optimize(program(), rows(24, 1), rows(16, 2), reflection_lm=reflector(), run=tmp_path / name, budget=gl.Budget(rollouts=80))
        )

    threads = [threading.Thread(target=work, args=(f"t{i}",)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({str(result.validation) for result in results}) == 1
    assert len(results) == 3


class Nested(gl.Program):
    def __init__(self, lm: Any) -> None:
        super().__init__(lm)
        self.inner = Triage()
        self.steps = [gl.Module("message -> note", "Note one thing.")]

    async def forward(self, message: str) -> gl.Outputs:
        await self.steps[0].acall(message=message)
        return await asyncio.to_thread(self.inner, message=message)


def test_nested_and_async_programs_keep_their_modules_apart() -> None:
    nested = Nested(ScriptedLM(lambda r: "a note" if "Note" in r.messages[0]["content"] else answer(r), name="task"))
    assert list(nested.prompts) == ["inner.gist", "inner.route", "steps[0]"]
    other = nested.with_prompts({"inner.route": "Decide how urgent it is. rule refund."})
    assert nested.prompts["inner.route"] == "Decide how urgent it is."
    done = other.run({"message": "a refund number 1"})
    assert done.error is None
    assert done.output.urgency == "high"
    assert done.trace.modules == ("steps[0]", "inner.gist", "inner.route")


# --- bad input, before any call is paid for -------------------------------------------------------------------------


def refused(match: str, **changes: Any) -> None:
    """The call is refused with these words, and no model was called."""
    task, reflection = ScriptedLM(answer, name="task"), reflector()
    options: dict[str, Any] = {
        "program": Triage(lm=task),
        "trainset": rows(24, 1),
        "valset": rows(16, 2),
        "reflection_lm": reflection,
        **changes,
    }
    with pytest.raises(UsageError, match=match):
        gl.optimize(options.pop("program"), options.pop("trainset"), options.pop("valset"), **options)
    assert task.calls == reflection.calls == 0


class NoFeedback(gl.Program):
    say = gl.Module("message -> reply", "Say it.")

    def forward(self, message: str) -> gl.Outputs:
        return self.say(message=message)


class NoModule(gl.Program):
    def forward(self, message: str) -> str:
        return message


def test_bad_input_is_refused_before_anything_is_paid() -> None:
    train = rows(24, 1)
    refused("trainset is empty", trainset=[])
    refused("trainset: 1 of 25 examples repeat", trainset=[*train, train[0]])
    refused("valset and trainset overlap: 2 of 2", valset=train[:2])
    refused("testset and valset overlap", testset=rows(16, 2)[:1])
    refused("lacks the program's input 'message'", trainset=[{"text": "a"}])
    refused("can't pay for the seed's validation and one proposal: 56 rollouts", budget=gl.Budget(rollouts=55))
    refused("bounds nothing", budget=gl.Budget())
    refused("takes \\(example, output\\)", feedback=lambda example: 1.0)
    refused("no feedback", program=NoFeedback(lm=ScriptedLM("x")))
    refused("has no module", program=NoModule(lm=ScriptedLM("x")), feedback=lambda example, output: 1.0)
    refused("has no model", program=Triage())
    refused("make an instance", program=Triage)
    refused("workers=0", workers=0)
    refused("OPENAI_API_KEY", reflection_lm="openai/gpt-4.1-mini")
    refused("Unknown model", reflection_lm="opnai/gpt-4.1-mini")
    refused("price of task is not known", program=program(usd_per_token=None), budget=gl.Budget(usd=1.0))
    with pytest.raises(UsageError, match="selector='parto'"):
        gl.Search(selector="parto")
    with pytest.raises(UsageError, match="rollouts=0"):
        gl.Budget(rollouts=0)
    with pytest.raises(UsageError):
        gl.Module("message gist", "No arrow.")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "finite"),
        ("0.5", "a number is needed"),
        (None, "a number is needed"),
        (37.0, "the range is 0 to 1"),
        ((1.0,), "tuple"),
    ],
)
def test_a_broken_feedback_stops_at_the_first_rollout_and_names_the_example(value: Any, words: str) -> None:
    with pytest.raises(FeedbackError, match=words) as caught:
        search(feedback=lambda example, output: value)
    assert caught.value.example_id


def test_an_exception_in_feedback_stops_the_run_and_one_in_the_program_does_not() -> None:
    def broken(example: gl.Example, output: Any) -> float:
        raise KeyError("gold")

    with pytest.raises(FeedbackError, match=r"KeyError.*gold"):
        search(feedback=broken)

    class Fails(Triage):
        def forward(self, message: str) -> gl.Outputs:
            if "refund" in message:
                raise RuntimeError("no refunds here")
            return super().forward(message)

    store = MemoryStore()
    search(store, task=Fails(lm=ScriptedLM(answer, name="task")))
    failed = [rollout for rollout in store.rollouts() if rollout.failure]
    assert failed
    assert all(r.value == 0.0 and r.feedback and "no refunds here" in r.feedback.text for r in failed)


def test_a_module_that_never_runs_warns_and_leaves_the_rotation() -> None:
    class Idle(Triage):
        spare = gl.Module("message -> note", "Never called.")

    events = search(task=Idle(lm=ScriptedLM(answer, name="task")))
    (seed,) = [event for event in events if isinstance(event, SeedValidated)]
    assert seed.idle_modules == ("spare",)
    assert all(event.module != "spare" for event in events if isinstance(event, Proposed))


# --- outages: missing, never scored ---------------------------------------------------------------------------------


def test_a_task_model_without_a_valid_key_stops_at_the_first_calls() -> None:
    task = ScriptedLM(lambda request: AuthError("401 wrong key"), name="task")
    with pytest.raises(ModelsDownError, match="401 wrong key"):
        search(task=Triage(lm=task))
    assert task.calls <= 16


def test_a_reflection_model_that_is_down_stops_the_run_with_its_error() -> None:
    lm = ScriptedLM(lambda request: RateLimitError("429 no quota"), name="reflector")
    store = MemoryStore()
    with pytest.raises(ModelsDownError, match="429 no quota"):
        search(store, lm=lm)
    assert lm.calls <= 5
    assert any(isinstance(event, SeedValidated) for event in store.events())


def test_replies_without_a_prompt_end_the_search_instead_of_burning_the_budget() -> None:
    lm = ScriptedLM("I would rather chat.", name="reflector")
    state = replay(search(lm=lm, budget=gl.Budget(rollouts=3_000)))
    assert state.stopped is not None
    assert state.stopped.code == "reflection"
    assert lm.calls == 10
    assert {proposal.code for proposal in state.proposals if proposal.status == "rejected"} == {"no_block"}


def test_an_outage_is_missing_and_never_a_score() -> None:
    lock, count = threading.Lock(), itertools.count()

    def sometimes(request: gl.Request) -> Any:
        with lock:
            number = next(count)
        return RateLimitError("429 for a moment") if 40 <= number < 43 else answer(request)

    store = MemoryStore()
    events = search(store, workers=1, task=Triage(lm=ScriptedLM(sometimes, name="task")))
    assert all(rollout.value is not None for rollout in store.rollouts())
    assert replay(events).stopped is not None


def test_a_program_that_swallows_an_outage_is_still_not_scored() -> None:
    class Swallows(Triage):
        def forward(self, message: str) -> gl.Outputs:
            try:
                return super().forward(message)
            except Exception:
                return gl.Outputs(urgency="low")

    down = ScriptedLM(lambda request: RateLimitError("429"), name="task")
    with pytest.raises(ModelsDownError):
        search(task=Swallows(lm=down))


def test_a_judge_program_is_counted_under_its_own_role() -> None:
    class Rate(gl.Program):
        rate = gl.Module("urgency -> good: bool", "Is it good?")

        def forward(self, urgency: str) -> bool:
            return bool(self.rate(urgency=urgency).good)

    judge = Rate(lm=ScriptedLM("yes", name="judge"))
    store = MemoryStore()
    search(
        store,
        feedback=lambda example, output: gl.Feedback(float(judge(urgency=output.urgency)) * 0.5, "so so"),
        budget=gl.Budget(rollouts=60),
    )
    assert store.paid().settled["judge"].calls > 0
    assert replay(store.events()).spend.judge.calls > 0


def test_reflection_sees_the_modules_own_calls_and_its_own_words() -> None:
    seen: list[str] = []

    def watch(request: gl.Request) -> str:
        seen.append(request.messages[0]["content"])
        return reflect(request)

    def feedback(example: gl.Example, output: gl.Outputs, trace: gl.Trace) -> gl.Feedback:
        right = output.urgency == example["urgency"]
        return gl.Feedback(float(right), "whole", modules={"gist": "words for gist alone"})

    search(lm=ScriptedLM(watch, name="reflector"), feedback=feedback, budget=gl.Budget(rollouts=80))
    gist = [text for text in seen if 'the step "gist"' in text]
    assert gist
    assert all("words for gist alone" in text and "Decide how urgent" not in text for text in gist)
    assert "Route one support message." in gist[0]


def test_invariant_6_the_result_names_the_seed_where_the_test_shows_no_gain(tmp_path: Path) -> None:
    """A reflection that copies answers wins on validation only; the verdict says so and the seed is what is handed back."""
    answers = {row["message"]: row["urgency"] for row in rows(16, 2)}

    def memorizer(request: gl.Request) -> str:
        system, user = request.messages[0]["content"], request.messages[-1]["content"]
        if "urgent" not in system:
            return "gist"
        known = next((label for message, label in answers.items() if message in user), None)
        return known if known and "MEMORY" in system else "low"

    lm = ScriptedLM("<prompt>Decide how urgent it is. MEMORY</prompt>", name="reflector")
    rules = gl.Search.paper(accept="non_strict", skip_perfect=False)
    result = gl.optimize(
        Triage(lm=ScriptedLM(memorizer, name="task")),
        rows(24, 1),
        rows(16, 2),
        testset=rows(40, 3),
        reflection_lm=lm,
        search=rules,
        budget=gl.Budget(rollouts=200),
        run=tmp_path / "run",
    )
    assert result.validation.gain > 0.3
    assert result.verdict == "not shown"
    assert result.program.prompts == result.seed.prompts
    assert "result.program is the seed" in str(result)


def test_a_run_that_goes_on_after_its_test_tests_the_new_winner_and_is_held_to_more() -> None:
    store = MemoryStore()
    first = replay(search(store, test=30, budget=gl.Budget(rollouts=150)))
    assert first.tested is not None
    second = replay(search(store, test=30, budget=gl.Budget(rollouts=400)))
    assert second.best.index != first.best.index
    assert second.tested is not None
    assert second.tested.winner == second.best.index
    assert second.looks == 2
    assert second.spend.rollouts <= 400
    tests = [event.spend.rollouts for event in store.events() if type(event).__name__ == "Tested"]
    assert tests == [60, 30], "the seed's test rollouts are paid once"


def test_scores_are_shown_in_the_users_direction(tmp_path: Path) -> None:
    def errors(example: gl.Example, output: gl.Outputs) -> gl.Feedback:
        right = output.urgency == example["urgency"]
        return gl.Feedback(0.0 if right else 10.0, "right" if right else f"RULE:{example['kind']}")

    rules = gl.Search(objective=gl.Objective(direction="minimize", range=(0, 10)))
    budget = gl.Budget(rollouts=300)
    result = gl.optimize(
        program(),
        rows(24, 1),
        rows(16, 2),
        testset=rows(40, 3),
        feedback=errors,
        reflection_lm=reflector(),
        search=rules,
        budget=budget,
        run=tmp_path / "run",
    )
    assert result.verdict == "improved"
    bundle = json.loads(result.save(tmp_path / "x.prompts.json").read_text())
    test = bundle["scores"]["test"]
    assert 10 >= test["seed"] > test["winner"] >= 0
    assert test["gain"] < 0
    assert test["interval"][0] < test["interval"][1] < 0
    assert f"{test['winner']:.3f}" in str(result)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("options", [{"fan": 4}, {"window": 4}, {"fan": 2, "window": 3}])
def test_an_error_ends_every_step_in_flight_and_never_hangs(options: dict[str, Any]) -> None:
    count = itertools.count()

    def breaks(example: gl.Example, output: gl.Outputs) -> float:
        if next(count) > 20:
            raise KeyError("late")
        return 0.5

    with pytest.raises(FeedbackError, match="late"):
        search(task=program(seconds=0.001), feedback=breaks, search=gl.Search.paper(**options))


def test_a_judge_outage_that_the_feedback_swallows_is_still_missing() -> None:
    class Rate(gl.Program):
        rate = gl.Module("urgency -> good: bool", "Is it good?")

        def forward(self, urgency: str) -> bool:
            return bool(self.rate(urgency=urgency).good)

    judge = Rate(lm=ScriptedLM(lambda request: RateLimitError("429"), name="judge"))

    def feedback(example: gl.Example, output: gl.Outputs) -> float:
        try:
            return float(judge(urgency=output.urgency))
        except Exception:
            return 0.0

    with pytest.raises(ModelsDownError):
        search(feedback=feedback)


def test_an_lm_object_that_raises_is_an_outage_and_never_a_zero() -> None:
    class Broken(ScriptedLM):
        def complete(self, request: gl.Request) -> gl.Completion:
            raise ConnectionError("no route")

    with pytest.raises(ModelsDownError, match="no route"):
        search(task=Triage(lm=Broken("x")))


def test_dollars_are_never_bounded_with_a_judge_of_unknown_price() -> None:
    class Rate(gl.Program):
        rate = gl.Module("urgency -> good: bool", "Is it good?")

        def forward(self, urgency: str) -> bool:
            return bool(self.rate(urgency=urgency).good)

    judge = Rate(lm=lambda messages: "yes")
    with pytest.raises(UsageError, match="no known price"):
        search(feedback=lambda example, output: float(judge(urgency=output.urgency)), budget=gl.Budget(usd=1.0))


def test_wrong_kinds_of_arguments_are_named() -> None:
    refused("budget=100", budget=100)
    refused("search='paper'", search="paper")
    refused("can't pay for one step of 4 proposals", budget=gl.Budget(proposals=3))
