"""Compare a free text with a reference by the words they share: token F1 for short answers, ROUGE for summaries."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback
from gepa_lite.errors import UsageError

from .match import FieldFeedback, accepted, normalized, shown

_SHOWN_WORDS = 12
_FUNCTION_WORDS = frozenset(
    [
        "a",
        "an",
        "the",
        "of",
        "to",
        "in",
        "on",
        "at",
        "by",
        "for",
        "with",
        "from",
        "and",
        "or",
        "but",
        "is",
        "are",
        "was",
        "were",
        "be",
        "been",
        "being",
        "it",
        "its",
        "this",
        "that",
        "these",
        "those",
        "he",
        "she",
        "they",
        "them",
        "his",
        "her",
        "their",
        "as",
        "has",
        "have",
        "had",
        "do",
        "does",
        "did",
        "not",
        "no",
        "so",
        "if",
        "then",
        "than",
        "there",
        "which",
        "who",
        "whom",
        "what",
        "when",
        "where",
        "how",
        "i",
        "you",
        "we",
        "me",
        "my",
        "your",
        "our",
    ]
)


def token_f1(field: str, label: str | None = None) -> FieldFeedback:
    """A feedback function: the F1 of the normalized words of the output field and of the label (SQuAD's), with the words that are missing and in excess.

    Args:
        field: the output field.
        label: the example's label; the field's own name where it is None. Of a list of accepted answers the best one counts.

    Example:
        >>> judge = token_f1("answer")
        >>> judge(Example("id", {}, {"answer": "Ada Lovelace"}), {"answer": "It was Ada"}).score
        0.4
    """
    name = label or field

    def feedback(example: Example, output: Any) -> Feedback:
        answer = str(output[field])
        gold = max(accepted(example[name]), key=lambda one: _f1(normalized(str(one)).split(), normalized(answer).split()))
        wanted, came = normalized(str(gold)).split(), normalized(answer).split()
        score = _f1(wanted, came)
        if score == 1.0:
            return Feedback(1.0, f"Right: the {field} is {gold!r}.")
        words = [f"Token F1 {score:.2f}: the {field} should be {gold!r}, but it was {shown(answer)}."]
        if lacking := list((Counter(wanted) - Counter(came)).elements()):
            words.append(f"It lacks {quoted(lacking)}.")
        if surplus := list((Counter(came) - Counter(wanted)).elements()):
            words.append(f"It has {quoted(surplus)} in excess{': give the answer alone' if len(came) > 2 * len(wanted) else ''}.")
        return Feedback(score, " ".join(words))

    return feedback


def rouge(field: str, label: str | None = None, *, kind: str = "rougeL") -> FieldFeedback:
    """A feedback function: the ROUGE F-measure of the output field against the label, by ``rouge-score`` with stemming.

    The diagnosis tells whether words are missing (recall), in excess (precision) or the length is off, and which content words.

    Args:
        field: the output field.
        label: the example's label; the field's own name where it is None. Of a list of references the best one counts.
        kind: ``"rouge1"``, ``"rouge2"`` or ``"rougeL"``.

    Raises:
        UsageError: another kind, or ``rouge-score`` is not installed (the extra ``text``).

    Example:
        >>> judge = rouge("summary")
        >>> judge(Example("id", {}, {"summary": "Ada ate cake."}), {"summary": "Ada ate cake."}).score
        1.0
    """
    scorer = _rouge_scorer(kind)
    name = label or field

    def feedback(example: Example, output: Any) -> Feedback:
        text = str(output[field])
        gold, best = max(
            ((str(one), scorer.score(str(one), text)[kind]) for one in accepted(example[name])), key=lambda pair: pair[1].fmeasure
        )
        score = float(best.fmeasure)
        words = [f"{kind} {score:.2f} (recall {best.recall:.2f}, precision {best.precision:.2f}). The reference is {shown(gold, 600)}."]
        wanted, came = words_of(gold), words_of(text)
        if lacking := content_words(wanted, came):
            words.append(f"Missing: {quoted(lacking)}.")
        if surplus := content_words(came, wanted):
            words.append(f"Not in the reference: {quoted(surplus)}.")
        if wanted and not 0.67 <= len(came) / len(wanted) <= 1.5:
            words.append(
                f"It has {len(came)} words where the reference has {len(wanted)}: write {'more' if len(came) < len(wanted) else 'less'}."
            )
        return Feedback(score, " ".join(words))

    return feedback


def words_of(text: str) -> list[str]:
    """Lower-case words and numbers, in order.

    >>> words_of("Ada's cake, 2 pieces")
    ["ada's", 'cake', '2', 'pieces']
    """
    return re.findall(r"[\w']+", text.lower())


def content_words(words: Iterable[str], other: Iterable[str]) -> list[str]:
    """The words that say something and are not among the others, each once, in order.

    >>> content_words(["the", "red", "cake"], ["cake"])
    ['red']
    """
    known = set(other) | _FUNCTION_WORDS
    return [word for word in dict.fromkeys(words) if word not in known and any(map(str.isalnum, word))]


def quoted(words: list[str], limit: int = _SHOWN_WORDS) -> str:
    """Words in quotation marks; how many more there are beyond the limit.

    >>> quoted(["a", "b", "c"], 2)
    "'a', 'b' and 1 more"
    """
    more = f" and {len(words) - limit} more" if len(words) > limit else ""
    return ", ".join(map(repr, words[:limit])) + more


def _f1(gold: list[str], answer: list[str]) -> float:
    if not gold or not answer:
        return float(gold == answer)
    common = sum((Counter(gold) & Counter(answer)).values())
    return 2 * common / (len(gold) + len(answer))


@cache
def _rouge_scorer(kind: str) -> Any:
    if kind not in ("rouge1", "rouge2", "rougeL"):
        raise UsageError(f"rouge(kind={kind!r}): 'rouge1', 'rouge2' or 'rougeL' is needed.")
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        raise UsageError("rouge needs the package rouge-score: pip install 'gepa-lite[text]'.") from None
    return RougeScorer([kind], use_stemmer=True)
