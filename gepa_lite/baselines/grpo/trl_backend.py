"""Updates by TRL's ``GRPOTrainer``, through its ``rollout_func``.

What it hands to that function is each prompt repeated ``num_generations`` times and no other column, so the prompt is the example's id. It wants as many rows back, and takes the mean of
the rewards of ``num_generations`` neighbours from each: every block of rows has one row of padding whose reward makes the block sum to zero, so that what is left is our advantage.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from gepa_lite.baselines.grpo.backend import Course, Update
from gepa_lite.baselines.grpo.rows import Row, padded
from gepa_lite.errors import UsageError
from gepa_lite.lm.policy.checkpoints import newest_checkpoint
from gepa_lite.lm.policy.draws import Draw, Sample
from gepa_lite.lm.policy.engine import need


class TRLBackend:
    """Implements ``RLBackend``.

    Args:
        calls: rows kept for each rollout.
    """

    def __init__(self, calls: int) -> None:
        self._calls = calls

    def train(self, course: Course) -> None:
        """See ``RLBackend``.

        Raises:
            UsageError: the extra is missing, or there are fewer examples than an update needs.
        """
        need()
        settings = course.settings
        if len(course.example_ids) < settings.examples:
            raise UsageError(
                f"an update takes {settings.examples} examples, and the train set has {len(course.example_ids)}: Training(examples=)."
            )
        os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
        trl = import_module("trl")
        block = settings.group * self._calls + 1
        feed = _Feed(course, block)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer = trl.GRPOTrainer(
                model=course.engine.model,
                reward_funcs=[_advantage],
                args=trl.GRPOConfig(**_arguments(course, block)),
                train_dataset=import_module("datasets").Dataset.from_dict({"prompt": list(course.example_ids)}),
                processing_class=course.engine.tokenizer,
                rollout_func=feed.rollouts,
                callbacks=[_callback(course, feed)],
            )
            # it prints every figure of every update
            trainer.remove_callback(import_module("transformers").PrinterCallback)
            if settings.vllm is not None:
                course.engine.sampler = VLLMSampler(trainer.vllm_generation, settings.temperature, course.engine.sample)
            try:
                trainer.train(resume_from_checkpoint=newest_checkpoint(course.folder))
            finally:
                course.engine.sampler = None
                course.engine.unmark()
                course.engine.model.eval()
                if "ref" in course.engine.model.peft_config:
                    course.engine.model.delete_adapter("ref")


class _Feed:
    """What ``rollout_func`` calls."""

    def __init__(self, course: Course, block: int) -> None:
        self._course, self._block = course, block
        self.started = 0.0

    def rollouts(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        ids = list(dict.fromkeys(prompts))
        course, pad = self._course, self._course.engine.tokenizer.pad_token_id
        rows = course.rows(int(trainer.state.global_step), ids)
        # a judge may have asked the model itself
        _bring_back(course)
        batch = blocks(rows, len(prompts), self._block, pad)
        course.engine.model.train()
        self.started = clock()
        return {
            "prompt_ids": [list(row.prompt_ids) for row, _ in batch],
            "completion_ids": [list(row.completion_ids) for row, _ in batch],
            "logprobs": [list(row.logprobs) for row, _ in batch],
            "env_mask": [[int(row.trained)] * len(row.completion_ids) for row, _ in batch],
            "advantage": [reward for _, reward in batch],
        }


def _bring_back(course: Course) -> None:
    """The weights in training, for the trainer to change or to keep."""
    if course.engine.training is not None:
        course.engine.use(course.engine.training, None)


def blocks(rows: Sequence[Row], count: int, block: int, pad: int) -> list[tuple[Row, float]]:
    """Rows with rewards such that TRL's advantages are the rows' own: each block ends with padding whose reward makes it sum to zero.

    Args:
        rows: at most ``count`` less one for each block.
        count: rows in all.
        block: rows that TRL takes one mean of.
        pad: the token of padding.
    """
    filled = padded(rows, count - count // block, pad)
    (padding,) = padded([], 1, pad)
    made: list[tuple[Row, float]] = []
    for start in range(0, len(filled), block - 1):
        part = filled[start : start + block - 1]
        made += [(row, row.advantage) for row in part]
        made.append((padding, -math.fsum(row.advantage for row in part)))
    return made


def _advantage(advantage: list[float], **columns: Any) -> list[float]:
    """The reward function: what ``rollout_func`` says."""
    return advantage


def clock() -> float:
    """Seconds of processor time on a CPU, of wall time where a GPU computes."""
    return time.perf_counter() if import_module("torch").cuda.is_available() else time.process_time()


def _arguments(course: Course, block: int) -> Mapping[str, Any]:
    settings, cuda = course.settings, import_module("torch").cuda.is_available()
    count = settings.examples * block
    micro = max(size for size in range(1, settings.micro_batch + 1) if count % size == 0)
    return {
        "output_dir": str(course.folder),
        "max_steps": settings.steps,
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": count // micro,
        "steps_per_generation": count // micro,
        "num_generations": block,
        "num_iterations": 1,
        "learning_rate": settings.learning_rate,
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": settings.warmup,
        "weight_decay": 0.0,
        "beta": settings.kl,
        "epsilon": settings.clip,
        "max_grad_norm": settings.grad_norm,
        "temperature": settings.temperature,
        "max_completion_length": settings.max_tokens,
        "scale_rewards": "none",
        # each sampled token counts the same, and padding nothing
        "loss_type": "dapo",
        "gradient_checkpointing": settings.checkpointing,
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
        "bf16": cuda,
        "use_cpu": not cuda,
        "seed": course.seed,
        "save_strategy": "steps",
        "save_steps": settings.validate_every,
        "save_total_limit": 2,
        "logging_steps": 1,
        "report_to": [],
        "disable_tqdm": True,
        "remove_unused_columns": False,
        **({} if settings.vllm is None else {"use_vllm": True, "vllm_mode": settings.vllm}),
    }


def _callback(course: Course, feed: _Feed) -> Any:
    transformers = import_module("transformers")

    class Told(transformers.TrainerCallback):  # type: ignore[misc, name-defined]  # its base is known at run time alone
        """Tells of each update, once its figures are logged."""

        def __init__(self) -> None:
            self._seconds = 0.0

        def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            course.engine.mark()

        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            self._seconds = clock() - feed.started
            course.engine.mark()

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **rest: Any) -> None:
            if logs and "loss" in logs:
                update = Update(state.global_step - 1, float(logs["loss"]), float(logs.get("grad_norm", math.nan)), self._seconds)
                if not course.ended(update):
                    control.should_training_stop = True
                _bring_back(course)

        # the trainer prints its figures otherwise
        def on_train_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            course.engine.model.eval()

    return Told()


class VLLMSampler:
    """Samples by the trainer's vLLM, whose weights it keeps at those in training. It knows one temperature, the training's: other draws, as those of a validation, are left to the model.

    Args:
        generation: the trainer's ``vllm_generation``.
        temperature: of the training.
        otherwise: samples what vLLM does not.
    """

    def __init__(self, generation: Any, temperature: float, otherwise: Callable[[Sequence[Draw]], list[Sample]]) -> None:
        self._generation, self._temperature, self._otherwise = generation, temperature, otherwise

    def __call__(self, draws: Sequence[Draw]) -> list[Sample]:
        """One sample a draw, in order."""
        apart = [(draw.temperature, draw.top_p) != (self._temperature, 1.0) for draw in draws]
        by_vllm = iter(self._sampled([draw for draw, other in zip(draws, apart, strict=True) if not other]))
        rest = [draw for draw, other in zip(draws, apart, strict=True) if other]
        by_model = iter(self._otherwise(rest) if rest else [])
        return [next(by_model if other else by_vllm) for other in apart]

    def _sampled(self, draws: Sequence[Draw]) -> list[Sample]:
        if not draws:
            return []
        prompts = [list(draw.prompt_ids) for draw in draws]
        _, completions, logprobs, _ = self._generation.generate(prompts=prompts, images=None, num_generations=1)
        made = []
        for draw, ids, values in zip(draws, completions, logprobs, strict=True):
            # its bound is the training's, and a module's own may be lower
            kept = [math.nan if value[0] is None else float(value[0]) for value in values][: draw.max_tokens]
            made.append(Sample(draw.prompt_ids, tuple(ids[: draw.max_tokens]), tuple(kept)))
        return made
