"""What comes of a run: pins, the seal, looks, the curve, the shortest winner, shortening, blame, break-even."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite import api
from gepa_lite.core import events as log
from gepa_lite.core.events import Event, SealOpened, Shortened, Validated, Vetoed
from gepa_lite.core.rollout import Rollout, RolloutKey
from gepa_lite.core.sentences import sentences_of
from gepa_lite.errors import RateLimitError, UsageError
from gepa_lite.search.reserve import milestones_of
from gepa_lite.search.state import RunState, replay
from gepa_lite.search.winner import prompt_tokens, winner_of
from gepa_lite.session import Session
from gepa_lite.store.memory import MemoryStore
from gepa_lite.store.run_store import RunStore
from gepa_lite.testing import ScriptedLM
from tests.test_search_run import search
from tests.triage import RULES, Triage, answer, program, reflect, reflector, rows


def run(tmp_path: Path, name: str = "run", **options: Any) -> gl.Result[Triage]:
    given: dict[str, Any] = {
        "trainset": rows(24, 1),
        "valset": rows(16, 2),
        "testset": rows(40, 3),
        "reflection_lm": reflector(usd_per_token=1e-6),
        "budget": gl.Budget(rollouts=500),
        **options,
    }
    task = given.pop("program", None) or program(usd_per_token=1e-6)
    return gl.optimize(task, given.pop("trainset"), given.pop("valset"), run=tmp_path / name, **given)


# --- the verdict and what result.program is ------------------------------------------------------------------------


def test_the_report_says_the_verdict_first_in_plain_words(tmp_path: Path) -> None:
    result = run(tmp_path)
    head = str(result).splitlines()
    assert head[0] == "Verdict: improved. The sealed test set shows a gain."
    assert head[1].startswith("On 40 sealed test examples, the winner's prompts score 0.900 and the seed's")
    assert "95 % interval +" in head[1]
    assert "better and 0 worse" in head[1]
    assert result.test is not None
    assert result.optimism == result.validation.gain - result.test.gain


def test_a_validation_gain_is_called_optimistic(tmp_path: Path) -> None:
    text = str(run(tmp_path, testset=None))
    assert text.startswith("Verdict: validated only. No test set was given, so no gain can be claimed.\n")
    assert "Such gains are optimistic." in text


def test_require_improved_hands_back_the_seed_where_a_gain_is_not_shown(tmp_path: Path) -> None:
    few = rows(40, 3)[:5]
    lenient, strict = (
        run(tmp_path, name, testset=few, search=gl.Search(require=require)) for name, require in (("a", None), ("b", "improved"))
    )
    assert lenient.verdict == strict.verdict == "not shown"
    assert lenient.test is not None
    assert lenient.test.gain > 0
    assert lenient.program.prompts == lenient.winner.prompts
    assert strict.program.prompts == strict.seed.prompts != strict.winner.prompts
    assert "a gain was required and is not shown" in str(strict)
    assert any("fewer than 6 can show no gain" in notice for notice in strict.notices)
    with pytest.raises(UsageError, match="needs a test set"):
        run(tmp_path, "c", testset=None, search=gl.Search(require="improved"))


def test_flips_come_with_inputs_and_both_outputs(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.test is not None
    assert len(result.flips) == result.test.won + result.test.lost
    flip = result.flips[0]
    assert (flip.before, flip.after, flip.won) == (0.0, 1.0, True)
    assert flip.output_after["urgency"] == flip.labels["urgency"] != flip.output_before["urgency"]
    assert flip.inputs["message"].startswith("a ")


def test_objectives_are_compared_one_by_one_on_the_test_set(tmp_path: Path) -> None:
    def feedback(example: gl.Example, output: gl.Outputs) -> gl.Feedback:
        right = float(output.urgency == example["urgency"])
        return gl.Feedback(right, f"RULE:{example['kind']}", objectives={"calm": float(output.urgency != "high"), "right": right})

    result = run(tmp_path, feedback=feedback)
    assert result.test is not None
    assert result.objectives["right"].gain == result.test.gain
    assert result.objectives["calm"].n == 40
    assert "on the test set, higher is better" in str(result)
    kept = json.loads(result.save(tmp_path / "x.prompts.json").read_text())
    assert set(kept["scores"]["objectives"]) == {"calm", "right"}


# --- the seal, and looks --------------------------------------------------------------------------------------------


def rollout(candidate: str, example: str) -> Rollout:
    return Rollout(RolloutKey(candidate, example), 1.0, gl.Feedback(1.0))


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_store_keeps_no_rollout_on_sealed_examples_before_a_look_is_on_record(kind: str, tmp_path: Path) -> None:
    store: Any = MemoryStore() if kind == "memory" else RunStore.create(tmp_path / "run")
    prepared = api.prepare(
        program(),
        rows(24, 1),
        rows(16, 2),
        testset=rows(10, 3),
        curveset=rows(5, 4),
        reflection_lm=reflector(),
        budget=gl.Budget(rollouts=300),
    )
    started = prepared.spec.started()
    store.commit([started])
    store.save_rollout(rollout("anyone", started.validation_ids[0]))
    with pytest.raises(ValueError, match="sealed"):
        store.save_rollout(rollout("winner", started.test_ids[0]))
    with pytest.raises(ValueError, match="sealed until the search has ended"):
        store.save_rollout(rollout("winner", started.curve_ids[0]))
    store.commit([SealOpened(1, ("seed", "winner"))])
    if kind == "file":
        store.close()
        store = RunStore.open(tmp_path / "run")
    store.save_rollout(rollout("winner", started.test_ids[0]))
    with pytest.raises(ValueError, match="sealed"):
        store.save_rollout(rollout("another", started.test_ids[0]))
    store.commit([log.Tested(1, (1.0,), (1.0,))])
    with pytest.raises(ValueError, match="scored once"):
        store.commit([log.Tested(1, (1.0,), (1.0,))])
    store.close()


def test_a_look_counts_from_the_moment_the_test_set_is_opened() -> None:
    store = MemoryStore()
    search(store, test=30, budget=gl.Budget(rollouts=150))
    opened = [place for place, event in enumerate(store.events()) if isinstance(event, SealOpened)]
    scored = [place for place, event in enumerate(store.events()) if isinstance(event, log.Tested)]
    assert len(opened) == len(scored) == 1
    assert opened[0] < scored[0]
    second = replay(search(store, test=30, budget=gl.Budget(rollouts=400)))
    assert second.looks == len(second.opened) == 2


def test_another_run_on_the_same_test_set_counts_as_a_look(tmp_path: Path) -> None:
    first = run(tmp_path, "first")
    other = ScriptedLM(lambda request: reflect(request).replace("rule", "use rule"), name="other")
    second = run(tmp_path, "second", reflection_lm=other)
    apart = run(tmp_path, "third", testset=rows(40, 9), reflection_lm=other)
    assert first.test is not None
    assert second.test is not None
    assert apart.test is not None
    assert (first.test.looks, second.test.looks, apart.test.looks) == (1, 2, 1)
    assert "looked at 2 times" in str(second)
    again = run(tmp_path, "second", reflection_lm=other)
    assert again.test == second.test, "a look is counted once, when it is taken"


# --- splits ----------------------------------------------------------------------------------------------------------


def test_split_deals_every_row_once_whatever_their_order() -> None:
    data = rows(100, 5)
    splits = gl.split(data, val=0.3, test=0.25, curve=0.1, stratify="kind")
    parts = list(splits)
    assert [len(part) for part in parts] == [35, 30, 25, 10]
    assert sorted(row["message"] for part in parts for row in part) == sorted(row["message"] for row in data)
    for kind in RULES:
        total = sum(row["kind"] == kind for row in data)
        assert abs(sum(row["kind"] == kind for row in splits.test) - 0.25 * total) <= 1
    shuffled = list(data)
    random.Random(3).shuffle(shuffled)
    assert gl.split(shuffled, val=0.3, test=0.25, curve=0.1, stratify="kind") == splits
    assert gl.split(data, seed=1) != gl.split(data)
    for wrong in ({"val": 0.6, "test": 0.5}, {"test": 1.0}, {"val": -0.1}, {"stratify": "nothing"}):
        with pytest.raises(UsageError):
            gl.split(data, **wrong)  # type: ignore[arg-type]


def test_a_share_of_the_data_is_sealed_and_without_one_it_is_offered(tmp_path: Path) -> None:
    with_test = api.prepare(program(), rows(60, 1), testset=0.3, curveset=0.1, reflection_lm=reflector(), budget=gl.Budget(rollouts=900))
    spec = with_test.spec
    assert [len(part) for part in (spec.train, spec.validation, spec.test, spec.curve)] == [18, 18, 18, 6]
    assert any("18 of the 60 examples of the trainset are sealed" in notice for notice in with_test.notices)
    of_val = api.prepare(program(), rows(24, 1), rows(40, 2), testset=0.5, reflection_lm=reflector(), budget=gl.Budget(rollouts=900)).spec
    assert [len(part) for part in (of_val.train, of_val.validation, of_val.test)] == [24, 20, 20]
    without = api.prepare(program(), rows(24, 1), rows(16, 2), reflection_lm=reflector(), budget=gl.Budget(rollouts=900))
    assert any("The 40 examples have room for one: testset=0.3" in notice for notice in without.notices)
    with pytest.raises(UsageError, match="is none"):
        api.prepare(program(), rows(24, 1), rows(2, 2), testset=0.1, reflection_lm=reflector())
    with pytest.raises(UsageError, match="a share from 0 to 1"):
        api.prepare(program(), rows(24, 1), rows(16, 2), testset=30, reflection_lm=reflector())


# --- pins -----------------------------------------------------------------------------------------------------------


def forgetful(request: gl.Request) -> str:
    """A task model on which a prompt with any rule gets praise wrong."""
    system, user = request.messages[0]["content"], request.messages[-1]["content"]
    if "urgent" in system and "rule" in system and " praise " in user and "rule praise" not in system:
        return "high"
    return answer(request)


def pinned(pins: Any, **options: Any) -> list[Event]:
    lm = ScriptedLM(forgetful, name="task")
    return search(task=Triage(lm=lm), search=gl.Search.paper(pins=pins, **options), budget=gl.Budget(rollouts=400))


PRAISE = [{"message": f"a praise number {10**n} of pins", "urgency": "low", "kind": "praise"} for n in range(8)]


def test_a_candidate_that_breaks_a_pin_is_vetoed_before_its_validation() -> None:
    free, held = pinned([]), pinned(PRAISE)
    assert not any(isinstance(event, Vetoed) for event in free)
    vetoes = [event for event in held if isinstance(event, Vetoed)]
    assert vetoes
    assert all("rule praise" not in event.texts["route"] for event in vetoes)
    for event in vetoes:
        assert all(b > a for b, a in zip(event.before, event.after, strict=True) if b is not None and a is not None)
    state = replay(held)
    assert state.spend.rollouts <= 400
    for member in state.pool[1:]:
        assert "rule praise" in member.candidate.texts["route"]
    vetoed = [event.texts for event in vetoes]
    assert len({json.dumps(texts, sort_keys=True) + str(event.parents) for texts, event in zip(vetoed, vetoes, strict=True)}) == len(vetoed)


def test_a_pin_without_a_score_is_no_veto() -> None:
    def reply(request: gl.Request) -> Any:
        """Down on the pin, but for the seed."""
        system, user = request.messages[0]["content"], request.messages[-1]["content"]
        return RateLimitError("rate limit") if " of pins" in user and "rule" in system else answer(request)

    pins = [{"message": "a leak number 1 of pins", "urgency": "high", "kind": "leak"}]
    events = search(task=Triage(lm=ScriptedLM(reply, name="task")), search=gl.Search.paper(pins=pins), budget=gl.Budget(rollouts=120))
    children = [event for event in events if isinstance(event, Validated)]
    assert children
    assert all(set(event.values) == {None} and event.spend.rollouts == 1 for event in children)
    state = replay(events)
    assert not state.vetoes
    assert state.best.index == 0


def test_the_report_names_the_pins_that_broke(tmp_path: Path) -> None:
    lm = ScriptedLM(forgetful, name="task")
    result = run(tmp_path, program=Triage(lm=lm), search=gl.Search.paper(pins=PRAISE))
    broken = result.state.vetoes[0].pin_ids[0]
    assert f"{len(result.state.vetoes)} candidates were vetoed for breaking one" in str(result)
    assert f"{broken} in " in str(result)


def test_pins_may_be_validation_examples_and_are_then_paid_once() -> None:
    store = MemoryStore()
    prepared = api.prepare(
        program(),
        rows(24, 1),
        rows(16, 2),
        reflection_lm=reflector(),
        budget=gl.Budget(rollouts=300),
        search=gl.Search(pins=[*rows(16, 2)[:4], PRAISE[0]]),
    )
    assert len(prepared.spec.pins) == 1
    assert len(prepared.spec.pin_ids) == 5
    state = Session(prepared.spec, store).run().state
    assert state.spend.rollouts == len(list(store.rollouts()))
    ids = prepared.spec.pin_ids[:2]
    by_id = api.prepare(program(), rows(24, 1), rows(16, 2), reflection_lm=reflector(), search=gl.Search(pins=ids)).spec
    assert by_id.pin_ids == ids


def test_pins_that_can_not_be_held_are_refused() -> None:
    def refused(match: str, pins: Any) -> None:
        with pytest.raises(UsageError, match=match):
            api.prepare(program(), rows(24, 1), rows(16, 2), testset=rows(10, 3), reflection_lm=reflector(), search=gl.Search(pins=pins))

    refused("a pin is in the trainset", [rows(24, 1)[0]])
    refused("a pin is in the testset", [rows(10, 3)[0]])
    refused("no example has the id", ["nobody"])
    refused("and other labels", [{**rows(16, 2)[0], "urgency": "other"}])
    refused("lacks the program's input", [{"text": "x"}])
    with pytest.raises(UsageError, match="a list of examples"):
        gl.Search(pins="abc")  # type: ignore[arg-type]


# --- the curve ------------------------------------------------------------------------------------------------------


def test_milestones_are_scored_after_the_search_on_examples_it_never_saw(tmp_path: Path) -> None:
    result = run(tmp_path, curveset=rows(20, 7), search=gl.Search(milestones=3), budget=gl.Budget(rollouts=400))
    state = result.state
    assert state.started is not None
    assert result.curve[0].member == 0
    assert result.curve[-1].member == result.winner_index
    assert 2 <= len(result.curve) <= 3
    assert state.spend.rollouts <= 400
    assert result.curve[-1].score > result.curve[0].score
    assert result.curve[-1].gap == result.curve[-1].validation - result.curve[-1].score
    assert any("60 score 3 milestones" in notice for notice in result.notices)
    assert "unseen" in str(result)
    assert result.plot_curve(tmp_path / "curve.svg").read_text().lstrip().startswith("<?xml")
    again = run(tmp_path, curveset=rows(20, 7), search=gl.Search(milestones=3), budget=gl.Budget(rollouts=400))
    assert again.curve == result.curve
    with pytest.raises(UsageError, match="no curve"):
        run(tmp_path, "plain").plot_curve(tmp_path / "x.png")


def test_milestones_spread_over_the_leads() -> None:
    state = replay(search())
    assert len(state.leads) > 3
    few = milestones_of(state, gl.Search(milestones=3))
    assert (few[0], few[-1], len(few)) == (0, state.best_index, 3)
    assert milestones_of(state, gl.Search(milestones=1)) == [state.best_index]
    assert milestones_of(state, gl.Search(milestones=99)) == list(state.leads)


# --- prompt cost ----------------------------------------------------------------------------------------------------


def test_of_candidates_within_one_standard_error_the_shortest_is_handed_back() -> None:
    state = replay(search())
    best, short = winner_of(state, gl.Search()), winner_of(state, gl.Search(prefer="short"))
    assert best.index == state.best_index
    row = state.table.array
    lacking = row[best.index] - row[short.index]
    assert lacking.mean() <= lacking.std() / 4 + 1e-9
    assert prompt_tokens(short.candidate.texts, state.calls) <= prompt_tokens(best.candidate.texts, state.calls)
    assert state.calls == {"gist": 1.0, "route": 1.0}


def test_prompt_tokens_weigh_a_text_by_its_calls() -> None:
    assert prompt_tokens({"a": "x" * 40, "b": "x" * 40}, {"a": 3.0, "b": 0.5}) == 35
    assert prompt_tokens({"a": "x" * 40, "b": "x" * 40}, {"a": 3.0}) == 30


def test_prompt_tokens_as_an_objective_keep_the_shortest_on_the_front() -> None:
    from gepa_lite.search.frontier import front_of

    rules = gl.Search.paper(frontier="objective", objectives=("prompt_tokens",))
    state = replay(search(search=rules))
    front = front_of(state, rules)
    assert front.values.shape[1] == 2
    lengths = [-prompt_tokens(member.candidate.texts, state.calls) for member in state.pool]
    assert [column for column in front.values.T.tolist() if column == pytest.approx(lengths)]
    assert front.owners[0].any(), "nothing is shorter than the seed here"
    with pytest.raises(UsageError, match="has no effect"):
        gl.Search(objectives=("prompt_tokens",))
    with pytest.raises(UsageError, match="there is 'prompt_tokens'"):
        gl.Search(frontier="hybrid", objectives=("length",))


def wordy(request: gl.Request) -> str:
    """A reflection model that adds the right rule, and a sentence that does nothing."""
    text = reflect(request)
    return text.replace("</prompt>", "Always think of the customer first.\n</prompt>") if "Always" not in text else text


def test_sentences_that_cost_nothing_to_leave_out_are_dropped() -> None:
    options: dict[str, Any] = {"test": 20, "budget": gl.Budget(rollouts=500)}
    store = MemoryStore()
    events = search(store, lm=ScriptedLM(wordy, name="reflector"), search=gl.Search.paper(shorten=150), **options)
    state = replay(events)
    cuts = [event for event in events if isinstance(event, Shortened)]
    winner = winner_of(state, gl.Search())
    assert {event.sentence.strip() for event in cuts if event.status == "dropped"} >= {"Always think of the customer first."}
    assert any(event.status == "kept" for event in cuts)
    assert "Always" not in winner.candidate.texts["route"]
    assert winner.mean == state.best.mean
    assert "Decide how urgent it is." in winner.candidate.texts["route"], "the seed's own sentences stay"
    assert all(event.sentence.strip() != "Decide how urgent it is." for event in cuts)
    assert sum(event.spend.rollouts for event in cuts) <= 150
    assert state.spend.rollouts <= 500
    assert state.tested is not None
    assert state.tested.winner == winner.index, "what is tested is what is handed back"
    assert search(store, lm=ScriptedLM(wordy, name="reflector"), search=gl.Search.paper(shorten=150), **options) == events, "once"


def test_a_shortening_that_breaks_a_pin_is_not_kept() -> None:
    pin = {"message": "a leak number 1 of pins", "urgency": "high", "kind": "leak"}

    def guarded(request: gl.Request) -> str:
        system, user = request.messages[0]["content"], request.messages[-1]["content"]
        return "low" if "of pins" in user and "rule" in system and "customer" not in system and "urgent" in system else answer(request)

    lm = ScriptedLM(wordy, name="reflector")
    rules = gl.Search.paper(shorten=150, pins=[pin])
    events = search(task=Triage(lm=ScriptedLM(guarded, name="task")), lm=lm, search=rules, budget=gl.Budget(rollouts=500))
    cut = next(event for event in events if isinstance(event, Shortened) and "customer" in event.sentence)
    assert (cut.status, cut.reason) in [("kept", "1 pins break without it"), ("dropped", "no lower on 16 validation examples")]
    seed_right = guarded(gl.Request(({"role": "system", "content": "urgent"}, {"role": "user", "content": " leak of pins"}))) == "high"
    assert cut.status == ("kept" if seed_right else "dropped")


def test_break_even_counts_the_runs_that_pay_the_search_back(tmp_path: Path) -> None:
    result = run(tmp_path)
    even = result.break_even(before_usd=0.01)
    assert even.runs is not None
    saving = 0.01 - even.after_usd
    assert (even.runs - 1) * saving < even.search_usd <= even.runs * saving
    assert even.search_usd == result.costs.paid.usd
    longer = result.break_even()
    assert longer.runs is None, "rules make the prompt longer, and nothing is saved"
    assert longer.after_usd > longer.before_usd > 0
    unpriced = run(tmp_path, "unpriced", program=program(usd_per_token=None), reflection_lm=reflector(usd_per_token=None))
    with pytest.raises(UsageError, match="price"):
        unpriced.break_even()
    priced = unpriced.break_even(before_usd=0.01, usd_per_input_token=1e-6, usd_per_output_token=1e-6)
    assert priced.runs == even.runs


def test_blame_names_the_proposal_and_the_examples_behind_each_sentence(tmp_path: Path) -> None:
    result = run(tmp_path)
    blamed = result.blame
    assert "".join(b.sentence for b in blamed if b.module == "route") == result.winner.prompts["route"]
    for blame in blamed:
        if "rule" not in blame.sentence:
            assert blame.member == 0
            continue
        member = result.candidates[blame.member]
        parent = result.candidates[member.parents[0]]
        assert blame.sentence.strip() in member.candidate.texts[blame.module]
        assert blame.sentence.strip() not in [s.strip() for s in sentences_of(parent.candidate.texts[blame.module])]
        assert blame.validation_gain == pytest.approx((member.mean or 0) - (parent.mean or 0))
        assert blame.example_ids
        assert blame.model == "reflector"
        assert blame.minibatch_gain is not None
        assert blame.minibatch_gain > 0


def test_blame_finds_a_sentence_through_a_merge() -> None:
    from gepa_lite.core.budget import Budget
    from gepa_lite.core.events import Proposed, RunStarted, SeedValidated, StepEnded
    from gepa_lite.ship.blame import blame_of

    texts = {"a": "Do a.", "b": "Do b."}

    def child(step: int, module: str, text: str) -> list[Event]:
        proposed = Proposed(step, 0, 0, (module,), ("t1",), (0.0,), "accepted", "improved", "", {module: text}, (1.0,), "model")
        return [proposed, Validated(step, (0,), {module: text}, (0.5,)), StepEnded(step)]

    events: list[Event] = [RunStarted({}, texts, ("t1",), ("v1",), (), Budget(rollouts=9)), SeedValidated((0.0,))]
    events += [*child(0, "a", "Do a. Well."), *child(1, "b", "Do b. Fast.")]
    events += [Validated(2, (1, 2), {"b": "Do b. Fast."}, (1.0,)), StepEnded(2)]
    found = {blame.sentence.strip(): blame for blame in blame_of(replay(events), 3)}
    assert {sentence: blame.member for sentence, blame in found.items()} == {"Do a.": 0, "Well.": 1, "Do b.": 0, "Fast.": 2}
    assert found["Fast."].validation_gain == 0.5
    assert found["Fast."].example_ids == ("t1",)


def test_a_state_from_before_the_seed_has_no_looks() -> None:
    assert RunState().looks == 1


def failing(count: int, recovered: list[bool]) -> Any:
    """A task model whose endpoint fails on some of the test messages, never many in a row, until it has recovered."""

    def reply(request: gl.Request) -> Any:
        message = request.messages[-1]["content"]
        number = int(message.split(" number ")[1].split()[0]) if " of 3" in message else -1
        down = not recovered and number % 7 == 1 and number < 7 * count
        return RateLimitError("rate limit") if down else answer(request)

    return ScriptedLM(reply, name="task")


def test_a_few_test_examples_without_a_score_are_left_out_and_many_make_it_indecisive(tmp_path: Path) -> None:
    few = run(tmp_path, "few", testset=rows(30, 3), program=Triage(lm=failing(3, [])), workers=1)
    assert few.test is not None
    assert (few.test.n, few.test.missing, few.verdict) == (27, 3, "improved")
    assert any("3 of 30 test examples have no score" in notice for notice in few.notices)
    recovered: list[bool] = []
    lm = failing(4, recovered)
    many = run(tmp_path, "many", testset=rows(30, 3), program=Triage(lm=lm), workers=1)
    assert (many.verdict, many.test) == ("indecisive", None)
    assert str(many).startswith("Verdict: none yet. The sealed test set is not scored.")
    recovered.append(True)
    again = run(tmp_path, "many", testset=rows(30, 3), program=Triage(lm=lm), workers=1)
    assert again.verdict == "improved"
    assert again.test is not None
    assert (again.test.n, again.test.looks) == (30, 1)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"validation": "staged", "validation_block": 4, "validation_bound": 0.3},
        {"merge": "complementary", "selector": "top_k_pareto", "modules": "blame"},
        {"repeats": 2},
        {"repeats": 2, "validation": "staged", "validation_block": 5, "merge": "paper"},
    ],
    ids=str,
)
def test_invariant_5_holds_with_pins_shortening_curve_and_test(options: dict[str, Any]) -> None:
    pins = [*rows(16, 2)[10:14], *PRAISE[:3]]
    prepared = api.prepare(
        Triage(lm=ScriptedLM(forgetful, name="task")),
        rows(24, 1),
        rows(16, 2),
        testset=rows(12, 3),
        curveset=rows(6, 4),
        reflection_lm=ScriptedLM(wordy, name="reflector"),
        budget=gl.Budget(rollouts=600),
        search=gl.Search.paper(pins=pins, shorten=80, milestones=3, **options),
    )
    store = MemoryStore()
    state = Session(prepared.spec, store).run().state
    assert state.spend.rollouts == len(list(store.rollouts())) <= 600
    assert state.vetoes
    assert state.shortenings
    assert len(state.milestones) > 1
    assert state.tested is not None
    assert sum(event.spend.rollouts for event in state.shortenings) <= 80


def test_the_contract_holds_in_the_shortening_pass() -> None:
    from gepa_lite.search.finish import Ending, shorten

    rules = gl.Search.paper(shorten=100)
    state = replay(search(lm=ScriptedLM(wordy, name="reflector"), budget=gl.Budget(rollouts=300)))

    class Ports:
        def commit(self, events: Any, state: RunState) -> None: ...

    ending = Ending(rules, Ports(), lambda module, text: "every sentence is needed", lambda _: 0, print)  # type: ignore[arg-type]
    after = shorten(state, ending)
    assert {(event.status, event.reason, event.spend.rollouts) for event in after.shortenings} == {
        ("refused", "every sentence is needed", 0)
    }
    assert winner_of(after, rules) == winner_of(state, rules)
