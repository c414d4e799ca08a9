"""The probe: all variants on the same parents and minibatches, within budget and resume, and a recommendation that says when the data can't tell."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import gepa_lite as gl
from gepa_lite.cli.app import app
from gepa_lite.core.budget import Spend
from gepa_lite.core.call import Usage
from gepa_lite.core.events import ProposalStatus, Proposed
from gepa_lite.errors import ModelsDownError, UsageError
from gepa_lite.insight.training_rows import training_rows
from gepa_lite.lm.litellm_client import LiteLLM
from gepa_lite.probing.outcome import Turns, outcome_of, rounds_needed, turns_of
from gepa_lite.probing.variants import variants_of
from gepa_lite.store.run_store import RunStore
from gepa_lite.testing import OpenAIServer, ScriptedLM
from tests import triage
from tests.test_transitions import a_record


def models() -> list[ScriptedLM]:
    vain = ScriptedLM(lambda request: "<prompt>Decide how urgent it is, with care.</prompt>", name="vain")
    return [vain, ScriptedLM(triage.reflect, name="good"), ScriptedLM("no prompt here", name="mute")]


def probe(folder: Path, lms: Any = None, rounds: int = 6, **options: Any) -> gl.ProbeResult:
    given = {"models": models() if lms is None else lms, "rounds": rounds, "run": folder, **options}
    return gl.probe(triage.program(), triage.rows(12, 1), triage.rows(20, 2), **given)


def proposals(folder: Path) -> list[Proposed]:
    with RunStore.read(folder) as store:
        return [event for event in store.events() if isinstance(event, Proposed)]


def test_all_models_meet_the_same_parents_and_minibatches(tmp_path: Path) -> None:
    found = probe(tmp_path / "a")
    rounds: dict[int, list[Proposed]] = {}
    for proposal in proposals(tmp_path / "a"):
        if proposal.status != "skipped":
            rounds.setdefault(proposal.step, []).append(proposal)
    assert len(rounds) == found.rounds == 6
    for row in rounds.values():
        assert [proposal.model for proposal in row] == ["vain", "good", "mute"]
        assert len({(p.parent, p.modules, p.example_ids, p.before) for p in row}) == 1
    assert len({row[0].modules for row in rounds.values()}) > 1 or len({row[0].parent for row in rounds.values()}) > 1
    good, mute, vain = found.of("good"), found.of("mute"), found.of("vain")
    assert found.leader == "good"
    assert good.refined > vain.refined == mute.refined == 0
    assert mute.unusable == {"no_block": 6}
    assert mute.valid == 0
    assert mute.asked == good.asked == 6
    assert good.low < good.rate < good.high
    assert good.distance > 0
    assert found.unit == "tokens"
    assert good.cost_per_refinement == good.tokens / good.refined
    assert vain.cost_per_refinement is None
    assert "good" in found.front
    assert json.loads(json.dumps(found.to_data()))["leader"] == "good"
    assert "no_block" in str(found)


def test_a_probe_goes_on_where_it_stopped_and_a_finished_one_is_only_read(tmp_path: Path) -> None:
    whole, lms = probe(tmp_path / "whole"), models()
    first = probe(tmp_path / "parts", lms, budget=gl.Budget(rollouts=70))
    assert first.rounds < 6
    again = probe(tmp_path / "parts", lms, budget=gl.Budget(rollouts=400))
    assert again.rounds == 6
    assert [each.rounds for each in again.tried] == [each.rounds for each in whole.tried]
    calls = [lm.calls for lm in lms]
    third = probe(tmp_path / "parts", lms, budget=gl.Budget(rollouts=400))
    assert str(third) == str(again)
    assert [lm.calls for lm in lms] == calls
    with pytest.raises(UsageError, match="optimizer"):
        probe(tmp_path / "parts", lms, rounds=7, budget=gl.Budget(rollouts=400))


def test_the_budget_holds(tmp_path: Path) -> None:
    probe(tmp_path / "a", budget=gl.Budget(rollouts=61))
    result_spend = sum(proposal.spend.rollouts for proposal in proposals(tmp_path / "a"))
    assert 20 + result_spend <= 61


def test_settings_are_changed_one_at_a_time_and_judged_on_one_minibatch(tmp_path: Path) -> None:
    template = "{{ prompt }}\n<current>\n{{ prompt }}\n</current>\n{% for lesson in lessons %}{{ lesson.feedback }}\n{% endfor %}"
    seen: list[str] = []

    def reflect(request: gl.Request) -> str:
        seen.append(request.messages[0]["content"])
        return triage.reflect(request) if "<edit>" not in seen[-1] else "<edit><add>rule refund.</add></edit>"

    settings = {"minibatch": [1, 6], "horizon": ["episode"], "proposer": ["edit"], "temperature": [0.2], "template": {"mine": template}}
    found = probe(tmp_path / "a", [ScriptedLM(reflect, name="lm")], rounds=2, settings=settings)
    names = ["as it is", "minibatch=1", "minibatch=6", "horizon=episode", "proposer=edit", "temperature=0.2", "template=mine"]
    assert [each.name for each in found.tried] == names
    first = [p for p in proposals(tmp_path / "a") if p.step == 0]
    # six others than the six that the largest minibatch shows
    assert len({p.example_ids for p in first}) == 1
    assert len(first[0].example_ids) == 6
    assert [p.shown.get("examples") for p in first] == [3, 1, 6, 3, 3, 3, 3]
    assert [p.proposer for p in first] == ["rewrite"] * 4 + ["edit"] + ["rewrite"] * 2


def test_a_text_that_only_fits_what_was_shown_is_no_refinement(tmp_path: Path) -> None:
    def recall(request: gl.Request) -> str:
        text = request.messages[0]["content"]
        numbers = re.findall(r"a (\w+) number (\d+) of 1", text)
        return f"<prompt>Decide how urgent it is. {' '.join(f'seen {number}-{kind}' for kind, number in numbers)}</prompt>"

    def answer(request: gl.Request) -> str:
        system, user = request.messages[0]["content"], request.messages[-1]["content"]
        found = re.search(r"a (\w+) number (\d+) of 1", user)
        if "urgent" in system and found and f"seen {found[2]}-{found[1]}" in system:
            return triage.RULES[found[1]]
        return triage.answer(request)

    lms = [ScriptedLM(recall, name="by heart"), ScriptedLM(triage.reflect, name="good")]
    program = triage.Triage(lm=ScriptedLM(answer, name="task"))
    found = gl.probe(
        program, triage.rows(24, 1), triage.rows(20, 2), models=lms, rounds=5, search=gl.Search(guard="off"), run=tmp_path / "a"
    )
    assert found.of("by heart").valid == 5
    assert found.of("by heart").refined == 0 < found.of("good").refined


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"size": [3]}, "size"),
        ({"minibatch": [0]}, "minibatch"),
        ({"proposer": ["shout"]}, "proposer"),
        ({"temperature": ["hot"]}, "temperature"),
        ({"minibatch": [3]}, "at least two"),
    ],
)
def test_settings_that_are_none_are_refused(settings: Any, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        variants_of({"lm": ScriptedLM("x")}, settings, gl.Search())


def test_what_a_probe_does_not_take(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least two"):
        probe(tmp_path / "a", [ScriptedLM("x", name="alone")])
    with pytest.raises(UsageError, match="not both"):
        probe(tmp_path / "a", settings=True)
    with pytest.raises(UsageError, match="rounds"):
        probe(tmp_path / "a", rounds=0)
    for wrong in ("openai/gpt-5", [], 7):
        with pytest.raises(UsageError, match="models="):
            gl.probe(triage.program(), triage.rows(12, 1), triage.rows(20, 2), models=wrong, run=tmp_path / "a")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no test set"):
        probe(tmp_path / "a", testset=triage.rows(10, 5))


def turns(outcomes: dict[int, list[bool | None]], costs: list[float | None], names: list[str]) -> list[Turns]:
    """By slot: refined or not in each round, None where it was lost."""
    made, events = [], []
    for slot, row in outcomes.items():
        for step, won in enumerate(row):
            usage = Usage(1, 10, 10, costs[slot])
            status: ProposalStatus = "void" if won is None else "accepted" if won else "rejected"
            events.append(
                Proposed(step, slot, 0, ("m",), ("e",), (0.0,), status, "x", "the line was cut", {}, spend=Spend(reflection=usage))
            )
            delta = None if won is None else 0.5 if won else 0.0
            label = "" if won is None else "improved" if won else "no_change"
            made.append(a_record(slot=slot, iteration=step, label=label, delta=delta, wall=1.0))
    return turns_of(events, made, names)


def found_in(outcomes: Mapping[int, list[Any]], costs: list[Any], names: list[str], judged: int = 6) -> gl.ProbeResult:
    return outcome_of(turns(dict(outcomes), costs, names), "done", Path("run"), judged)


def test_a_clear_leader_is_told() -> None:
    found = found_in({0: [True] * 12, 1: [False] * 12}, [0.02, 0.01], ["strong", "weak"])
    assert found.told
    assert found.recommended == found.leader == "strong"
    assert found.front == ("strong", "weak")
    assert found.unit == "USD"
    assert found.of("strong").cost_per_refinement == pytest.approx(0.02)
    assert "Recommended: strong. It refines more often than every other one" in str(found)


def test_where_the_data_cannot_tell_it_says_so_and_takes_the_cheaper() -> None:
    outcomes = {0: [True, True, True, False, False, True], 1: [True, True, False, False, False, True], 2: [False] * 6}
    found = found_in(outcomes, [0.09, 0.01, 0.01], ["dear", "cheap", "poor"])
    assert not found.told
    assert found.leader == "dear"
    assert found.recommended == "cheap"
    assert found.front == ("dear", "cheap")
    assert "The data can't tell dear from cheap: 1 rounds to 0" in str(found)
    assert "rounds to show" in str(found)
    none = found_in({0: [False], 1: [False]}, [0.1, 0.1], ["a", "b"])
    assert "Nothing was refined" in str(none)


def test_of_equal_rates_the_cheaper_one_is_recommended_and_called_so() -> None:
    equal = {0: [True, False, True], 1: [True, False, True], 2: [False] * 3}
    found = found_in(equal, [0.09, 0.01, 0.01], ["dear", "cheap", "poor"])
    assert "Recommended, for now: cheap, the cheapest of those with the highest rate." in str(found)
    ahead = found_in({0: [True, False, True], 1: [True, False, False]}, [0.01, 0.09], ["a", "b"])
    assert "Recommended, for now: a, the highest rate." in str(ahead)


def test_a_local_model_beside_a_paid_one_is_compared_in_dollars() -> None:
    found = found_in({0: [True] * 4, 1: [True] * 4}, [0.02, 0.0], ["paid", "local"])
    assert found.unit == "USD"
    assert found.of("local").cost_per_refinement == 0
    assert found.recommended == "local"
    assert found_in({0: [True], 1: [True]}, [0.0, 0.0], ["a", "b"]).unit == "tokens"
    assert found_in({0: [True], 1: [True]}, [0.1, None], ["a", "b"]).unit == "tokens"


def test_a_model_that_was_hardly_ever_reached_does_not_lead_and_its_losses_are_said() -> None:
    outcomes = {0: [True] * 10 + [False] * 2, 1: [True] + [None] * 11, 2: [None] * 12}
    found = found_in(outcomes, [0.01, 0.01, 0.01], ["steady", "flaky", "down"])
    assert found.of("flaky").rate == 1.0 > found.of("steady").rate
    assert found.leader == found.recommended == "steady"
    assert not found.told
    text = str(found)
    assert "flaky was lost to outages in 11 of 12 rounds: its figures rest on the others (last: the line was cut)." in text
    assert "down was lost to outages in 12 of 12 rounds: it could not be compared" in text
    assert "from down" not in text
    assert "the highest rate that its rounds bear out" in text


def over_http(server: OpenAIServer, name: str, key: str) -> gl.LM:
    return LiteLLM(f"openai/{name}", api_base=server.base_url, api_key=key, timeout=20.0, max_wait=0.01, max_attempts=2)


@pytest.mark.filterwarnings("ignore::UserWarning:pydantic")
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_model_whose_key_is_refused_drops_out_wherever_it_stands_and_the_others_go_on(place: int, tmp_path: Path) -> None:
    with OpenAIServer(lambda messages: triage.reflect(gl.Request(tuple(messages))), api_key="sk-right") as server:
        lms = [over_http(server, name, "sk-right") for name in ("one", "two")]
        lms.insert(place, over_http(server, "refused", "sk-wrong"))
        found = probe(tmp_path / "a", lms, rounds=5)
        assert server.keys.count("sk-wrong") == 1, "it is asked no more"
    names = [each.name for each in found.tried]
    assert names.index("openai/refused") == place
    assert found.stopped == "5 rounds were made"
    refused = found.of("openai/refused")
    assert (refused.asked, refused.lost) == (0, 5)
    assert "refused is down: the first call failed (auth)" in refused.why_lost
    assert "openai/refused was lost to outages in 5 of 5 rounds: it could not be compared (last: the reflection model" in str(found)
    for name in ("openai/one", "openai/two"):
        assert (found.of(name).asked, found.of(name).lost) == (5, 0)
        assert found.of(name).refined


@pytest.mark.filterwarnings("ignore::UserWarning:pydantic")
def test_a_probe_ends_with_the_error_once_every_key_is_refused(tmp_path: Path) -> None:
    with OpenAIServer("<prompt>Anything.</prompt>", api_key="sk-right") as server:
        lms = [over_http(server, name, "sk-wrong") for name in ("one", "two")]
        with pytest.raises(ModelsDownError, match=r"the reflection model openai/(one|two) is down: the first call failed \(auth\)"):
            probe(tmp_path / "a", lms)
        assert server.calls == 2, "each was asked once"


def test_where_nothing_was_refined_nothing_is_recommended() -> None:
    none = found_in({0: [False] * 3, 1: [False] * 3}, [0.1, 0.1], ["a", "b"])
    assert none.recommended is None
    assert not none.told
    assert json.loads(json.dumps(none.to_data()))["recommended"] is None
    assert none.of("a").low == 0
    assert "No round was made" in str(found_in({0: [], 1: []}, [0.1, 0.1], ["a", "b"]))


def test_a_small_training_set_is_said_to_be_one() -> None:
    rounds = {0: [True], 1: [True]}
    assert "Judged on 2 other training examples a round, not 6" in str(found_in(rounds, [0.1, 0.1], ["a", "b"], judged=2))
    assert "Judged on the examples that were shown" in str(found_in(rounds, [0.1, 0.1], ["a", "b"], judged=0))
    assert "Judged" not in str(found_in(rounds, [0.1, 0.1], ["a", "b"]))


def test_a_reply_that_was_asked_for_once_more_is_paid_for_twice(tmp_path: Path) -> None:
    def leaky(request: gl.Request) -> str:
        return triage.reflect(request) if len(request.messages) > 1 else "<prompt>The prompt should be better.</prompt>"

    lms = [ScriptedLM(triage.reflect, name="good"), ScriptedLM(leaky, name="leaky")]
    found = probe(tmp_path / "a", lms, rounds=3, search=gl.Search(guard="reject"))
    assert lms[1].calls > found.of("leaky").asked
    spent = sum(p.spend.reflection.input_tokens + p.spend.reflection.output_tokens for p in proposals(tmp_path / "a") if p.model == "leaky")
    assert found.of("leaky").tokens == spent > found.of("good").tokens


def test_costs_are_known_where_messages_are_not_kept(tmp_path: Path) -> None:
    kept = probe(tmp_path / "a", rounds=3)
    bare = probe(tmp_path / "b", rounds=3, search=gl.Search(store_messages=False))
    assert [each.tokens for each in bare.tried] == [each.tokens for each in kept.tried]
    assert bare.unit == "tokens"
    assert all(each.tokens for each in bare.tried)


def test_a_step_in_which_the_parent_could_not_be_run_is_nobodys_round() -> None:
    lost = Proposed(7, 0, 0, ("m",), ("e",), (None,), "void", "missing", "no answer", {})
    assert [list(each.proposals) for each in turns_of([lost], [], ["a", "b"])] == [[], []]


def test_rounds_needed() -> None:
    assert rounds_needed(3, 3, 10) is None
    assert rounds_needed(0, 0, 0) is None
    few, many = rounds_needed(10, 0, 12), rounds_needed(6, 5, 12)
    assert few is not None
    assert many is not None
    assert few < 20 < 500 < many


def test_a_probe_gives_pairs_of_replies_to_one_question(tmp_path: Path) -> None:
    worse = ScriptedLM(lambda request: "<prompt>urgent: say low.</prompt>", name="worse")
    found = probe(tmp_path / "a", [ScriptedLM(triage.reflect, name="good"), worse])
    pairs = list(training_rows(gl.transitions(found.run), "preferences"))
    assert pairs
    assert any(pair["same_prompt"] for pair in pairs)


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made.py").write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "from tests import triage\n"
        "from gepa_lite.testing import ScriptedLM\n"
        "def make():\n    return triage.Triage(lm=ScriptedLM(lambda r: triage.reflect(r) if '<prompt>' in str(r.messages) else triage.answer(r), name='task'))\n",
        encoding="utf-8",
    )
    for name, rows in (("train", triage.rows(12, 1)), ("val", triage.rows(12, 2))):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    words = ["probe", "--program", "made:make", "--train", "train.jsonl", "--val", "val.jsonl", "--vary", "minibatch=1,4", "--rounds", "2"]
    done = CliRunner().invoke(app, [*words, "--run", "p", "--json"])
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert [each["name"] for each in data["tried"]] == ["as it is", "minibatch=1", "minibatch=4"]
    again = CliRunner().invoke(app, [*words, "--run", "p"])
    assert "as it is" in again.stdout
    refused = CliRunner().invoke(app, [*words[:-4], "--vary", "minibatch"])
    assert refused.exit_code == 2
    for wrong in (["--settings"], ["--vary", "minibatch=3"]):
        refused = CliRunner().invoke(app, [*words, *wrong])
        assert refused.exit_code == 2
        assert "--vary" in refused.output
