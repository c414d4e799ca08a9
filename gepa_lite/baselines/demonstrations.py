"""Few-shot prompting as an optimizer: demonstrations bootstrapped from the program's own successes (as dspy's BootstrapFewShotWithRandomSearch, arXiv 2310.03714)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gepa_lite.baselines.steps import blank_slot, run_steps
from gepa_lite.core.call import Call
from gepa_lite.core.events import ProposalStatus, Proposed
from gepa_lite.core.rollout import Rollout
from gepa_lite.core.seeds import stream
from gepa_lite.search.charges import Uncharged
from gepa_lite.search.checks import check_fields, count
from gepa_lite.search.state import RunState
from gepa_lite.search.step import Course
from gepa_lite.search.trail import Trail
from gepa_lite.search.trial import run_trial

_HEADING = "Examples of good answers:"


@dataclass(frozen=True)
class FewShot:
    """Runs the seed on training examples once, and tries random sets of those that it solved as demonstrations in its prompts.

    A demonstration of a module is that module's own call: its inputs and its outputs. The prompts then hold training examples, so the leak guard is off here, and what they are worth
    shows on the sealed test set alone.

    Attributes:
        demonstrations: of each module in a candidate, at most; fewer where they do not fit in the longest prompt allowed.
        candidates: sets tried at most.
        bootstrap: training examples that the seed is run on, at most.
    """

    demonstrations: int = 4
    candidates: int = 16
    bootstrap: int = 24

    def __post_init__(self) -> None:
        check_fields(self, dict.fromkeys(("demonstrations", "candidates", "bootstrap"), count(1)))

    def settings(self) -> Mapping[str, Any]:
        """See ``Procedure``."""
        return {"name": "few_shot", "demonstrations": self.demonstrations, "candidates": self.candidates, "bootstrap": self.bootstrap}

    def __call__(self, trail: Trail, course: Course) -> RunState:
        """See ``Procedure``."""
        started = trail.state.started
        assert started is not None
        return run_steps(trail, course, self._take, self.candidates, min(self.bootstrap, len(started.train_ids)))

    def _take(self, state: RunState, course: Course, step: int) -> Uncharged:
        assert state.started is not None
        search, seed = course.search, state.pool[0]
        ids = tuple(state.started.train_ids[: self.bootstrap])
        trial = run_trial(course.ports, seed.candidate, ids, repeats=search.repeats, sample=0, priority=(0, step))
        slot = blank_slot(seed, state, search, course.ports.models, step)
        solved = [r for r in trial.lessons if r.value is not None and r.value >= search.objective.best]
        order = stream(search.seed, "demonstrations", step)
        chosen = order.sample(solved, min(self.demonstrations, len(solved)))
        texts = {module: text for module in state.rotation if (text := self._text(module, chosen, state, course)) is not None}
        status: ProposalStatus = "accepted"
        code, reason = "candidate", f"{len(chosen)} demonstrations, to be validated"
        if trial.missing and not solved:
            status, code, reason = "void", "missing", trial.missing
        elif not texts:
            status, code, reason = "skipped", "no_demonstrations", f"the seed solved {len(solved)} of {len(ids)} training examples"
        elif seed.candidate.replace(texts).id in state.seen:
            status, code, reason = "rejected", "known", "this set was tried already"
        proposed = Proposed(
            step=step,
            slot=0,
            parent=0,
            modules=slot.rotation,
            example_ids=ids,
            before=trial.values,
            status=status,
            code=code,
            reason=reason,
            texts=texts if status == "accepted" else {},
            proposer="demonstrations",
        )
        return Uncharged(proposed, (trial,))

    def _text(self, module: str, chosen: Sequence[Rollout], state: RunState, course: Course) -> str | None:
        """The seed's text with as many demonstrations as its contract leaves room for, or None."""
        seed = state.pool[0].candidate
        shown = [_shown(call) for rollout in chosen for call in _good_calls(rollout, module)][: self.demonstrations]
        for most in range(len(shown), 0, -1):
            text = "\n\n".join((seed.texts[module], _HEADING, *shown[:most]))
            if course.facts.gate.breach(module, seed.replace({module: text}).texts) is None:
                return text
        return None


def _good_calls(rollout: Rollout, module: str) -> list[Call]:
    return [call for call in rollout.trace.calls if call.module == module and call.outputs is not None]


def _shown(call: Call) -> str:
    assert call.outputs is not None
    rows = [f"{name}: {_plain(value)}" for name, value in (*call.inputs.items(), *call.outputs.items())]
    return "\n".join(rows)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
