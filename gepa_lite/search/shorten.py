"""After the search: leave out one sentence of the winner at a time, and keep it out where that costs nothing on the validation set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gepa_lite.core.budget import Spend
from gepa_lite.core.candidate import Candidate
from gepa_lite.core.events import Shortened
from gepa_lite.core.sentences import same_sentence, sentences_of, without_sentence
from gepa_lite.search.ports import Ports
from gepa_lite.search.reserve import fits, reserved_rollouts, shortening_left
from gepa_lite.search.search import Search
from gepa_lite.search.state import Member, RunState
from gepa_lite.search.trial import Trial, run_trial, spend_of
from gepa_lite.search.validate import VALIDATION_LATER, broken_pins
from gepa_lite.search.winner import own_objectives, winner_of

Breach = Callable[[str, Mapping[str, str]], str | None]
"""What a candidate breaks of its contracts by a module's new text, in words, or None. Arguments: the module, and all texts."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A sentence that may go.

    Attributes:
        module: whose it is.
        sentence: as it stands.
        text: the module's text without it.
    """

    module: str
    sentence: str
    text: str


def next_cut(state: RunState, search: Search) -> Cut | None:
    """The longest sentence of the winner, weighed by its module's calls, that was not tried yet and that no start has. Pure.

    The sentences of the seed and of other starts stay: their author may want them for reasons that no example shows. Code has no sentences.
    """
    assert state.started is not None
    winner = winner_of(state, search)
    # the same sentence may stand in a text twice: once dropped, its twin has a turn
    tried = {(event.module, event.sentence) for event in state.shortenings if event.status != "dropped"}
    cuts: list[tuple[float, Cut]] = []
    rules = state.started.settings.get("contract", {}).get("modules", {})
    for module, text in winner.candidate.texts.items():
        if rules.get(module, {}).get("form") == "python":
            continue
        starts = [state.started.texts[module], *(start.texts[module] for start in state.started.starts)]
        own = {same_sentence(sentence) for start in starts for sentence in sentences_of(start)}
        for sentence in sentences_of(text):
            shorter = without_sentence(text, sentence)
            if (module, sentence) in tried or same_sentence(sentence) in own or not shorter:
                continue
            cuts.append((len(sentence) * state.calls.get(module, 1.0), Cut(module, sentence, shorter)))
    return max(cuts, key=lambda cut: cut[0])[1] if cuts else None


def may_cut(state: RunState, search: Search) -> bool:
    """Whether the pass has another sentence to try, and room for it or no need of any."""
    cut = next_cut(state, search)
    if cut is None:
        return False
    child = winner_of(state, search).candidate.replace({cut.module: cut.text})
    return child.id in state.seen or _has_room(state, search, _first_cost(state, search))


def _first_cost(state: RunState, search: Search) -> int:
    """Rollouts of the pins and of a first block."""
    assert state.started is not None
    return (len(state.started.pin_ids) + min(search.validation_block, len(state.started.validation_ids))) * search.repeats


def _has_room(state: RunState, search: Search, cost: int) -> bool:
    left = shortening_left(state, search)
    return cost <= left and fits(state, cost, reserved_rollouts(state, search) - left)


def take_cut(cut: Cut, state: RunState, search: Search, ports: Ports, breach: Breach) -> Shortened | None:
    """Try one sentence; None where the budget has no room for it any more.

    The pins go first, then the examples on which the winner scores best, in blocks: there it can only lose, and the trial ends as soon as it can't reach the winner's sum.

    Raises:
        RunError: the run can't go on; also where the budget ran out.
    """
    winner = winner_of(state, search)
    event = Shortened(winner.index, cut.module, cut.sentence, "refused", "", {cut.module: cut.text})
    child = winner.candidate.replace(event.texts)
    if reason := breach(cut.module, child.texts):
        return replace(event, reason=reason)
    if child.id in state.seen:
        return _known(event, child, winner, state)
    attempt = _Attempt(state, search, ports, winner, child)
    if not attempt.has_room(0):
        return None
    attempt.pinned = attempt.run(attempt.pins)
    if broken := broken_pins(state, attempt.pinned):
        return attempt.end(event, "kept", f"{len(broken)} pins break without it")
    if attempt.pinned.missing:
        return attempt.end(event, "void", attempt.pinned.missing)
    for block in attempt.blocks():
        if not attempt.has_room(len(block)):
            return attempt.end(event, "kept", "the rollouts of the pass ran out within the trial")
        if missing := attempt.take(block):
            return attempt.end(event, "void", missing)
        if lost := attempt.lost():
            return attempt.end(event, "kept", lost)
    return attempt.end(event, "dropped", f"no lower on {len(attempt.places)} validation examples")


def _known(event: Shortened, child: Candidate, winner: Member, state: RunState) -> Shortened:
    """The shorter candidate was in the search already: what is known of it decides, at no cost."""
    known = next((member for member in state.pool if member.candidate.id == child.id), None)
    if known is None or known.mean is None or known.mean < (winner.mean or 0.0) - 1e-12:
        return replace(event, status="kept", reason="the search knows the shorter candidate, and it is not as good")
    values = tuple(state.table.array[known.index].tolist())
    return replace(event, status="dropped", reason="the search knows the shorter candidate, and it is as good", values=values)


class _Attempt:
    """The rollouts of one shorter candidate, as far as they went."""

    def __init__(self, state: RunState, search: Search, ports: Ports, winner: Member, child: Candidate) -> None:
        assert state.started is not None
        self._state, self._search, self._ports, self._child = state, search, ports, child
        self._ids, self.pins = state.started.validation_ids, state.started.pin_ids
        self._row = state.table.array[winner.index].tolist()
        self.places = sorted(range(len(self._row)), key=lambda place: (-self._row[place], place))
        self.pinned = Trial(((),) * search.repeats)
        self._trials: list[Trial] = []

    def blocks(self) -> list[list[int]]:
        """Places of the validation examples, the winner's best first."""
        size = self._search.validation_block
        return [self.places[start : start + size] for start in range(0, len(self.places), size)]

    def has_room(self, more: int) -> bool:
        """Whether what ran, and the next examples (at the start the pins and a first block), fit in the pass and in the budget."""
        cost = more * self._search.repeats or _first_cost(self._state, self._search)
        return _has_room(self._state, self._search, self._spend().rollouts + cost)

    def run(self, ids: Sequence[str]) -> Trial:
        """Rollouts on examples."""
        return run_trial(self._ports, self._child, ids, repeats=self._search.repeats, sample=0, priority=(VALIDATION_LATER,))

    def take(self, block: Sequence[int]) -> str | None:
        """Run a block; what is missing, in words, or None."""
        self._trials.append(self.run([self._ids[place] for place in block]))
        return self._trials[-1].missing

    def lost(self) -> str | None:
        """Why the shorter candidate can't reach the winner's sum any more, or None."""
        values = [value for trial in self._trials for value in trial.values if value is not None]
        behind = sum(self._row[place] for place in self.places[: len(values)]) - sum(values)
        room = sum(self._search.objective.best - self._row[place] for place in self.places[len(values) :])
        return f"{behind:g} lower on {len(values)} validation examples" if behind > room + 1e-9 else None

    def end(self, event: Shortened, status: Literal["dropped", "kept", "void"], reason: str) -> Shortened:
        """The event, with values by position of the validation set."""
        values: list[float | None] = [None] * len(self.places)
        names = sorted({name for trial in self._trials for name in trial.objectives})
        rows: dict[str, list[float | None]] = {name: [None] * len(self.places) for name in names}
        for trial, block in zip(self._trials, self.blocks(), strict=False):
            objectives = trial.objectives
            for position, place in enumerate(block):
                values[place] = trial.values[position]
                for name, scores in objectives.items():
                    rows[name][place] = scores[position]
        own = own_objectives(self._search, self._child.texts, self._state.calls, values)
        objectives_by_place = {**{name: tuple(row) for name, row in rows.items()}, **own}
        return replace(event, status=status, reason=reason, values=tuple(values), spend=self._spend(), objectives=objectives_by_place)

    def _spend(self) -> Spend:
        """Pins among the validation examples that ran are charged once."""
        return spend_of(rollout for trial in (self.pinned, *self._trials) for rollout in trial.rollouts)
