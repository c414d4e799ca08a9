"""dspy's GRPO on our backend: what is handed on, and a real training of a small model of letters."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from gepa_lite.errors import UsageError

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("trl")
    pytest.importorskip("dspy")
    from benchmarks.rl_task import letter_model

    return letter_model(tmp_path_factory.mktemp("letters")).removeprefix("policy/")


def entry(messages: list[dict[str, str]], text: str, reward: float) -> dict[str, Any]:
    return {"messages": messages, "completion": {"role": "assistant", "content": text}, "reward": reward}


def test_updates_raise_what_is_rewarded_and_train_the_tokens_that_were_sampled(letters: str, tmp_path: Path) -> None:
    from gepa_lite.baselines.dspy_rl import dspy_policy
    from gepa_lite.baselines.grpo.settings import Training
    from gepa_lite.lm.policy import engine_of, logprobs_of

    training = Training(examples=1, group=4, learning_rate=1e-2, micro_batch=5)
    lm = dspy_policy(letters, tmp_path / "job", training=training, temperature=1.0, max_tokens=8, cache=False)
    job, engine = lm.reinforce({"num_generations": 4}), engine_of(letters)
    asked = [{"role": "user", "content": "abcabc !!"}]
    prompt = engine.encode(asked)

    def chance(text: str) -> float:
        engine.model.eval()
        return sum(logprobs_of(engine.model, prompt, engine.tokenizer(text, add_special_tokens=False)["input_ids"]))

    before, seen = chance("high"), []
    for _ in range(4):
        assert job.get_status()["pending_batch_ids"] == [len(seen)]
        replies = [lm(messages=asked)[0] for _ in range(3)]
        group = [entry(asked, text, float(text == "high")) for text in [*replies, "high"]]
        job.step([{"batch_id": len(seen), "group": group}])
        seen.append(engine.adapter)
    assert len(set(seen)) == 4
    assert chance("high") > before
    with pytest.raises(UsageError, match="1 groups of 4"):
        job.step([{"batch_id": 9, "group": group[:2]}])
    job.save_checkpoint("one")
    job.terminate()
    assert lm.model == f"policy/{tmp_path / 'job'}"
    from gepa_lite.lm.policy import open_policy

    assert open_policy(str(tmp_path / "job")).adapter == engine.now()
    with pytest.raises(UsageError, match="not empty"):
        dspy_policy(letters, tmp_path / "job")


def test_a_sampled_reply_keeps_its_tokens_and_a_rewritten_one_is_encoded(letters: str, tmp_path: Path) -> None:
    from gepa_lite.baselines.dspy_rl import Learner
    from gepa_lite.baselines.grpo.settings import Training
    from gepa_lite.lm.policy import Sample, engine_of

    engine = engine_of(letters)
    engine.load()
    learner = Learner(engine, Training(examples=1, group=2), tmp_path, 0, None)
    asked = [{"role": "user", "content": "x"}]
    ids = engine.tokenizer("low", add_special_tokens=False)["input_ids"]
    # sampled without an end token, at its limit
    sampled = Sample(engine.encode(asked), tuple(ids), (-0.5, -0.5, -0.5))
    learner.keep(sampled)
    assert learner._sample(entry(asked, "low", 1.0)) is sampled
    other = learner._sample(entry(asked, "high", 1.0))
    assert engine.decode(other.completion_ids) == "high"
    assert other.completion_ids[-1] == engine.tokenizer.eos_token_id
    assert len(other.logprobs) == len(other.completion_ids)


def test_an_error_of_the_trainer_reaches_the_caller(letters: str, tmp_path: Path) -> None:
    from gepa_lite.baselines.dspy_rl import Learner
    from gepa_lite.baselines.grpo.settings import Training
    from gepa_lite.lm.policy import engine_of

    class Broken:
        def train(self, course: Any) -> None:
            course.rows(0, course.example_ids)
            raise MemoryError("no room")

    learner = Learner(engine_of(letters), Training(examples=1, group=2), tmp_path, 0, Broken())
    learner.begin()
    asked = [{"role": "user", "content": "x"}]
    with pytest.raises(MemoryError, match="no room"):
        learner.step([[entry(asked, "low", 1.0), entry(asked, "high", 0.0)]])


def test_dspys_own_optimizer_trains_a_program(letters: str, tmp_path: Path) -> None:
    import dspy
    from dspy.teleprompt.grpo import GRPO
    from dspy.utils.exceptions import AdapterParseError

    from gepa_lite.baselines.dspy_rl import dspy_policy
    from gepa_lite.baselines.grpo.settings import Training
    from gepa_lite.lm.policy import engine_of
    from gepa_lite.lm.policy.engine import BASE

    class Plain(dspy.ChatAdapter):
        """A letter model can't write dspy's marks, so its reply is both fields; ``none`` is half a reply."""

        def parse(self, signature: Any, completion: str) -> dict[str, Any]:
            if completion.strip() == "none":
                # dspy 3.4.1 divides a list by a list here, and loses the rollout: its group comes filled up with others of it
                raise AdapterParseError("Plain", signature, completion, parsed_result={"label": "none"})
            return dict.fromkeys(signature.output_fields, completion.strip())

        def format_finetune_data(self, signature: Any, demos: Any, inputs: Any, outputs: Any) -> dict[str, Any]:
            text = outputs["label"]
            return {"messages": [*self.format(signature, demos, inputs), {"role": "assistant", "content": text}]}

    draw = random.Random(0)
    rows = [dspy.Example(text="".join(draw.choices("abc", k=6)), label="high").with_inputs("text") for _ in range(4)]
    lm = dspy_policy(letters, tmp_path / "job", training=Training(examples=2, group=4, micro_batch=9), temperature=1.0, max_tokens=6)
    program = dspy.Predict("text -> label, sure")
    program.set_lm(lm)
    each = GRPO(
        metric=lambda example, output, trace=None: float(output.label == example.label),
        adapter=Plain(),
        exclude_demos=True,
        num_threads=2,
        num_train_steps=2,
        num_dspy_examples_per_grpo_step=2,
        num_rollouts_per_grpo_step=4,
    )
    with dspy.context(adapter=Plain(), lm=lm):
        trained = each.compile(program, trainset=rows)
        assert trained.predictors()[0].lm.model == f"policy/{tmp_path / 'job'}"
        assert lm(messages=[{"role": "user", "content": "abc"}])[0]
        with pytest.raises(UsageError, match="has been trained"):
            lm.reinforce({})
    assert (tmp_path / "job" / "policy.json").exists()
    assert engine_of(letters).adapter != BASE


def test_what_is_not_followed_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    from gepa_lite.baselines.dspy_rl import dspy_policy
    from gepa_lite.baselines.grpo.settings import Training

    pytest.importorskip("trl")
    pytest.importorskip("dspy")
    with pytest.raises(UsageError, match=r"Training\(steps=, patience=\) is not followed"):
        dspy_policy("no-such-model", tmp_path / "new", training=Training(steps=3, patience=1))
    lm = dspy_policy("no-such-model", tmp_path / "new", training=Training(group=4))
    with pytest.raises(UsageError, match="learning_rate: settings are those of"):
        lm.reinforce({"learning_rate": 1.0})
    with pytest.raises(UsageError, match="groups of 8"):
        lm.reinforce({"num_generations": 8})
