"""What a prompt must keep to before a rollout is paid for (design decision 10). Checked, never repaired."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gepa_lite.core.form import Form
from gepa_lite.core.placeholders import placeholders_of
from gepa_lite.core.rules import DEFAULT_TOKENS, Breach, Checks, Rules, checked_rules, refuse_unknown

PROGRAM = "*"
"""Names the program as a whole where contracts are given by module path."""


@dataclass(frozen=True, slots=True)
class Contract(Checks):
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
        # frozen: one text and a list are spelled out once, here
        for name, value in checked_rules({name: getattr(self, name) for name in Rules.DEFAULTS}).items():
            object.__setattr__(self, name, value)

    def resolved(self, seed: str, max_tokens: int) -> Contract:
        """The same with nothing left to find: placeholders of the seed, and a length.

        Args:
            seed: the seed prompt.
            max_tokens: the length where this contract names none.
        """
        found = self.placeholders if self.placeholders is not None else tuple(sorted(placeholders_of(seed, self.form)))
        return dataclasses.replace(self, placeholders=found, max_tokens=self.max_tokens or max_tokens)

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
        refuse_unknown(data, Rules.DEFAULTS)
        return cls(**data)


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
        return [] if self.program is None else self.program.breaches_together(texts, libraries=libraries)

    def by_path(self) -> dict[str, Any]:
        """JSON types in the form that ``optimize(contract=)`` takes: by module path, ``"*"`` for the program."""
        whole = {} if self.program is None else {PROGRAM: self.program}
        return {path: contract.to_data() for path, contract in {**self.modules, **whole}.items()}

    def to_data(self) -> dict[str, Any]:
        """JSON types, for settings and bundles."""
        modules = {path: contract.to_data() for path, contract in self.modules.items()}
        return {"modules": modules, "program": None if self.program is None else self.program.to_data()}
