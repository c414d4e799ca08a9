"""The faults that were found in dspy's own optimizers, each a case that is right here; the number is of the list in the docs."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite.adapters.adapt import adapt
from gepa_lite.adapters.dspy.faults import as_our_error, read_dspy_fault
from gepa_lite.errors import FeedbackError, ModelsDownError
from gepa_lite.testing import OpenAIServer, ScriptedLM, fault
from tests.dspy_task import BETTER, TRAIN, VALIDATION, Shout, chat, dspy, right, serving, shout, words

# --- 1: outages


@pytest.mark.parametrize("name", ["unauthorized", "not_found", "quota", "cut", "html", "bad_request"])
def test_fault_1_a_task_lm_that_is_down_stops_the_run_and_is_never_a_zero(name: Any, tmp_path: Any) -> None:
    down = [True]
    with serving(lambda system, fields: fault(name) if down[0] else {"reply": "x"}) as (server, _):
        with pytest.raises(ModelsDownError):
            gl.optimize(Shout(), TRAIN, VALIDATION, feedback=right, reflection_lm=ScriptedLM(BETTER), run=tmp_path / "run", workers=1)
        assert server.calls <= 12
        down[0] = False
        result = gl.optimize(
            Shout(),
            TRAIN,
            VALIDATION,
            feedback=right,
            reflection_lm=ScriptedLM(BETTER),
            run=tmp_path / "run",
            budget=gl.Budget(rollouts=40),
        )
    assert result.validation.before == 0.0
    assert result.validation.missing == 0


def test_fault_1_an_outage_that_the_program_swallows_is_missing_too() -> None:
    class Swallows(Shout):
        def forward(self, word: str) -> Any:
            try:
                return self.say(word=word)
            except Exception:
                return dspy.Prediction(reply=word.upper())

    def answer(system: str, fields: dict[str, str]) -> Any:
        return fault("rate_limit") if fields["word"] == "gold" else {"reply": fields["word"].upper()}

    with serving(answer):
        evaluation = gl.evaluate(Swallows(), VALIDATION, feedback=right)
    assert (evaluation.mean, evaluation.n, evaluation.missing) == (1.0, 3, 1)
    failure = evaluation.rollouts[3].failure
    assert failure is not None
    assert (failure.kind, failure.fault) == ("rate_limit", "world")


def test_fault_1_a_failing_reflection_lm_stops_the_run_with_its_error() -> None:
    def answer(system: str, fields: dict[str, str]) -> Any:
        return fault("unauthorized") if "reviewer" in system else shout(system, fields)

    with serving(answer) as (_, lm), pytest.raises(ModelsDownError, match="reflection"):
        gl.optimize(Shout(), TRAIN, VALIDATION, feedback=right, reflection_lm=lm)


def test_fault_1_a_judge_that_is_down_is_missing_also_where_the_metric_swallows_it() -> None:
    class Judge(dspy.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.grade = dspy.Predict("answer -> good: bool")

        def forward(self, example: Any, pred: Any, trace: Any = None) -> float:
            try:
                return float(self.grade(answer=pred.reply).good)
            except Exception:
                return 0.0

    def answer(system: str, fields: dict[str, str]) -> Any:
        if "answer" not in fields:
            return {"reply": fields["word"]}
        return fault("server") if fields["answer"] == "gold" else {"good": "True"}

    with serving(answer):
        evaluation = gl.evaluate(Shout(), VALIDATION, feedback=Judge())
    assert (evaluation.mean, evaluation.n, evaluation.missing) == (1.0, 3, 1)


def test_an_overlong_prompt_is_the_candidates_fault() -> None:
    def answer(system: str, fields: dict[str, str]) -> Any:
        return fault("context_window") if fields["word"] == "gold" else {"reply": fields["word"].upper()}

    with serving(answer):
        evaluation = gl.evaluate(Shout(), VALIDATION, feedback=right)
    assert (evaluation.mean, evaluation.n, evaluation.missing) == (0.75, 4, 0)
    failure = evaluation.rollouts[3].failure
    assert failure is not None
    assert (failure.kind, failure.fault) == ("context_window", "candidate")


@pytest.mark.parametrize(
    ("name", "words_", "status", "kind"),
    [
        ("LMAuthError", "no", 401, "auth"),
        ("LMBillingError", "no", None, "rate_limit"),
        ("LMRateLimitError", "slow", 429, "rate_limit"),
        ("LMTimeoutError", "late", None, "timeout"),
        ("LMServerError", "oops", 500, "server"),
        ("LMTransportError", "cut", None, "connection"),
        ("LMUnsupportedModelError", "what", None, "not_found"),
        ("LMInvalidRequestError", "The response was filtered by the content management policy", 400, "refused"),
        ("LMInvalidRequestError", "no such parameter", 400, "bad_request"),
        ("LMInvalidRequestError", "no such model", 404, "not_found"),
    ],
)
def test_each_of_dspys_errors_is_of_a_kind_of_ours(name: str, words_: str, status: int | None, kind: str) -> None:
    made = getattr(dspy, name, None)
    if made is None:
        pytest.skip("this release of dspy lets litellm's errors through")
    found = read_dspy_fault(made(words_, status=status, retry_after=2.0), "m at here", ["sk-secret"])
    assert found.kind == kind
    assert str(found).startswith("m at here:")


def test_what_is_not_known_is_the_worlds_fault_and_no_error_shows_a_key() -> None:
    found = read_dspy_fault(RuntimeError("wrong key sk-very-secret-key-1234567"), "m", ["sk-very-secret-key-1234567"])
    assert (found.kind, found.fault) == ("model", "world")
    assert "secret" not in str(found)


def test_a_parse_error_in_a_chain_is_the_programs_unparsable_reply() -> None:
    parse = dspy.utils.exceptions.AdapterParseError("ChatAdapter", dspy.Signature("a -> b"), "nonsense")
    outer = RuntimeError("wrapped")
    outer.__cause__ = parse
    assert as_our_error(outer, {}).kind == "parse"  # type: ignore[attr-defined]
    assert isinstance(as_our_error(KeyError("x"), {}), KeyError)


# --- 2: attribution


def test_fault_2_predictors_of_one_signature_keep_their_own_traces_and_prompts() -> None:
    class Twins(dspy.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            signature = dspy.Signature("word -> reply", "Repeat the word.")
            self.first, self.second = dspy.Predict(signature), dspy.Predict(signature)

        def forward(self, word: str) -> Any:
            return self.second(word=self.first(word=word).reply)

    def answer(system: str, fields: dict[str, str]) -> Any:
        return {"reply": fields["word"] + ("2" if "two" in system else "1")}

    with serving(answer):
        program = adapt(Twins()).with_prompts({"second": "Say two."})
        execution = program.run({"word": "a"})
        assert execution.output.reply == "a12"
        assert program.deliverable(word="a").reply == "a12"
    assert [(call.module, call.outputs) for call in execution.trace.calls] == [("first", {"reply": "a1"}), ("second", {"reply": "a12"})]
    assert "Say two." in execution.trace.of("second")[0].messages[0]["content"]


# --- 3: failed parses and the hidden second call


class Two(dspy.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.first = dspy.Predict("word -> note, mood")
        self.second = dspy.Predict("note -> reply")

    def forward(self, word: str) -> Any:
        return self.second(note=self.first(word=word).note)


def test_fault_3_a_failed_parse_records_the_predictors_own_inputs_and_raw_replies() -> None:
    def answer(system: str, fields: dict[str, str]) -> Any:
        return {"note": "n", "mood": "m"} if "word" in fields else "no form at all"

    with serving(answer) as (server, _):
        evaluation = gl.evaluate(Two(), words("tea"), feedback=right)
        sent = server.calls
    (rollout,) = evaluation.rollouts
    failed = rollout.trace.of("second")
    assert [call.inputs for call in failed] == [{"note": "n"}, {"note": "n"}]
    assert [call.reply for call in failed] == ["no form at all"] * 2
    assert all("no form at all" in (call.error or "") for call in failed)
    assert rollout.failure is not None
    assert (rollout.failure.kind, rollout.failure.fault, rollout.value) == ("parse", "candidate", 0.0)
    assert rollout.usage.calls == sent == 3


def test_fault_3_the_adapters_hidden_second_call_is_counted_and_shown_as_a_retry() -> None:
    replies = itertools.cycle(["no form at all", '{"reply": "TEA"}'])
    with serving(lambda system, fields: next(replies)) as (server, _):
        evaluation = gl.evaluate(Shout(), words("tea"), feedback=right)
        sent = server.calls
    (rollout,) = evaluation.rollouts
    first, second = rollout.trace.of("say")
    assert evaluation.mean == 1.0
    assert rollout.usage.calls == sent == 2
    assert (first.retry, first.outputs, first.error_kind) == (False, None, "parse")
    assert (second.retry, second.outputs, second.error) == (True, {"reply": "TEA"}, None)


def test_fault_3_a_partial_parse_never_drops_a_rollout() -> None:
    with serving(lambda system, fields: chat(note="only one of two")):
        evaluation = gl.evaluate(Two(), words("a", "b", "c"), feedback=right)
    assert evaluation.n == 3
    assert all(rollout.failure is not None and rollout.failure.kind == "parse" for rollout in evaluation.rollouts)
    assert all(rollout.trace.of("first") for rollout in evaluation.rollouts)


def test_fault_3_a_reply_cut_at_its_limit_is_named() -> None:
    from gepa_lite.testing import Reply

    with serving(lambda system, fields: Reply("[[ ## no", finish_reason="length")):
        (rollout,) = gl.evaluate(Shout(), words("a"), feedback=right).rollouts
    assert "cut off at its token limit" in (rollout.trace.calls[0].error or "")


# --- 4: the metric


def test_fault_4_the_metric_is_called_once_for_each_rollout() -> None:
    calls: list[str] = []

    def metric(example: Any, pred: Any, trace: Any = None) -> Any:
        calls.append(example.word)
        return right(example, pred)

    with serving(shout):
        result = gl.optimize(Shout(), TRAIN, VALIDATION, feedback=metric, reflection_lm=ScriptedLM(BETTER), budget=gl.Budget(rollouts=60))
    assert len(calls) <= result.costs.logical.rollouts <= 60


def test_fault_4_what_is_no_score_is_an_error_that_names_the_example() -> None:
    for value in (None, {"feedback": "words"}, "text", float("nan")):
        with serving(shout), pytest.raises(FeedbackError, match="the feedback function returned"):
            gl.evaluate(Shout(), words("a"), feedback=lambda example, pred, value=value: value)


# --- 5: patches, swallowed exceptions, examples without inputs


def test_fault_5_nothing_of_the_users_is_patched() -> None:
    program = Shout()
    forward, call = Shout.forward, type(program).__call__
    with serving(shout):
        gl.optimize(program, TRAIN, VALIDATION, feedback=right, reflection_lm=ScriptedLM(BETTER))
    assert Shout.forward is forward
    assert type(program).__call__ is call
    assert set(vars(program)) == set(vars(Shout()))


def test_fault_5_an_exception_in_the_metric_stops_the_run_and_is_named() -> None:
    def metric(example: Any, pred: Any) -> float:
        return float(pred.no_such_field == example.want)

    with serving(shout), pytest.raises(FeedbackError, match=r"no_such_field.*example"):
        gl.evaluate(Shout(), VALIDATION, feedback=metric)


@pytest.mark.parametrize(
    ("rows", "words_"),
    [
        ([dspy.Example(wrd="a", want="A").with_inputs("wrd")], "lack the program's input 'word'"),
        ([dspy.Example(word="a", mood="b").with_inputs("word", "mood")], "declare the input 'mood'"),
        ([dspy.Example(word="a").with_inputs("word"), dspy.Example(word="b")], "row 2 declares"),
        ([dspy.Example(wrd="a", want="A")], "lacks the program's input 'word'"),
    ],
)
def test_fault_5_examples_with_other_inputs_are_refused_before_anything_is_spent(rows: Any, words_: str) -> None:
    with serving(shout) as (server, _):
        with pytest.raises(gl.UsageError, match=words_):
            gl.evaluate(Shout(), rows, feedback=right)
        assert server.calls == 0


# --- 6: samples and caches


def test_fault_6_distinct_samples_are_distinct_calls_at_one_temperature_with_dspys_cache_on() -> None:
    numbers = itertools.count()
    with serving(lambda system, fields: {"reply": str(next(numbers))}, cache=True, temperature=1.0) as (server, lm):
        lm(prompt="warm up dspy's cache")
        result = gl.optimize(
            Shout(),
            TRAIN,
            VALIDATION,
            feedback=lambda example, pred: int(pred.reply) % 2,
            reflection_lm=ScriptedLM(BETTER),
            search=gl.Search(repeats=3, fan=1),
            budget=gl.Budget(rollouts=60),
        )
        assert server.calls - 1 == result.costs.paid.calls - result.costs.logical.reflection.calls
    assert result.costs.logical.task.calls >= 24


def test_fault_6_two_endpoints_of_one_model_name_are_two_models() -> None:
    class Both(dspy.Module):  # type: ignore[misc]
        def __init__(self, left: Any, right_: Any) -> None:
            super().__init__()
            self.left, self.right = dspy.Predict("word -> reply"), dspy.Predict("word -> reply")
            self.left.lm, self.right.lm = left, right_

        def forward(self, word: str) -> Any:
            return dspy.Prediction(reply=self.left(word=word).reply + self.right(word=word).reply)

    with OpenAIServer(chat(reply="a")) as one, OpenAIServer(chat(reply="b")) as two:
        lms = [dspy.LM("openai/gpt-4.1-mini", api_base=server.base_url, api_key="k", num_retries=0) for server in (one, two)]
        program = Both(*lms)
        result = gl.optimize(program, TRAIN, VALIDATION, feedback=lambda e, p: p.reply == "ab", reflection_lm=ScriptedLM(BETTER))
        assert one.calls == two.calls == 4
        assert len({lm.describe().endpoint for lm in adapt(program).models.values()}) == 2
    assert result.validation.before == 1.0


# --- 7: what ships


def test_fault_7_messages_outside_equal_messages_inside_on_fifty_examples(tmp_path: Any) -> None:
    rows = words(*(f"word{number}" for number in range(50)))
    with serving(shout) as (server, _):
        result = gl.optimize(Shout(), TRAIN, VALIDATION, feedback=right, reflection_lm=ScriptedLM(BETTER))
        path = result.save(tmp_path / "shout.prompts.json")
        inside = gl.evaluate(result.program, rows, feedback=right)
        outside = gl.apply_prompts(Shout(), path)
        before = server.calls
        score = sum(outside(**row.inputs()).reply == row.want for row in rows) / len(rows)
        sent = [request["messages"] for request in server.requests[before:]]
    assert score == inside.mean == 1.0
    assert sent == [[dict(message) for message in rollout.trace.calls[0].messages] for rollout in inside.rollouts]


def test_the_budget_in_dollars_holds_for_a_dspy_program() -> None:
    with serving(shout, max_tokens=20):
        result = gl.optimize(
            Shout(),
            TRAIN,
            VALIDATION,
            feedback=lambda e, p: 0.5,
            reflection_lm=ScriptedLM(BETTER, usd_per_token=0.0),
            budget=gl.Budget(usd=0.001, rollouts=500),
        )
    assert result.costs.paid.usd is not None
    assert 0 < result.costs.paid.usd <= 0.001
