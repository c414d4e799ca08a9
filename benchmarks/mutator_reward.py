"""The reward study: a reflection model trained by what its replies are worth, the child's gain on the minibatch (GRPO)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gepa_lite as gl
from benchmarks.mutator_task import score
from gepa_lite.baselines.grpo.backend import Course, Update
from gepa_lite.baselines.grpo.rows import Episode, Row, SampledCall
from gepa_lite.baselines.grpo.settings import Training
from gepa_lite.baselines.grpo.trl_backend import TRLBackend
from gepa_lite.lm.policy import Draw, Engine, Lora, engine_of
from gepa_lite.lm.policy.engine import is_adapter, read_card
from gepa_lite.search.reply import UnusableReply, extract_prompt
from gepa_lite.store.run_store import RunStore

UNUSABLE = -1.0
"""Reward of a reply without a prompt: the lowest gain that there can be."""


def train_by_reward(adapter: str, runs: Sequence[Path], steps: int, folder: Path) -> tuple[Path, list[float]]:
    """GRPO from a trained adapter: replies to recorded questions of the runs, each rewarded by its child's mean score on the question's minibatch less the parent's.

    Args:
        adapter: folder of the adapter to start from.
        runs: whose questions are asked; their tasks are the simulated ones, so that a child costs nothing to score.
        steps: updates, of 2 questions with 4 replies each.
        folder: for the new adapter; a training that has ended there is only read.

    Returns:
        Where the adapter is, and the mean reward of each update.
    """
    record = folder / "rewards.json"
    if is_adapter(folder) and record.exists():
        return folder, json.loads(record.read_text())
    card = read_card(Path(adapter))
    engine = engine_of(card["base"])
    engine.use(card["adapter"], Path(adapter))
    lora = Lora(**{**card["lora"], "targets": tuple(card["lora"]["targets"])})
    settings = Training(
        steps=steps, examples=2, group=4, calls=1, max_tokens=200, learning_rate=5e-5, micro_batch=1, validate_every=steps, lora=lora
    )
    asked = questions(runs)
    means: list[float] = []
    numbers = itertools.count()

    def rows(step: int, ids: Sequence[str]) -> list[Row]:
        episodes = [_episode(engine, key, asked[key], settings, next(numbers)) for key in ids for _ in range(settings.group)]
        means.append(sum(episode.reward or 0.0 for episode in episodes) / len(episodes))
        print(f"reward {step + 1}/{steps}: {means[-1]:.3f}", flush=True)
        return settings.builder.rows(episodes)

    def ended(update: Update) -> bool:
        return True

    TRLBackend(1).train(Course(engine, settings, list(asked), 0, folder / "updates", rows, ended))
    engine.adapter = engine.now()
    engine.save(folder)
    record.write_text(json.dumps(means) + "\n")
    return folder, means


def questions(runs: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """What was asked in the runs, with the minibatch that it was about and the parent's text."""
    found = {}
    for run in runs:
        with RunStore.read(run) as store:
            examples = {example.id: example for example in store.examples("train")}
        for record in gl.transitions(run):
            if record.messages and record.minibatch_ids:
                found[record.uid] = {
                    "messages": record.messages,
                    "parent": record.parent_text,
                    "examples": [examples[key] for key in record.minibatch_ids],
                }
    return found


def gain(question: Mapping[str, Any], reply: str, finish_reason: str) -> float:
    """What a reply is worth: its prompt's score on the minibatch less the parent's."""
    try:
        text = extract_prompt(reply, finish_reason)
    except UnusableReply:
        return UNUSABLE
    return score(text, question["examples"]) - score(question["parent"], question["examples"])


def _episode(engine: Engine, key: str, question: Mapping[str, Any], settings: Training, number: int) -> Episode:
    draw = Draw(engine.encode(question["messages"]), settings.max_tokens, settings.temperature, 1.0, number)
    found = engine.ask(engine.adapter, None, draw)
    ended = found.completion_ids[-1] in engine.ends
    reward = gain(question, engine.decode(found.completion_ids), "stop" if ended else "length")
    return Episode(key, (SampledCall("reflector", found.prompt_ids, found.completion_ids, found.logprobs),), reward)
