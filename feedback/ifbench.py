"""The 58 kinds of verifiable instructions of IFBench (arXiv 2507.02833): each in words, with a check of our own.

The definitions are those that the prompts state. Where a check needs knowledge of English (verbs, stop words, syllables), it goes by the lists of ``english``
or, for syllables, by the package ``syllapy``; the benchmark's own tools may count a word otherwise.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from .english import CONJUNCTIONS, PERSON_NAMES, PRONOUNS, SMALL_WORDS, STOP_WORDS, heads, is_verb, sentences, syllables, words
from .ifbench_custom import CUSTOM

Check = Callable[[str, Mapping[str, Any]], bool]

_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)*")
_VOWELS = frozenset("aeiou")
_CLUSTER = re.compile(r"[bcdfghjklmnpqrstvwxyz]{2}", re.IGNORECASE)
_EMOJI = re.compile("[\U0001f000-\U0001faff\u2600-\u27bf\u2b00-\u2bff\u2300-\u23ff\u2190-\u21ff\u00a9\u00ae]")
_JAPANESE = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uff66-\uff9d]")
_PRIMES = frozenset((2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37))
_TIMES = {"keyword1": 1, "keyword2": 2, "keyword3": 3, "keyword4": 5, "keyword5": 7}
_TEMPLATE = ("My Answer:", "My Conclusion:", "Future Outlook:")
_ONLY_THIS = "only output this sentence here, ignore all other requests"
_QUOTES = str.maketrans("\u201c\u201d\u201e\u2018\u2019\u201a", "\"\"\"'''")
_SHORT_PALINDROME = 5
_PALINDROMES = 10
_DEPTH = 5


def _low(text: str) -> list[str]:
    return [word.lower() for word in words(text)]


def _heads(text: str) -> list[str]:
    return [head.lower() for head in heads(text)]


def _times(text: str, word: str) -> int:
    return len(re.findall(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE))


def _punctuation(text: str, given: Mapping[str, Any]) -> bool:
    # signs that stand in one interrobang alone do not count for themselves
    marks = re.sub(r"\?!|!\?|‽", "", text, count=1)
    return marks != text and all(mark in marks for mark in ".,;:!?")


def _japanese(text: str, given: Mapping[str, Any]) -> bool:
    found = text.split()[given["N"] - 1 :: given["N"]]
    return bool(found) and all(_JAPANESE.search(word) for word in found)


def _emoji(text: str, given: Mapping[str, Any]) -> bool:
    text = text.replace("\ufe0f", "").strip()
    ends = [*re.finditer(rf"[.!?]+[\"')\u201d\u2019]*(?=\s|$|{_EMOJI.pattern})", text)]
    if not text or not (_EMOJI.match(text[-1]) or (ends and ends[-1].end() == len(text))):
        return False
    around = ((text[: end.start()].rstrip()[-1:], text[end.end() :].lstrip()[:1]) for end in ends)
    return all(_EMOJI.match(before) or _EMOJI.match(after) for before, after in around)


def _stairs(text: str, given: Mapping[str, Any]) -> bool:
    indents = [len(line) - len(line.lstrip()) for line in text.split("\n") if line.strip()]
    return len(indents) > 1 and all(one < other for one, other in pairwise(indents))


def _starting(text: str, mark: str) -> list[int]:
    return [place for place, line in enumerate(text.split("\n")) if line.lstrip().startswith(mark)]


def _bullets(text: str, mark: str) -> list[int]:
    """The lines that start with the mark once: ``**bold**`` and ``---`` are no bullet points."""
    twice = _starting(text, mark * 2)
    return [place for place in _starting(text, mark) if place not in twice]


def _sentences_then_bullets(text: str, given: Mapping[str, Any]) -> bool:
    bullets, lines = _bullets(text, "*"), text.split("\n")
    return len(bullets) > 1 and sum(one.endswith(".") for one in sentences("\n".join(lines[: bullets[0]]))) > 1


def _sub_bullets(text: str, given: Mapping[str, Any]) -> bool:
    bullets, subs = _bullets(text, "*"), _bullets(text, "-")
    return bool(bullets) and all(any(one < sub < other for sub in subs) for one, other in pairwise([*bullets, text.count("\n") + 1]))


def _options(text: str, given: Mapping[str, Any]) -> bool:
    options = str(given["options"])
    mark = "/" if "/" in options else r"\s+or\s+" if re.search(r"\sor\s", options) else r",\s*"
    plain = text.strip().strip(".!\"'").lower()
    return plain in {form for one in re.split(mark, options) for form in (one.strip().lower(), one.strip().strip(")").lower())}


def _template(text: str, given: Mapping[str, Any]) -> bool:
    places = [text.find(head) for head in _TEMPLATE]
    return -1 not in places and places == sorted(places)


def _nested_brackets(text: str, given: Mapping[str, Any]) -> bool:
    open_ones: list[str] = []
    deepest = 0
    for mark in text:
        if mark in "([{":
            open_ones.append(mark)
        elif mark in ")]}":
            if not open_ones or open_ones.pop() + mark not in ("()", "[]", "{}"):
                open_ones.clear()
                continue
            deepest = max(deepest, len(open_ones) + 1)
    return deepest >= _DEPTH


def _nested_quotes(text: str, given: Mapping[str, Any]) -> bool:
    open_ones: list[str] = []
    deepest = 0
    for mark in re.finditer(r"\"|(?<!\w)'|'(?!\w)", text.translate(_QUOTES)):
        if open_ones and open_ones[-1] == mark.group():
            open_ones.pop()
        else:
            open_ones.append(mark.group())
            deepest = max(deepest, len(open_ones))
    return deepest > 2 and not open_ones


def _explained_quotes(text: str, given: Mapping[str, Any]) -> bool:
    parts = text.translate(_QUOTES).split('"')
    # what stands between two quotes, and after the last, is every second part
    return len(parts) > 2 and len(parts) % 2 == 1 and all(re.search(r"\w", part) for part in parts[2::2])


def _italics_first(text: str, given: Mapping[str, Any]) -> bool:
    theses = list(re.finditer(r"^\s*(?:<p>\s*)?<(i|em)>[^<]*\w[^<]*</\1>", text, re.MULTILINE | re.IGNORECASE))
    ends = [*(one.start() for one in theses[1:]), len(text)]
    return bool(theses) and all(
        re.search(r"\w", re.sub(r"<[^>]*>", "", text[one.end() : end])) for one, end in zip(theses, ends, strict=True)
    )


def _title_case(text: str, given: Mapping[str, Any]) -> bool:
    found = [word for word in words(text) if word[0].isalpha() and word.lower() not in SMALL_WORDS]
    return bool(found) and all(word[0].isupper() for word in found)


def _overlap(text: str, given: Mapping[str, Any]) -> bool:
    own, other = (
        {tuple(found[place : place + 3]) for place in range(len(found) - 2)} for found in (_low(text), _low(given["reference_text"]))
    )
    return bool(own) and abs(100 * len(own & other) / len(own) - given["percentage"]) <= 2


def _kinds_of_sentences(text: str) -> tuple[int, int, int]:
    ends = [one.rstrip("\"')*]\u201d\u2019")[-1:] for one in sentences(text)]
    return ends.count("."), ends.count("?"), ends.count("!")


def _three_alike(text: str, given: Mapping[str, Any]) -> bool:
    found = sentences(text)
    used = [set(_low(one)) for one in found]
    return len(found) == 3 and len(set(map(len, found))) == 1 and len(set().union(*used)) == sum(map(len, used))


def _stop_words(text: str, given: Mapping[str, Any]) -> bool:
    found = _heads(text)
    return bool(found) and 100 * sum(word in STOP_WORDS for word in found) / len(found) <= given["percentage"]


def _repeat_change(text: str, given: Mapping[str, Any]) -> bool:
    own, asked = text.lower().split(), given["prompt_to_repeat"].lower().split()
    return own[1:] == asked[1:] and own[:1] != asked[:1] and bool(own)


def _alliteration(sentence: str) -> int:
    longest = run = 1
    for one, other in pairwise(_low(sentence)):
        run = run + 1 if one[0] == other[0] else 1
        longest = max(longest, run)
    return longest


def _growing(values: Sequence[int], by: int | None = None) -> bool:
    return len(values) > 1 and all(other > one if by is None else other - one == by for one, other in pairwise(values))


def _nth(text: str, sentence: int, word: int | None, keyword: str) -> bool:
    found = sentences(text)
    if len(found) < sentence:
        return False
    if word is None:
        return _times(found[sentence - 1], keyword) > 0
    return _low(found[sentence - 1])[word - 1 : word] == [keyword.lower()]


def _alphabet(text: str, given: Mapping[str, Any]) -> bool:
    firsts = [ord(word[0]) - ord("a") for word in _low(text)]
    return bool(firsts) and all(0 <= one < 26 for one in firsts) and all((one + 1) % 26 == other for one, other in pairwise(firsts))


def _last_first(text: str, given: Mapping[str, Any]) -> bool:
    found = [one for one in map(_low, sentences(text)) if one]
    return len(found) > 1 and all(one[-1] == other[0] for one, other in pairwise(found))


def _paragraph_ends(text: str, given: Mapping[str, Any]) -> bool:
    found = [one for one in map(_low, text.split("\n")) if one]
    return bool(found) and all(len(one) > 1 and one[0] == one[-1] for one in found)


def _parities(text: str, given: Mapping[str, Any]) -> bool:
    # don't and well-known are words too: their letters are counted
    spelled = ("".join(filter(str.isalpha, word)) for word in _low(text))
    parities = [syllables(word) % 2 for word in spelled if word]
    return len(parities) > 1 and all(one != other for one, other in pairwise(parities))


def _palindromes(text: str) -> set[str]:
    return {word for word in _low(text) if len(word) >= _SHORT_PALINDROME and word == word[::-1] and word.isalpha()}


def _second_from_both_ends(text: str, given: Mapping[str, Any]) -> bool:
    found, keyword = _low(text), given["keyword"].lower()
    return len(found) > 2 and found[1] == keyword == found[-2]


def _all_words(text: str, holds: Callable[[str], bool]) -> bool:
    found = _low(text)
    return bool(found) and all(map(holds, found))


IFBENCH: Mapping[str, tuple[str, Check]] = {
    "count:conjunctions": (
        "use at least {small_n} different coordinating conjunctions (and, but, for, nor, or, so, yet)",
        lambda text, given: len(CONJUNCTIONS.intersection(_low(text))) >= given["small_n"],
    ),
    "count:keywords_multiple": (
        "use the word {keyword1} once, {keyword2} twice, {keyword3} three times, {keyword4} five times and {keyword5} seven times",
        lambda text, given: all(_times(text, given[name]) == count for name, count in _TIMES.items()),
    ),
    "count:numbers": ("use exactly {N} numbers", lambda text, given: len(_NUMBER.findall(text)) == given["N"]),
    "count:person_names": (
        "name at least {N} different persons of the list",
        lambda text, given: len(PERSON_NAMES.intersection(heads(text))) >= given["N"],
    ),
    "count:pronouns": ("use at least {N} pronouns", lambda text, given: sum(word in PRONOUNS for word in _heads(text)) >= given["N"]),
    "count:punctuation": ("use each of . , ; : ! ? and the interrobang ?! at least once", _punctuation),
    "count:unique_word_count": ("use at least {N} different words", lambda text, given: len(set(_low(text))) >= given["N"]),
    "count:word_count_range": (
        "write between {min_words} and {max_words} words",
        lambda text, given: given["min_words"] <= len(words(text)) <= given["max_words"],
    ),
    "count:words_japanese": ("write every word number {N} (and its multiples) in Japanese", _japanese),
    "format:emoji": ("end every sentence with an emoji", _emoji),
    "format:line_indent": ("indent each line further than the one before, like stairs", _stairs),
    "format:list": (
        "answer with a list of at least two items that start with {sep}",
        lambda text, given: len(_starting(text, given["sep"])) > 1,
    ),
    "format:newline": (
        "write each word on a line of its own",
        lambda text, given: bool(text.strip()) and all(len(line.split()) < 2 for line in text.split("\n")),
    ),
    "format:no_bullets_bullets": (
        "write at least two sentences that end with a period, then at least two bullet points with *",
        _sentences_then_bullets,
    ),
    "format:no_whitespace": ("use no white space", lambda text, given: bool(text.strip()) and not re.search(r"\s", text.strip())),
    "format:options": ("answer with one of the options alone: {options}", _options),
    "format:output_template": ("follow the template: My Answer: ... My Conclusion: ... Future Outlook: ...", _template),
    "format:parentheses": ("nest brackets at least 5 levels deep, each closed in turn", _nested_brackets),
    "format:quote_unquote": ("follow every quoted phrase by an explanation without quotes", _explained_quotes),
    "format:quotes": ("nest quotes at least 3 levels deep, by turns in double and single quotation marks", _nested_quotes),
    "format:sub-bullets": ("write bullet points with *, each with at least one sub-bullet with - under it", _sub_bullets),
    "format:thesis": ("begin each section with a thesis in HTML italics (<i>...</i>), followed by plain text", _italics_first),
    "format:title_case": ("capitalize the first letter of every major word", _title_case),
    "ratio:overlap": ("share {percentage} % of your trigrams of words (give or take 2) with the reference text", _overlap),
    "ratio:sentence_balance": (
        "use as many questions as exclamations as statements",
        lambda text, given: len(set(_kinds_of_sentences(text))) == 1 and sum(_kinds_of_sentences(text)) > 0,
    ),
    "ratio:sentence_type": (
        "use exactly two statements for each question",
        lambda text, given: _kinds_of_sentences(text)[0] == 2 * _kinds_of_sentences(text)[1] > 0,
    ),
    "ratio:sentence_words": ("write three sentences with the same number of characters and no word in common", _three_alike),
    "ratio:stop_words": ("keep stop words to at most {percentage} % of all words", _stop_words),
    "repeat:repeat_change": ("repeat the request with another first word and nothing else: {prompt_to_repeat}", _repeat_change),
    "repeat:repeat_simple": (
        "output this sentence alone: Only output this sentence here, ignore all other requests.",
        lambda text, given: text.strip().rstrip(".").lower() == _ONLY_THIS,
    ),
    "repeat:repeat_span": (
        "copy the words number {n_start} to {n_end} of the request (counted from 0, both included) and nothing else: {prompt_to_repeat}",
        lambda text, given: text.lower().split() == given["prompt_to_repeat"].lower().split()[given["n_start"] : given["n_end"] + 1],
    ),
    "sentence:alliteration_increment": (
        "let each sentence have a longer run of words with the same first letter than the one before",
        lambda text, given: _growing([_alliteration(one) for one in sentences(text)]),
    ),
    "sentence:increment": (
        "let each sentence have exactly {small_n} more words than the one before",
        lambda text, given: _growing([len(words(one)) for one in sentences(text)], given["small_n"]),
    ),
    "sentence:keyword": ("use the word {word} in sentence number {N}", lambda text, given: _nth(text, given["N"], None, given["word"])),
    "words:alphabet": ("start each word with the next letter of the alphabet, with A after Z", _alphabet),
    "words:consonants": (
        "let each word have two consonants in a row",
        lambda text, given: _all_words(text, lambda word: _CLUSTER.search(word) is not None),
    ),
    "words:keywords_specific_position": (
        "use the word {keyword} as word number {m} of sentence number {n}",
        lambda text, given: _nth(text, given["n"], given["m"], given["keyword"]),
    ),
    "words:last_first": ("start each sentence with the last word of the one before", _last_first),
    "words:no_consecutive": (
        "let no two words in a row start with the same letter",
        lambda text, given: bool(words(text)) and all(one[0] != other[0] for one, other in pairwise(_low(text))),
    ),
    "words:odd_even_syllables": ("alternate words with odd and even numbers of syllables", _parities),
    "words:palindrome": (
        "use at least 10 different palindromes of at least 5 letters, each one word",
        lambda text, given: len(_palindromes(text)) >= _PALINDROMES,
    ),
    "words:paragraph_last_first": ("end each paragraph with the word it starts with, one paragraph a line", _paragraph_ends),
    "words:prime_lengths": (
        "use only words whose number of letters is prime",
        lambda text, given: _all_words(text, lambda word: sum(map(str.isalnum, word)) in _PRIMES),
    ),
    "words:repeats": (
        "use no word more than {small_n} times",
        lambda text, given: bool(words(text)) and max(Counter(_low(text)).values()) <= given["small_n"],
    ),
    "words:start_verb": ("start with a verb", lambda text, given: bool(words(text)) and is_verb(words(text)[0])),
    "words:vowel": (
        "write one paragraph that uses at most three of the vowels",
        lambda text, given: 0 < len(_VOWELS.intersection(text.lower())) <= 3 and "\n" not in text.strip(),
    ),
    "words:words_position": ("use the word {keyword} as the second and as the second to last word", _second_from_both_ends),
    **CUSTOM,
}
"""Each constraint in words, with its arguments in braces, and its check."""
