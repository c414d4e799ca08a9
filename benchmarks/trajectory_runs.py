"""Simulated runs with their whole course: reflection models of different habits on the same landscapes, and what the trajectory study measures of each run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gepa_lite import Budget, Search
from gepa_lite.core.call import Message
from gepa_lite.core.events import Event
from gepa_lite.insight.distance import TextSpace
from gepa_lite.insight.generations import TextCourse
from gepa_lite.insight.measures import Measures, measures_of
from gepa_lite.insight.trail import Trail as Course
from gepa_lite.lm.protocol import Completion
from gepa_lite.search.state import RunState
from gepa_lite.store.browse import EventRow
from gepa_lite.store.codec import encode_event
from gepa_lite.testing import Landscape, landscape
from gepa_lite.testing.landscape_reflector import Reflector
from gepa_lite.testing.landscape_search import LANDSCAPE_TEMPLATE, LandscapePorts, search_by

MODELS: Mapping[str, Reflector] = {
    "sharp": Reflector(find=0.75, garble=0.05, overfit=0.02, miss=0.1, lose=0.01, most=2),
    "steady": Reflector(find=0.55, garble=0.1, overfit=0.03, miss=0.2, lose=0.01),
    "common": Reflector(),
    "timid": Reflector(find=0.3, garble=0.05, overfit=0.02, miss=0.6),
    "garbling": Reflector(find=0.35, garble=0.45, overfit=0.05, miss=0.1),
    "by heart": Reflector(find=0.25, garble=0.1, overfit=0.45, miss=0.15),
    "forgetful": Reflector(find=0.5, garble=0.1, overfit=0.05, miss=0.2, lose=0.2),
    "weak": Reflector(find=0.1, garble=0.25, overfit=0.15, miss=0.4, lose=0.08),
}
"""Reflection models by their habits, from strong to weak."""

ONE_SHOTS = 12
"""Rewrites of the seed, each after one minibatch, whose best is the counterpart of the study's zero-shot score (best of 12 samples)."""


class Recorded(LandscapePorts):
    """A landscape's ports that keep the log, and may ask several reflection models.

    Args:
        lands: the same landscape under each model's habits, by the model's name.
        shares: how often each is asked.
        seed: of the draws.
    """

    def __init__(self, lands: Mapping[str, Landscape], shares: Mapping[str, float], seed: int) -> None:
        super().__init__(next(iter(lands.values())), seed)
        self.events: list[Event] = []
        self._shares = {name: share for name, share in shares.items() if share > 0}
        self._askers = {name: LandscapePorts(land, seed) for name, land in lands.items()}

    @property
    def models(self) -> Mapping[str, float]:
        """See ``Ports.models``."""
        return self._shares

    def reflect(self, messages: tuple[Message, ...], *, model: str, address: tuple[int, ...]) -> Completion:
        """See ``Ports.reflect``."""
        return self._askers[model].reflect(messages, model=model, address=address)

    def commit(self, events: Sequence[Event], state: RunState) -> None:
        """See ``Ports.commit``."""
        super().commit(events, state)
        self.events.extend(events)


@dataclass(frozen=True)
class Recording:
    """A run's outcome.

    Attributes:
        measures: the study's.
        final: the winner's held-out score, as a share of the attainable one.
        seed: the seed's, likewise.
    """

    measures: Measures
    final: float
    seed: float


def play(name: str, shares: Mapping[str, float], habits: Mapping[str, Reflector], seed: int, rollouts: int) -> Recording:
    """One run on a landscape.

    Args:
        name: of the landscape.
        shares: how often each model is asked, by name.
        habits: of the models.
        seed: of the landscape's draw and of the search.
        rollouts: to spend.
    """
    lands = {model: with_habits(name, seed, habits[model]) for model in shares}
    land = next(iter(lands.values()))
    search = Search(seed=seed, reflection_template=LANDSCAPE_TEMPLATE)
    ports = Recorded(lands, shares, seed)
    started, _ = search_by(ports, land, search, Budget(rollouts=rollouts))
    course = course_of([started, *ports.events])
    found = measures_of(TextCourse(course, TextSpace(land.modules)))
    return Recording(found, ports.curve[-1][1] / land.attainable, ports.curve[0][1] / land.attainable)


def with_habits(name: str, seed: int, habits: Reflector) -> Landscape:
    """A landscape under a reflection model; texts, cases and examples are the same for all."""
    return Landscape(dataclasses.replace(landscape(name).spec, reflector=habits), seed)


def course_of(events: Sequence[Event]) -> Course:
    """The course of a run from its log in memory."""
    course = Course()
    rows = [EventRow(place, *encode_event(event), "2000-01-01T00:00:00+00:00") for place, event in enumerate(events, 1)]
    course.follow(rows)
    return course


def one_shot(name: str, habits: Reflector, seed: int) -> float:
    """Best held-out score, as a share of the attainable one, of 12 rewrites of the seed's first module, each after one minibatch of three."""
    land = with_habits(name, seed, habits)
    module, best = land.modules[0], 0.0
    for draw in range(ONE_SHOTS):
        shown = [land.train[(3 * draw + place) % len(land.train)] for place in range(3)]
        reviews = [land.judge(land.seed_texts, example).for_module(module) for example in shown]
        text = land.reflect(module, land.seed_texts[module], reviews, f"one-shot/{draw}")
        best = max(best, land.held_out({**land.seed_texts, module: text}))
    return best / land.attainable


def run_row(name: str, model: str, seed: int, rollouts: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A run as one row of the model-task table, and its generations as rows of the other."""
    found = play(name, {model: 1.0}, MODELS, seed, rollouts)
    rates = found.measures.all
    where = {"task": name, "model": model, "seed": seed}
    row = {
        **where,
        "final": found.final,
        "gain": found.final - found.seed,
        "one_shot": one_shot(name, MODELS[model], seed),
        "breakthrough": found.measures.breakthrough_rate,
        "refinement": rates.rate,
        # the same question asked of the validation set, which no reflection has seen
        "held_up": rates.validated_better / rates.valid if rates.valid else float("nan"),
        "distance": rates.distance,
        "novelty": found.measures.mean_novelty,
        "first_novelty": found.measures.generations[0].novelty if found.measures.generations else float("nan"),
        "proposals": rates.proposals,
    }
    generations = [
        {
            **where,
            "generation": place.index,
            "breakthrough": float(place.breakthrough),
            "h_fitness": place.h_fitness,
            "h_spatial": place.h_spatial,
            "mean_novelty": place.novelty,
            "max_novelty": place.max_novelty,
        }
        for place in found.measures.generations
    ]
    return row, generations
