"""The updates themselves: TRL's trainers of replies and of pairs, on an adapter that ``policy/`` opens. All torch is in here."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

from gepa_lite.lm.policy import Engine, logprobs_of
from gepa_lite.lm.policy.checkpoints import newest_checkpoint
from gepa_lite.mutator.selection import Exchange, Messages, Pair
from gepa_lite.mutator.settings import Tuning

Progress = Callable[[str, int, int, float], None]
"""Told of each update: ``"replies"`` or ``"pairs"``, its number from 1, of how many, and its loss."""
PAIRS_RATE = 0.1
"""Pairs are trained on at this share of the learning rate of replies: DPO's published rates lie far below those of fine-tuning."""


def reply_ids(engine: Engine, reply: str) -> list[int]:
    """A reply as tokens, with the end token that makes the model stop."""
    return [*engine.tokenizer(reply, add_special_tokens=False)["input_ids"], engine.tokenizer.eos_token_id]


def length(engine: Engine, messages: Messages, reply: str) -> int:
    """Tokens of a question and a reply together."""
    return len(engine.encode(messages)) + len(reply_ids(engine, reply))


def loss_of(engine: Engine, rows: Sequence[Exchange]) -> float | None:
    """Mean negative log-probability of a token of the replies, in nats; None where there is no row."""
    total, tokens = 0.0, 0
    for row in rows:
        found = logprobs_of(engine.model, engine.encode(row.messages), reply_ids(engine, row.reply))
        total, tokens = total - math.fsum(found), tokens + len(found)
    return total / tokens if tokens else None


def train_replies(engine: Engine, rows: Sequence[Exchange], tuning: Tuning, folder: Path, told: Progress) -> None:
    """Supervised fine-tuning of the adapter on the engine: the loss is of the replies alone. Goes on from the newest checkpoint in the folder."""
    asked = [(list(engine.encode(row.messages)), reply_ids(engine, row.reply)) for row in rows]
    data = {
        "input_ids": [prompt + reply for prompt, reply in asked],
        "labels": [[-100] * len(prompt) + reply for prompt, reply in asked],
    }
    trl, options = import_module("trl"), _arguments(tuning, folder, len(rows))
    with _quiet():
        config = trl.SFTConfig(**options, packing=False, dataset_kwargs={"skip_prepare_dataset": True})
    _run(trl.SFTTrainer, engine, config, data, ("replies", told))


def train_pairs(engine: Engine, pairs: Sequence[Pair], tuning: Tuning, folder: Path, told: Progress) -> None:
    """DPO of the adapter on the engine, against what it is now. Goes on from the newest checkpoint in the folder."""
    data = {
        "prompt": [[dict(message) for message in pair.messages] for pair in pairs],
        "chosen": [[{"role": "assistant", "content": pair.chosen}] for pair in pairs],
        "rejected": [[{"role": "assistant", "content": pair.rejected}] for pair in pairs],
    }
    trl, options = import_module("trl"), _arguments(tuning, folder, len(pairs))
    with _quiet():
        config = trl.DPOConfig(**{**options, "learning_rate": tuning.learning_rate * PAIRS_RATE}, beta=tuning.beta)
    try:
        _run(trl.DPOTrainer, engine, config, data, ("pairs", told))
    finally:
        if "ref" in engine.model.peft_config:
            engine.model.delete_adapter("ref")


def _run(kind: Any, engine: Engine, config: Any, data: Mapping[str, Any], told: tuple[str, Progress]) -> None:
    with _quiet():
        trainer = kind(
            model=engine.model,
            args=config,
            train_dataset=import_module("datasets").Dataset.from_dict(dict(data)),
            processing_class=engine.tokenizer,
            callbacks=[_callback(*told)],
        )
        # it prints every figure of every update
        trainer.remove_callback(import_module("transformers").PrinterCallback)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            trainer.train(resume_from_checkpoint=newest_checkpoint(Path(config.output_dir)))
        finally:
            engine.model.eval()
            engine.adapter = engine.now()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the progress bars and warnings of setting up."""
    with warnings.catch_warnings(), redirect_stderr(StringIO()):
        warnings.simplefilter("ignore")
        yield


def _arguments(tuning: Tuning, folder: Path, rows: int) -> dict[str, Any]:
    cuda = import_module("torch").cuda.is_available()
    updates = tuning.epochs * math.ceil(rows / tuning.batch)
    return {
        "output_dir": str(folder),
        "num_train_epochs": tuning.epochs,
        # one row at a time: lengths differ much, and memory is short where there is no GPU
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": tuning.batch,
        "learning_rate": tuning.learning_rate,
        "lr_scheduler_type": "cosine",
        "warmup_steps": math.ceil(updates / 10),
        "weight_decay": 0.0,
        "max_length": tuning.max_length,
        "gradient_checkpointing": False,
        "bf16": cuda,
        "use_cpu": not cuda,
        "seed": tuning.seed,
        "save_strategy": "steps",
        "save_steps": max(1, updates // 10),
        "save_total_limit": 2,
        "logging_steps": 1,
        "report_to": [],
        "disable_tqdm": True,
    }


def _callback(stage: str, told: Progress) -> Any:
    transformers = import_module("transformers")

    class Told(transformers.TrainerCallback):  # type: ignore[misc, name-defined]  # its base is known at run time alone
        """Tells of each update, once its figures are logged."""

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **rest: Any) -> None:
            if logs and "loss" in logs:
                told(stage, int(state.global_step), int(state.max_steps), float(logs["loss"]))

    return Told()
