"""A program of two modules that a small model can learn: it reads a mark off a text, then names the label that belongs to the mark."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import gepa_lite as gl
from benchmarks.rl_model import make_tiny

ANSWERS = ("low", "high", "none")
"""What the letter model says of anything, each as often; ``none`` is not in the form."""
_PARAMS: dict[str, Any] = {"max_tokens": 8, "temperature": 1.0, "retries": 0}


class Marks(gl.Program):
    """Name the label of a text by the mark at its end."""

    mark = gl.Module(
        "text -> mark: Literal['low', 'high']", "A text that ends with two dots is low, one that ends with two bangs is high.", **_PARAMS
    )
    label = gl.Module("mark -> label: Literal['low', 'high']", "Name the label of the mark: the same word.", **_PARAMS)

    def forward(self, text: str) -> gl.Outputs:
        mark = self.mark(text=text).mark
        return gl.Outputs(mark=mark, label=self.label(mark=mark).label)


class Words(gl.Program):
    """The same for a small language model: prompts by which it gives a readable answer now and then, since training has nothing to go on where it never does."""

    mark = gl.Module(
        "text -> mark: Literal['low', 'high']",
        "Reply with one word: low or high. Texts that end with !! are high.",
        **{**_PARAMS, "max_tokens": 6},
    )
    label = gl.Module(
        "mark -> label: Literal['low', 'high']", "Reply with one word, low or high: repeat the mark.", **{**_PARAMS, "max_tokens": 6}
    )

    def forward(self, text: str) -> gl.Outputs:
        mark = self.mark(text=text).mark
        return gl.Outputs(mark=mark, label=self.label(mark=mark).label)


def feedback(example: Any, output: Any) -> gl.Feedback:
    """Half for the mark, half for the label; an answer out of form fails the rollout and has none."""
    right = example["label"]
    return gl.Feedback(0.5 * (output.mark == right) + 0.5 * (output.label == right), f"The mark and the label are {right}.")


def rows(count: int, seed: int) -> list[dict[str, str]]:
    """Texts of random letters, each with its mark."""
    draw = random.Random(seed)
    return [
        {"text": "".join(draw.choices("abcdefghijkl", k=12)) + (" !!" if place % 2 else " .."), "label": "high" if place % 2 else "low"}
        for place in range(count)
    ]


def letter_model(folder: Path) -> str:
    """The letter model, made once in a folder; its name."""
    if not (folder / "config.json").exists():
        make_tiny(folder, list(ANSWERS))
    return f"policy/{folder.absolute()}"
