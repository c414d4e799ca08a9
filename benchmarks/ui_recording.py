"""A run as large as one wishes, written without running anything: part of ``python -m benchmarks ui``."""

from __future__ import annotations

import random
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from gepa_lite.core.budget import Budget, Spend
from gepa_lite.core.call import Call, Trace, Usage
from gepa_lite.core.candidate import Candidate
from gepa_lite.core.events import Event, ProposalStatus, Proposed, RunStarted, SeedValidated, StepEnded, Stopped, Validated
from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback
from gepa_lite.core.rollout import Rollout, RolloutKey
from gepa_lite.search.search import Search
from gepa_lite.store.codec import ROLLOUT
from gepa_lite.store.run_store import RunStore

MINIBATCH = 3
PROPOSALS_EACH = 3
"""Proposals for each one that is accepted."""
_WORDS = [
    "answer",
    "short",
    "exact",
    "name",
    "state",
    "urgent",
    "tone",
    "list",
    "check",
    "input",
    "reason",
    "cite",
    "refuse",
    "plain",
    "number",
    "date",
    "rule",
    "label",
]


@dataclass(frozen=True)
class Size:
    """How large the run is."""

    candidates: int = 10_000
    rollouts: int = 1_000_000
    train: int = 200

    @property
    def validation(self) -> int:
        """Validation examples, so that about ``rollouts`` come out."""
        return max(5, self.rollouts // self.candidates - MINIBATCH * PROPOSALS_EACH - 1)


def write_large_run(folder: Path, size: Size, seed: int) -> None:
    """Write a run of a two-module program: events through the store, rollouts in bulk beside it."""
    draw = random.Random(seed)
    train = [Example(f"t{number:04}", {"message": f"message {number}"}, {"urgency": "high"}) for number in range(size.train)]
    validation = [Example(f"v{number:04}", {"message": f"question {number}"}, {"urgency": "low"}) for number in range(size.validation)]
    texts = {"gist": "Say in one sentence what the sender wants.", "route": "Decide how urgent it is."}
    with RunStore.create(folder) as store:
        store.save_examples("train", train)
        store.save_examples("validation", validation)
        store.begin_session({"workers": 16, "engine": "threads"})
        settings = {
            "search": Search().fingerprint(),
            "task_models": {"gist": "small", "route": "small"},
            "reflection_models": {"large": ["large", 1.0]},
        }
        budget = Budget(rollouts=2 * size.rollouts)
        ids = tuple(example.id for example in validation)
        store.commit([RunStarted(settings, texts, tuple(example.id for example in train), ids, (), budget)])
        course = _Course(draw, ids, tuple(example.id for example in train), [Candidate(texts)], [0.3], [])
        store.commit([course.seed()])
        batch: list[Event] = []
        for step in range((size.candidates - 1) * PROPOSALS_EACH):
            batch += course.step(step)
            if len(batch) > 5_000:
                store.commit(batch)
                batch = []
        store.commit([*batch, Stopped("budget", "the generator ended")])
        store.end_session(36_000.0, "budget")
        path = store.path
    _write_rollouts(path, course.rollouts)


@dataclass
class _Course:
    draw: random.Random
    validation: tuple[str, ...]
    train: tuple[str, ...]
    pool: list[Candidate]
    skill: list[float]
    rollouts: list[tuple[str, str, float]]

    def values(self, candidate: str, ids: tuple[str, ...], skill: float) -> tuple[float, ...]:
        values = tuple(float(self.draw.random() < skill) for _ in ids)
        self.rollouts += [(candidate, example, value) for example, value in zip(ids, values, strict=True)]
        return values

    def seed(self) -> SeedValidated:
        return SeedValidated(self.values(self.pool[0].id, self.validation, self.skill[0]), (), _spend(len(self.validation)))

    def step(self, step: int) -> list[Event]:
        draw = self.draw
        parent = max(draw.randrange(len(self.pool)) for _ in range(3))
        module = ("gist", "route")[step % 2]
        words = " ".join(draw.choices(_WORDS, k=12))
        old = self.pool[parent].texts[module]
        text = f"{old[-1_200:]} Rule {step}: {words}."
        accepted = step % PROPOSALS_EACH == PROPOSALS_EACH - 1
        child = self.pool[parent].replace({module: text})
        batch = tuple(draw.sample(self.train, MINIBATCH))
        before, after = (0.0, 1.0, 0.0), (1.0, 1.0, 0.0) if accepted else (0.0, 0.0, 0.0)
        self.rollouts += [(child.id, example, value) for example, value in zip(batch, after, strict=True)]
        status: ProposalStatus = "accepted" if accepted else "rejected"
        code = "improved" if accepted else "not_better"
        spend = Spend(2 * MINIBATCH, 1, Usage(12, 3_000, 200, 0.001), Usage(1, 2_000, 400, 0.004))
        events: list[Event] = [
            Proposed(step, 0, parent, (module,), batch, before, status, code, "on 3 examples", {module: text}, after, "large", spend=spend)
        ]
        if accepted:
            skill = min(0.95, max(0.05, self.skill[parent] + draw.gauss(0.002, 0.02)))
            self.pool.append(child)
            self.skill.append(skill)
            values = self.values(child.id, self.validation, skill)
            events.append(Validated(step, (parent,), {module: text}, values, _spend(len(values))))
        return [*events, StepEnded(step)]


def _spend(rollouts: int) -> Spend:
    return Spend(rollouts, 0, Usage(2 * rollouts, 500 * rollouts, 30 * rollouts, 0.0002 * rollouts))


def _write_rollouts(path: Path, rollouts: list[tuple[str, str, float]]) -> None:
    """In one transaction: a run of this size would take the writer hours of waiting for the disk."""
    message = ({"role": "system", "content": "Decide how urgent it is."}, {"role": "user", "content": "message: hello"})
    call = Call(
        "route", {"message": "hello", "gist": "a greeting"}, message, "urgency: low", {"urgency": "low"}, usage=Usage(1, 250, 15, 0.0)
    )
    connection = sqlite3.connect(path)
    sql = "INSERT OR IGNORE INTO rollouts (candidate_id, example_id, sample, version, body, at) VALUES (?, ?, 0, ?, ?, ?)"

    def rows() -> list[tuple[str, str, int, str, str]]:
        found = []
        bodies: dict[float, str] = {}
        for number, (candidate, example, value) in enumerate(rollouts):
            if value not in bodies:
                feedback = Feedback(value, "right" if value else "The urgency is high: the sender waits.")
                key = RolloutKey("{candidate}", "{example}")
                bodies[value] = ROLLOUT.encode(
                    Rollout(key, value, feedback, {"urgency": "low"}, Trace((call,)), usage=call.usage, seconds=0.4)
                )
            body = bodies[value].replace("{candidate}", candidate, 1).replace("{example}", example, 1)
            second = number // 28
            at = f"2026-01-{1 + second // 86_400:02}T{second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}+00:00"
            found.append((candidate, example, ROLLOUT.version, body, at))
        return found

    with connection:
        connection.executemany(sql, rows())
    connection.close()
