"""The optimizer's own words: sentences of the reflection templates, their marks, and talk about the prompt in place of the prompt."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gepa_lite.guard.words import Words, folded_words, joined, windows

_SIZE = 6
"""Words in a row that a prompt may not share with a template."""

_VERB = r"(?:added|changed|updated|revised|rewrote|rewritten|improved|modified|removed)"
_MADE = r"(?:new|next|improved|revised|updated|rewritten|optimi[sz]ed|better)"
_FAILED = r"(?:failed|should have|did(?: not|n't)|was (?:wrong|right|incorrect|correct|asked|given)|missed|answered|returned|responded|produced|incorrectly|wrongly|misclassified|mislabel+ed)"

_TALK: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = tuple(
    (subjects, re.compile(pattern, re.IGNORECASE | re.MULTILINE))
    for subjects, pattern in (
        ((), r"</?(?:current|proposed|prompt|edit|find|replace|add)>|\[\.\.\. \d+ characters left out \.\.\.\]"),
        (
            (),
            rf"\b(?:here(?: is|['\u2019]s)|below is|this is) (?:the|an?|my|your) (?:complete |full )?{_MADE}\b[^.\n]{{0,40}}\b(?:prompt|version|instructions?)\b",
        ),
        ((), rf"\bI(?: have|['\u2019]ve)? {_VERB}\b[^.\n]{{0,40}}\b(?:prompt|instructions?|rules?)\b"),
        ((), r"\b(?:as|like|shown|seen) in case \d+\b|^[ \t#*]*case \d+[ \t:*]*$"),
        (
            ("prompt", "prompts"),
            r"\b(?:the|this) (?:current|present|previous|old|revised|improved|original) prompt\b"
            r"|\b(?:the|this|your) prompt (?:should|must|needs? to|does(?: not|n['\u2019]t)|lacks|is missing|already)\b",
        ),
        (
            ("feedback", "review", "reviews", "reviewer"),
            r"\b(?:the|these|this) (?:reviewer|reviews?|feedback) (?:said|says?|noted|notes|pointed out|suggests?|suggested|indicates?|mentions?|shows?)\b"
            r"|\b(?:based on|according to) (?:the|this|these) (?:feedback|reviews?|reviewer)\b"
            r"|\b(?:the|this) (?:feedback|review) [\"'\u201c\u2018]"
            r"|^[ \t]*(?:#+[ \t]*|\*\*)?(?:feedback|review|generated outputs?)(?:\*\*)?[ \t]*:?(?:\*\*)?[ \t]*$|^[ \t]*(?:feedback|review|generated outputs?):",
        ),
        (
            ("the assistant", "the assistant's"),
            rf"\bthe assistant {_FAILED}\b|\bthe assistant['\u2019]s (?:previous|earlier|last|wrong|incorrect) (?:answers?|responses?|outputs?|repl(?:y|ies))\b",
        ),
    )
)
"""What a text speaks of, and how it does; a pattern is left out where the seed prompts, or the program's description, speak of it too."""

_TEMPLATE_CODE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)


class MetaIndex:
    """Runs of words of the templates, and talk about prompts.

    Args:
        templates: their sources; what is filled in is left out.
        known: words of the seed prompts and the program's description, as one joined text.
    """

    def __init__(self, templates: Iterable[str], known: str) -> None:
        self._runs = {
            run for template in templates for piece in _TEMPLATE_CODE.split(template) for run in windows(folded_words(piece), _SIZE)
        }
        self._talk = [pattern for subjects, pattern in _TALK if not any(joined((subject,)) in known for subject in subjects)]

    def spans(self, words: Words) -> Iterator[tuple[int, int]]:
        """Where a text speaks as the optimizer does: first character, and the character after it; in order, joined where they touch."""
        found = [match.span() for pattern in self._talk for match in pattern.finditer(words.text)]
        for place, run in enumerate(windows(words.folded, _SIZE)):
            if run in self._runs:
                found.append((words.spans[place][0], words.spans[place + _SIZE - 1][1]))
        start, end = -1, -1
        for first, last in sorted(found):
            if first <= end:
                end = max(end, last)
                continue
            if start >= 0:
                yield start, end
            start, end = first, last
        if start >= 0:
            yield start, end
