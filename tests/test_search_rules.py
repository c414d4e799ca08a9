"""The rules of a search, one by one: edits, model mixing, credit horizon, stop rules, staged validation, hard examples, blame, repeats."""

from __future__ import annotations

import dataclasses
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite import api
from gepa_lite.core.budget import Budget, Spend
from gepa_lite.core.call import Call, Trace, Usage
from gepa_lite.core.events import Proposed, RunStarted, SeedValidated, StepEnded, Stopped, Validated
from gepa_lite.core.feedback import Feedback, Objective
from gepa_lite.core.rollout import Rollout, RolloutKey
from gepa_lite.core.seeds import stream
from gepa_lite.errors import UsageError
from gepa_lite.search.components import choose_modules
from gepa_lite.search.edit import apply_edits, read_edits
from gepa_lite.search.frontier import front_of
from gepa_lite.search.minibatch import hard_minibatch, size_at
from gepa_lite.search.mixing import choose_model, choose_proposer
from gepa_lite.search.plan import horizon_now
from gepa_lite.search.reflect import ReflectionLimits, Subject, Template, lessons_of, reflection_prompt
from gepa_lite.search.reply import UnusableReply
from gepa_lite.search.select import SELECTORS
from gepa_lite.search.state import RunState
from gepa_lite.search.stop_rules import AllOf, Elapsed, NoImprovement, ScoreReached, StopFile, Surroundings, stop_files_of
from gepa_lite.search.validate import _blocks, _may_matter
from gepa_lite.session import Session
from gepa_lite.store.memory import MemoryStore
from gepa_lite.store.stop_files import StopFiles
from gepa_lite.testing import ScriptedLM
from tests.test_search_run import search
from tests.triage import program, reflect, reflector, rows


def state_of(*values: tuple[float, ...], objectives: dict[str, tuple[float, ...]] | None = None) -> RunState:
    """A pool with these validation rows, the seed first."""
    ids = tuple(f"v{i}" for i in range(len(values[0])))
    state = RunState().apply(RunStarted({}, {"a": "A", "b": "B"}, ("t1", "t2"), ids, (), Budget(rollouts=1_000)))
    state = state.apply(SeedValidated(values[0], (), Spend(), objectives or {}))
    for step, row in enumerate(values[1:]):
        state = state.apply(Validated(step, (0,), {"a": f"A{step}"}, row)).apply(StepEnded(step))
    return state


def proposed(step: int, status: Any, model: str = "m", tokens: int = 100) -> Proposed:
    spend = Spend(proposals=1, reflection=Usage(1, tokens, 0, None))
    return Proposed(step, 0, 0, ("a",), ("t1",), (0.0,), status, "x", "", {"a": "A?"}, (0.0,), model, spend=spend)


# --- edits ----------------------------------------------------------------------------------------------------------


def test_edits_replace_delete_and_add() -> None:
    reply = (
        "<edit><find>two</find><replace>2</replace></edit><edit><find> three</find><replace></replace></edit><edit><add>four</add></edit>"
    )
    assert apply_edits("one two three", read_edits(reply, "stop"), 20) == "one 2\nfour"


def test_a_sentence_that_stands_there_already_is_not_added_twice() -> None:
    assert apply_edits("Be kind.", read_edits("<edit><add>Be kind.</add></edit>", "stop"), 20) == "Be kind."


@pytest.mark.parametrize(
    ("reply", "finish", "code"),
    [
        ("<edit><add>x</add></edit>", "length", "cut_off"),
        ("  ", "stop", "empty"),
        ("no edits here", "stop", "no_block"),
        ("<edit><find>a</find></edit>", "stop", "bad_edit"),
        ("<edit><add></add></edit>", "stop", "bad_edit"),
        ("<edit><find>missing</find><replace>x</replace></edit>", "stop", "bad_edit"),
        ("<edit><find>twice</find><replace>x</replace></edit>", "stop", "bad_edit"),
        ("<edit><add>" + "word " * 50 + "</add></edit>", "stop", "too_long_edit"),
    ],
)
def test_an_edit_that_does_not_fit_is_refused(reply: str, finish: str, code: str) -> None:
    with pytest.raises(UnusableReply) as caught:
        apply_edits("twice twice", read_edits(reply, finish), 20)
    assert caught.value.code == code


def test_an_edit_prompt_remembers_what_was_rejected() -> None:
    seen: list[str] = []

    def useless(request: gl.Request) -> str:
        seen.append(request.messages[0]["content"])
        return f"<edit><add>Useless sentence number {len(seen)}.</add></edit>"

    search(lm=ScriptedLM(useless, name="reflector"), search=gl.Search.paper(proposer="edit"), budget=gl.Budget(rollouts=120))
    assert len(seen) > 4
    assert "tried before and did not help" not in seen[0]
    assert "- Useless sentence number" in seen[-1]


# --- mixing and plateaus --------------------------------------------------------------------------------------------


def test_models_are_drawn_by_weight() -> None:
    state, models = state_of((0.0,)), {"a": 0.9, "b": 0.1}
    drawn = Counter(choose_model(state, gl.Search.paper(), models, step, 0) for step in range(1_000))
    assert 850 < drawn["a"] < 950


def test_the_bandit_prefers_the_model_that_refines_more_per_cost() -> None:
    state = state_of((0.0,))
    for step in range(30):
        state = state.apply(proposed(step, "accepted" if step % 2 else "rejected", "cheap", 100))
        state = state.apply(proposed(step, "accepted" if step % 2 else "rejected", "dear", 1_000))
    drawn = Counter(choose_model(state, gl.Search.paper(mixing="bandit"), {"cheap": 1, "dear": 1}, step, 0) for step in range(200))
    assert drawn["cheap"] > 190


def test_a_plateau_switches_model_and_proposer_and_back() -> None:
    rules, state = gl.Search.paper(plateau=3), state_of((0.0,))
    kinds, models = [], []
    for step in range(9):
        kinds.append(choose_proposer(state, rules))
        models.append(choose_model(state, rules, {"a": 1.0, "b": 1e-9}, step, 0))
        state = state.apply(proposed(step, "rejected", models[-1]))
    assert kinds == ["rewrite"] * 3 + ["edit"] * 3 + ["rewrite"] * 3
    assert "b" in models[3:6]


def test_edits_take_over_where_rewrites_bring_no_text() -> None:
    def kinds(codes: list[str], rules: gl.Search) -> list[str]:
        state, found = state_of((0.0,)), []
        for step, code in enumerate(codes):
            found.append(choose_proposer(state, rules))
            event = proposed(step, "accepted" if code == "improved" else "rejected", "m")
            state = state.apply(dataclasses.replace(event, code=code, proposer=found[-1]))
        return [*found, choose_proposer(state, rules)]

    clumsy = ["cut_off", "unchanged", "not_better", "several_blocks"]
    assert kinds(clumsy, gl.Search()) == ["rewrite"] * 4 + ["edit"], "judged after four"
    assert kinds([*clumsy, "not_better", "not_better"], gl.Search())[-1] == "edit", "for good: edits are no rewrites"
    assert kinds(["not_better", "cut_off", "improved", "not_better"], gl.Search()) == ["rewrite"] * 5, "less than half"
    assert kinds(["leak"] * 6, gl.Search())[-1] == "rewrite", "a text that is refused for what it says is a text"
    assert set(kinds(clumsy, gl.Search.paper())) == {"rewrite"}
    assert kinds(clumsy, gl.Search(plateau=4))[-1] == "rewrite", "the other kind while a plateau lasts"


def test_a_mix_of_models_is_asked_and_named_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    models = {name: ScriptedLM(reflect, name=name) for name in ("one", "two")}
    monkeypatch.setattr("gepa_lite.program.program.open_lm", lambda spec: models.get(spec, spec))
    events = search(lm={"one": 0.5, "two": 0.5})
    asked = Counter(event.model for event in events if isinstance(event, Proposed) and event.spend.reflection.calls)
    assert asked["one"] == models["one"].calls > 0
    assert asked["two"] == models["two"].calls > 0
    with pytest.raises(UsageError, match="positive weights"):
        search(lm={"one": 0.5, "two": -1})


# --- credit horizon -------------------------------------------------------------------------------------------------


def rollout(
    scores: dict[str, float] | None = None, words: dict[str, str] | None = None, failed: str | None = None, value: float = 0.5
) -> Rollout:
    calls = tuple(
        Call(name, {"x": name}, (), outputs={"y": name}, error="broken" if name == failed else None) for name in ("a", "b", "c", "d")
    )
    feedback = Feedback(value, "all", words or {}, {}, scores or {})
    return Rollout(RolloutKey("k", "e"), value, feedback, None, Trace(calls))


@pytest.mark.parametrize(("horizon", "seen"), [(0, []), (1, ["a", "c"]), (2, ["a", "c", "d"]), (None, ["a", "c", "d"])])
def test_the_reflection_sees_the_calls_within_the_horizon(horizon: int | None, seen: list[str]) -> None:
    (lesson,) = lessons_of("b", [rollout({"b": 0.2, "c": 0.9}, {"c": "c was fine"})], horizon, 0, (0, 0))
    assert [neighbour.module for neighbour in lesson.context] == seen
    assert "own score: 0.2" in lesson.feedback
    if seen:
        text = reflection_prompt(Template("reflect.j2"), Subject("b", "x -> y", "Do b.", ""), [lesson], ReflectionLimits()).messages[0][
            "content"
        ]
        assert "another step, c" in text
        assert "c was fine; score 0.9" in text


def test_the_adaptive_horizon_widens_while_nothing_is_accepted() -> None:
    rules, state, seen = gl.Search.paper(horizon="adaptive"), state_of((0.0,)), []
    for step in range(10):
        seen.append(horizon_now(state, rules))
        state = state.apply(proposed(step, "rejected"))
    assert seen == [0] * 4 + [1] * 4 + [None] * 2
    assert horizon_now(state.apply(proposed(10, "accepted")), rules) == 0


def test_a_reflection_prompt_keeps_to_its_limits_and_says_what_it_cut() -> None:
    lesson = lessons_of("b", [rollout(words={"b": "w" * 9_000})], 0, 0, (0, 0))[0]
    subject = Subject("b", "x -> y", "Do b.", "")
    prompt = reflection_prompt(Template("reflect.j2"), subject, [lesson] * 20, ReflectionLimits(examples=8, value_chars=500, tokens=900))
    assert prompt.shown["tokens"] <= 900
    assert prompt.shown["examples"] + prompt.shown["dropped_examples"] == 20
    assert prompt.shown["dropped_examples"] >= 12
    assert prompt.shown["shortened_values"] > 0
    assert "characters left out" in prompt.messages[0]["content"]


def test_prompt_and_feedback_are_data_never_templates() -> None:
    subject = Subject("b", "x -> y", "Do {{ 7 * 7 }} and {% raw %}.", "")
    (lesson,) = lessons_of("b", [rollout(words={"b": "{{ 6 * 6 }}"})], 0, 0, (0, 0))
    text = reflection_prompt(Template("reflect.j2"), subject, [lesson], ReflectionLimits()).messages[0]["content"]
    assert "Do {{ 7 * 7 }} and {% raw %}." in text
    assert "{{ 6 * 6 }}" in text


def test_a_broken_template_of_the_users_is_a_clear_error() -> None:
    (lesson,) = lessons_of("b", [rollout()], 0, 0, (0, 0))
    with pytest.raises(UsageError, match="does not render"):
        reflection_prompt(Template("reflect.j2", "{{ nothing }}"), Subject("b", "", "", ""), [lesson], ReflectionLimits())


# --- module choice --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "rollouts", "expected"),
    [
        ("round_robin", [rollout()], ("c",)),
        ("all", [rollout()], ("c", "d", "a", "b")),
        ("blame", [rollout()], ("c",)),
        ("blame", [rollout({"b": 0.1, "d": 0.9})], ("b",)),
        ("blame", [rollout(words={"d": "d is at fault"})], ("d",)),
        ("blame", [rollout(words={"d": "fine"}, value=1.0)], ("c",)),
        ("blame", [rollout(failed="a")], ("a",)),
    ],
)
def test_modules_are_chosen_in_rotation_all_at_once_or_by_blame(rule: str, rollouts: list[Rollout], expected: tuple[str, ...]) -> None:
    assert choose_modules(rule, ("c", "d", "a", "b"), rollouts, Objective()) == expected


# --- minibatches ----------------------------------------------------------------------------------------------------


def test_a_schedule_of_sizes() -> None:
    schedule = ((0, 3), (10, 6))
    assert [size_at(schedule, i) for i in (0, 9, 10, 12)] == [(3, 0), (3, 9), (6, 0), (6, 2)]
    with pytest.raises(UsageError, match="pairs"):
        gl.Search(minibatch=((5, 3),))


def test_hard_examples_come_more_often_and_solved_ones_now_and_then() -> None:
    ids = [f"e{i}" for i in range(10)]
    ease = {f"e{i}": 1.0 for i in range(5)}
    seen = Counter(example for index in range(1_000) for example in hard_minibatch(ids, 3, index, 0, ease))
    assert min(seen[f"e{i}"] for i in range(5, 10)) > 3 * max(seen[f"e{i}"] for i in range(5))
    assert min(seen.values()) > 20


# --- frontiers and selectors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("frontier", "width"), [("example", 3), ("objective", 2), ("hybrid", 5), ("product", 6)])
def test_frontiers_have_their_columns(frontier: Any, width: int) -> None:
    state = state_of((0.0, 1.0, 0.0), objectives={"brevity": (0.5, 0.5, 0.5)})
    assert front_of(state, gl.Search.paper(frontier=frontier)).values.shape == (1, width)


@pytest.mark.parametrize("name", sorted(SELECTORS))
def test_every_selector_gives_a_row_of_the_front(name: str) -> None:
    draw = random.Random(1)
    state = state_of(*[tuple(float(draw.random() < 0.5) for _ in range(6)) for _ in range(9)])
    front = front_of(state, gl.Search.paper())
    rows = {SELECTORS[name](front, stream(0, "parent", step)) for step in range(300)}
    assert rows <= set(range(9))
    if name == "likely":
        assert front.best in rows, "the best mean never has probability zero"


# --- staged validation ----------------------------------------------------------------------------------------------


def test_a_hopeless_candidate_ends_early_and_a_good_one_does_not() -> None:
    state = state_of(tuple([1.0] * 28 + [0.0] * 2))
    rules = gl.Search()
    assert not _may_matter(state, rules, [0.0] * 20), "twenty losses in twenty on what the best has solved, and two to come"
    assert _may_matter(state, rules, [1.0] * 20)
    unsolved = state_of(tuple([1.0] * 10 + [0.0] * 20))
    assert _may_matter(unsolved, rules, [1.0] * 5 + [0.0] * 5), "twenty examples that nobody solves are still to come"


def test_a_staged_validation_waits_for_few_blocks() -> None:
    ids = [str(i) for i in range(100)]
    blocks = _blocks(ids, 10)
    assert [len(block) for block in blocks] == [10, 20, 40, 30]
    assert [i for block in blocks for i in block] == ids
    assert _blocks(ids[:3], 10) == [("0", "1", "2")]


def test_what_a_staged_validation_leaves_out_is_unrun_and_never_a_zero() -> None:
    class Worse(ScriptedLM):
        pass

    rules = gl.Search.paper(validation="staged", validation_block=4, validation_bound=0.6, accept="non_strict", skip_perfect=False)
    events = search(lm=Worse("<prompt>Decide how urgent it is, please.</prompt>", name="reflector"), search=rules)
    staged = [event for event in events if isinstance(event, Validated) and event.unrun]
    assert staged
    for event in staged:
        assert event.values.count(None) == event.unrun
        assert event.spend.rollouts == len(event.values) - event.unrun
    state = RunState()
    for event in events:
        state = state.apply(event)
    unrun = [member for member in state.pool if member.mean is None]
    assert unrun
    assert all(proposal.parent not in {member.index for member in unrun} for proposal in state.proposals)


# --- stop rules -----------------------------------------------------------------------------------------------------


def test_stop_rules_compose() -> None:
    state, objective = state_of((0.5, 0.5), (1.0, 0.5)), Objective()
    around = Surroundings(100.0, frozenset({"stop"}))
    assert ScoreReached(0.75)(state, objective, around)
    assert ScoreReached(0.8)(state, objective, around) is None
    assert Elapsed(99)(state, objective, around)
    assert StopFile("stop")(state, objective, around)
    assert StopFile("other")(state, objective, around) is None
    late = state.apply(proposed(1, "rejected")).apply(proposed(2, "rejected"))
    assert NoImprovement(2)(late, objective, around)
    assert NoImprovement(3)(late, objective, around) is None
    assert AllOf((ScoreReached(0.75), Elapsed(99)))(state, objective, around)
    assert AllOf((ScoreReached(0.75), Elapsed(101)))(state, objective, around) is None
    assert stop_files_of((StopFile("x"), AllOf((StopFile("y"),)))) == {"x", "y"}


def test_a_stop_file_ends_a_run(tmp_path: Path) -> None:
    path = tmp_path / "stop"

    def touching(request: gl.Request) -> str:
        path.touch()
        return reflect(request)

    events = search(lm=ScriptedLM(touching, name="reflector"), search=gl.Search.paper(stop=(StopFile(str(path)),)))
    assert events[-1] == Stopped("rule", f"the stop file {path} exists")
    assert len([event for event in events if isinstance(event, Proposed)]) == 1


def test_a_stop_file_of_an_earlier_run_is_ignored_and_named(tmp_path: Path) -> None:
    path = tmp_path / "stop"
    path.touch()
    rules = gl.Search.paper(stop=(StopFile(str(path)),))
    prepared = api.prepare(program(), rows(24, 1), rows(16, 2), reflection_lm=reflector(), search=rules, budget=gl.Budget(rollouts=100))
    outcome = Session(prepared.spec, MemoryStore()).run()
    assert outcome.state.stopped is not None
    assert outcome.state.stopped.code == "budget"
    assert any(f"The stop file {path} was there before" in notice for notice in outcome.notices)
    files = StopFiles([str(path)])
    assert files.now() == frozenset()
    os.utime(path, ns=(1, 1))
    assert files.now() == {str(path)}


def test_repeats_average_and_are_all_paid() -> None:
    store = MemoryStore()
    events = search(store, search=gl.Search.paper(repeats=3), budget=gl.Budget(rollouts=200))
    seed = next(event for event in events if isinstance(event, SeedValidated))
    assert seed.spend.rollouts == 48
    assert {r.key.sample for r in store.rollouts()} == {0, 1, 2}


def test_the_papers_rules_are_named_and_a_typo_is_refused() -> None:
    paper = gl.Search.paper(seed=3)
    assert (paper.fan, paper.selector, paper.modules, paper.validation, paper.merge, paper.seed) == (
        1,
        "pareto",
        "round_robin",
        "full",
        "none",
        3,
    )
    with pytest.raises(UsageError, match="Did you mean 'minibatch'"):
        gl.Search.paper(minibatches=3)
