"""The ready-made feedback functions: their scores against known values, and that their words name what is wrong."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from gepa_lite.feedback.choice import choice, label_set
from gepa_lite.feedback.combine import all_of, gate, judged, weighted
from gepa_lite.feedback.degrees import degrade
from gepa_lite.feedback.fields import field_match, json_schema
from gepa_lite.feedback.limits import cost, latency, length, regex
from gepa_lite.feedback.match import exact_match, normalized_match
from gepa_lite.feedback.numeric import numeric
from gepa_lite.feedback.overlap import rouge, token_f1
from gepa_lite.feedback.rubric import RubricJudge, judge_noise
from gepa_lite.feedback.simplification import sari, sari_of
from gepa_lite.feedback.sql import sql_execution
from gepa_lite.feedback.unit_tests import unit_tests

import gepa_lite as gl
from gepa_lite.errors import UsageError
from gepa_lite.sandbox.sandbox import Sandbox
from gepa_lite.testing import ScriptedLM


def example(inputs: dict[str, Any] | None = None, **labels: Any) -> gl.Example:
    return gl.Example("id", inputs or {}, labels)


@pytest.mark.parametrize(
    ("judge", "gold", "answer", "score", "words"),
    [
        (exact_match("a"), "Paris", "paris", 0, "only in case"),
        (exact_match("a"), ["Paris", "Lutetia"], "Lutetia", 1, "Right"),
        (normalized_match("a"), "Eiffel Tower", "the eiffel tower.", 1, "Right"),
        (normalized_match("a"), "Ada", "It was Ada, I think", 0, "give the answer alone"),
        (normalized_match("a"), "Ada", " ", 0, "It was empty"),
        (normalized_match("a"), "(A)", "A", 1, "Right"),
        (normalized_match("a"), "(B)", "(A)", 0, "should be '(B)', but it was '(A)'."),
        (normalized_match("a"), "(A)", "", 0, "It was empty"),
        (token_f1("a"), "the cat sat", "cat", 2 / 3, "lacks 'sat'"),
        (token_f1("a"), ["no", "Ada Byron"], "Ada Byron", 1, "Right"),
        (token_f1("a"), "yes", "", 0, "lacks 'yes'"),
        (numeric("a"), 1200, "so 1,200", 1, "Right"),
        (numeric("a"), "1/4", "0.25", 1, "Right"),
        (numeric("a"), "46", "(23*4)/2", 0, "should be 46"),
        (numeric("a"), 0.5, "it is .5", 1, "Right"),
        (numeric("a"), 5, "-5", 0, "sign"),
        (numeric("a"), 5, "\u22125", 0, "sign"),
        (numeric("a"), 4, "0.25", 0, "inverse"),
        (numeric("a"), 1.5, "1500", 0, "10^3"),
        (numeric("a"), 3.14159, "3.14", 0, "rounding"),
        (numeric("a"), 3.14159, "3.14", 0, "should be 3.14159"),
        (numeric("a", tolerance=0.01), 3.14159, "3.14", 1, "Right"),
        (numeric("a"), 7, "It is 7, not 8", 0, "occurs earlier"),
        (numeric("a"), 7, "seven", 0, "no number"),
        (numeric("a"), 0, "0.0", 1, "Right"),
        (numeric("a", units=True), "3.5 km", "3500 m", 1, "Right"),
        (numeric("a", units=True), "3.5 km", "3.5", 0, "unit is missing: km"),
        (numeric("a", units=True), "3.5 km", "3.5 kg", 0, "another kind"),
        (numeric("a", units=True), "3.5 km", "3.5 florps", 0, "'florps' is not known"),
        (choice("a", meanings={"x": "first", "y": "second"}), "x", "z", 0, "none of the labels"),
        (choice("a"), "X", " x ", 1, "Right"),
        (label_set("a", labels=["p", "q", "r", "s"]), ["p"], "p, q", 0.75, "Too many: 'q'"),
        (label_set("a"), [], [], 1, "no label"),
        (length("a", at_most=4), None, "one two three four five", 0.75, "1 over the limit of 4"),
        (length("a", at_least=4), None, "one", 0.25, "Too short: 1 word, 3 under"),
        (length("a", at_most=1, unit="sentences"), None, "One. Two!", 0, "2 sentences"),
        (regex("a", "foo", meaning="no foo", wanted=False), None, "a foo b", 0, "'foo' stands there"),
        (rouge("a"), "the cat sat on the mat", "the cat sat", 2 / 3, "Missing: 'mat'"),
        (rouge("a", kind="rouge1"), "dogs bark", "dog barks", 1, "recall 1.00"),
    ],
)
def test_scores_and_words(judge: Any, gold: Any, answer: str, score: float, words: str) -> None:
    found = judge(example(a=gold), {"a": answer})
    assert found.score == pytest.approx(score)
    assert words in found.text


def test_a_reason_is_quoted() -> None:
    assert "Money goes to ivy." in exact_match("a", why="rule")(example(a="ivy", rule="Money goes to ivy."), {"a": "fern"}).text


@pytest.mark.parametrize(
    ("answer", "published"),
    [
        ("About 95 you now get in.", 0.269536),
        ("About 95 species are now agreed.", 0.617097),
        ("About 95 species are currently agreed.", 0.508868),
    ],
)
def test_sari_gives_the_known_values(answer: str, published: float) -> None:
    """The example of SARI's authors, in the form with sums that EASSE and the hub's metric use."""
    references = ["About 95 species are currently known.", "About 95 species are now accepted.", "95 species are now accepted."]
    assert sari_of("About 95 species are currently accepted.", answer, references).score == pytest.approx(published, abs=1e-6)


def test_sari_names_the_words() -> None:
    judge = sari("simple")
    row = example({"source": "He commenced employment."}, references=["He started work.", "He began work."])
    unchanged = judge(row, {"simple": "He commenced employment."})
    assert "unchanged" in unchanged.text
    assert "'commenced', 'employment', which stayed" in unchanged.text
    assert "'work'" in unchanged.text
    assert judge(row, {"simple": "He started work."}).score > unchanged.score


def test_schema_breaches_in_words() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}, "tags": {"items": {"enum": ["a", "b"]}}}, "required": ["n"]}
    judge = json_schema(schema)
    assert judge(example(), {"n": 1, "tags": ["a"]}).score == 1
    bad = judge(example(), {"tags": ["a", "c"]})
    assert "'n' is a required property" in bad.text
    assert "at tags[1]: 'c' is not one of" in bad.text
    with pytest.raises(UsageError, match="no JSON schema"):
        json_schema({"type": "objet"})


def test_fields_differ_by_path() -> None:
    gold = {"buyer": {"name": "Ada", "vip": True}, "items": [{"price": 2.5}]}
    judge = field_match("gold", "record", weights={"items[0].price": 2})
    found = judge(example(gold=gold), {"record": '```json\n{"buyer": {"name": "ada", "vip": 1}, "items": [], "note": "x"}\n```'})
    assert found.score == pytest.approx(1 / 6)  # name of name, vip, price twice, and two that were not asked for (items, note)
    for words in ("Right: buyer.name.", "buyer.vip should be True, but was 1", "Missing: items[0].price (2.5)", "note ('x')"):
        assert words in found.text
    assert "Not JSON" in judge(example(gold=gold), {"record": "{"}).text
    with pytest.raises(UsageError, match="label 'gold'"):
        judge(example(gold="{"), {"record": {}})


def test_combinators_keep_the_words_of_modules_apart() -> None:
    def a(example: gl.Example, output: Any) -> gl.Feedback:
        return gl.Feedback(0.5, "all: a", modules={"search": "search: a"})

    def b(example: gl.Example, output: Any, trace: gl.Trace) -> tuple[float, str]:
        return 1.0, "all: b"

    mean = weighted({"a": (a, 1), "b": (b, 3)})(example(), {}, gl.Trace())
    assert mean.score == pytest.approx(0.875)
    assert mean.text == "[a 0.50] all: a\n[b 1.00] all: b"
    assert mean.for_module("search") == "[a 0.50] search: a\n[b 1.00] all: b"
    assert mean.objectives == {"a": 0.5, "b": 1.0}
    both = all_of(a=a, b=b)(example(), {}, gl.Trace())
    assert (both.score, both.text, both.modules) == (0.5, "[a 0.50] all: a", {"search": "[a 0.50] search: a"})
    calls: list[int] = []
    closed = gate(a, lambda example, output: calls.append(1) or 1.0)(example(), {}, gl.Trace())
    assert (closed.score, calls) == (0.0, [])
    opened = gate(a, b, at_least=0.5, floor=0.2)(example(), {}, gl.Trace())
    assert (opened.score, opened.text) == (1.0, "all: b")
    assert gate(a, b, floor=0.2)(example(), {}, gl.Trace()).score == pytest.approx(0.1)
    with pytest.raises(UsageError, match="weight of 'a'"):
        weighted({"a": (a, 0)})
    with pytest.raises(UsageError, match="at least one"):
        all_of()


def test_three_degrees_of_one_feedback() -> None:
    long = " ".join(f"w{i}" for i in range(200))

    def full(example: gl.Example, output: Any) -> gl.Feedback:
        return gl.Feedback(0.25, long, modules={"m": long}, objectives={"o": 1.0})

    found = {degree: degrade(full, degree)(example(), {}, gl.Trace()) for degree in ("score", "noisy", "full")}
    assert {one.score for one in found.values()} == {0.25}
    assert found["full"] == judged(full)(example(), {}, gl.Trace())
    assert (found["score"].text, found["score"].modules) == ("Score: 0.25", {})
    lost = found["noisy"].text.count("…")
    assert 60 < lost < 140
    assert len(found["noisy"].text.split()) == 200
    assert found["noisy"] == degrade(full, "noisy")(example(), {}, gl.Trace())
    assert found["noisy"].text != degrade(full, "noisy", seed=1)(example(), {}, gl.Trace()).text
    with pytest.raises(UsageError, match="degree"):
        degrade(full, "loud")  # type: ignore[arg-type]


def test_cost_and_latency_name_the_module() -> None:
    call = gl.Call("draft", {}, (), usage=gl.Usage(1, 90, 10, 0.03), seconds=4.0)
    trace = gl.Trace((call, gl.Call("repair", {}, (), usage=gl.Usage(1, 10, 10, 0.01), seconds=1.0)))
    found = cost(usd=0.02)(example(), {}, trace)
    assert found.score == pytest.approx(0.5)
    assert "$0.03" in found.modules["draft"]
    slow = latency(2.5)(example(), {}, trace)
    assert (slow.score, "Most of it is by draft" in slow.text) == (pytest.approx(0.5), True)
    assert cost(tokens=500)(example(), {}, trace).score == 1.0
    unknown = gl.Trace((gl.Call("draft", {}, (), usage=gl.Usage(1, 1, 1, None), model="m"),))
    with pytest.raises(UsageError, match="price of m is not known"):
        cost(usd=1.0)(example(), {}, unknown)


class Echo(gl.Program):
    """Say it again."""

    say = gl.Module("text -> echo", "Say it again.")

    def forward(self, text: str) -> gl.Outputs:
        return self.say(text=text)


def test_an_outage_of_the_judge_is_missing_and_so_are_replies_that_cant_be_read() -> None:
    rows = [{"text": f"t{i}"} for i in range(2)]
    down = RubricJudge(ScriptedLM(lambda request: gl.ModelError("down"), name="judge"), "5: good")
    garbled = RubricJudge(ScriptedLM("what?", name="judge"), "5: good")
    for judge in (down, garbled):
        with pytest.raises(gl.RunError):
            gl.evaluate(Echo(lm=ScriptedLM("x")), rows, feedback=judge)


def test_the_judge_draws_each_grade_anew_and_reads_what_it_can() -> None:
    lm = ScriptedLM(['{"reasons": "r1", "grade": 5}', "nonsense", "more nonsense", '{"reasons": "r3", "grade": 3}'], name="judge")
    found = gl.evaluate(Echo(lm=ScriptedLM("x")), [{"text": "t"}], feedback=RubricJudge(lm, "5: good"))
    assert lm.calls == 4
    assert found.mean == pytest.approx(0.75)


def test_the_judges_noise_is_measured() -> None:
    replies = [f'{{"reasons": "r", "grade": {grade}}}' for grade in (1, 3, 5, 3, 3, 3)]
    noise = judge_noise(RubricJudge(ScriptedLM(replies), "5: good"), [(example({"q": "?"}), {"a": "!"})], repeats=2)
    assert noise.median == 0.0
    assert noise.one == pytest.approx(0.1**0.5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: RubricJudge(ScriptedLM("x"), " "),
        lambda: RubricJudge(ScriptedLM("x"), "r", samples=2),
        lambda: RubricJudge(ScriptedLM("x"), "r", scale=(3, 3)),
        lambda: length("a", at_least=3, at_most=2),
        lambda: length("a", unit="pages"),  # type: ignore[arg-type]
        lambda: latency(0),
        cost,
        lambda: cost(usd=1, tokens=1),
        lambda: regex("a", "(", meaning="m"),
        lambda: rouge("a", kind="rouge9"),
        lambda: numeric("a", tolerance=-1),
        lambda: gate(exact_match("a"), exact_match("a"), floor=1.0),
        lambda: degrade(exact_match("a"), "noisy", share=2),
    ],
)
def test_wrong_arguments_are_refused(make: Any) -> None:
    with pytest.raises(UsageError):
        make()


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(
        "CREATE TABLE plant(name TEXT, price REAL); INSERT INTO plant VALUES ('fern', 1.5), ('moss', 2), ('ivy', 1.5);"
    )
    connection.close()
    return path


@pytest.mark.parametrize(
    ("sql", "score", "words"),
    [
        ("SELECT name FROM plant WHERE price < 2", 1, "Right"),
        ("```sql\nSELECT name FROM plant WHERE price < 2 ORDER BY name DESC;\n```", 0, "order is not"),
        ("SELECT name, price FROM plant WHERE price < 2", 0, "2 columns (name, price); the right one has 1 (name)"),
        ("SELECT name FROM plant", 0, "3 rows; the right one gives 2. Too many: ('moss',)"),
        ("SELECT name FROM plant WHERE price > 5", 0, "Missing: ('fern',); ('ivy',)"),
        ("SELECT p.name FROM plant p, plant q WHERE p.price < 2", 0, "joins that multiply"),
        ("SELECT nme FROM plant", 0, "no such column: nme"),
        ("DELETE FROM plant", 0, "only statements that read"),
        ("ATTACH '/tmp/x.sqlite' AS x", 0, "only statements that read"),
        ("PRAGMA journal_mode = DELETE", 0, "only statements that read"),
        ("SELECT load_extension('x')", 0, "only statements that read"),
        ("SELECT 1; SELECT 2", 0, "one statement"),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n", 0, "longer than 0.3 s"),
        ("SELECT length(zeroblob(2000000000))", 0, "too big"),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 200000) SELECT i FROM n", 0, "more than 100000 rows"),
    ],
)
def test_sql_is_judged_by_its_rows_and_can_only_read(shop: Path, sql: str, score: float, words: str) -> None:
    judge = sql_execution(shop, ordered="sorted", seconds=0.3 if "count(*)" in sql else 60)
    row = example(query="SELECT name FROM plant WHERE price < 2 ORDER BY name", sorted=True)
    before = shop.read_bytes()
    found = judge(row, {"sql": sql})
    assert (found.score, words in found.text) == (score, True), found.text
    assert shop.read_bytes() == before


def test_a_wrong_gold_query_is_the_users_error(shop: Path) -> None:
    with pytest.raises(UsageError, match="right query of an example fails"):
        sql_execution(shop)(example(query="SELECT x"), {"sql": "SELECT 1"})
    with pytest.raises(UsageError, match="no such file"):
        sql_execution(shop.with_name("none"))(example(query="SELECT 1"), {"sql": "SELECT 1"})


def test_code_is_judged_by_tests_and_what_breaks_out_fails() -> None:
    judge = unit_tests(sandbox=Sandbox(seconds=30, unconfined=True))
    row = example(tests=[{"call": "half", "args": [n], "expected": n / 2} for n in (0, 1, 4)] + ["assert half(6) == 3"])
    assert judge(row, {"code": "```python\ndef half(n):\n    return n / 2\n```"}).score == 1
    wrong = judge(row, {"code": "def half(n):\n    return n // 2"})
    assert (wrong.score, wrong.text) == (0.75, "1 of 4 tests fail. half(1) gives 0; 0.5 is right.")
    assert "line 2: return 1 / n" in judge(row, {"code": "def half(n):\n    return 1 / n"}).text
    assert judge(row, {"code": "import os\nos.fork()"}).text == "The code failed: it tried to start another process."
    with pytest.raises(UsageError, match="'call', 'args' and 'expected'"):
        judge(example(tests=[3]), {"code": "x = 1"})
