"""The contract of a prompt: what it checks, and that nothing is paid for where it is broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite import api
from gepa_lite.core.contract import Contract, Contracts
from gepa_lite.core.events import Merged, Proposed, Unjoined, Validated
from gepa_lite.core.placeholders import likely_form, placeholders_of
from gepa_lite.errors import UsageError
from gepa_lite.search.gate import Gate
from gepa_lite.search.merge import plan_merge
from gepa_lite.search.plan import StepPlan
from gepa_lite.search.ports import ProgramFacts
from gepa_lite.search.state import RunState, replay
from gepa_lite.search.step import Course, draft_merge
from gepa_lite.session import Session
from gepa_lite.store.memory import MemoryStore
from gepa_lite.testing import ScriptedLM
from tests.test_merge import TWO_LINES, pool
from tests.test_search_run import search
from tests.triage import RULES, Triage, answer, program, reflect, rows

LONG_GERMAN = "Entscheide, wie dringend die Nachricht ist, und antworte mit einem einzigen Wort."


@pytest.mark.parametrize(
    ("contract", "kept", "broken", "rule"),
    [
        (Contract(max_tokens=5), "one two", "one two three four five", "length"),
        (Contract(max_tokens=5), "日本語", "日本語の文章を要約してください", "length"),
        (Contract(placeholders=("{name}",)), "Greet {name}.", "Greet {nom}.", "placeholder"),
        (Contract(placeholders=("{{ name }}",)), "Greet {{name}}.", "Greet name.", "placeholder"),
        (Contract(placeholders=("{name}",)), "Greet {name}.", "Greet {name} of {city}.", "placeholder"),
        (Contract(placeholders=("{name}",)), 'Greet {name}: {"a": 1}, ${x}.', "Greet.", "placeholder"),
        (Contract(placeholders=("[INPUT]",)), "Sum up [INPUT].", "Sum up.", "placeholder"),
        (Contract(frozen=("Tools:\n(1) look",)), "Act. Tools:\n(1) look", "Act. Tools: (1) look", "frozen"),
        (Contract(required=r"(?i)\bjson\b"), "Answer in JSON.", "Answer.", "required"),
        (Contract(banned=[r"(?i)as an ai"]), "Answer.", "As an AI, answer.", "banned"),
        (Contract(form="json"), '{"system": "Answer."}', "{system: Answer.}", "form"),
        (Contract(form="jinja", placeholders=("{{q}}",)), "{% if q %}{{ q }}{% endif %}", "{% if q %}{{ q }}", "form"),
        (Contract(form="jinja", placeholders=("{{q}}",)), "{{ q | upper }}", "{{ q }} {{ secret }}", "placeholder"),
        (Contract(form="format", placeholders=("{q}",)), 'Answer {q!r} as {{"a": 1}}.', 'Answer {q} as {"a": 1}.', "placeholder"),
        (Contract(form="format", placeholders=("{q}",)), "Answer {q}.", "Answer {{q}}.", "placeholder"),
        (Contract(form="format", placeholders=("{q}",)), "Answer {q}.", "Answer {q} in {}.", "placeholder"),
        (Contract(form="format", placeholders=("{q}",)), "Answer {q}.", "Answer {q} in {.", "form"),
        (Contract(form="template", placeholders=("$q",)), "Answer ${q} for $$5.", "Answer $q for $5.", "form"),
        (Contract(form="template", placeholders=("${q}",)), "Answer $q.", "Answer $q and $p.", "placeholder"),
        (Contract(form="python"), "def f(x):\n    return {x}", "def f(x):\nreturn x", "form"),
        (Contract(placeholders=("$q",)), "Answer $q for US$5.", "Answer.", "placeholder"),
        (Contract(language="de"), LONG_GERMAN, "Decide how urgent the message is, and answer in one single word.", "language"),
        (Contract(language="de"), "Kurz.", "Decide how urgent the message is, and answer in one single word.", "language"),
    ],
    ids=str,
)
def test_each_rule_keeps_and_refuses(contract: Contract, kept: str, broken: str, rule: str) -> None:
    assert contract.breaches(kept) == []
    assert {breach.rule for breach in contract.breaches(broken)} == {rule}
    assert contract.breach(broken) == contract.breaches(broken)[0].words


def test_placeholders_are_found_in_the_seed_and_json_is_none() -> None:
    text = 'Dear {name}, {price:.2f} for {{ item | upper }} or ${sum} or %(tax)s; answer {"a": {"b": 1}} in {} and {{}}.'
    assert placeholders_of(text) == {"{name}", "{price}", "{{item}}", "${sum}", "%(tax)s"}
    resolved = Contract().resolved("Greet {name}.", 100)
    assert (resolved.placeholders, resolved.max_tokens) == (("{name}",), 100)
    assert Contract(placeholders=(), max_tokens=7).resolved("Greet {name}.", 100) == Contract(placeholders=(), max_tokens=7)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"max_tokens": True}, "max_tokens=True"),
        ({"banned": ["("]}, "is not a regular expression"),
        ({"required": [""]}, "texts that are not empty"),
        ({"frozen": [3]}, "texts that are not empty"),
        ({"language": "german"}, "two letters"),
        ({"form": "yaml"}, "'text', 'json', 'jinja', 'format', 'template' or 'python'"),
    ],
)
def test_a_wrong_contract_is_refused_where_it_is_written(values: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Contract(**values)


def test_a_contract_survives_json() -> None:
    contract = Contract(max_tokens=9, placeholders=(), frozen=("a", "b"), banned=("x",), language="de", form="json")
    assert Contract.from_data(json.loads(json.dumps(contract.to_data()))) == contract
    with pytest.raises(UsageError, match="unknown rule 'tone': upgrade"):
        Contract.from_data({"tone": "kind"})


def test_without_the_language_library_the_call_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "py3langid", None)
    task = ScriptedLM(answer)
    with pytest.raises(UsageError, match=r"pip install 'gepa-lite\[language\]'"):
        prepare(task, contract={"gist": Contract(language="en")})
    assert task.calls == 0


# --- of a program ---------------------------------------------------------------------------------------------------


def test_a_program_is_held_to_its_texts_together() -> None:
    whole = Contracts(program=Contract(max_tokens=6, required=("now",), frozen=("keep",), banned=("never",)))
    assert whole.program_breaches({"a": "keep it", "b": "do it now"}) == []
    rules = [breach.rule for breach in whole.program_breaches({"a": "a never ending story", "b": "never again"})]
    assert rules == ["length", "frozen", "required", "banned"]


def prepare(task: ScriptedLM | None = None, reflection: Any = None, **options: Any) -> api.Prepared:
    options.setdefault("budget", gl.Budget(rollouts=200))
    options.setdefault("search", gl.Search.paper())
    given = Triage(lm=task or ScriptedLM(answer, name="task"))
    return api.prepare(given, rows(24, 1), rows(16, 2), reflection_lm=reflection or ScriptedLM(reflect, name="reflector"), **options)


@pytest.mark.parametrize(
    ("contract", "words"),
    [
        ({"gist": Contract(required=("JSON",))}, "the seed prompt of 'gist' breaks its own contract: nothing in the prompt matches 'JSON'"),
        ({"gist": Contract(max_tokens=3)}, r"at most 3 are allowed\. .* raise Contract\(max_tokens=\)"),
        (Contract(max_tokens=3), "the seed prompts break the program's contract: the program's prompts together have about 17 tokens"),
        ({"gists": Contract()}, "Did you mean 'gist'"),
        ({"gist": "short"}, "is no contract"),
        (Contract(form="json"), "has no form and no placeholders"),
    ],
)
def test_a_seed_that_breaks_its_contract_is_refused_before_anything_is_spent(contract: Any, words: str) -> None:
    task, reflection = ScriptedLM(answer), ScriptedLM(reflect)
    with pytest.raises(UsageError, match=words):
        prepare(task, reflection, contract=contract)
    assert task.calls == reflection.calls == 0


def test_a_module_declares_its_contract_and_the_call_may_replace_it() -> None:
    class Held(Triage):
        gist = gl.Module("message -> gist", "Say for {team} what the sender wants.", contract=gl.Contract(banned=("never",)))

    given = api.prepare(Held(lm=ScriptedLM(answer)), rows(8, 1), rows(8, 2), budget=gl.Budget(rollouts=100)).spec.contracts
    assert given.of("gist") == Contract(2_000, ("{team}",), banned=("never",))
    assert given.of("route") == Contract(2_000, ())
    replaced = api.prepare(
        Held(lm=ScriptedLM(answer)), rows(8, 1), rows(8, 2), budget=gl.Budget(rollouts=100), contract={"gist": Contract(max_tokens=50)}
    )
    assert replaced.spec.contracts.of("gist") == Contract(50, ("{team}",))
    with pytest.raises(UsageError, match=r"a gl.Contract\(...\) is needed"):
        gl.Module("a -> b", "Do it.", contract=3)  # type: ignore[arg-type]


# --- in the search --------------------------------------------------------------------------------------------------


def run(reflection: Any, **options: Any) -> tuple[RunState, ScriptedLM]:
    lm = ScriptedLM(reflection, name="reflector")
    prepared = prepare(reflection=lm, **options)
    return Session(prepared.spec, MemoryStore()).run().state, lm


def stubborn(request: gl.Request) -> str:
    """Drops what must stay, whatever it is told."""
    return f"<prompt>Decide. {'Again. ' if 'used as it is' in request.messages[0]['content'] else ''}</prompt>"


def test_opik_s_guard_a_lost_placeholder_is_asked_for_once_more_and_then_rejected_unpaid() -> None:
    class Held(Triage):
        route = gl.Module("message, gist -> urgency: Literal['low', 'medium', 'high']", "Decide how urgent it is for {team}.", retries=0)

    reflection = ScriptedLM(stubborn, name="reflector")
    prepared = api.prepare(
        Held(lm=ScriptedLM(answer)),
        rows(24, 1),
        rows(16, 2),
        reflection_lm=reflection,
        budget=gl.Budget(rollouts=200),
        search=gl.Search.paper(),
    )
    state = Session(prepared.spec, MemoryStore()).run().state
    refused = [p for p in state.proposals if p.code == "contract"]
    assert refused
    for proposal in refused:
        assert proposal.modules == ("route",)
        assert proposal.reason == "the placeholder {team} is missing: keep it as it is"
        assert [(f.module, f.rule, f.attempt) for f in proposal.findings] == [
            ("route", "contract:placeholder", 0),
            ("route", "contract:placeholder", 1),
        ]
        assert (proposal.texts, proposal.after) == ({}, ()), "no rollout of the child was paid for"
        assert (proposal.spend.proposals, proposal.spend.reflection.calls) == (1, 2), "one proposal, two calls"
    asked = [call.messages[0]["content"] for call in reflection.requests if "can't be used as it is" in call.messages[0]["content"]]
    assert len(asked) == len(refused)
    assert all("- the placeholder {team} is missing: keep it as it is" in text and "Review:" not in text for text in asked)
    told = [call.messages[0]["content"] for call in reflection.requests if "Review:" in call.messages[0]["content"]]
    assert any("must stay in it as they are, letter by letter:\n{team}" in text for text in told), "it is told beforehand too"


def test_a_reply_that_heeds_the_breach_is_taken_as_it_is() -> None:
    def heeds(request: gl.Request) -> str:
        text = request.messages[0]["content"]
        if "can't be used as it is" in text:
            return "<prompt>" + text.split("<proposed>")[1].split("</proposed>")[0].strip().replace(" as an AI", "") + "</prompt>"
        return reflect(request).replace("</prompt>", " as an AI</prompt>")

    state, _ = run(heeds, contract=Contract(banned=("as an AI",)), budget=gl.Budget(rollouts=300))
    accepted = [p for p in state.proposals if p.status == "accepted"]
    assert accepted
    for proposal in accepted:
        assert [(f.rule, f.attempt) for f in proposal.findings] == [("contract:banned", 0)]
        assert "as an AI" not in "".join(proposal.texts.values())
    assert any("rule" in text for text in state.best.candidate.texts.values())


def test_edits_are_held_to_the_contract_on_the_whole_text() -> None:
    def edits(request: gl.Request) -> str:
        return "<edit><find>Decide</find><replace>Judge</replace></edit><edit><add>Be brief about it, as an AI should.</add></edit>"

    rules = gl.Search.paper(proposer="edit", modules="blame")
    state, _ = run(edits, contract={"route": Contract(frozen=("Decide how",))}, search=rules)
    refused = [p for p in state.proposals if p.code == "contract"]
    assert refused
    assert all("Decide how" in p.reason for p in refused)


def test_ten_refusals_in_a_row_end_the_search() -> None:
    state, lm = run(stubborn, contract=Contract(required=("gist|how urgent", "how")), search=gl.Search.paper(modules="round_robin"))
    assert state.stopped is not None
    assert all("how urgent" in member.candidate.texts["route"] for member in state.pool)
    state, lm = run(lambda _: "<prompt>never</prompt>", contract=Contract(banned=("never",)))
    assert state.stopped is not None
    assert state.stopped.code == "reflection"
    assert "banned" in state.stopped.reason
    assert lm.calls == 20, "ten proposals, each asked once more"
    assert len(state.pool) == 1


def test_a_merge_that_breaks_the_programs_contract_costs_nothing() -> None:
    state = pool(TWO_LINES, (0,) * 6)
    rules = gl.Search(merge="complementary")
    plan = plan_merge(state, rules, 2)
    assert plan is not None

    class Ports:
        def evaluate(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("a rollout was asked for")

    gate = Gate(Contracts(program=Contract(max_tokens=1)))
    (made,) = draft_merge(Course(rules, ProgramFacts("", {}, gate), Ports()), StepPlan(2, (), plan, 0, 0), plan, state).made  # type: ignore[arg-type]
    event = made.event
    assert isinstance(event, Merged)
    assert (event.status, event.code, event.after, event.spend.rollouts) == ("rejected", "contract", (), 0)
    assert "together have about 2 tokens; at most 1" in event.reason


def test_texts_that_pass_alone_and_break_the_programs_length_together_are_not_joined() -> None:
    def both(request: gl.Request) -> str:
        text = request.messages[0]["content"]
        current = text.split("<current>")[1].split("</current>")[0].strip()
        rule = next((f"rule {kind}" for kind in RULES if f"rule {kind}" not in current), "rule typo")
        return f"<prompt>{current} {rule} {rule}</prompt>" if "urgent" in current else f"<prompt>{current} padding padding padding</prompt>"

    rules = gl.Search.paper(fan=4, accept="non_strict", modules="round_robin")
    seed = sum(map(len, program().prompts.values())) // 4
    state, _ = run(both, contract=Contract(max_tokens=seed + 10), search=rules, budget=gl.Budget(rollouts=400))
    assert state.unjoined
    event = state.unjoined[0]
    assert isinstance(event, Unjoined)
    assert set(event.texts) == {"gist", "route"}
    assert "the program's prompts together" in event.reason
    assert all(sum(map(len, member.candidate.texts.values())) <= 4 * (seed + 10) for member in state.pool)
    alone = [member for member in state.pool if member.step == event.step]
    assert len(alone) == 1, "the best of them alone is validated"
    changed = [path for path, text in alone[0].candidate.texts.items() if state.pool[event.parents[0]].candidate.texts[path] != text]
    assert len(changed) == 1


def test_all_modules_at_once_are_checked_together() -> None:
    def longer(request: gl.Request) -> str:
        current = request.messages[0]["content"].split("<current>")[1].split("</current>")[0].strip()
        return f"<prompt>{current} {'more words ' * 3}</prompt>"

    state, _ = run(longer, contract=Contract(max_tokens=30), search=gl.Search.paper(modules="all"))
    assert {p.code for p in state.proposals if p.status == "rejected"} == {"contract"}
    assert len(state.pool) == 1


def test_the_log_holds_findings_and_a_resume_replays_it(tmp_path: Path) -> None:
    def once(folder: Path) -> gl.Result[Any]:
        return gl.optimize(
            program(),
            rows(24, 1),
            rows(16, 2),
            reflection_lm=ScriptedLM(stubborn, name="reflector"),
            budget=gl.Budget(rollouts=120),
            search=gl.Search.paper(),
            contract={"route": Contract(required=("urgent",))},
            run=folder,
        )

    first = once(tmp_path / "a")
    again = once(tmp_path / "a")
    assert any(p.findings for p in first.state.proposals)
    assert list(again.state.proposals) == list(first.state.proposals)
    with pytest.raises(UsageError, match=r"contract\.modules was"):
        gl.optimize(
            program(),
            rows(24, 1),
            rows(16, 2),
            reflection_lm=ScriptedLM(stubborn, name="reflector"),
            budget=gl.Budget(rollouts=120),
            search=gl.Search.paper(),
            run=tmp_path / "a",
        )


def test_more_workers_give_the_same_log() -> None:
    options: dict[str, Any] = {"contract": {"route": Contract(banned=("refund",))}, "search": gl.Search.paper(fan=3)}
    logs = [search(workers=workers, **options) for workers in (1, 8)]
    assert logs[0] == logs[1]
    assert any(isinstance(event, Proposed) and event.findings for event in logs[0])
    accepted = [event for event in logs[0] if isinstance(event, Validated)]
    assert accepted
    assert "refund" not in "".join(replay(logs[0]).best.candidate.texts.values())


# --- in the bundle --------------------------------------------------------------------------------------------------


def test_the_bundle_carries_the_contract_and_a_broken_one_is_refused(tmp_path: Path) -> None:
    class Held(Triage):
        gist = gl.Module("message -> gist", "Say for {team} what the sender wants.")

    result = gl.optimize(
        Held(lm=ScriptedLM(answer)),
        rows(24, 1),
        rows(16, 2),
        reflection_lm=ScriptedLM(reflect),
        budget=gl.Budget(rollouts=100),
        contract=Contract(banned=("never",)),
        run=tmp_path / "run",
    )
    path = result.save(tmp_path / "triage.prompts.json")
    data = json.loads(path.read_text())
    assert data["modules"]["gist"]["contract"] == {"max_tokens": 2_000, "placeholders": ["{team}"]}
    assert data["contract"] == {"banned": ["never"]}
    prompts = gl.load_prompts(path)
    assert prompts.contracts.of("gist").placeholders == ("{team}",)
    data["modules"]["gist"]["prompt"] = "Say what the sender never wants."
    path.write_text(json.dumps(data))
    with pytest.raises(UsageError, match=r"gist: the placeholder \{team\} is missing.*banned by 'never'"):
        gl.load_prompts(path)
    del data["modules"]["gist"]["contract"], data["contract"]
    path.write_text(json.dumps(data))
    assert gl.load_prompts(path)["gist"] == "Say what the sender never wants."


@pytest.mark.parametrize(
    ("seed", "form", "placeholders"),
    [
        ("Ask {city} on {day:%A}.", "format", {"{city}", "{day}"}),
        ('Ask {city}; answer {{"a": 1}}.', "format", {"{city}"}),
        ('Ask {city}; answer {"a": 1}.', "text", {"{city}"}),
        ("Ask {rows[0].city}.", "format", {"{rows[0].city}"}),
        ("Ask $city, ${day}.", "template", {"${city}", "${day}"}),
        ("Ask $city for $5.", "text", {"${city}"}),
        ("Ask {{ city }}.", "text", {"{{city}}"}),
        ("Ask %(city)s.", "text", {"%(city)s"}),
        ("Ask {city} and $day.", "text", {"{city}", "${day}"}),
        ("Ask.", "text", set()),
        ('{"a": 1} and {} and US$5 and a{2,3}', "text", set()),
    ],
)
def test_the_form_of_a_seed_is_told_from_its_placeholders(seed: str, form: str, placeholders: set[str]) -> None:
    assert likely_form(seed) == form
    contract = Contract(form=likely_form(seed)).resolved(seed, 100)
    assert set(contract.placeholders or ()) == placeholders
    assert contract.breaches(seed) == []
