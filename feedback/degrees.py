"""The same feedback in three degrees, to measure what its words are worth."""

from __future__ import annotations

import re
from typing import Any, Literal

from gepa_lite.core.call import Trace
from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback
from gepa_lite.core.ids import content_hash
from gepa_lite.core.seeds import stream
from gepa_lite.errors import UsageError

from .combine import AnyFeedback, judged
from .limits import TraceFeedback

Degree = Literal["score", "noisy", "full"]


def degrade(feedback: AnyFeedback, degree: Degree, *, share: float = 0.5, seed: int = 0) -> TraceFeedback:
    """A feedback function with the same scores and fewer words.

    * ``"full"``: as it is.
    * ``"noisy"``: each word is lost with probability ``share``, so that names and reasons come through in part. What is lost depends on the seed,
      the example and the text alone: the same answer gets the same words in every run.
    * ``"score"``: the score as a number, and nothing else.

    Args:
        feedback: any feedback function.
        degree: one of the three.
        share: of ``"noisy"``, the share of words that is lost, in 0 to 1.
        seed: of ``"noisy"``.

    Raises:
        UsageError: an unknown degree, or a share outside 0 to 1.

    Example:
        >>> judge = degrade(lambda example, output: (0.0, "It should be ivy, since money is meant."), "score")
        >>> judge(Example("id", {}, {}), {}, Trace()).text
        'Score: 0.00'
    """
    if degree not in ("score", "noisy", "full"):
        raise UsageError(f"degrade(degree={degree!r}): 'score', 'noisy' or 'full' is needed.")
    if not 0.0 <= share <= 1.0:
        raise UsageError(f"degrade(share={share!r}): 0 to 1 is needed.")
    inner = judged(feedback)

    def degraded(example: Example, output: Any, trace: Trace) -> Feedback:
        found = inner(example, output, trace)
        if degree == "full":
            return found
        if degree == "score":
            return Feedback(found.score, f"Score: {found.score:.2f}", objectives=found.objectives)

        def lose(text: str) -> str:
            draw = stream(seed, "noisy feedback", example.id, content_hash(text))
            return "".join("…" if word.strip() and draw.random() < share else word for word in re.findall(r"\s+|\S+", text))

        modules = {module: lose(text) for module, text in found.modules.items()}
        return Feedback(found.score, lose(found.text), modules, found.objectives, found.scores)

    return degraded
