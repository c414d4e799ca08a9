"""What a prompt must keep to before a rollout is paid for (design decision 10). Checked, never repaired."""

from __future__ import annotations

import ast
import dataclasses
import json
import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gepa_lite.core.placeholders import FORMS, GRAMMARS, PLACEHOLDERS, Form, kind_of, normal_placeholder, placeholders_of, template_fields
from gepa_lite.errors import UsageError

DEFAULT_TOKENS = 2_000
"""The longest prompt of a module where nothing else is said, in estimated tokens."""

PROGRAM = "*"
"""Names the program as a whole where contracts are given by module path."""

_BYTES_PER_TOKEN = 4
_SHOWN = 120
_LETTERS_TO_TELL = 40
_SURE = 0.9
_TEXTS = ("placeholders", "frozen", "required", "banned")


@dataclass(frozen=True, slots=True)
class Breach:
    """One thing that a text breaks.

    Attributes:
        rule: ``length``, ``placeholder``, ``frozen``, ``required``, ``banned``, ``language`` or ``form``.
        words: what is wrong and what was expected, for a person and for the reflection model.
    """

    rule: str
    words: str


@dataclass(frozen=True, slots=True)
class Contract:
    """What every text of a module must keep to: ``gl.Module(..., contract=gl.Contract(...))``; or a whole program: ``gl.optimize(..., contract=gl.Contract(...))``.

    Of a program the length is the sum of its modules', ``required`` and ``frozen`` must stand in one of them, ``banned`` in none, and the language is each one's. It is checked before a
    rollout is paid for, of rewrites, edits, merges and shortened texts. The reflection model is asked once more, with the breach named; then the proposal is rejected. A seed that breaks its own
    contract is refused before anything is spent.

    Attributes:
        max_tokens: length in tokens, estimated at four UTF-8 bytes each; None is ``Search(max_prompt_tokens=)`` for a module, and no bound for a program.
        placeholders: what your code fills in, such as ``"{name}"``, ``"{{ name }}"``, ``"$name"`` or ``"%(name)s"``: each must stay, and none of their kind may be added. None finds them
            in the seed prompt; ``()`` is none.
        frozen: spans that must stand in the text, letter by letter.
        required: regular expressions that must be found.
        banned: regular expressions that must not be found.
        language: ISO 639-1 code of the language it is written in, such as ``"de"``; needs ``pip install 'gepa-lite[language]'``. Texts under 40 letters are too short to tell.
        form: ``"text"``; ``"json"``: must parse; ``"jinja"``: must parse as a Jinja2 template, with the seed's variables and no others; ``"format"`` and
            ``"template"``: likewise for ``str.format`` and ``string.Template``, so that a stray brace or dollar sign is found before it raises. Nothing is rendered.
            ``"python"``: must parse as Python; nothing is run.

    Raises:
        UsageError: an argument is wrong.

    Example:
        >>> contract = Contract(placeholders=("{name}",), banned=(r"(?i)as an ai",), max_tokens=50)
        >>> contract.breach("Greet {name} warmly.")
        >>> contract.breach("Greet the person.")
        'the placeholder {name} is missing: keep it as it is'
    """

    max_tokens: int | None = None
    placeholders: tuple[str, ...] | None = None
    frozen: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    banned: tuple[str, ...] = ()
    language: str | None = None
    form: Form = "text"

    def __post_init__(self) -> None:
        for name in _TEXTS:
            value = getattr(self, name)
            if value is not None:
                texts = (value,) if isinstance(value, str) else tuple(value)
                if not all(isinstance(text, str) and text for text in texts):
                    raise UsageError(f"Contract({name}={value!r}): texts that are not empty are needed.")
                # frozen: one text and a list are spelled out once, here
                object.__setattr__(self, name, texts)
        for name in ("required", "banned"):
            for pattern in getattr(self, name):
                try:
                    re.compile(pattern)
                except re.error as error:
                    raise UsageError(f"Contract({name}=...): {pattern!r} is not a regular expression: {error}.") from None
        whole = isinstance(self.max_tokens, int) and not isinstance(self.max_tokens, bool)
        if self.max_tokens is not None and (not whole or self.max_tokens < 1):
            raise UsageError(f"Contract(max_tokens={self.max_tokens!r}): a whole number of at least 1 is needed.")
        if self.language is not None and not re.fullmatch(r"[a-z]{2}", self.language):
            raise UsageError(f"Contract(language={self.language!r}): a code of two letters is needed, e.g. 'en' or 'de'.")
        if self.form not in FORMS:
            raise UsageError(f"Contract(form={self.form!r}): {', '.join(map(repr, FORMS[:-1]))} or {FORMS[-1]!r} is needed.")

    def resolved(self, seed: str, max_tokens: int) -> Contract:
        """The same with nothing left to find: placeholders of the seed, and a length.

        Args:
            seed: the seed prompt.
            max_tokens: the length where this contract names none.
        """
        found = self.placeholders if self.placeholders is not None else tuple(sorted(placeholders_of(seed, self.form)))
        return dataclasses.replace(self, placeholders=found, max_tokens=self.max_tokens or max_tokens)

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

    def to_data(self) -> dict[str, Any]:
        """JSON types; what is as by default is left out."""
        values = {item.name: getattr(self, item.name) for item in dataclasses.fields(self) if getattr(self, item.name) != item.default}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Contract:
        """The inverse of ``to_data``.

        Raises:
            UsageError: a rule of a newer version, or a wrong value.
        """
        known = {item.name for item in dataclasses.fields(cls)}
        if unknown := sorted(set(data) - known):
            raise UsageError(f"the contract has the unknown rule {unknown[0]!r}: upgrade gepa-lite.")
        return cls(**data)

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


@dataclass(frozen=True)
class Contracts:
    """The contracts of a run, resolved.

    Attributes:
        modules: by path.
        program: of all texts together, or None.
        max_tokens: the length of a module that has no entry.
    """

    modules: Mapping[str, Contract] = field(default_factory=dict)
    program: Contract | None = None
    max_tokens: int = DEFAULT_TOKENS

    def of(self, module: str) -> Contract:
        """A module's own contract."""
        return self.modules.get(module) or Contract(max_tokens=self.max_tokens)

    def breaches(self, module: str, texts: Mapping[str, str]) -> list[Breach]:
        """What a module's text breaks, of its own contract and, among the other texts, of the program's."""
        return [*self.of(module).breaches(texts[module]), *self.program_breaches(texts)]

    def program_breaches(self, texts: Mapping[str, str], *, libraries: bool = True) -> list[Breach]:
        """What the texts together break of the program's contract; ``libraries`` as for a contract."""
        program = self.program
        if program is None:
            return []
        found = _length(sum(map(estimated_tokens, texts.values())), program.max_tokens, "the program's prompts together")
        found += [Breach("frozen", _lost(span)) for span in program.frozen if not any(span in text for text in texts.values())]
        found += [
            Breach("required", f"nothing in the program's prompts matches {pattern!r}, which is required")
            for pattern in program.required
            if not any(_found(pattern, text) for text in texts.values())
        ]
        for text in texts.values():
            more = [*_banned(program.banned, text), *(program._language(text) if libraries else [])]
            found += [breach for breach in more if breach not in found]
        return found

    def by_path(self) -> dict[str, Any]:
        """JSON types in the form that ``optimize(contract=)`` takes: by module path, ``"*"`` for the program."""
        whole = {} if self.program is None else {PROGRAM: self.program}
        return {path: contract.to_data() for path, contract in {**self.modules, **whole}.items()}

    def to_data(self) -> dict[str, Any]:
        """JSON types, for settings and bundles."""
        modules = {path: contract.to_data() for path, contract in self.modules.items()}
        return {"modules": modules, "program": None if self.program is None else self.program.to_data()}


def estimated_tokens(text: str) -> int:
    """Tokens, at four UTF-8 bytes each: a rule of thumb that also holds roughly for scripts of two and three bytes a letter."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN)


def identify_language(text: str) -> tuple[str, float]:
    """ISO 639-1 code of a text's language, and how sure that is, from 0 to 1.

    Raises:
        UsageError: the library is not installed.
    """
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
