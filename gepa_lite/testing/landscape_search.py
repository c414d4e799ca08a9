"""Our search on a simulated landscape, in memory: the loop's ports without programs, models and stores."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gepa_lite.core.budget import Budget
from gepa_lite.core.call import Call, Message, Trace, Usage
from gepa_lite.core.candidate import Candidate
from gepa_lite.core.contract import Contracts
from gepa_lite.core.events import Event, RunStarted
from gepa_lite.core.feedback import Feedback
from gepa_lite.core.ids import jsonable
from gepa_lite.core.rollout import Rollout, RolloutKey
from gepa_lite.lm.protocol import Completion
from gepa_lite.search.gate import Gate
from gepa_lite.search.loop import search_loop
from gepa_lite.search.ports import ProgramFacts, WhenAsked
from gepa_lite.search.search import Search
from gepa_lite.search.state import RunState
from gepa_lite.search.step import Course
from gepa_lite.search.stop_rules import Surroundings
from gepa_lite.search.trail import follow
from gepa_lite.testing.landscape_words import sentences_of
from gepa_lite.testing.landscapes import Landscape

T = TypeVar("T")

LANDSCAPE_TEMPLATE = """\
The prompt belongs to the step "{{ module }}":
<current>
{{ prompt }}
</current>
{% for lesson in lessons %}
Review: {{ lesson.feedback }}
{% endfor %}"""
"""All that the simulated reflection model reads of a reflection prompt, and what ``run_landscape`` uses. Our own templates hold the same lines, and one of yours must too."""

_NOTHING = Usage()
_STEP = re.compile(r'^The prompt belongs to the step "([^"]+)"', re.MULTILINE)
_CURRENT = re.compile(r"^<current>\n(.*?)\n</current>$", re.MULTILINE | re.DOTALL)
_REVIEW = re.compile(r"^Review: (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class LandscapeRun:
    """How a search went on a landscape.

    Attributes:
        state: the final state of the search.
        winner: the texts that are best by validation.
        curve: (rollouts spent, exact held-out score of the best by validation), one point for each change; the first is the seed's.
        attainable: the landscape's best possible held-out score.
    """

    state: RunState
    winner: Mapping[str, str]
    curve: tuple[tuple[int, float], ...]
    attainable: float

    @property
    def seed(self) -> float:
        """The seed's held-out score."""
        return self.curve[0][1]

    @property
    def held_out(self) -> float:
        """The winner's held-out score."""
        return self.curve[-1][1]

    def at(self, rollouts: int) -> float:
        """The held-out score of what was best by validation when that many rollouts were spent; the seed's before anything was validated."""
        return next((score for spent, score in reversed(self.curve) if spent <= rollouts), self.seed)

    def rollouts_to(self, share: float) -> int | None:
        """Rollouts spent when the held-out score first reached a share of the attainable one; None where it never did.

        A seed that reaches it already took no search: 0.
        """
        reached = [0 if place == 0 else spent for place, (spent, score) in enumerate(self.curve) if score >= share * self.attainable]
        return reached[0] if reached else None


def run_landscape(land: Landscape, search: Search, budget: Budget, *, seed: int | None = None) -> LandscapeRun:
    """Search a landscape from its seed texts.

    Args:
        land: the landscape.
        search: the rules.
        budget: the bounds; rollouts, proposals or both.
        seed: of the search, in place of ``search.seed``.

    Example:
        >>> from gepa_lite.testing import landscape
        >>> run = run_landscape(landscape("one-easy"), Search(), Budget(rollouts=600))
        >>> run.seed < run.held_out
        True
    """
    rules = search if seed is None else dataclasses.replace(search, seed=seed)
    if rules.reflection_template is None and (rules.proposer != "edit" or rules.plateau):
        # all that the simulator reads, and shorter to render than ours
        rules = dataclasses.replace(rules, reflection_template=LANDSCAPE_TEMPLATE)
    ports = LandscapePorts(land, rules.seed)
    _, state = search_by(ports, land, rules, budget)
    return LandscapeRun(state, state.best.candidate.texts, tuple(ports.curve), land.attainable)


def search_by(ports: LandscapePorts, land: Landscape, rules: Search, budget: Budget) -> tuple[RunStarted, RunState]:
    """Search a landscape by ports of one's own: the event that the log starts with, and the final state."""
    train, validation = (tuple(example.id for example in examples) for examples in (land.train, land.validation))
    started = RunStarted({"search": jsonable(rules.fingerprint())}, land.seed_texts, train, validation, (), budget)
    facts = ProgramFacts("", dict.fromkeys(land.modules, "message -> result"), Gate(Contracts(max_tokens=rules.max_prompt_tokens)))
    return started, search_loop(follow([started], rules), Course(rules, facts, ports))


class LandscapePorts:
    """The loop's ports onto a landscape; see ``search.ports.Ports``. Each search takes its own.

    Args:
        land: the landscape.
        seed: of the reflection model's draws: searches of different seeds get different rewrites.
    """

    def __init__(self, land: Landscape, seed: int) -> None:
        self.curve: list[tuple[int, float]] = []
        self._land, self._seed, self._best = land, seed, -1
        self._train = {example.id for example in land.train}
        self._examples = {example.id: example for example in (*land.train, *land.validation)}
        self._traces = {key: Trace(tuple(Call(name, item.inputs, ()) for name in land.modules)) for key, item in self._examples.items()}

    def evaluate(
        self, candidate: Candidate, example_ids: Sequence[str], *, samples: Sequence[int], priority: tuple[int, ...]
    ) -> Sequence[Sequence[Rollout]]:
        """See ``Ports.evaluate``."""
        return [self._rollouts(candidate, example_ids, sample) for sample in samples]

    def _rollouts(self, candidate: Candidate, example_ids: Sequence[str], sample: int) -> list[Rollout]:
        scorer = self._land.scorer(candidate.texts, sample)
        rollouts = []
        for key in example_ids:
            example = self._examples[key]
            # reviews of validation examples are never read, and there are many
            feedback = scorer.judge(example) if key in self._train else Feedback(scorer(example))
            name = RolloutKey(candidate.id, key, sample)
            rollouts.append(Rollout(name, feedback.score, feedback, None, self._traces[key], None, _NOTHING, _NOTHING))
        return rollouts

    @property
    def models(self) -> Mapping[str, float]:
        """See ``Ports.models``: there is one."""
        return {"simulated": 1.0}

    def reflect(self, messages: tuple[Message, ...], *, model: str, address: tuple[int, ...]) -> Completion:
        """See ``Ports.reflect``: reads the step, its current text and the reviews out of the reflection prompt."""
        text = messages[0]["content"]
        step, current = _STEP.search(text), _CURRENT.search(text)
        if step is None or current is None:
            raise ValueError("the reflection template lacks the lines that LANDSCAPE_TEMPLATE has: the step's name and <current>")
        draw = "/".join(map(str, (self._seed, *address)))
        reply = self._land.reflect(step[1], current[1], _REVIEW.findall(text), draw)
        return Completion(_edits(current[1], reply) if "<edit>" in text else f"<prompt>\n{reply}\n</prompt>")

    def book(self, name: str, usage: Usage, seconds: float, address: tuple[int | str, ...]) -> None:
        """See ``Ports.book``: simulated work has no price."""

    def gather(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """See ``Ports.gather``: one after the other, since nothing here waits."""
        return [task() for task in tasks]

    def start(self, task: Callable[[], T]) -> WhenAsked[T]:
        """See ``Ports.start``: runs it when it is asked for, whatever the window, since nothing here waits."""
        return WhenAsked(task)

    def commit(self, events: Sequence[Event], state: RunState) -> None:
        """See ``Ports.commit``: keeps the curve."""
        if state.seed_validated and state.best.index != self._best:
            self._best = state.best.index
            self.curve.append((state.spend.rollouts, self._land.held_out(state.best.candidate.texts)))

    def notice(self, text: str) -> None:
        """See ``Ports.notice``: nobody listens."""

    def surroundings(self) -> Surroundings:
        """See ``Ports.surroundings``: time does not pass here, so a budget of seconds bounds nothing."""
        return Surroundings()


def _edits(before: str, after: str) -> str:
    """What changed, sentence by sentence, in the form that the ``edit`` proposer asks for."""
    old, new = sentences_of(before), sentences_of(after)
    gone = [f"<edit><find>{sentence}</find><replace></replace></edit>" for sentence in old if sentence not in new]
    come = [f"<edit><add>{sentence}</add></edit>" for sentence in new if sentence not in old]
    return "\n".join([*gone, *come])
