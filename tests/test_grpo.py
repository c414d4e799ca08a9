"""Training weights as an optimizer: what needs no torch, and a real training of a small model of letters."""

from __future__ import annotations

import dataclasses
import json
import math
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gepa_lite as gl
from benchmarks.report import Options
from gepa_lite.baselines import optimizer
from gepa_lite.baselines.grpo.rows import Row
from gepa_lite.baselines.grpo.samples import SampleBook, drawn
from gepa_lite.baselines.grpo.settings import Training
from gepa_lite.baselines.grpo.trainable import WEIGHTS, Trainable
from gepa_lite.baselines.grpo.trl_backend import VLLMSampler, blocks
from gepa_lite.core.call import Call, Trace
from gepa_lite.core.feedback import Feedback
from gepa_lite.core.rollout import Rollout, RolloutKey
from gepa_lite.errors import UsageError
from gepa_lite.lm.policy import Draw, Engine, Sample, engine_of, need, open_policy
from gepa_lite.lm.policy.checkpoints import newest_checkpoint
from gepa_lite.lm.policy.engine import BASE, Lora, read_card
from gepa_lite.lm.protocol import Completion, LMInfo, Params, Request
from gepa_lite.testing import ScriptedLM


class Two(gl.Program):
    gist = gl.Module("text -> gist", "Say it in a word.")
    label = gl.Module("text, gist -> label: Literal['low', 'high']", "Name the label.")

    def forward(self, text: str) -> gl.Outputs:
        return self.label(text=text, gist=self.gist(text=text).gist)


def row(advantage: float) -> Row:
    return Row((1, 2), (3, 4), (-1.0, -2.0), advantage, True, 0, 0)


@pytest.mark.parametrize("count", [0, 1, 5, 8])
def test_what_trl_takes_the_mean_of_sums_to_zero_so_that_our_advantage_is_what_is_left(count: int) -> None:
    rows = [row(0.37 * place - 1) for place in range(count)]
    batch = blocks(rows, 10, 5, 0)
    assert len(batch) == 10
    assert [one.advantage for one, _ in batch if one.trained] == [one.advantage for one in rows]
    for start in (0, 5):
        part = batch[start : start + 5]
        assert math.fsum(reward for _, reward in part) == pytest.approx(0, abs=1e-12)
        assert not part[-1][0].trained
    assert all(reward == one.advantage for one, reward in batch if one.trained)


def test_too_many_rows_are_refused() -> None:
    with pytest.raises(UsageError, match="do not fit"):
        blocks([row(0)] * 9, 10, 5, 0)


def test_rows_that_do_not_fit_are_drawn_among_all() -> None:
    assert drawn(3, 5, [2, 0, 1]) == [0, 1, 2]
    assert drawn(5, 2, [4, 1, 0, 2, 3]) == [1, 4]


def rollout(models: list[str], value: float | None) -> Rollout:
    calls = tuple(Call("gist", {}, (), model=model) for model in models)
    feedback = None if value is None else Feedback(value, "")
    return Rollout(RolloutKey("c", "e"), value, feedback, trace=Trace(calls))


def test_samples_outlive_the_process_and_a_line_that_was_cut_off(tmp_path: Path) -> None:
    one, two, three = Sample((1,), (2, 3), (-0.5, -0.25)), Sample((1,), (4,), (-0.125,)), Sample((1,), (5,), (-0.5,))
    book = SampleBook(tmp_path)
    book.begin(3, 0)
    book.keep(one)
    book.begin(4, 0)
    book.keep(two)
    with (tmp_path / "4.jsonl").open("a") as file:
        file.write("\n[[1], [2")
    broken = SampleBook(tmp_path)
    broken.load()
    broken.begin(4, 0)
    broken.keep(three)
    again = SampleBook(tmp_path)
    again.load()
    assert again.episode(rollout([f"policy/x#{three.id}"], 0.5)).calls
    episode = again.episode(rollout([f"policy/x#{one.id}", "openai/judge", f"policy/x#{two.id}"], 0.5))
    assert [call.completion_ids for call in episode.calls] == [(2, 3), (4,)]
    assert [call.logprobs for call in episode.calls] == [(-0.5, -0.25), (-0.125,)]
    again.begin(5, 4)
    assert not (tmp_path / "3.jsonl").exists()


def test_an_outage_has_no_reward_and_a_rollout_without_a_call_no_row(tmp_path: Path) -> None:
    book = SampleBook(tmp_path)
    book.begin(0, 0)
    sample = Sample((1,), (2,), (-0.5,))
    book.keep(sample)
    named = f"policy/x#{sample.id}"
    episodes = [book.episode(rollout(models, value)) for models, value in (([named], None), ([named], 1.0), ([], 0.0), ([named] * 3, 0.0))]
    rows = Training().builder.rows(episodes)
    assert [one.trained for one in rows] == [False, True, True, True, True]
    assert rows[0].advantage == 0
    assert sum({one.episode: one.advantage for one in rows}.values()) > 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"group": 1},
        {"temperature": 0},
        {"vllm": "elsewhere"},
        {"warmup": -1},
        {"temperature": "hot"},
        {"prompt_steps": 1.5},
        {"cycles": 0},
        {"baseline": "none"},
        {"patience": 0},
        {"speed": 2},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        optimizer("grpo", **wrong)


def test_the_papers_settings() -> None:
    paper = Training.paper()
    assert (paper.steps, paper.examples, paper.group, paper.lora.rank, paper.lora.alpha) == (500, 4, 12, 16, 64)
    assert (paper.learning_rate, paper.kl, paper.temperature, paper.grad_norm, paper.validate_every) == (1e-5, 0.01, 0.6, 0.1, 20)
    assert dict(optimizer("grpo_paper").procedure.settings())["training"]["steps"] == 500  # type: ignore[union-attr]
    assert json.dumps(optimizer("prompts_and_grpo").procedure.settings())  # type: ignore[union-attr]


def test_a_missing_extra_says_what_to_install() -> None:
    with pytest.raises(UsageError, match=r"pip install 'gepa-lite\[rl\]'"):
        need("no_such_package_of_this_name")


def test_only_an_open_model_in_this_process_is_trained(tmp_path: Path) -> None:
    from gepa_lite.adapters.adapt import adapt

    with pytest.raises(UsageError, match="policy/smollm2-135m"):
        Trainable(adapt(Two(lm=ScriptedLM("x"))), Training(), tmp_path, lambda sample: None)


def test_weights_are_one_more_part_of_a_candidate(tmp_path: Path) -> None:
    from gepa_lite.adapters.adapt import adapt

    program = Trainable(adapt(Two(lm="policy/smollm2-135m", lms={"label": ScriptedLM("low")})), Training(), tmp_path, lambda sample: None)
    assert program.prompts[WEIGHTS] == "base"
    assert program.trained == ("gist",)
    sampled = program.with_prompts({WEIGHTS: "0123 sampled", "gist": "New."})
    assert sampled.prompts == {"gist": "New.", "label": "Name the label.", WEIGHTS: "0123 sampled"}
    described = sampled.models["gist"].describe()
    assert (described.name, described.settings) == ("policy/smollm2-135m", "adapter 0123, temperature 1, 64 tokens")
    assert sampled.with_prompts({WEIGHTS: "0123"}).models["gist"].describe().settings == "adapter 0123"
    assert isinstance(sampled.models["label"], ScriptedLM)
    with pytest.raises(UsageError, match="threads"):
        program.sendable()


def test_a_model_that_samples_by_address_is_told_the_address(tmp_path: Path) -> None:
    class Addressed:
        def describe(self) -> LMInfo:
            return LMInfo("addressed", usd_per_input_token=0.0, usd_per_output_token=0.0)

        def complete(self, request: Request) -> Completion:
            raise AssertionError("it has a better way")

        def complete_at(self, request: Request, sample: int, address: tuple[int | str, ...]) -> Completion:
            seen.append((sample, address))
            return Completion("low")

    seen: list[tuple[int, tuple[int | str, ...]]] = []
    examples = [{"text": "a"}, {"text": "b"}, {"text": "c"}]
    gl.evaluate(Two(lm=Addressed()), examples, feedback=lambda example, output: 1.0)
    assert (0, (0,)) in seen


def test_who_has_a_reply_asks_on_while_the_next_batch_is_sampled() -> None:
    engine, waiting, sizes = Engine("none"), threading.Semaphore(0), []
    engine.model = SimpleNamespace(training=False, eval=lambda: None, train=lambda on: None)

    def sample(draws: Sequence[Draw]) -> list[Sample]:
        sizes.append(len(draws))
        if len(sizes) == 1:
            # the others come while this one is sampled
            for _ in range(8):
                assert waiting.acquire(timeout=30)
        elif any(draw.seed == 100 for draw in draws):
            # the second question of one thread: all eight that had a reply with it go on meanwhile
            for _ in range(7):
                assert waiting.acquire(timeout=30)
        return [Sample(draw.prompt_ids, (draw.seed,), (0.0,)) for draw in draws]

    engine.sampler, engine.training = sample, BASE

    def ask(seed: int) -> int:
        return engine.ask(BASE, None, Draw((1,), 1, seed=seed)).completion_ids[0]

    def twice(seed: int) -> tuple[int, int]:
        waiting.release()
        first = ask(seed)
        if seed > 1:
            waiting.release()
        return first, ask(99 + seed)

    with ThreadPoolExecutor(9) as pool:
        alone = pool.submit(ask, 50)
        while not sizes:
            time.sleep(0.001)
        found = list(pool.map(twice, range(1, 9)))
        assert alone.result() == 50
    assert found == [(seed, 99 + seed) for seed in range(1, 9)]
    assert sum(sizes) == 17


def test_a_folder_that_holds_no_adapter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_text("{}")
    with pytest.raises(UsageError, match=r"policy\.json"):
        open_policy(str(tmp_path))


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("trl")
    from benchmarks.rl_task import letter_model

    return letter_model(tmp_path_factory.mktemp("letters"))


@pytest.mark.heavy
@pytest.mark.timeout(400)
def test_a_training_that_broke_off_goes_on_as_the_whole_one_and_its_accounts_are_right(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    from benchmarks.rl import smoke

    assert all(row.met for row in smoke(tmp_path).rows)


@pytest.mark.heavy
@pytest.mark.timeout(400)
def test_what_ships_is_an_adapter_that_opens_anywhere_and_prompts_that_load(letters: str, tmp_path: Path) -> None:
    from benchmarks.rl import train
    from benchmarks.rl_task import Marks

    result = train(letters, "letters", 2, 0, tmp_path / "run", examples=2, group=4, validate_every=1, micro_batch=17, max_tokens=8)
    adapter = next(member.candidate.texts[WEIGHTS] for member in result.candidates if member.index)
    folder = tmp_path / "run" / "adapters" / adapter
    assert read_card(folder)["adapter"] == adapter
    engine_of.cache_clear()
    open_policy.cache_clear()
    lm = open_policy(str(folder))
    request = Request(({"role": "user", "content": "abc !!"},))
    capped = dataclasses.replace(request, params=dataclasses.replace(request.params, max_tokens=8))
    assert lm.complete(capped).text == lm.complete(capped).text
    lm.engine.use("base", None)
    lm.engine.use(adapter, folder)
    assert lm.engine.now() == adapter
    bundle = result.save(tmp_path / "marks.json")
    assert json.loads(bundle.read_text())["candidate"][WEIGHTS] == result.prompts[WEIGHTS]
    assert Marks(lm=lm).load(bundle).prompts == {name: text for name, text in result.prompts.items() if name != WEIGHTS}


def test_vllm_samples_what_is_drawn_at_the_trainings_temperature_and_keeps_to_a_modules_bound() -> None:
    asked: list[list[list[int]]] = []

    def generate(prompts: list[list[int]], images: None, num_generations: int) -> Any:
        asked.append(prompts)
        return prompts, [[7, 8, 9] for _ in prompts], [[[-0.1], [None], [-0.3]] for _ in prompts], {}

    sampler = VLLMSampler(SimpleNamespace(generate=generate), 0.7, lambda draws: [Sample(draw.prompt_ids, (0,), (0.0,)) for draw in draws])
    draws = [Draw((1,), 9, 0.7), Draw((2,), 9, 0.0), Draw((3,), 2, 0.7), Draw((4,), 9, 0.7, 0.9)]
    found = sampler(draws)
    assert asked == [[[1], [3]]]
    assert [each.prompt_ids for each in found] == [draw.prompt_ids for draw in draws]
    assert [each.completion_ids for each in found] == [(7, 8, 9), (0,), (7, 8), (0,)]
    assert [len(each.logprobs) for each in found] == [3, 1, 2, 1]
    assert math.isnan(found[0].logprobs[1])
    assert sampler(draws[1:2])[0].completion_ids == (0,)
    assert len(asked) == 1, "vLLM is not called for nothing"


def test_a_checkpoint_that_was_not_written_to_its_end_is_passed_over(tmp_path: Path) -> None:
    for name, text in (
        ("checkpoint-4", '{"global_step": 4}'),
        ("checkpoint-8", '{"global_st'),
        ("checkpoint-12", None),
        ("checkpoint-new", "{}"),
    ):
        (tmp_path / name).mkdir()
        if text is not None:
            (tmp_path / name / "trainer_state.json").write_text(text)
    assert newest_checkpoint(tmp_path) == str(tmp_path / "checkpoint-4")


@pytest.mark.heavy
@pytest.mark.timeout(400)
def test_weights_in_training_come_back_after_others_were_asked_for(letters: str, tmp_path: Path) -> None:
    engine = Engine(letters.removeprefix("policy/"))
    engine.shape(Lora(4, 8, 0.0), 0)
    engine.save(tmp_path / "first")
    first = engine.adapter
    for name, parameter in engine.model.named_parameters():
        if "lora_B" in name:
            parameter.data.fill_(0.25)
    engine.mark()
    trained = engine.training
    for adapter, folder in (("base", None), (first, tmp_path / "first"), ("base", None)):
        engine.use(adapter, folder)
        assert engine.now() != trained
    assert trained is not None
    engine.use(trained, None)
    assert engine.now() == trained
    with pytest.raises(UsageError, match="in training"):
        engine.shape(Lora(2, 8, 0.0), 0)
    engine.use("base", None)
    engine.unmark()
    assert engine.training is None
    assert engine.now() == trained


@pytest.mark.heavy
@pytest.mark.timeout(400)
def test_a_judge_on_the_model_itself_leaves_the_training_as_it_is(letters: str, tmp_path: Path) -> None:
    from benchmarks.rl_task import Marks, feedback, rows

    data = rows(40, 1)
    request = Request(({"role": "user", "content": "abc !!"},), Params(max_tokens=8))

    def judged(example: Any, output: Any) -> Any:
        open_policy(letters.removeprefix("policy/")).complete(request)
        return feedback(example, output)

    made = []
    for name, judge in (("alone", feedback), ("judged", judged)):
        grpo = optimizer("grpo", steps=3, examples=2, group=4, validate_every=1, micro_batch=17, max_tokens=8)
        given: dict[str, Any] = {"feedback": judge, "budget": gl.Budget(rollouts=5_000), "workers": 8}
        made.append(grpo(Marks(lm=letters), data[:20], data[20:], run=tmp_path / name, **given))
    assert [len(result.candidates) for result in made] == [4, 4]
    assert [member.candidate.texts[WEIGHTS] for member in made[0].candidates] == [
        member.candidate.texts[WEIGHTS] for member in made[1].candidates
    ]


@pytest.mark.heavy
@pytest.mark.timeout(400)
def test_prompts_and_weights_are_improved_in_turns_and_a_resume_adds_nothing(letters: str, tmp_path: Path) -> None:
    from benchmarks.rl_task import Marks, feedback, rows

    data = rows(60, 1)
    reflection = ScriptedLM(lambda request: f"<prompt>Answer low or high, attempt {len(request.messages[0]['content'])}.</prompt>")
    small: dict[str, Any] = {"steps": 2, "examples": 2, "group": 4, "validate_every": 1, "micro_batch": 17, "max_tokens": 8}
    each = optimizer("prompts_and_grpo", prompt_steps=1, cycles=2, **small)
    given: dict[str, Any] = {"feedback": feedback, "testset": data[40:], "reflection_lm": reflection, "budget": gl.Budget(rollouts=5_000)}
    result = each(Marks(lm=letters), data[:20], data[20:40], run=tmp_path, **given)
    proposals = list(result.state.proposals)
    assert [proposal.proposer for proposal in proposals] == ["rewrite", "grpo", "grpo"] * 2
    assert result.finished
    again = each(Marks(lm=letters), data[:20], data[20:40], run=tmp_path, **given)
    assert list(again.state.proposals) == proposals


@pytest.mark.heavy
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", ["gpu_rl", "prompts_or_weights"])
def test_the_benchmarks_run_at_a_tiny_size(name: str) -> None:
    pytest.importorskip("trl")
    report = import_module(f"benchmarks.{name}").run(Options(quick=True))
    assert report.rows
    if name == "gpu_rl":
        assert len(report.extra["outcomes"][0]["validation_course"]) == 3
    else:
        assert {outcome["optimizer"]: outcome.get("training_seconds", 0) > 0 for outcome in report.extra["outcomes"]} == {
            "by_hand": False,
            "grpo": True,
            "best_of_n": False,
            "few_shot": False,
        }
