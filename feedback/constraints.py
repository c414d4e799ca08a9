"""Judge how far a reply keeps to verifiable instructions: the 25 kinds of IFEval (arXiv 2311.07911) and the 58 of IFBench, each broken one in words.

The checks are our own. Those of IFEval need no word lists: sentences are split at ``.``, ``!`` and ``?``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback
from gepa_lite.errors import UsageError

from .ifbench import IFBENCH, Check
from .match import FieldFeedback

IFBENCH_STAGES: Mapping[str, str] = {"generate_response": "draft", "ensure_correct_response": "response"}
"""Of each module of IFBench's program, the output field with its own reply."""


def loose_variants(text: str) -> list[str]:
    r"""The eight forms of a reply of which one must pass: without its first line, its last, both; each also without asterisks.

    >>> loose_variants("Sure:\n*yes*\nBye")[3]
    '*yes*'
    """
    lines = text.split("\n")
    cuts = [text, "\n".join(lines[1:]).strip(), "\n".join(lines[:-1]).strip(), "\n".join(lines[1:-1]).strip()]
    return [*cuts, *(cut.replace("*", "") for cut in cuts)]


def constraints(
    field: str = "response",
    ids: str = "instruction_id_list",
    kwargs: str = "kwargs",
    *,
    loose: bool = True,
    modules: Mapping[str, str] | None = None,
) -> FieldFeedback:
    """A feedback function: the share of an example's constraints that the reply keeps, with those kept and those broken in words.

    Args:
        field: the output field with the reply.
        ids: the label with the list of constraints, by IFEval's and IFBench's ids.
        kwargs: the label with a dict of arguments for each; arguments that are None are left out.
        loose: accept any of ``loose_variants``.
        modules: for each module the output field with its own reply: it is told of the constraints that this one keeps and breaks, as in GEPA's artifact, while the score is
            ``field``'s. ``IFBENCH_STAGES`` is the table of ``IFBenchTwoStage``.

    Raises:
        UsageError: from the function, where a constraint is not known.

    Example:
        >>> row = Example("id", {}, {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]})
        >>> constraints()(row, {"response": "Yes, of course"}).text
        'Broken: use no comma.'
    """

    def feedback(example: Example, output: Any) -> Feedback:
        asked = [(name, _plain(given)) for name, given in zip(example[ids], example[kwargs], strict=True)]
        score, text = _judge(str(output[field]), asked, loose)
        told = {module: _judge(str(output[own]), asked, loose)[1] for module, own in (modules or {}).items()}
        return Feedback(score, text, told)

    return feedback


def _judge(reply: str, asked: Sequence[tuple[str, Mapping[str, Any]]], loose: bool) -> tuple[float, str]:
    forms = [form for form in (loose_variants(reply) if loose else [reply]) if form.strip()]
    kept: list[str] = []
    broken: list[str] = []
    for name, given in asked:
        if name not in CHECKS:
            raise UsageError(f"constraints: {name!r} is not known; known are {', '.join(CHECKS)}.")
        words, check = CHECKS[name]
        told = words.format(**{key: ", ".join(value) if isinstance(value, list) else value for key, value in given.items()})
        (kept if any(check(form, given) for form in forms) else broken).append(told)
    text = " ".join(f"{head}: {'; '.join(some)}." for head, some in (("Broken", broken), ("Kept", kept)) if some)
    return len(kept) / max(1, len(kept) + len(broken)), text


def _plain(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Arguments without those that are None; whole numbers, which some files write as 5.0, as such."""
    kept = {key: value for key, value in (given or {}).items() if value is not None}
    return {key: int(value) if isinstance(value, float) and value.is_integer() else value for key, value in kept.items()}


def _relation(count: int, relation: str, bound: int) -> bool:
    return count < bound if relation == "less than" else count >= bound


def _has(text: str, word: str) -> bool:
    return re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) is not None


def _is_json(text: str) -> bool:
    try:
        json.loads(re.sub(r"^```(?:json)?|```$", "", text.strip(), flags=re.IGNORECASE).strip())
    except ValueError:
        return False
    return True


def _paragraphs(text: str, mark: str) -> list[str]:
    return [part for part in re.split(mark, text) if part.strip()]


def _nth_paragraph(text: str, given: Mapping[str, Any]) -> bool:
    found = _paragraphs(text, r"\n\n")
    place = given["nth_paragraph"]
    if len(found) != given["num_paragraphs"] or place > len(found):
        return False
    return bool(found[place - 1].split()[0].strip("'\".,?!").lower() == given["first_word"].lower())


def _two_responses(text: str, given: Mapping[str, Any]) -> bool:
    parts = _paragraphs(text, r"\*{6}")
    return len(parts) == 2 and parts[0].strip() != parts[1].strip()


def _language(text: str, given: Mapping[str, Any]) -> bool:
    try:
        import py3langid
    except ImportError:
        raise UsageError(
            "constraints: language:response_language needs the package py3langid: pip install 'gepa-lite[language]'."
        ) from None
    return bool(py3langid.classify(text)[0] == given["language"])


CHECKS: Mapping[str, tuple[str, Check]] = {
    "keywords:existence": ("use the words {keywords}", lambda text, given: all(word.lower() in text.lower() for word in given["keywords"])),
    "keywords:forbidden_words": (
        "leave out the words {forbidden_words}",
        lambda text, given: not any(_has(text, word) for word in given["forbidden_words"]),
    ),
    "keywords:frequency": (
        "use the word {keyword} {relation} {frequency} times",
        lambda text, given: _relation(text.lower().count(given["keyword"].lower()), given["relation"], given["frequency"]),
    ),
    "keywords:letter_frequency": (
        "use the letter {letter} {let_relation} {let_frequency} times",
        lambda text, given: _relation(text.lower().count(given["letter"].lower()), given["let_relation"], given["let_frequency"]),
    ),
    "language:response_language": ("write in the language {language}", _language),
    "length_constraints:number_words": (
        "write {relation} {num_words} words",
        lambda text, given: _relation(len(re.findall(r"\w+", text)), given["relation"], given["num_words"]),
    ),
    "length_constraints:number_sentences": (
        "write {relation} {num_sentences} sentences",
        lambda text, given: _relation(
            len([one for one in re.split(r"[.!?]+(?:\s|$)", text) if one.strip()]), given["relation"], given["num_sentences"]
        ),
    ),
    "length_constraints:number_paragraphs": (
        "write {num_paragraphs} paragraphs with *** between them",
        lambda text, given: len(_paragraphs(text, r"\s?\*\*\*\s?")) == given["num_paragraphs"],
    ),
    "length_constraints:nth_paragraph_first_word": (
        "write {num_paragraphs} paragraphs with an empty line between them, of which number {nth_paragraph} starts with the word {first_word}",
        _nth_paragraph,
    ),
    "detectable_content:number_placeholders": (
        "leave at least {num_placeholders} placeholders in square brackets",
        lambda text, given: len(re.findall(r"\[.*?\]", text)) >= given["num_placeholders"],
    ),
    "detectable_content:postscript": (
        "end with a postscript that starts with {postscript_marker}",
        lambda text, given: given["postscript_marker"].lower().replace(" ", "") in text.lower().replace(" ", ""),
    ),
    "detectable_format:number_bullet_lists": (
        "write exactly {num_bullets} bullet points",
        lambda text, given: len(re.findall(r"^\s*(?:\*[^*]|-).*$", text, re.MULTILINE)) == given["num_bullets"],
    ),
    "detectable_format:constrained_response": (
        "answer with one of: My answer is yes. My answer is no. My answer is maybe.",
        lambda text, given: any(f"My answer is {word}." in text for word in ("yes", "no", "maybe")),
    ),
    "detectable_format:number_highlighted_sections": (
        "highlight at least {num_highlights} sections in *asterisks*",
        lambda text, given: len([one for one in re.findall(r"\*+[^\n*]+\*+", text) if one.strip("* ")]) >= given["num_highlights"],
    ),
    "detectable_format:multiple_sections": (
        "write at least {num_sections} sections that start with {section_spliter} and a number",
        lambda text, given: len(re.findall(rf"\s?{re.escape(given['section_spliter'])}\s?\d+", text)) >= given["num_sections"],
    ),
    "detectable_format:json_format": ("answer in JSON alone", lambda text, given: _is_json(text)),
    "detectable_format:title": (
        "give a title in <<double angle brackets>>",
        lambda text, given: re.search(r"<<[^\n>]*\S[^\n>]*>>", text) is not None,
    ),
    "combination:two_responses": ("give two different answers with ****** between them", _two_responses),
    "combination:repeat_prompt": (
        "first repeat the request word for word: {prompt_to_repeat}",
        lambda text, given: text.strip().lower().startswith(given["prompt_to_repeat"].strip().lower()),
    ),
    "startend:end_checker": (
        "end with the words {end_phrase}",
        lambda text, given: text.strip().strip('"').lower().endswith(given["end_phrase"].strip().lower()),
    ),
    "startend:quotation": (
        "put the whole answer in double quotation marks",
        lambda text, given: len(text.strip()) > 1 and text.strip()[0] == text.strip()[-1] == '"',
    ),
    "change_case:english_capital": ("write in capital letters alone", lambda text, given: text.isupper()),
    "change_case:english_lowercase": ("write in small letters alone", lambda text, given: text.islower()),
    "change_case:capital_word_frequency": (
        "write {capital_relation} {capital_frequency} words in capital letters",
        lambda text, given: _relation(
            len([word for word in re.findall(r"[\w'-]+", text) if word.isupper()]), given["capital_relation"], given["capital_frequency"]
        ),
    ),
    "punctuation:no_comma": ("use no comma", lambda text, given: "," not in text),
    **IFBENCH,
}
"""Each constraint in words, with its arguments in braces, and its check."""
