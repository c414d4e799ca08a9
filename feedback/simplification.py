"""SARI, the measure of text simplification: what was rightly kept, added and deleted, against several references."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback
from gepa_lite.errors import UsageError

from .match import FieldFeedback
from .overlap import content_words, quoted

_Grams = Counter[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Sari:
    """SARI and its three parts, each in 0 to 1.

    Attributes:
        keep: F1 of the n-grams that were kept of the source.
        add: F1 of those that were added to it.
        delete: precision of those that were deleted from it.
    """

    keep: float
    add: float
    delete: float

    @property
    def score(self) -> float:
        """Their mean."""
        return (self.keep + self.add + self.delete) / 3


def sari_of(source: str, answer: str, references: Sequence[str]) -> Sari:
    """SARI of one sentence over 1- to 4-grams, after the definition of Xu et al. 2016 (TACL 4, section 4), words by sacreBLEU's ``13a`` in lower case.

    Args:
        source: the sentence to simplify.
        answer: its simplification.
        references: at least one right simplification.

    Raises:
        UsageError: no reference, or ``sacrebleu`` is not installed (the extra ``text``).

    Example:
        >>> references = ["About 95 species are currently known.", "About 95 species are now accepted.", "95 species are now accepted."]
        >>> round(sari_of("About 95 species are currently accepted.", "About 95 you now get in.", references).score, 4)
        0.2695
    """
    if not references:
        raise UsageError("SARI needs at least one reference.")
    parts = [_of_order(_grams(source, order), _grams(answer, order), [_grams(text, order) for text in references]) for order in range(1, 5)]
    return Sari(*(sum(part[index] for part in parts) / 4 for index in range(3)))


def sari(field: str, source: str = "source", references: str = "references") -> FieldFeedback:
    """A feedback function: SARI of the output field, with the words that should have been replaced, added or kept.

    Args:
        field: the output field.
        source: the input with the sentence to simplify.
        references: the label with the list of right simplifications.

    Example:
        >>> judge = sari("simple")
        >>> example = Example("id", {"source": "He resides here."}, {"references": ["He lives here."]})
        >>> judge(example, {"simple": "He lives here."}).score
        1.0
    """

    def feedback(example: Example, output: Any) -> Feedback:
        start, answer, golds = str(example[source]), str(output[field]), [str(one) for one in example[references]]
        parts = sari_of(start, answer, golds)
        return Feedback(
            parts.score, _diagnosis(start, answer, golds, parts), objectives={"keep": parts.keep, "add": parts.add, "delete": parts.delete}
        )

    return feedback


def _diagnosis(source: str, answer: str, golds: list[str], parts: Sari) -> str:
    before, after, in_golds = _words(source), _words(answer), [_words(gold) for gold in golds]
    share = Counter(word for gold in in_golds for word in set(gold))
    mostly = {word for word, count in share.items() if count * 2 >= len(golds)}
    words = [f"SARI {parts.score:.2f} (kept {parts.keep:.2f}, added {parts.add:.2f}, deleted {parts.delete:.2f})."]
    if answer.strip() == source.strip():
        words.append("The sentence came back unchanged.")
    dropped_by_all = [word for word in content_words(before, share) if word in after]
    if dropped_by_all:
        words.append(f"Every reference replaces or drops {quoted(dropped_by_all)}, which stayed.")
    if lost := [word for word in content_words(before, after) if word in mostly]:
        words.append(f"Lost, though the references keep it: {quoted(lost)}.")
    if missed := [word for word, _ in share.most_common() if word not in before and word not in after and word in content_words(share, ())]:
        words.append(f"The references use the simpler words {quoted(missed, 8)}.")
    if strange := [word for word in content_words(after, before) if word not in share]:
        words.append(f"In no reference and not in the source: {quoted(strange, 8)}.")
    length = sum(map(len, in_golds)) / len(in_golds)
    if after and not 0.67 <= len(after) / length <= 1.5:
        words.append(f"It has {len(after)} words; the references have {length:.0f} on average.")
    words.append(f"One reference: {golds[0]!r}")
    return " ".join(words)


def _of_order(source: _Grams, answer: _Grams, references: list[_Grams]) -> tuple[float, float, float]:
    """Keep F1, add F1 and delete precision for one n-gram order; a gram counts as often as it occurs, source and answer weighed by the number of references."""
    count = len(references)
    in_references: _Grams = sum(references, Counter())
    source_all, answer_all = (Counter({gram: times * count for gram, times in grams.items()}) for grams in (source, answer))

    kept, to_keep = source_all & answer_all, source_all & in_references
    kept_well = kept & in_references
    keep = _f1(_share(kept_well, kept), _share(kept_well, to_keep))

    deleted, to_delete = source_all - answer_all, source_all - in_references
    delete = _share(deleted & to_delete, deleted)

    added, to_add = set(answer) - set(source), set(in_references) - set(source)
    added_well = added & set(in_references)
    add = _f1(len(added_well) / len(added) if added else 1.0, len(added_well) / len(to_add) if to_add else 1.0)
    return keep, add, delete


def _share(part: _Grams, whole: _Grams) -> float:
    """How much of ``whole`` is in ``part``, occurrences summed as in the paper's formulas; 1 where there is nothing to get wrong."""
    return part.total() / whole.total() if whole else 1.0


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _grams(text: str, order: int) -> _Grams:
    words = _words(text)
    return Counter(tuple(words[start : start + order]) for start in range(len(words) - order + 1))


def _words(text: str) -> list[str]:
    return str(_tokenizer()(text.lower())).split()


@cache
def _tokenizer() -> Any:
    try:
        from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
    except ImportError:
        raise UsageError("SARI needs the package sacrebleu: pip install 'gepa-lite[text]'.") from None
    return Tokenizer13a()  # type: ignore[no-untyped-call]
