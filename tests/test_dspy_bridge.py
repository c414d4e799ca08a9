"""dspy programs without a wrapper: each step of the bridge, by name."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
from typing import Any, Literal

import pytest

import gepa_lite as gl
from gepa_lite.adapters.adapt import adapt
from gepa_lite.adapters.dspy.calls import is_routed
from gepa_lite.adapters.dspy.program import DspyProgram
from gepa_lite.testing import ScriptedLM
from tests.dspy_task import BETTER, TRAIN, VALIDATION, Shout, chat, dspy, right, serving, shout, words


def dummy(*answers: dict[str, Any]) -> Any:
    return dspy.utils.DummyLM(list(answers))


# --- detection


def test_programs_are_told_apart_without_importing_dspy() -> None:
    code = """
import sys
import gepa_lite as gl
from gepa_lite.adapters.adapt import adapt
class P(gl.Program):
    a = gl.Module("x -> y", "Do it.")
    def forward(self, x): return self.a(x=x)
adapt(P())
try:
    adapt(3)
except gl.UsageError as error:
    assert "dspy.Module" in str(error)
assert not any(name == "dspy" or name.startswith("dspy.") for name in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# --- predictors and their paths


class Nested(dspy.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.first = dspy.Predict("a -> b")
        self.inner = dspy.ChainOfThought("b -> c")
        self.many = [dspy.Predict("c -> d"), dspy.Predict("c -> d")]
        self.again = self.first
        self.done = Shout()
        self.done._compiled = True
        self.deep = {"x": [dspy.Predict("d -> e")]}

    def forward(self, a: str) -> Any:
        return self.first(a=a)


def test_predictors_are_modules_by_dspys_own_paths_and_what_is_missed_is_said() -> None:
    with dspy.context(lm=dummy()):
        program = adapt(Nested())
    assert list(program.parts) == [name for name, _ in Nested().named_predictors()]
    assert list(program.parts) == ["first", "inner.predict", "many[0]", "many[1]"]
    (notice,) = program.notices
    assert "done.say" in notice
    assert "deep['x'][0]" in notice


def test_a_single_predictor_is_a_program() -> None:
    with dspy.context(lm=dummy({"b": "1"})):
        program = adapt(dspy.Predict("a -> b"))
        assert list(program.parts) == ["self"]
        assert program.run({"a": "x"}).output.b == "1"


def test_the_parts_say_signature_types_and_model() -> None:
    class Sort(dspy.Signature):  # type: ignore[misc]
        """Sort the post."""

        letter: str = dspy.InputField(desc="as it came")
        tray: Literal["bills", "love"] = dspy.OutputField()

    with dspy.context(lm=dummy()):
        part = adapt(dspy.Predict(Sort)).parts["self"]
    assert part.text == "Sort the post."
    assert part.model == "dummy"
    assert "'bills'" in part.signature
    assert "letter (text): as it came" in part.words
    other = Sort.with_updated_fields("letter", desc="another description")
    renamed = Sort.delete("letter").prepend("mail", dspy.InputField(), str)
    with dspy.context(lm=dummy()):
        assert adapt(dspy.Predict(other)).parts["self"].fingerprint == part.fingerprint
        assert adapt(dspy.Predict(renamed)).parts["self"].fingerprint != part.fingerprint


def test_a_program_without_a_model_is_refused_before_anything_is_run() -> None:
    with dspy.context(lm=None), pytest.raises(gl.UsageError, match=r"has no LM: call dspy\.configure"):
        gl.evaluate(Shout(), VALIDATION, feedback=right)


def test_a_program_without_predictors_is_refused() -> None:
    class Empty(dspy.Module):  # type: ignore[misc]
        def forward(self, a: str) -> str:
            return a

    with pytest.raises(gl.UsageError, match="no predictor that dspy lists"):
        adapt(Empty())


def test_a_missing_key_is_found_before_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with dspy.context(lm=dspy.LM("openai/gpt-4.1-mini")), pytest.raises(gl.UsageError, match="OPENAI_API_KEY"):
        gl.evaluate(Shout(), VALIDATION, feedback=right)


# --- edits


def test_an_edit_rebinds_the_signature_of_a_copy_and_never_leaks() -> None:
    shared = dspy.Signature("word -> reply", "Say it.")
    program = Shout()
    program.say = dspy.Predict(shared)
    other = dspy.Predict(shared)
    with dspy.context(lm=dummy()):
        changed = adapt(program).with_prompts({"say": "Shout it."}).deliverable
    assert changed.say.signature.instructions == "Shout it."
    assert program.say.signature is shared
    assert shared.instructions == other.signature.instructions == "Say it."
    assert changed is not program


def test_an_empty_text_is_refused_since_dspy_would_fall_back_to_its_default() -> None:
    with dspy.context(lm=dummy()), pytest.raises(gl.UsageError, match="default instructions"):
        adapt(Shout()).with_prompts({"say": "  "})


def test_texts_of_several_lines_arrive_as_they_are() -> None:
    text = 'Line one.\n\n  - "indented" {braces} and [[ ## marks ## ]]\n\nLast.'
    with dspy.context(lm=dummy()):
        changed = adapt(Shout()).with_prompts({"say": text})
    assert changed.prompts["say"] == changed.deliverable.say.signature.instructions == text


# --- copies


class Holder(dspy.Module):  # type: ignore[misc]
    """Holds what can't be copied, and what a run would change."""

    def __init__(self) -> None:
        super().__init__()
        self.say = dspy.Predict("word -> reply")
        self.lock = threading.Lock()
        self.seen: list[str] = []

    def forward(self, word: str) -> Any:
        with self.lock:
            self.seen.append(word)
        return self.say(word=word)


def test_what_cannot_be_copied_is_shared_and_the_users_program_is_untouched() -> None:
    program = Holder()
    callback = dspy.utils.BaseCallback()
    program.say.callbacks = [callback]
    before = dict(vars(program))
    with serving(shout) as (_, lm):
        program.say.lm = lm
        history = list(lm.history)
        settings = dict(dspy.settings.copy())
        evaluation = gl.evaluate(program, VALIDATION, feedback=right)
        adapted = adapt(program)
        assert dict(dspy.settings.copy()) == settings
        assert lm.history == history
        assert adapted.deliverable.lock is program.lock
        assert adapted.deliverable.say.lm is lm
        assert adapted.deliverable.say.callbacks == [callback]
    assert evaluation.n == 4
    assert program.seen == []
    assert vars(program) == before
    assert program.say.lm is lm
    assert not is_routed(lm)
    assert "_gepa_lite_path" not in vars(program.say)
    assert "forward" not in vars(program)


def test_result_program_is_a_dspy_program_free_of_the_run_and_saves_by_name(tmp_path: Any) -> None:
    with serving(shout) as (server, lm):
        result = gl.optimize(Shout(), TRAIN, VALIDATION, feedback=right, reflection_lm=ScriptedLM(BETTER))
        assert type(result.program) is type(result.seed) is Shout
        assert result.program(word="tea").reply == "TEA"
        assert result.seed(word="tea").reply == "tea"
        assert "_gepa_lite_path" not in vars(result.program.say)
        result.program.save(tmp_path / "state.json")
        loaded = Shout()
        loaded.load(tmp_path / "state.json")
        assert loaded.say.signature.instructions == result.prompts["say"] == "Repeat the word in capital letters."
        result.program.save(tmp_path / "whole", save_program=True)
        trust = {"allow_pickle": True} if "allow_pickle" in inspect.signature(dspy.load).parameters else {}
        assert dspy.load(tmp_path / "whole", **trust)(word="ice").reply == "ICE"
        # and by a bundle of ours, into a program that names its predictors in another order
        path = result.save(tmp_path / "shout.prompts.json")
        assert gl.apply_prompts(Shout(), gl.load_prompts(path))(word="oak").reply == "OAK"
        assert gl.apply_prompts(Shout(), path).say.signature.instructions == result.prompts["say"]
        assert server.calls > 0
    assert lm.history == lm.history[-5:]


def test_a_bundle_is_refused_where_the_signature_has_changed(tmp_path: Any) -> None:
    with serving(shout):
        result = gl.optimize(Shout(), TRAIN, VALIDATION, feedback=right, reflection_lm=ScriptedLM(BETTER))
        prompts = gl.load_prompts(result.save(tmp_path / "shout.prompts.json"))
        program = Shout()
        program.say = dspy.Predict("word: int -> reply")
        with pytest.raises(gl.UsageError, match="signature of 'say' has changed"):
            gl.apply_prompts(program, prompts)


# --- traces


class Twins(dspy.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.left = dspy.Predict("word -> reply", temperature=0.5)
        self.right = dspy.Predict("word -> reply", temperature=0.7)

    def forward(self, word: str) -> Any:
        return self.right(word=self.left(word=word).reply + "!")


def test_the_trace_has_each_predictors_own_inputs_messages_reply_and_usage() -> None:
    with serving(lambda system, fields: {"reply": fields["word"] + "?"}) as (_, _lm):
        trace = adapt(Twins()).run({"word": "tea"}).trace
    assert [(call.module, call.inputs, call.outputs) for call in trace.calls] == [
        ("left", {"word": "tea"}, {"reply": "tea?"}),
        ("right", {"word": "tea?!"}, {"reply": "tea?!?"}),
    ]
    first = trace.calls[0]
    assert [message["role"] for message in first.messages] == ["system", "user"]
    assert first.reply == chat(reply="tea?")
    assert first.model == "gpt-4.1-mini"
    assert first.usage.input_tokens > 20
    assert first.usage.usd == pytest.approx(first.usage.input_tokens * 4e-7 + first.usage.output_tokens * 1.6e-6)


def test_a_failed_rollout_keeps_its_calls_and_their_cost() -> None:
    class Breaks(Twins):
        def forward(self, word: str) -> Any:
            self.left(word=word)
            raise RuntimeError("after the first step")

    with serving(lambda system, fields: {"reply": "x"}):
        evaluation = gl.evaluate(Breaks(), words("a"), feedback=right)
    (rollout,) = evaluation.rollouts
    assert rollout.failure is not None
    assert rollout.failure.kind == "exception"
    assert "after the first step" in rollout.failure.message
    assert rollout.value == 0.0
    assert rollout.usage.calls == 1
    assert rollout.usage.output_tokens > 0


def test_a_predictor_that_fails_before_its_call_is_in_the_trace() -> None:
    class Wrong(Shout):
        def forward(self, word: str) -> Any:
            return self.say(word=word, lm="not an LM")

    with dspy.context(lm=dummy({"reply": "x"})):
        execution = adapt(Wrong()).run({"word": "tea"})
    (call,) = execution.trace.calls
    assert call.module == "say"
    assert call.messages == ()
    assert "LM must be an instance" in (call.error or "")


def test_predictors_made_in_forward_are_traced_under_their_fields() -> None:
    class Makes(Shout):
        def forward(self, word: str) -> Any:
            dspy.Predict("word, mood -> mood2")(word=word, mood="calm")
            return self.say(word=word)

    with dspy.context(lm=dummy({"mood2": "x"}, {"reply": "y"})):
        trace = adapt(Makes()).run({"word": "tea"}).trace
    assert trace.modules == ("(word, mood -> mood2)", "say")


def test_an_lm_that_forward_makes_itself_is_traced_and_paid_for() -> None:
    class Makes(Shout):
        def __init__(self, base: str) -> None:
            super().__init__()
            self.base = base

        def forward(self, word: str) -> Any:
            with dspy.context(lm=dspy.LM("openai/gpt-4.1", api_base=self.base, api_key="k", num_retries=0, cache=False)):
                return self.say(word=word)

    with serving(shout) as (server, _lm):
        result = gl.optimize(Makes(server.base_url), TRAIN, VALIDATION, feedback=right, reflection_lm=ScriptedLM(BETTER))
        sent = server.calls
    assert result.validation.after == 1.0
    # a rollout that is read from disk makes no call, so the logical account may be larger
    assert result.costs.logical.task.calls >= sent
    assert result.costs.paid.calls == sent + result.costs.logical.reflection.calls
    per_call = result.costs.logical.task.usd / result.costs.logical.task.calls
    assert result.costs.paid.usd == pytest.approx(sent * per_call, rel=0.02)


# --- threads, samples, dspy's own modules


def test_rollouts_run_at_once_each_with_its_own_trace_and_dspys_settings_stay() -> None:
    with serving(lambda system, fields: {"reply": fields["word"] + "?"}, temperature=0.3):
        evaluation = gl.evaluate(Twins(), words(*(f"w{i}" for i in range(24))), feedback=lambda e, p: True, workers=8)
    for rollout in evaluation.rollouts:
        left, right_ = rollout.trace.calls
        assert right_.inputs["word"] == left.inputs["word"] + "?!"
        assert rollout.output["reply"] == right_.outputs["reply"]


def test_threads_that_dspy_starts_join_the_rollout() -> None:
    class Fan(Shout):
        def forward(self, word: str) -> Any:
            parts = dspy.Parallel(num_threads=3, disable_progress_bar=True)([(self.say, {"word": word + str(i)}) for i in range(3)])
            return dspy.Prediction(reply=" ".join(part.reply for part in parts))

    with serving(shout):
        execution = adapt(Fan()).run({"word": "tea"})
    assert execution.error is None
    assert execution.output.reply == "tea0 tea1 tea2"
    assert sorted(call.inputs["word"] for call in execution.trace.of("say")) == ["tea0", "tea1", "tea2"]


def test_an_lm_of_the_program_in_a_foreign_thread_is_an_error_that_names_carry() -> None:
    class Threads(Shout):
        def forward(self, word: str) -> Any:
            caught: list[Exception] = []

            def work() -> None:
                try:
                    self.say(word=word)
                except Exception as error:
                    caught.append(error)

            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            raise caught[0]

    program = Threads()
    program.say.lm = dummy({"reply": "x"})
    with pytest.raises(gl.UsageError, match=r"gl\.carry"):
        adapt(program).run({"word": "tea"})


def test_best_of_n_and_its_copies_of_modules_and_lms_are_recorded() -> None:
    answers = iter(["a", "ab", "abc"])
    program = dspy.BestOfN(dspy.Predict("word -> reply"), N=3, reward_fn=lambda args, pred: len(pred.reply) / 3, threshold=1.0)
    with serving(lambda system, fields: {"reply": next(answers)}) as (_, lm):
        program.module.set_lm(lm)
        execution = adapt(program).run({"word": "tea"})
    assert execution.output.reply == "abc"
    assert [call.module for call in execution.trace.calls] == ["module"] * 3


def test_async_programs_and_the_two_step_adapter_are_recorded() -> None:
    class Waits(dspy.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.say = dspy.Predict("word -> reply")

        async def aforward(self, word: str) -> Any:
            return await self.say.acall(word=word)

    with serving(shout):
        execution = adapt(Waits()).run({"word": "tea"})
        assert execution.error is None
        assert execution.output.reply == "tea"
        assert [call.module for call in execution.trace.calls] == ["say"]

    def answer(system: str, fields: dict[str, str]) -> Any:
        return {"reply": "tea"} if "text" in fields else "The word is tea."

    with serving(answer) as (server, lm), dspy.context(adapter=dspy.TwoStepAdapter(lm)):
        execution = adapt(Shout()).run({"word": "tea"})
        assert execution.error is None
        assert execution.output.reply == "tea"
        assert [call.module for call in execution.trace.calls] == ["say", "say"]
        assert server.calls == 2


def test_tool_calls_survive_being_kept_and_read_again(tmp_path: Any) -> None:
    from gepa_lite.adapters.dspy.replies import outputs_of_text, shown_outputs, text_of_outputs

    outputs = [{"text": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"q": "x"}'}}]}]
    again = outputs_of_text(text_of_outputs(outputs))
    assert again == outputs
    assert again[0]["tool_calls"][0].function.name == "look"
    assert "look" in shown_outputs(again)
    assert text_of_outputs(["plain"]) == "plain"
    assert outputs_of_text(text_of_outputs(["\x00dspy:odd"])) == ["\x00dspy:odd"]


# --- ReAct


def search(query: str) -> str:
    """Look a thing up.

    Args: what to look for, in a few words.
    """
    return f"found {query}"


def agent() -> Any:
    return dspy.ReAct("question -> answer", tools=[search], max_iters=3)


def test_a_react_agents_tool_docs_are_kept_whatever_the_text_is() -> None:
    program = agent()
    seed = program.react.signature.instructions
    with dspy.context(lm=dummy()):
        adapted = adapt(program)
    assert list(adapted.parts) == ["react", "extract.predict"]
    text = adapted.prompts["react"]
    assert "search" not in text
    assert seed.startswith(text)
    assert adapted.deliverable.react.signature.instructions == seed
    changed = adapted.with_prompts({"react": "Be quick."}).deliverable.react.signature.instructions
    assert changed.startswith("Be quick.")
    for tool in program.tools.values():
        assert str(tool) in changed
    assert "must be in JSON format" in changed
    assert "search" in adapted.parts["react"].words


def test_tool_docs_in_another_form_are_frozen_spans() -> None:
    program = agent()
    lines = [str(tool) for tool in program.tools.values()]
    program.react.signature = program.react.signature.with_instructions("Tools:\n* " + "\n* ".join(lines))
    with dspy.context(lm=dummy()):
        part = adapt(program).parts["react"]
    assert part.contract.frozen == tuple(lines)
    assert part.contract.breach("Be quick.") is not None


def test_tool_and_field_descriptions_are_modules_on_request() -> None:
    with dspy.context(lm=dummy()):
        program = DspyProgram(agent(), tools=True, fields=True)
    assert "react:tool search" in program.parts
    assert "react:tool finish" not in program.parts
    assert "extract.predict:answer" in program.parts
    changed = program.with_prompts(
        {"react:tool search": "Finds anything.", "extract.predict:answer": "one word", "react": "Go."}
    ).deliverable
    assert changed.tools["search"].desc == "Finds anything."
    instructions = changed.react.signature.instructions
    assert instructions.startswith("Go.")
    assert str(changed.tools["search"]) in instructions
    assert "Look a thing up" not in instructions
    assert changed.extract.predict.signature.fields["answer"].json_schema_extra["desc"] == "one word"
    assert program.deliverable.react.signature.instructions == agent().react.signature.instructions
    assert "description of the tool 'search' alone" in program.parts["react:tool search"].words


def test_a_described_fields_part_learns_from_its_predictors_calls() -> None:
    def answer(system: str, fields: dict[str, str]) -> Any:
        return {"reply": fields["word"].upper() if "(str): in capitals" in system else fields["word"]}

    with serving(answer):
        program = DspyProgram(Shout(), fields=True)
        result = gl.optimize(
            program,
            TRAIN,
            VALIDATION,
            feedback=right,
            reflection_lm=ScriptedLM("<prompt>in capitals</prompt>"),
            search=gl.Search(modules="all", fan=1),
        )
    assert result.validation.after == 1.0
    assert result.prompts["say:reply"] == "in capitals"
    assert result.program.say.signature.fields["reply"].json_schema_extra["desc"] == "in capitals"


# --- examples and metrics


def test_examples_inputs_are_those_that_they_declare_and_values_stay_objects() -> None:
    history = dspy.History(messages=[{"question": "a", "answer": "b"}])
    row = dspy.Example(history=history, question="c", answer="d").with_inputs("history", "question")
    with dspy.context(lm=dummy()):
        (example,) = adapt(dspy.Predict("history: dspy.History, question -> answer")).examples([row], "trainset")
    assert example.inputs["history"] is history
    assert dict(example.labels) == {"answer": "d"}


def test_plain_dicts_are_examples_by_what_the_program_takes() -> None:
    with dspy.context(lm=dummy({"reply": "X"})):
        assert gl.evaluate(Shout(), [{"word": "x", "want": "X"}], feedback=right).mean == 1.0
        assert gl.evaluate(dspy.Predict("a -> reply"), [{"a": "x", "want": "No more responses"}], feedback=right).n == 1


@pytest.mark.parametrize(
    ("metric", "score"),
    [
        (lambda example, pred: True, 1.0),
        (lambda example, pred, trace=None: 0.5 if trace is None else 0.0, 0.5),
        (lambda example, pred, trace: float(trace.modules == ("say",)), 1.0),
        (lambda example, pred, trace=None, pred_name=None: 0.25 if pred_name is None else 1.0, 0.25),
        (lambda gold, pred, trace, pred_name, pred_trace: (0.75, "words"), 0.75),
        (lambda example, pred: {"score": 0.125, "feedback": "words"}, 0.125),
        (lambda example, pred: dspy.Prediction(score=1, feedback="words"), 1.0),
        (lambda example, pred: gl.Feedback(0.5, "words"), 0.5),
    ],
)
def test_metrics_of_two_to_five_arguments_return_what_dspys_return(metric: Any, score: float) -> None:
    with dspy.context(lm=dummy({"reply": "x"})):
        assert gl.evaluate(Shout(), words("x"), feedback=metric).mean == score


@pytest.mark.parametrize("metric", [lambda example: 1.0, lambda a, b, c, d, e, f: 1.0, 3])
def test_what_is_no_metric_is_refused(metric: Any) -> None:
    with dspy.context(lm=dummy()), pytest.raises(gl.UsageError, match="metric"):
        gl.evaluate(Shout(), words("x"), feedback=metric)


def test_a_dspy_module_is_a_metric_and_its_calls_are_on_the_judges_account() -> None:
    class Judge(dspy.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.grade = dspy.Predict("reply -> good: bool")

        def forward(self, example: Any, pred: Any, trace: Any = None) -> float:
            return float(self.grade(reply=pred.reply).good)

    with dspy.context(lm=dummy({"reply": "x"}, {"good": "True"})):
        (rollout,) = gl.evaluate(Shout(), words("x"), feedback=Judge()).rollouts
    assert rollout.value == 1.0
    assert rollout.usage.calls == 1
    assert rollout.judge_usage.calls == 1


def test_words_for_one_predictor_are_asked_for_by_name_and_keep_the_first_score() -> None:
    asked: list[Any] = []

    def metric(gold: Any, pred: Any, trace: Any = None, pred_name: Any = None, pred_trace: Any = None) -> Any:
        asked.append(pred_name)
        if pred_name is None:
            return 0.5
        (_predictor, inputs, prediction) = pred_trace[0]
        return dspy.Prediction(score=1.0, feedback=f"{pred_name} got {inputs['word']}, said {prediction.reply}, of {len(trace)}")

    with dspy.context(lm=dummy({"reply": "y"}, {"reply": "z"})):
        (rollout,) = gl.evaluate(Twins(), words("x"), feedback=metric).rollouts
    assert rollout.value == 0.5
    assert asked == [None, "left", "right"]
    assert rollout.feedback is not None
    assert rollout.feedback.modules == {"left": "left got x, said y, of 2", "right": "right got y!, said z, of 2"}


# --- runs


def test_a_run_is_resumed_by_the_same_call_at_no_cost(tmp_path: Any) -> None:
    with serving(shout) as (server, _):
        options: dict[str, Any] = {"feedback": right, "reflection_lm": ScriptedLM(BETTER), "run": tmp_path / "run"}
        first = gl.optimize(Shout(), TRAIN, VALIDATION, **options)
        sent = server.calls
        second = gl.optimize(Shout(), TRAIN, VALIDATION, **options)
        assert server.calls == sent
    assert first.prompts == second.prompts
    assert second.costs.paid == first.costs.paid


def test_a_changed_program_is_another_run(tmp_path: Any) -> None:
    with serving(shout):
        options: dict[str, Any] = {"feedback": right, "reflection_lm": ScriptedLM(BETTER), "run": tmp_path / "run"}
        gl.optimize(Shout(), TRAIN, VALIDATION, **options)
        program = Shout()
        program.say.demos = [dspy.Example(word="a", reply="A")]
        with pytest.raises(gl.UsageError, match="program was"):
            gl.optimize(program, TRAIN, VALIDATION, **options)


def test_the_log_is_the_same_at_any_number_of_workers() -> None:
    logs = []
    with serving(shout):
        for workers in (1, 6):
            events: list[Any] = []
            options: dict[str, Any] = {"feedback": right, "reflection_lm": ScriptedLM(BETTER)}
            gl.optimize(Shout(), TRAIN, VALIDATION, workers=workers, on_event=events.append, **options)
            logs.append(events)
    assert logs[0] == logs[1]


def test_a_dspy_lm_reflects_too() -> None:
    def answer(system: str, fields: dict[str, str]) -> Any:
        return BETTER if "reviewer" in system else shout(system, fields)

    with serving(answer) as (_, lm):
        result = gl.optimize(Shout(), TRAIN, VALIDATION, feedback=right, reflection_lm=lm)
        assert result.validation.after == 1.0
        result = gl.optimize(Shout(), TRAIN, VALIDATION, feedback=right)
        assert result.validation.after == 1.0
        assert lm.history == []
    assert result.costs.logical.reflection.usd


def test_processes_are_refused() -> None:
    with dspy.context(lm=dummy()), pytest.raises(gl.UsageError, match="runs in threads"):
        gl.evaluate(Shout(), words("x"), feedback=right, workers="processes:1")


def test_the_seams_promise_is_kept_by_the_public_class() -> None:
    assert inspect.signature(gl.DspyProgram).parameters.keys() == {"program", "fields", "tools"}


def test_dspy_programs_that_differ_in_their_instructions_race_as_starts() -> None:
    other = Shout()
    other.say.signature = other.say.signature.with_instructions("Say it back.")
    with serving(shout):
        result = gl.optimize([Shout(), other], TRAIN, VALIDATION, feedback=right, reflection_lm=ScriptedLM(BETTER))
        assert [(start.name, start.index) for start in result.starts] == [("first program", 0), ("start 1", 1)]
        assert result.candidates[1].candidate.texts["say"] == "Say it back."
        assert isinstance(result.program, Shout)
        with pytest.raises(gl.UsageError, match="not the first program with other prompts"):
            gl.optimize([Shout(), dspy.Predict("word -> other")], TRAIN, VALIDATION, feedback=right, reflection_lm=ScriptedLM(BETTER))
