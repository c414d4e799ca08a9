"""GRPO as an optimizer, alone and together with our prompt search."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gepa_lite.baselines.grpo.backend import RLBackend
from gepa_lite.baselines.grpo.phase import Phase, calls_of, value_of
from gepa_lite.baselines.grpo.samples import SampleBook
from gepa_lite.baselines.grpo.settings import Training
from gepa_lite.baselines.grpo.trainable import WEIGHTS, Trainable
from gepa_lite.baselines.grpo.trl_backend import TRLBackend
from gepa_lite.baselines.steps import begin
from gepa_lite.core.contract import Contract, Contracts
from gepa_lite.core.events import StepEnded, Stopped
from gepa_lite.errors import UsageError
from gepa_lite.lm.policy.engine import need
from gepa_lite.run_spec import RunSpec
from gepa_lite.search.checks import Check, check_fields, count, optional
from gepa_lite.search.loop import check_outage, commit
from gepa_lite.search.plan import plan_step
from gepa_lite.search.state import Member, RunState
from gepa_lite.search.step import Course, take_step
from gepa_lite.search.stop import no_room, why_stop
from gepa_lite.search.trail import Trail
from gepa_lite.store.folders import TRAINING_SAMPLES


@dataclass(frozen=True)
class GRPO:
    """Group relative policy optimization of the open model behind a program (arXiv 2402.03300), with the program, feedback, ledger and verdict of the prompt search.

    Attributes:
        training: its settings.
        prompt_steps: steps of our own search before each training; 0 for none.
        cycles: how often both are done, the training each time from the best candidate so far.
        backend: made from the rows kept for each rollout; None for TRL's ``GRPOTrainer``.
    """

    training: Training = field(default_factory=Training)
    prompt_steps: int = 0
    cycles: int = 1
    backend: Callable[[int], RLBackend] | None = None

    def __post_init__(self) -> None:
        training = Check("the settings Training(...) of gepa_lite.baselines.grpo.settings", lambda value: isinstance(value, Training))
        backend = optional(Check("what makes an RLBackend", callable))
        check_fields(self, {"training": training, "prompt_steps": count(0), "cycles": count(1), "backend": backend})

    @classmethod
    def paper(cls, **changes: Any) -> GRPO:
        """With the paper's settings; see ``Training.paper``."""
        return cls(Training.paper(**changes))

    def settings(self) -> Mapping[str, Any]:
        """See ``Procedure``."""
        return {"name": "grpo", "prompt_steps": self.prompt_steps, "cycles": self.cycles, "training": dict(self.training.settings())}

    def fit(self, spec: RunSpec, folder: Path) -> RunSpec:
        """See ``baselines.optimizer.Fitting``: the program with its weights as a part.

        Raises:
            UsageError: the extra is missing, or the program's weights can't be trained.
        """
        if self.backend is None:
            need()
        adapters = (folder / "adapters").absolute()
        book = SampleBook(folder / TRAINING_SAMPLES)
        program = Trainable(spec.program, self.training, adapters, book.keep)
        if spec.workers.engine == "processes":
            program.sendable()  # says that it is not
        known = spec.contracts
        contracts = Contracts(
            {**known.modules, WEIGHTS: Contract().resolved("base", spec.search.max_prompt_tokens)},
            known.program,
            spec.search.max_prompt_tokens,
        )
        return dataclasses.replace(spec, program=program, contracts=contracts, procedure=_Bound(self, program, book, folder, adapters))

    def __call__(self, trail: Trail, course: Course) -> RunState:
        """Never called: ``fit`` puts in its place what knows the program."""
        raise UsageError("GRPO trains a program's weights, so it must be run as an optimizer: baselines.optimizer('grpo').")


@dataclass(frozen=True)
class _Bound:
    """The procedure of one run."""

    grpo: GRPO
    program: Trainable
    book: SampleBook
    folder: Path
    adapters: Path

    def settings(self) -> Mapping[str, Any]:
        return self.grpo.settings()

    def __call__(self, trail: Trail, course: Course) -> RunState:
        trail = begin(trail, course)
        grpo, first = self.grpo, 0
        for cycle in range(grpo.cycles):
            if trail.state.stopped is not None:
                return trail.state
            end = first + grpo.prompt_steps
            while trail.state.next_step < end:
                stop = _why_no_step(trail.state, course)
                if stop is not None:
                    return commit(trail, [stop], course.ports).state
                trail = _prompt_step(trail, course)
            parent = _best_before(trail.state, end)
            phase = self._phase(trail, course, cycle, parent, end)
            trail = phase.run()
            if phase.ending is not None:
                return commit(trail, [phase.ending], course.ports).state
            first = phase.step
        return commit(trail, [Stopped("rule", "the training is done")], course.ports).state

    def _phase(self, trail: Trail, course: Course, cycle: int, parent: Member, first: int) -> Phase:
        training = self.grpo.training
        make = self.grpo.backend or TRLBackend
        place = (self.adapters, self.folder / "training" / f"cycle-{cycle}")
        return Phase(trail, course, self.program, training, make(calls_of(self.program, training)), self.book, place, (parent, first))


def _best_before(state: RunState, step: int) -> Member:
    """The best of the candidates made before a step: the same one on a resume."""
    return max((member for member in state.pool if member.step < step), key=value_of)


def _prompt_step(trail: Trail, course: Course) -> Trail:
    """One step of our own search."""
    state, search = trail.state, course.search
    plan = plan_step(state, search, course.ports.models, state.next_step)
    made = take_step(course, plan, state)
    trail = commit(trail, [*made, StepEnded(plan.step)], course.ports, search.repeats)
    check_outage(trail.state, made)
    return trail


def _why_no_step(state: RunState, course: Course) -> Stopped | None:
    around = course.ports.surroundings()
    stop = why_stop(state, course.search, around)
    if stop is not None:
        return stop
    return no_room(state, [plan_step(state, course.search, course.ports.models, state.next_step)], course.search, around)
