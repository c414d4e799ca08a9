"""The rules of a search: one frozen record, each default with its reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gepa_lite.core.feedback import Objective
from gepa_lite.core.ids import jsonable, text_hash
from gepa_lite.errors import UsageError
from gepa_lite.search.accept import ACCEPTANCE
from gepa_lite.search.reflect import ReflectionLimits
from gepa_lite.search.select import SELECTORS, Selector

_NAMES: Mapping[str, Collection[str]] = {
    "selector": SELECTORS,
    "frontier": ("example", "objective", "hybrid", "product"),
    "accept": ACCEPTANCE,
}


@dataclass(frozen=True, slots=True)
class Search:
    """How to search. Every field changes the run's course and is part of its fingerprint; a resume with other rules is refused.

    Attributes:
        seed: of every random draw. Two runs of one seed and the same model answers are equal, event for event.
        minibatch: training examples per proposal. 3 is the paper's.
        fan: proposals from one parent at a time, on distinct minibatches, for modules in rotation; the best accepted text of each module joins one child, which alone is
            validated. 1 is the paper's loop.
        selector: how the parent is chosen: ``"pareto"`` (the paper's), ``"likely"``, ``"best"``, ``"epsilon_greedy"``, ``"top_k_pareto"``, ``"beam"``, ``"elite"``, or an object of
            ``gepa_lite.search.select`` with other settings.
        frontier: what candidates compete for: validation examples (the paper's), objectives, both, or every pair of the two.
        accept: ``"strict"`` (the paper's): the child must be better than its parent on the same minibatch; ``"non_strict"``: at least as good.
        skip_perfect: a minibatch on which the parent has the best possible score is skipped: there is nothing to learn from it.
        reuse: a candidate's rollout on a training example is paid once and used again; False samples anew each time, for programs whose answers vary.
        objective: direction and range of the scores.
        reflection_template: a Jinja2 text in place of ours; gets ``module``, ``signature``, ``prompt``, ``purpose`` and ``lessons``.
        reflection_limits: how much the reflection prompt may show.
        reflection_tokens: upper bound of the reflection model's reply; a reply cut off there is rejected.
        reflection_temperature: 1.0, so that two reflections on one prompt differ; None leaves it to the endpoint.
        max_prompt_tokens: the longest prompt accepted for a module, in estimated tokens.
    """

    seed: int = 0
    minibatch: int = 3
    fan: int = 1
    selector: str | Selector = "pareto"
    frontier: Literal["example", "objective", "hybrid", "product"] = "example"
    accept: str = "strict"
    skip_perfect: bool = True
    reuse: bool = True
    objective: Objective = field(default_factory=Objective)
    reflection_template: str | None = None
    reflection_limits: ReflectionLimits = field(default_factory=ReflectionLimits)
    reflection_tokens: int = 4_096
    reflection_temperature: float | None = 1.0
    max_prompt_tokens: int = 2_000

    def __post_init__(self) -> None:
        for name in ("minibatch", "fan", "reflection_tokens", "max_prompt_tokens"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UsageError(f"Search({name}={value!r}): a whole number of at least 1 is needed.")
        for name, known in _NAMES.items():
            value = getattr(self, name)
            if isinstance(value, str) and value not in known:
                raise UsageError(f"Search({name}={value!r}): one of {', '.join(map(repr, sorted(known)))} is needed.")

    @property
    def parent_selector(self) -> Selector:
        """The selector itself."""
        return SELECTORS[self.selector] if isinstance(self.selector, str) else self.selector

    def fingerprint(self) -> Mapping[str, Any]:
        """The rules as JSON types; a long template is represented by its hash."""
        rules: dict[str, Any] = jsonable({item.name: getattr(self, item.name) for item in dataclasses.fields(self)})
        rules["selector"] = {"rule": type(self.parent_selector).__name__, "settings": jsonable(self.parent_selector)}
        if self.reflection_template is not None:
            rules["reflection_template"] = text_hash(self.reflection_template)
        return rules
