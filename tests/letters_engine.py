"""An engine and a trainer without torch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gepa_lite.baselines.grpo.backend import Course, Update
from gepa_lite.baselines.grpo.rows import Row
from gepa_lite.lm.policy import Draw, Engine, Lora, Sample


class LettersEngine(Engine):
    """Tokens are letters, a reply is what a function makes of the draw, and each update that has a gradient is another adapter."""

    def __init__(self, reply: Callable[[Draw], str]) -> None:
        super().__init__("fake")
        self._reply, self.moves = reply, 0

    window = 1 << 20  # type: ignore[assignment]
    ends = (0,)  # type: ignore[assignment]

    def load(self) -> None:
        pass

    def shape(self, lora: Lora, seed: int) -> None:
        self.adapter = self.now()

    def now(self) -> str:
        return hashlib.sha256(str(self.moves).encode()).hexdigest()[:16]

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "policy.json").write_text("{}")

    def use(self, adapter: str, folder: Path | None) -> None:
        self.adapter = adapter

    def encode(self, messages: Any) -> tuple[int, ...]:
        return tuple(ord(letter) for message in messages for letter in message["content"])

    def decode(self, ids: Any) -> str:
        return "".join(map(chr, ids[:-1]))

    def ask(self, adapter: str, folder: Path | None, draw: Draw) -> Sample:
        ids = (*map(ord, self._reply(draw)), 0)
        return Sample(draw.prompt_ids, ids, (-0.5,) * len(ids))


class LettersBackend:
    """Counts an update as a move where a row has an advantage; keeps the rows of each update."""

    def __init__(self) -> None:
        self.rows: list[list[Row]] = []

    def train(self, course: Course) -> None:
        engine: Any = course.engine
        for step in range(course.settings.steps):
            first = step * course.settings.examples % len(course.example_ids)
            rows = course.rows(step, course.example_ids[first : first + course.settings.examples])
            self.rows.append(rows)
            engine.moves += any(row.advantage for row in rows)
            engine.adapter = engine.now()
            if not course.ended(Update(step, 0.25, 0.0, 0.0)):
                return
