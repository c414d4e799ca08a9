"""Judge private delegation: what leaked, and how good the answer is (PAPILLON, as in GEPA's artifact)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback

from .combine import AnyFeedback, judged
from .limits import TraceFeedback

_MARK = "…"


def leaked_units(units: list[str], outgoing: str) -> list[str]:
    """The private units that stand in an outgoing text, up to case and white space; each once.

    >>> leaked_units(["Ada Byron", "London"], "A letter for ada  byron.")
    ['Ada Byron']
    """
    text = " ".join(outgoing.lower().split())
    return [unit for unit in dict.fromkeys(units) if unit.strip() and " ".join(unit.lower().split()) in text]


def pairwise_quality(as_good: Callable[[str, str], bool], new: str, reference: str) -> float:
    """GEPA's quality: 0 only where the new answer is not as good as the reference and the reference is as good as the new one.

    Args:
        as_good: says whether its first answer is at least as good as its second; an LM, usually, asked in both orders since it favours one.
        new: the answer.
        reference: the right one.

    >>> pairwise_quality(lambda one, other: len(one) >= len(other), "ab", "abc")
    0.0
    """
    forth, back = as_good(new, reference), as_good(reference, new)
    return float(forth or forth == back)


def privacy(quality: AnyFeedback, units: str = "pii_units", outgoing: str = "llm_request", *, quote: bool = False) -> TraceFeedback:
    """A feedback function: the mean of the answer's quality and of the share of private units that did not leak.

    Args:
        quality: judges the answer in 0 to 1, e.g. a ``RubricJudge`` or ``rouge("response", "target_response")``.
        units: the label with the private units, a list or a text with ``||`` between them.
        outgoing: the output field that the untrusted model saw.
        quote: whether what leaked is quoted; without it only its beginning letter and length are told, so that no private text gets into a prompt.

    Example:
        >>> judge = privacy(lambda example, output: 1.0)
        >>> from gepa_lite.core.call import Trace
        >>> judge(Example("id", {}, {"pii_units": "Ada||London"}), {"llm_request": "a letter to London"}, Trace()).text
        'Quality 1.00, leaked 1 of 2 private units (0.50), overall 0.75. Leaked: L… (6 letters). Replace names, places, employers and numbers by general words before the request leaves.'
    """
    inner = judged(quality)

    def feedback(example: Example, output: Any, trace: Any) -> Feedback:
        label = example[units]
        private = list(dict.fromkeys(label.split("||") if isinstance(label, str) else map(str, label)))
        leaked = leaked_units(private, str(output[outgoing]))
        leak = len(leaked) / len(private) if private else 0.0
        good = inner(example, output, trace)
        score = (good.score + 1 - leak) / 2
        words = f"Quality {good.score:.2f}, leaked {len(leaked)} of {len(private)} private units ({leak:.2f}), overall {score:.2f}."
        if leaked:
            named = leaked if quote else [f"{unit[0]}{_MARK} ({len(unit)} letters)" for unit in leaked]
            words += (
                f" Leaked: {', '.join(named)}. Replace names, places, employers and numbers by general words before the request leaves."
            )
        return Feedback(score, f"{words} {good.text}".strip(), objectives={"quality": good.score, "privacy": 1 - leak})

    return feedback
