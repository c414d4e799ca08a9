"""The ready-made programs run, hold what the paper says of them, and meet their feedback."""

from __future__ import annotations

import pickle
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from gepa_lite.feedback.mathematics import aime, proof_order
from gepa_lite.feedback.privacy import pairwise_quality, privacy
from gepa_lite.feedback.retrieval import HOVER_STAGES, missing_after, retrieval_coverage
from gepa_lite.programs.agents import BBEHAgent, ToolAgent
from gepa_lite.programs.multihop import HotpotMultiHop, HoverMultiHop
from gepa_lite.programs.paper import Aime, IFBenchTwoStage, LiveBenchMath, Papillon
from gepa_lite.programs.retrieval import BM25
from gepa_lite.programs.text_to_sql import TextToSQL
from gepa_lite.programs.texts import Simplification, Summarization, SupportTriage

import gepa_lite as gl
from gepa_lite.errors import UsageError
from gepa_lite.sandbox.sandbox import Sandbox
from gepa_lite.testing import ScriptedLM

ANY = ScriptedLM("x")


def nothing(query: str, k: int) -> list[str]:
    return []


@pytest.mark.parametrize(
    ("program", "modules"),
    [
        (HotpotMultiHop(nothing, ANY), ["create_query_hop2", "final_answer", "summarize1", "summarize2"]),
        (HoverMultiHop(nothing, ANY), ["create_query_hop2", "create_query_hop3", "summarize1", "summarize2"]),
        (IFBenchTwoStage(ANY), ["generate_response", "ensure_correct_response"]),
        (Papillon(ANY, ANY), ["craft_redacted_request", "respond_to_query", "untrusted"]),
        (Aime(ANY), ["solve"]),
        (LiveBenchMath(ANY), ["solve"]),
        (TextToSQL(str, ANY), ["draft", "repair"]),
        (SupportTriage(["a", "b"], ANY), ["sort"]),
        (Summarization(ANY), ["summarize"]),
        (Simplification(ANY), ["simplify"]),
        (ToolAgent({"up": str.upper}, ANY), ["step"]),
        (BBEHAgent(ANY, sandbox=Sandbox(unconfined=True)), ["respond", "extract"]),
    ],
)
def test_modules_stand_in_the_papers_order_and_every_program_draws_its_flow(program: gl.Program, modules: list[str]) -> None:
    assert list(program.prompts) == modules
    assert "─►" in (type(program).__doc__ or "")
    assert "Source:" in (type(program).__doc__ or "")


def test_hover_searches_with_seven_seven_and_ten() -> None:
    asked: list[tuple[str, int]] = []

    def search(query: str, k: int) -> list[str]:
        asked.append((query, k))
        return [f"{query} | {n}" for n in range(k)]

    lm = ScriptedLM(lambda request: f'{{"reasoning": "r", "query": "q{len(asked)}", "summary": "s"}}')
    out = HoverMultiHop(search, lm)(claim="c")
    assert asked == [("c", 7), ("q1", 7), ("q2", 10)]
    assert [len(hop) for hop in out.hops] == [7, 7, 10]


def test_bm25_finds_by_stem_and_travels_to_a_worker() -> None:
    search = BM25(["Fern | It likes shade.", "Cactus | It likes sun.", "Moss | Shaded and wet."])
    assert {one.split(" | ")[0] for one in search("shady shades", 3)} <= {"Fern", "Moss"}
    assert search("cacti cactus", 5) == ["Cactus | It likes sun."]
    assert search("the of", 5) == []
    assert pickle.loads(pickle.dumps(search))("sun", 1) == ["Cactus | It likes sun."]
    with pytest.raises(UsageError, match="at least one document"):
        BM25([])


def test_sql_is_repaired_once_on_the_databases_error(tmp_path: Path) -> None:
    path = tmp_path / "shop.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE plant(name TEXT)")
    connection.close()
    lm = ScriptedLM({"no such column: nme": "SELECT name FROM plant", "CREATE TABLE plant": "```sql\nSELECT nme FROM plant;\n```"})
    out = TextToSQL(lambda db_id: path, lm)(question="Which?", db_id="shop")
    assert (out.sql, out.error, lm.calls) == ("SELECT name FROM plant", "no such column: nme", 2)


def test_extraction_code_that_breaks_out_is_the_candidates_failure() -> None:
    rows = [{"question": "Which?", "gold": "B"}]
    box = Sandbox(seconds=30, unconfined=True)

    def right(example: gl.Example, output: Any) -> bool:
        return bool(output.answer == example["gold"])

    for code, words in (
        ("import os\nos.fork()\ndef extract(reply): return reply", "another process"),
        ("def extract(reply): return 1 / 0", "ZeroDivisionError"),
    ):
        found = gl.evaluate(BBEHAgent(ScriptedLM("Answer: B"), code=code, sandbox=box), rows, feedback=right)
        assert (found.mean, found.missing) == (0.0, 0)
        assert words in str(found.rollouts[0].feedback)
    assert gl.evaluate(BBEHAgent(ScriptedLM("Answer: B"), sandbox=box), rows, feedback=right).mean == 1.0


def test_the_tool_agent_tells_what_tools_raise_and_stops() -> None:
    def broken(text: str) -> str:
        """Fails."""
        raise ValueError("no")

    lm = ScriptedLM(['{"thought": "", "tool": "broken", "argument": "a"}', '{"thought": "", "tool": "absent", "argument": "b"}'])
    out = ToolAgent({"broken": broken}, lm, turns=2)(task="t")
    assert out.answer == ""
    assert out.history == ['broken("a") failed: ValueError: no', 'absent("b") failed: there is no such tool; there are broken and finish']
    with pytest.raises(UsageError):
        ToolAgent({}, lm)


def test_hovers_set_algebra_by_stage() -> None:
    """Papers, A13: helped is missing before and not after, missing is missing before and after."""
    row = gl.Example("id", {}, {"gold_titles": ["A1", "B1", "C1", "D1"]})
    found = retrieval_coverage()(row, {"hops": [["A1 | x"], ["B1 | x"], ["C1 | x"]]})
    assert found.score == 0.0
    expected = {
        "summarize1": ("'B1', 'C1'", "'D1'"),
        "create_query_hop2": ("'B1'", "'C1', 'D1'"),
        "summarize2": ("'C1'", "'D1'"),
        "create_query_hop3": ("'C1'", "'D1'"),
    }
    assert set(HOVER_STAGES) == set(expected)
    for module, (helped, missing) in expected.items():
        assert found.for_module(module) == f"This step helped to find: {helped}. Still missing after it: {missing}."
    assert retrieval_coverage(share=True)(row, {"hops": [["A1 | x"], ["B1 | x"], ["C1 | x"]]}).score == 0.75
    assert missing_after(["a1"], [["A1 | x"]]) == [["a1"], []]
    with pytest.raises(UsageError, match="hop 3"):
        retrieval_coverage()(row, {"hops": [["A1 | x"]]})


@pytest.mark.parametrize(("forth", "back", "quality"), [(True, True, 1), (True, False, 1), (False, False, 1), (False, True, 0)])
def test_pupas_truth_table(forth: bool, back: bool, quality: float) -> None:
    """Papers, A11: the quality is 0 only for (False, True)."""
    assert pairwise_quality(lambda one, other: forth if one == "new" else back, "new", "reference") == quality


def test_a_leak_costs_half_and_is_not_quoted_unless_asked() -> None:
    row = gl.Example("id", {}, {"pii_units": ["Ada Byron", "London", "London"]})
    output = {"llm_request": "To ada byron"}
    found = privacy(lambda example, output: 1.0)(row, output, gl.Trace())
    assert (found.score, found.objectives) == (0.75, {"quality": 1.0, "privacy": 0.5})
    assert "Ada" not in found.text
    assert "'Ada Byron'" not in found.text
    assert "Ada Byron" in privacy(lambda example, output: 1.0, quote=True)(row, output, gl.Trace()).text


def test_contest_answers() -> None:
    """Papers, A14: a proof's score is 1 minus the edit distance over the longer length."""
    row = gl.Example("id", {}, {"answer": "007", "solution": "Count them."})
    assert aime()(row, {"answer": "7"}).score == 1
    assert "Count them." in aime()(row, {"answer": "8"}).text
    assert "whole number" in aime()(row, {"answer": "7.0"}).text
    for answer, score in (("1,2,3,4", 1), ("4,3,2,1", 0), ("2,1,3,4", 0.5), ("", 0), ("1,2,3,4,5,6,7,8", 0.5)):
        assert proof_order()(gl.Example("id", {}, {"answer": "1,2,3,4"}), {"answer": answer}).score == score
