"""A candidate: one text for each module of the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gepa_lite.core.ids import content_hash


@dataclass(frozen=True)
class Candidate:
    """The prompts of a program, by module path.

    Two candidates with the same texts are the same candidate: ``id`` is the hash of the texts.
    """

    texts: Mapping[str, str]

    @cached_property
    def id(self) -> str:
        """Content hash of the texts by module."""
        return content_hash(self.texts)

    def replace(self, texts: Mapping[str, str]) -> Candidate:
        """A candidate with some of its texts replaced; this one is unchanged."""
        return Candidate({**self.texts, **texts})

    def __hash__(self) -> int:
        return hash(self.id)

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Candidate) else NotImplemented


@dataclass(frozen=True, slots=True)
class Start:
    """Texts to start from beside the seed.

    Attributes:
        name: what to call it.
        texts: of all modules.
        origin: of a bundle: what it says of itself (candidate with lineage, verdict, date, maker), as JSON types.
    """

    name: str
    texts: Mapping[str, str]
    origin: Mapping[str, Any] = field(default_factory=dict)
