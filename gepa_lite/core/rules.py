"""What a text must keep to, checked with the standard library alone: what production pays for where it loads a bundle.

It takes neither ``dataclasses`` nor ``typing``, whose imports cost more than all the rest of loading.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from gepa_lite.core.placeholders import FORMS, GRAMMARS, PLACEHOLDERS, kind_of, normal_placeholder, placeholders_of, template_fields
from gepa_lite.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gepa_lite.core.form import Form

DEFAULT_TOKENS = 2_000
"""The longest prompt of a module where nothing else is said, in estimated tokens."""

_BYTES_PER_TOKEN = 4
_SHOWN = 120
_LETTERS_TO_TELL = 40
_SURE = 0.9
_TEXTS = ("placeholders", "frozen", "required", "banned")


class Breach:
    """One thing that a text breaks.

    Attributes:
        rule: ``length``, ``placeholder``, ``frozen``, ``required``, ``banned``, ``language`` or ``form``.
        words: what is wrong and what was expected, for a person and for the reflection model.
    """

    __slots__ = ("rule", "words")

    def __init__(self, rule: str, words: str) -> None:
        self.rule = rule
        self.words = words

    def __eq__(self, other: object) -> bool:
        return (self.rule, self.words) == (other.rule, other.words) if isinstance(other, Breach) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.rule, self.words))

    def __repr__(self) -> str:
        return f"Breach({self.rule!r}, {self.words!r})"


class Checks:
    """The checks of a contract; the rules are attributes of whoever has them, see ``Contract``."""

    __slots__ = ()

    if TYPE_CHECKING:
        max_tokens: int | None
        placeholders: tuple[str, ...] | None
        frozen: tuple[str, ...]
        required: tuple[str, ...]
        banned: tuple[str, ...]
        language: str | None
        form: Form

    def breach(self, text: str) -> str | None:
        """What the text breaks first, in words, or None."""
        breaches = self.breaches(text)
        return breaches[0].words if breaches else None

    def breaches(self, text: str, *, libraries: bool = True) -> list[Breach]:
        """Everything that the text breaks.

        Args:
            text: of the module.
            libraries: False leaves out what needs more than the standard library: the language, and Jinja2's grammar.
        """
        found = _length(estimated_tokens(text), self.max_tokens or DEFAULT_TOKENS, "the prompt")
        # the grammar comes first: what does not parse has no variables
        form = self._form(text) if libraries or self.form != "jinja" else []
        found += form or (self._placeholders(text) if libraries or self.form != "jinja" else [])
        found += [Breach("frozen", _lost(span)) for span in self.frozen if span not in text]
        found += [
            Breach("required", f"nothing in the prompt matches {p!r}, which is required") for p in self.required if not _found(p, text)
        ]
        found += _banned(self.banned, text)
        return found + (self._language(text) if libraries else [])

    def breaches_together(self, texts: Mapping[str, str], *, libraries: bool = True) -> list[Breach]:
        """What the texts of a program, by module path, break together where these are the program's rules; ``libraries`` as for one text."""
        found = _length(sum(map(estimated_tokens, texts.values())), self.max_tokens, "the program's prompts together")
        found += [Breach("frozen", _lost(span)) for span in self.frozen if not any(span in text for text in texts.values())]
        found += [
            Breach("required", f"nothing in the program's prompts matches {pattern!r}, which is required")
            for pattern in self.required
            if not any(_found(pattern, text) for text in texts.values())
        ]
        for text in texts.values():
            more = [*_banned(self.banned, text), *(self._language(text) if libraries else [])]
            found += [breach for breach in more if breach not in found]
        return found

    def _placeholders(self, text: str) -> list[Breach]:
        wanted = {normal_placeholder(item) for item in self.placeholders or ()}
        if not wanted:
            return []
        here = placeholders_of(text, self.form)
        # what only a grammar can tell, such as a doubled brace, is not looked for letter by letter
        strict = self.form in GRAMMARS
        missing = sorted(item for item in wanted if item not in here and ((strict and kind_of(item) != "other") or item not in text))
        kinds = {kind_of(item) for item in wanted}
        new = sorted(item for item in here - wanted if strict or kind_of(item) in kinds)
        return [Breach("placeholder", f"the placeholder {item} is missing: keep it as it is") for item in missing] + [
            Breach("placeholder", f"the placeholder {item} is new, and nothing fills it in: only {', '.join(sorted(wanted))} may be used")
            for item in new
        ]

    def _form(self, text: str) -> list[Breach]:
        if self.form == "json":
            try:
                json.loads(text)
            except ValueError as error:
                return [Breach("form", f"the prompt must be valid JSON, and it is not: {error}")]
        elif self.form == "python":
            return _python(text)
        elif self.form in GRAMMARS and isinstance(problem := template_fields(text, self.form), str):
            return [Breach("form", f"the prompt must be a valid {GRAMMARS[self.form]}, and it is not: {problem}")]
        return []

    def _language(self, text: str) -> list[Breach]:
        if self.language is None:
            return []
        prose = PLACEHOLDERS.sub(" ", text)
        for span in self.frozen:
            prose = prose.replace(span, " ")
        if sum(letter.isalpha() for letter in prose) < _LETTERS_TO_TELL:
            return []
        found, chance = identify_language(prose)
        if found == self.language or chance < _SURE:
            return []
        return [Breach("language", f"the prompt must be written in the language {self.language!r}; it reads as {found!r}")]


class Rules(Checks):
    """A contract as a bundle holds it, with the same defaults and refusals.

    Args:
        data: JSON types, as ``Contract.to_data`` writes them.

    Raises:
        UsageError: a rule of a newer version, or a wrong value.
    """

    DEFAULTS: Mapping[str, Any] = {
        "max_tokens": None,
        "placeholders": None,
        "frozen": (),
        "required": (),
        "banned": (),
        "language": None,
        "form": "text",
    }
    __slots__ = tuple(DEFAULTS)

    def __init__(self, data: Mapping[str, Any]) -> None:
        refuse_unknown(data, self.DEFAULTS)
        for name, value in checked_rules({**self.DEFAULTS, **data}).items():
            setattr(self, name, value)


def refuse_unknown(data: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Refuse rules of a later version.

    Raises:
        UsageError: names the first.
    """
    if unknown := sorted(set(data) - set(known)):
        raise UsageError(f"the contract has the unknown rule {unknown[0]!r}: upgrade gepa-lite.")


def checked_rules(values: Mapping[str, Any]) -> dict[str, Any]:
    """The rules of a contract with lists and single texts spelled out as tuples.

    Raises:
        UsageError: a wrong value.
    """
    rules = dict(values)
    for name in _TEXTS:
        value = rules[name]
        if value is not None:
            texts = (value,) if isinstance(value, str) else tuple(value)
            if not all(isinstance(text, str) and text for text in texts):
                raise UsageError(f"Contract({name}={value!r}): texts that are not empty are needed.")
            rules[name] = texts
    for name in ("required", "banned"):
        for pattern in rules[name]:
            try:
                re.compile(pattern)
            except re.error as error:
                raise UsageError(f"Contract({name}=...): {pattern!r} is not a regular expression: {error}.") from None
    most, language, form = rules["max_tokens"], rules["language"], rules["form"]
    whole = isinstance(most, int) and not isinstance(most, bool)
    if most is not None and (not whole or most < 1):
        raise UsageError(f"Contract(max_tokens={most!r}): a whole number of at least 1 is needed.")
    if language is not None and not re.fullmatch(r"[a-z]{2}", language):
        raise UsageError(f"Contract(language={language!r}): a code of two letters is needed, e.g. 'en' or 'de'.")
    if form not in FORMS:
        raise UsageError(f"Contract(form={form!r}): {', '.join(map(repr, FORMS[:-1]))} or {FORMS[-1]!r} is needed.")
    return rules


def estimated_tokens(text: str) -> int:
    """Tokens, at four UTF-8 bytes each: a rule of thumb that also holds roughly for scripts of two and three bytes a letter."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN)


def identify_language(text: str) -> tuple[str, float]:
    """ISO 639-1 code of a text's language, and how sure that is, from 0 to 1.

    Raises:
        UsageError: the library is not installed.
    """
    import math

    try:
        from py3langid import rank
    except ImportError:
        raise UsageError("Contract(language=...) needs a language detector: pip install 'gepa-lite[language]'.") from None
    scores = rank(text)  # log-probabilities but for a constant, the highest first
    return str(scores[0][0]), 1 / math.fsum(math.exp(min(0.0, float(score) - float(scores[0][1]))) for _, score in scores)


def _length(tokens: int, most: int | None, what: str) -> list[Breach]:
    if most is None or tokens <= most:
        return []
    verb = "have" if what.endswith("together") else "has"
    return [Breach("length", f"{what} {verb} about {tokens:,} tokens; at most {most:,} are allowed")]


def _python(text: str) -> list[Breach]:
    import ast
    import warnings

    try:
        with warnings.catch_warnings():  # of code that is not ours, e.g. of an escape that is none
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        why = error.msg if isinstance(error, SyntaxError) else str(error) or type(error).__name__
        return [Breach("form", f"the text must be valid Python, and it is not: {why}{line}")]
    return []


def _lost(span: str) -> str:
    shown = span if len(span) <= _SHOWN else span[:_SHOWN] + "..."
    return f"the prompt lost a part that must stay as it is, letter by letter: {shown}"


def _found(pattern: str, text: str) -> bool:
    return re.search(pattern, text) is not None


def _banned(patterns: tuple[str, ...], text: str) -> list[Breach]:
    return [
        Breach("banned", f"the prompt holds what is banned by {pattern!r}: leave it out") for pattern in patterns if _found(pattern, text)
    ]
