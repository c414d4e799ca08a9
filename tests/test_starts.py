"""Several starts of one run, and going on from a shipped bundle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

import gepa_lite as gl
from gepa_lite import api
from gepa_lite.cli.app import app
from gepa_lite.core.events import Event, SeedValidated, Stopped, Tested, Validated, Vetoed
from gepa_lite.errors import ModelConnectionError, ModelsDownError
from gepa_lite.search.race import race
from gepa_lite.search.state import replay
from gepa_lite.session import Session
from gepa_lite.store.memory import MemoryStore
from gepa_lite.testing import ScriptedLM
from tests.triage import Triage, answer, program, reflector, rows
from tests.wrapped_task import ASK, PROMPTS, feedback, triage

LM = ScriptedLM(answer, name="task")
SEED = dict(Triage(lm=LM).prompts)
GOOD = {"route": "Decide how urgent it is. rule refund. rule leak. rule invoice."}
OTHER = {"gist": "Sum it up.", "route": "Say how urgent it is. rule praise."}


def events_of(starts: Any, store: MemoryStore | None = None, workers: int = 4, rollouts: int = 300, **rules: Any) -> list[Event]:
    prepared = api.prepare(
        [Triage(lm=LM), *starts],
        rows(24, 1),
        rows(16, 2),
        reflection_lm=reflector(),
        budget=gl.Budget(rollouts=rollouts),
        search=gl.Search(**rules),
        workers=workers,
    )
    store = store or MemoryStore()
    Session(prepared.spec, store).run()
    return store.events()


def run(folder: Path, starts: Any = (), task: Any = None, **options: Any) -> gl.Result[Triage]:
    values: dict[str, Any] = {"reflection_lm": reflector(), "budget": gl.Budget(rollouts=300), "testset": rows(30, 3), **options}
    return gl.optimize([task or Triage(lm=LM), *starts], rows(24, 1), rows(16, 2), run=folder, **values)


def test_all_starts_are_validated_in_full_right_after_the_seed_and_charged() -> None:
    events = events_of([GOOD, OTHER], validation="staged", validation_block=2)
    assert isinstance(events[1], SeedValidated)
    first, second = events[2:4]
    assert isinstance(first, Validated)
    assert isinstance(second, Validated)
    assert (first.step, first.parents, dict(first.texts)) == (-1, (0,), GOOD)
    assert None not in (*first.values, *second.values)
    assert first.spend.rollouts == second.spend.rollouts == 16
    state = replay(events)
    assert dict(state.pool[2].candidate.texts) == OTHER
    assert state.spend.rollouts <= 300
    assert any(event.parent in (1, 2) for event in state.proposals)


@pytest.mark.parametrize(
    "rules",
    [
        {},
        {"merge": "paper", "modules": "round_robin"},
        {"window": 3, "fan": 2},
        {"overlap": False, "repeats": 2},
        {"pins": tuple(rows(3, 8))},
        {"selector": "beam", "frontier": "hybrid", "objectives": ("prompt_tokens",)},
    ],
    ids=str,
)
def test_invariants_1_3_and_4_hold_with_several_starts(rules: dict[str, Any]) -> None:
    logs = [events_of([GOOD, OTHER, {"gist": "One line."}], workers=workers, **rules) for workers in (1, 4, 16)]
    assert logs[0] == logs[1] == logs[2]
    state = replay(logs[0])
    assert state.spend.rollouts <= 300
    assert len({member.candidate.id for member in state.pool}) == len(state.pool)


def test_invariant_7_a_run_cut_anywhere_goes_on_to_the_same_log() -> None:
    whole = events_of([GOOD, OTHER], rollouts=200)
    for cut in range(1, 5):
        store = MemoryStore()
        store.commit(whole[:cut])
        assert events_of([GOOD, OTHER], store, rollouts=200) == whole


def test_a_start_that_breaks_a_pin_takes_no_part() -> None:
    pins = [{"message": "a refund number 1 of 9", "urgency": "low", "kind": "refund"}]
    seed = {"route": "Decide how urgent it is."}
    pin = next(row for row in pins if answer_to(seed, row) == "low")
    events = events_of([GOOD], pins=(pin,))
    assert isinstance(events[2], Vetoed)
    assert events[2].step == -1
    assert all(dict(member.candidate.texts)["route"] != GOOD["route"] for member in replay(events).pool)


def answer_to(texts: dict[str, str], row: dict[str, Any]) -> str:
    return str(Triage(lm=LM).with_prompts(texts)(message=row["message"]).urgency)


def test_the_result_says_how_each_start_scored_and_which_won(tmp_path: Path) -> None:
    result = run(tmp_path / "run", [GOOD, Triage(lm=LM).with_prompts(OTHER)])
    names = [(start.name, start.index) for start in result.starts]
    assert names == [("first program", 0), ("start 1", 1), ("start 2", 2)]
    assert [start.mean for start in result.starts] == [member.mean for member in result.candidates[:3]]
    assert all(start.low <= start.mean <= start.high for start in result.starts if start.mean is not None)  # type: ignore[operator]
    assert any(start.won for start in result.starts)
    assert result.seed_prompts == SEED
    assert "Before and after: validation and test compare the winner with the first program." in str(result)
    tested = next(event for event in events_in(tmp_path / "run") if isinstance(event, Tested))
    assert tested.seed_values == result.state.tested.seed_values  # type: ignore[union-attr]
    alone = run(tmp_path / "alone")
    assert [start.name for start in alone.starts] == ["first program"]
    assert "the winner comes from" not in str(alone)
    assert alone.test is not None
    assert result.test is not None
    assert alone.test.before == result.test.before


def events_in(folder: Path) -> list[Event]:
    from gepa_lite.store.run_store import RunStore

    with RunStore.read(folder) as store:
        return list(store.events())


def test_the_winner_may_be_a_start_as_it_is(tmp_path: Path) -> None:
    best = {
        "route": "Decide how urgent it is. "
        + " ".join(f"rule {kind}." for kind in ("refund", "praise", "question", "leak", "invoice", "typo"))
    }
    result = run(tmp_path / "run", [best], search=gl.Search(shorten=40))
    assert result.winner_index == 1
    assert [start.won for start in result.starts] == [False, True]
    assert result.prompts["route"] == best["route"]
    assert not result.state.shortenings
    assert {blame.step for blame in result.blame if blame.member == 1} == {-1}
    assert "#1 start" in "\n".join(map(str, result.blame))


class Renamed(gl.Program):
    gist = gl.Module("message -> gist", "Say it.")
    route = gl.Module("message, gist -> priority: Literal['low', 'high']", "Route it.")

    def forward(self, message: str) -> gl.Outputs:
        return self.route(message=message, gist=self.gist(message=message).gist)


class Else(Triage):
    def forward(self, message: str) -> gl.Outputs:
        return self.route(message=message, gist="")


@pytest.mark.parametrize(
    ("starts", "words"),
    [
        ([Renamed(lm=LM)], r"start 1 \(Renamed\) is not the first program.*the signature of 'route' is"),
        ([Else(lm=LM).with_prompts(OTHER)], "its code or settings differ from those of Triage"),
        ([Triage(lm=ScriptedLM(answer, name="dearer")).with_prompts(OTHER)], "it asks .*dearer"),
        ([{"rote": "x"}], "start 1: Triage has no module 'rote'; .* Did you mean 'route'"),
        ([{"route": SEED["route"]}], "start 1 has the same prompts as the first program"),
        ([GOOD, Triage(lm=LM).with_prompts(GOOD)], "start 2 has the same prompts as start 1"),
        ([{"route": "Decide how urgent it is. " * 400}], "the prompts of start 1 break the contract.*at most 2,000"),
        ([3], "program is of type int"),
        (["nowhere.prompts.json"], "nowhere.prompts.json can't be read: there is no such file"),
    ],
)
def test_a_start_that_does_not_fit_is_refused_before_anything_is_spent(starts: Any, words: str) -> None:
    with pytest.raises(gl.UsageError, match=words):
        events_of(starts)


def test_an_empty_list_and_a_budget_without_room_for_the_starts_are_refused() -> None:
    with pytest.raises(gl.UsageError, match="empty list"):
        api.prepare([], rows(8, 1))
    with pytest.raises(gl.UsageError, match="48 for that of 3 further starts"):
        events_of([GOOD, OTHER, {"gist": "x"}], rollouts=60)
    with pytest.raises(gl.UsageError, match="a comparison has one start"):
        gl.compare(
            [Triage(lm=LM), GOOD],
            rows(24, 1),
            rows(16, 2),
            optimizers=["best_of_n"],
            reflection_lm=reflector(),
            budget=gl.Budget(rollouts=100),
        )


def test_other_starts_are_another_run(tmp_path: Path) -> None:
    run(tmp_path / "run", [GOOD])
    with pytest.raises(gl.UsageError, match="the starts beside the first program have changed"):
        run(tmp_path / "run", [OTHER])
    calls = LM.calls
    again = run(tmp_path / "run", [GOOD])
    assert LM.calls == calls
    assert again.starts[1].mean is not None


def test_an_outage_within_a_start_is_no_score_and_the_run_goes_on_later(tmp_path: Path) -> None:
    down = True

    def flaky(request: gl.Request) -> str:
        if down and "rule refund" in request.messages[0]["content"]:
            raise ModelConnectionError("down")
        return answer(request)

    task = Triage(lm=ScriptedLM(flaky, name="flaky"))
    with pytest.raises(ModelsDownError):
        run(tmp_path / "run", [GOOD], task)
    down = False
    assert run(tmp_path / "run", [GOOD], task).starts[1].mean is not None


def test_a_budget_that_ends_within_the_starts_goes_on_with_more() -> None:
    store = MemoryStore()
    seed = events_of([GOOD, OTHER], rollouts=120)[1]
    assert isinstance(seed, SeedValidated)
    options: dict[str, Any] = {"reflection_lm": reflector(), "workers": 1}

    def go(budget: gl.Budget) -> list[Event]:
        prepared = api.prepare([Triage(lm=LM), GOOD, OTHER], rows(24, 1), rows(16, 2), budget=budget, **options)
        Session(prepared.spec, store).run()
        return store.events()

    first = go(gl.Budget(tokens=seed.spend.tokens + 1_200))
    assert isinstance(first[-1], Stopped)
    assert "within the validation of another start" in first[-1].reason
    assert len(replay(first).pool) == 1
    small = replay(first[:2]).under(gl.Budget(rollouts=31))
    [refused] = race(small, gl.Search(), cast("Any", None))
    assert isinstance(refused, Stopped)
    assert "no room for the 16 rollouts" in refused.reason
    state = replay(go(gl.Budget(rollouts=120)))
    assert len(state.pool) >= 3
    assert not state.waiting_starts


def shipped(tmp_path: Path) -> Path:
    return run(tmp_path / "first").save(tmp_path / "triage.prompts.json")


def test_a_search_goes_on_from_a_shipped_bundle_and_the_next_bundle_says_so(tmp_path: Path) -> None:
    bundle = shipped(tmp_path)
    before = gl.load_prompts(bundle)
    assert dict(before) != SEED
    result = run(tmp_path / "second", search=gl.Search(start=bundle))
    assert [start.name for start in result.starts] == ["first program", "triage.prompts.json"]
    assert dict(result.candidates[1].candidate.texts) == dict(before)
    assert result.seed_prompts == SEED
    data = json.loads(result.save(tmp_path / "next.prompts.json").read_text())
    [start] = data["starts"]
    assert start["origin"]["candidate"] == before.data["candidate"]
    assert (start["name"], start["won"], start["index"]) == ("triage.prompts.json", True, 1)
    assert [entry["step"] for entry in data["candidate"]["lineage"][:2]] == [-1, -1]
    from_object = run(tmp_path / "third", search=gl.Search(start=before))
    assert from_object.candidates[1].candidate == result.candidates[1].candidate


def test_a_bundle_of_other_signatures_is_refused_and_one_of_the_same_prompts_is_no_start(tmp_path: Path) -> None:
    bundle = shipped(tmp_path)
    with pytest.raises(gl.UsageError, match="the signature of 'route' has changed"):
        gl.optimize(Renamed(lm=LM), rows(8, 1), feedback=feedback, search=gl.Search(start=bundle), run=tmp_path / "x")
    with pytest.raises(gl.UsageError, match="the path of a bundle"):
        gl.Search(start=3)
    loaded = gl.apply_prompts(Triage(lm=LM), bundle)
    result = run(tmp_path / "again", task=loaded, search=gl.Search(start=bundle))
    assert len(result.starts) == 1
    assert any("are those of the program already" in notice for notice in result.notices)


def test_a_wrapped_function_takes_starts(tmp_path: Path) -> None:
    wrapped = gl.wrap(triage, PROMPTS, lm=ASK)
    result = gl.optimize(
        [wrapped, wrapped.with_prompts(GOOD), OTHER],
        rows(12, 1),
        rows(8, 2),
        feedback=feedback,
        reflection_lm=reflector(),
        budget=gl.Budget(rollouts=150),
        run=tmp_path / "run",
    )
    assert [start.index for start in result.starts] == [0, 1, 2]
    assert isinstance(result.program, gl.Wrapped)


def made() -> Triage:
    return program()


def test_the_command_takes_bundles_as_starts_and_resumes_without_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = shipped(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name, data in (("train", rows(24, 1)), ("val", rows(16, 2))):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, data)))
    (tmp_path / "run.toml").write_text(
        'program = "tests.test_starts:made"\ntrain = "train.jsonl"\nval = "val.jsonl"\nstart = "triage.prompts.json"\nrun = "./r"\n[budget]\nrollouts = 150\n'
    )
    done = CliRunner().invoke(app, ["run", "run.toml", "--quiet", "--json"])
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert [start["name"] for start in data["starts"]] == ["first program", "triage.prompts.json"]
    bundle.unlink()
    again = CliRunner().invoke(app, ["resume", str(tmp_path / "r"), "--budget-rollouts", "200", "--quiet", "--json"])
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout)["starts"][1] == data["starts"][1]
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "r")])
    assert "start" in shown.stdout


def test_an_estimate_counts_the_starts(tmp_path: Path) -> None:
    sets = rows(24, 1), rows(16, 2)
    options: dict[str, Any] = {"reflection_lm": reflector(), "budget": gl.Budget(rollouts=300)}
    alone = gl.estimate(Triage(lm=LM), *sets, run=tmp_path / "one", **options)
    three = gl.estimate([Triage(lm=LM), GOOD, OTHER], *sets, run=tmp_path / "three", **options)
    assert three.shares["seed"] > 2 * alone.shares["seed"]
