"""What a probe compares: reflection models, or settings of the loop, each a way to ask for a new text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gepa_lite.errors import UsageError
from gepa_lite.lm.protocol import LM, Completion, LMInfo, Request
from gepa_lite.search.search import Search

Horizon = int | Literal["episode"]

SETTINGS: Mapping[str, tuple[Any, ...]] = {
    "minibatch": (1, 3, 6),
    "horizon": (0, 1, "episode"),
    "proposer": ("rewrite", "edit"),
    "temperature": (0.3, 1.0),
}
"""What ``settings=True`` tries, one at a time."""
AXES = (*SETTINGS, "template")


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to ask for a new text.

    Attributes:
        name: in tables; also the name that the run's log gives its proposals.
        lm: who is asked.
        minibatch: rollouts of the round's examples that it is shown.
        horizon: calls around the module's own that it sees; ``"episode"`` is all.
        proposer: ``"rewrite"`` or ``"edit"``.
        template: a Jinja2 text in place of ours, or None.
        temperature: of the reflection; None leaves it to the endpoint.
    """

    name: str
    lm: LM
    minibatch: int
    horizon: Horizon
    proposer: Literal["rewrite", "edit"]
    template: str | None
    temperature: float | None

    def to_data(self) -> dict[str, Any]:
        """JSON types; of the model its name."""
        values = {item.name: getattr(self, item.name) for item in dataclasses.fields(self) if item.name != "lm"}
        return {**values, "model": self.lm.describe().name}


@dataclass(frozen=True, slots=True)
class Tempered:
    """A model that is asked at a temperature of its own. Implements ``LM``."""

    lm: LM
    temperature: float | None

    def describe(self) -> LMInfo:
        """The model's, told apart by the temperature."""
        info = self.lm.describe()
        return dataclasses.replace(info, settings=f"{info.settings} temperature {self.temperature}".strip())

    def complete(self, request: Request) -> Completion:
        """Ask the model."""
        return self.lm.complete(dataclasses.replace(request, params=dataclasses.replace(request.params, temperature=self.temperature)))


def variants_of(models: Mapping[str, LM], settings: Mapping[str, Sequence[Any] | Mapping[str, Any]], search: Search) -> list[Variant]:
    """The ways that are compared: the search's own rules with each model; with ``settings``, the first model with one rule changed at a time.

    Args:
        models: by name.
        settings: what to try, by axis: ``minibatch``, ``horizon``, ``proposer``, ``temperature``, ``template`` (texts by name, or a list).
        search: the rules to start from.

    Raises:
        UsageError: an axis or a value that is none, or nothing to compare.
    """
    horizon: Horizon = "episode" if search.horizon in ("episode", "adaptive") else int(search.horizon)
    base = {
        "minibatch": search.least_minibatch,
        "horizon": horizon,
        # how "auto" begins
        "proposer": "rewrite" if search.proposer == "auto" else search.proposer,
        "template": search.reflection_template,
        "temperature": search.reflection_temperature,
    }
    if not settings:
        made = [_variant(name, lm, base) for name, lm in models.items()]
    else:
        (lm, *more) = models.values()
        if more:
            raise UsageError("probe compares models or settings, not both at once: give one reflection model beside settings=.")
        made = [_variant("as it is", lm, base)]
        for axis, values in settings.items():
            if axis not in AXES:
                raise UsageError(f"settings={{{axis!r}: ...}}: one of {', '.join(map(repr, AXES))} is needed.")
            named = values.items() if isinstance(values, Mapping) else [(str(value), value) for value in values]
            changed = [(label, value) for label, value in named if value != base[axis]]
            made += [
                _variant(f"{axis}={_label(axis, label, place)}", lm, {**base, axis: value}) for place, (label, value) in enumerate(changed)
            ]
    if len(made) < 2:
        raise UsageError("probe compares at least two reflection models, models=[...], or settings of one, settings=True.")
    return made


def _label(axis: str, label: str, place: int) -> str:
    """A template's text is no name."""
    return str(place + 1) if axis == "template" and len(label) > 40 else label


def _variant(name: str, lm: LM, values: Mapping[str, Any]) -> Variant:
    if values["proposer"] not in ("rewrite", "edit"):
        raise UsageError(f"settings={{'proposer': [{values['proposer']!r}]}}: 'rewrite' or 'edit' is needed.")
    try:
        # the search's own checks of the same rules
        Search(
            minibatch=values["minibatch"],
            horizon=values["horizon"],
            proposer=values["proposer"],
            reflection_temperature=values["temperature"],
            reflection_template=None if values["proposer"] == "edit" else values["template"],
        )
    except UsageError as error:
        raise UsageError(f"probe, {name}: {error}") from None
    return Variant(name, lm, **values)
