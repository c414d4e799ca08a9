"""LiveBench-Math: each task by its own rules, and formulas in a process that can be stopped."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from gepa_lite.feedback.equivalence import Equivalence
from gepa_lite.feedback.livebench import boxed, livebench_math

import gepa_lite as gl
from benchmarks import data_sets
from gepa_lite.errors import UsageError

AMC = r"What? $\textbf{(A)}~\frac{1}{2}\qquad\textbf{(B)}~45\qquad\textbf{(C)}~3\sqrt{2}\qquad\textbf{(D)}~52.5\qquad\textbf{(E)}~60$ Then AAAAA."


@pytest.fixture(scope="module")
def judge() -> Any:
    return livebench_math()


def row(task: str, subtask: str, answer: str, question: str = AMC) -> gl.Example:
    return gl.Example("id", {"question": question}, {"task": task, "subtask": subtask, "answer": answer})


@pytest.mark.parametrize(
    ("reply", "score", "words"),
    [
        ("So <solution>C</solution>", 1, "in a <solution> tag"),
        ("I take CCCC", 1, "four times in a row"),
        ("CCCC was my first guess, now DDDDD", 0, "It gives D"),
        (r"so $\boxed{\textbf{(C)}}$ holds", 1, "boxed"),
        (r"so $\boxed{\textbf{(C)}\ 3\sqrt{2}}$." "\nThat is all.", 1, "boxed"),
        (r"so $\boxed{3\sqrt2}$." "\nThat is all.", 1, "boxed"),
        (r"so $\boxed{\textbf{(B)}\ 45}$." "\nThat is all.", 0, "Wrong"),
        (r"The value is $3 \sqrt{2}$.", 1, "by its value at the end"),
        ("The value is 13\\sqrt{2}", 0, "Wrong"),
        ("Let me think.\nAnswer: (C)", 1, "on the last line"),
        ("<think>CCCCC</think> no idea", 0, "no letter in the form"),
        (r"The value is $3 \sqrt{2}1$.", 0, "Wrong"),
        ("It may be C or D", 0, "the right option is C"),
        ("", 0, "CCCCC"),
    ],
)
def test_multiple_choice_is_looked_for_in_five_ways(judge: Any, reply: str, score: float, words: str) -> None:
    found = judge(row("math_comp", "amc_12a_2023", "C"), {"answer": reply})
    assert (found.score, words in found.text) == (score, True), found.text


@pytest.mark.parametrize(
    ("reply", "score", "words"),
    [
        ("so 025", 1, "Right"),
        ("025 is it. " + "x" * 60, 0, "stands earlier"),
        ("25", 0, "should end with 025"),
        ("so 2025", 0, "should end"),
    ],
)
def test_aime_numbers_stand_at_the_end(judge: Any, reply: str, score: float, words: str) -> None:
    found = judge(row("math_comp", "aime_i_2024", "025"), {"answer": reply})
    assert (found.score, words in found.text) == (score, True), found.text


@pytest.mark.parametrize(
    ("question", "reply"),
    [("(A) 1 (B) 15", "It is 1.5"), ("(A) 1 (B) 15", "It is 3.15"), (r"(A) 1 (B) \frac{1}{23}", r"It is \frac{12}{3}")],
)
def test_another_number_of_the_same_digits_is_no_options_value(judge: Any, question: str, reply: str) -> None:
    assert judge(row("math_comp", "smc", "B", question), {"answer": reply}).score == 0


def test_a_proofs_order_is_read_after_the_last_answer(judge: Any) -> None:
    """Papers, A14, on the reply's last list alone."""
    found = judge(row("olympiad", "imo", "1,2,3,4"), {"answer": "First 9 steps. Answer: 4. No: Answer: 2,1,3,4"})
    assert found.score == 0.5
    assert "50% right" in found.text


@pytest.mark.parametrize(
    ("subtask", "gold", "reply", "score", "words"),
    [
        ("amps_hard_std", r"\frac{\sqrt{917}}{2}", r"It is $\boxed{\sqrt{\frac{917}{4}}}$.", 1, "equals"),
        (
            "amps_hard_factor_polynomials",
            r"9 \left(-x-9 \sqrt{7}\right) \left(6 \sqrt{7}-x\right)",
            r"\boxed{9(x+9\sqrt7)(x-6\sqrt7)}",
            1,
            "equals",
        ),
        ("amps_hard_geometric_mean", r"20\ 2^{3/5} 5^{2/5}", r"\boxed{20\sqrt[5]{200}}", 1, "equals"),
        ("amps_hard_integral", r"\frac{x^3}{3}", r"\boxed{\frac{x^3}{3} + C}", 1, "equals"),
        ("amps_hard_derivatives", r"\frac{x^3}{3}", r"\boxed{\frac{x^3}{3} + C}", 0, "should be"),
        ("amps_hard_gcd", "8", "it is $8$", 1, "Right"),
        ("amps_hard_gcd", "8", "it is $9$", 0, r"in a \boxed{}"),
        ("amps_hard_gcd", "8", r"\boxed{}", 0, "Wrong"),
        ("amps_hard_gcd", "15", r"\boxed{1.5}", 0, "Wrong"),
        ("amps_hard_mean", r"\frac{1}{23}", r"\boxed{\frac{12}{3}}", 0, "Wrong"),
        ("amps_hard_mean", r"\frac{1}{23}", r"\boxed{ \frac{1}{23} }", 1, "Right"),
        ("amps_hard_variance", r"\frac{1877}{10}", "187.7", 1, "equals"),
    ],
)
def test_formulas_are_compared_and_not_their_letters(judge: Any, subtask: str, gold: str, reply: str, score: float, words: str) -> None:
    found = judge(row("AMPS_Hard", subtask, gold), {"answer": reply})
    assert (found.score, words in found.text) == (score, True), found.text


def test_a_comparison_that_takes_for_ever_is_stopped_and_the_next_one_runs() -> None:
    same = Equivalence(seconds=3.0)
    assert same.check("1", "1.0") == (True, "")
    # a power tower: sympy tries to write it out
    assert same.check("9^{9^{9^{9}}}", "9^{9^{9^{8}}} + 1") in ((False, "comparing it with the right one took longer than 3 s"),)
    assert same.check(r"\frac{1}{4}", "0.25") == (True, "")
    assert pickle.loads(pickle.dumps(same)).check("2", "3") == (False, "")


def test_what_is_boxed_and_unknown_tasks(judge: Any) -> None:
    assert boxed(r"\boxed{a} then \boxed{\frac{1}{x^{2}}}") == r"\frac{1}{x^{2}}"
    assert boxed(r"\boxed{open") is None
    with pytest.raises(UsageError, match="the task 'poetry' is not known"):
        judge(row("poetry", "haiku", "x"), {"answer": "x"})


def test_every_right_answer_of_the_set_is_right_where_the_data_is(judge: Any) -> None:
    if not data_sets.data_folder().is_dir():
        pytest.skip("the data is not here")
    rows = data_sets.load("livebench-math-local")
    for kind, form in (("AMPS_Hard", r"so $\boxed{%s}$."), ("math_comp", "Thus\n%s"), ("olympiad", "Answer: %s")):
        for one in [one for one in rows if one["task"] == kind][:40]:
            example = gl.Example("id", {"question": one["question"]}, one)
            assert judge(example, {"answer": form % one["answer"]}).score == 1.0, one["id"]
            assert judge(example, {"answer": form % "9999999"}).score < 1.0, one["id"]
