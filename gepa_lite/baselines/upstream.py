"""The ``gepa`` package as an optimizer of our programs: its own loop, our rollouts, models, ledger and record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from gepa_lite.baselines.desk import Desk, EndedError
from gepa_lite.core.rollout import Rollout
from gepa_lite.errors import BudgetSpentError, UsageError
from gepa_lite.search.state import RunState
from gepa_lite.search.step import Course
from gepa_lite.search.trail import Trail

_UNBOUNDED = 10**9


@dataclass(frozen=True)
class UpstreamGepa:
    """Runs ``gepa.optimize`` (extra ``bench``).

    It sees what it would see with an adapter of the user's own: scores, and for reflection each call's inputs, reply and feedback, in its own template. A rollout that an outage took
    has the worst score there, since it knows no missing ones; in our record it is missing. Its budget is ours: a rollout that it asks for twice is charged once.

    Attributes:
        options: further arguments of ``gepa.optimize``, e.g. ``{"use_merge": True}``.
    """

    options: Mapping[str, Any] = field(default_factory=dict)

    def settings(self) -> Mapping[str, Any]:
        """See ``Procedure``."""
        return {
            "name": "gepa",
            "version": str(_gepa().__version__) if hasattr(_gepa(), "__version__") else "",
            "options": dict(self.options),
        }

    def __call__(self, trail: Trail, course: Course) -> RunState:
        """See ``Procedure``."""
        desk = Desk(trail, course, "gepa")
        if desk.state.stopped is not None:
            return desk.state
        try:
            _gepa().optimize(
                seed_candidate=dict(desk.seed.texts),
                trainset=list(desk.train_ids),
                valset=list(desk.validation_ids),
                adapter=_Adapter(desk, course),
                reflection_lm=lambda prompt: desk.reflect(_messages(prompt)).text,
                perfect_score=course.search.objective.best,
                reflection_minibatch_size=course.search.least_minibatch,
                # it counts repeated rollouts again; ours charges them once and ends it
                max_metric_calls=_UNBOUNDED,
                seed=course.search.seed,
                logger=_Quiet(),
                **self.options,
            )
        except BudgetSpentError as error:
            return desk.close("budget", str(error))
        except EndedError as error:
            return desk.close(error.code, str(error))
        return desk.close("rule", "gepa ended by its own rules")


class _Adapter:
    """What ``gepa`` calls: batches of example ids, candidates as texts by module."""

    propose_new_texts = None

    def __init__(self, desk: Desk, course: Course) -> None:
        self._desk = desk
        self._worst = course.search.objective.worst

    def evaluate(self, batch: list[str], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        rollouts = self._desk.evaluate(candidate, batch)
        scores = [self._worst if rollout.value is None else rollout.value for rollout in rollouts]
        outputs = [rollout.output for rollout in rollouts]
        batch_type = import_module("gepa.core.adapter").EvaluationBatch
        return batch_type(outputs=outputs, scores=scores, trajectories=rollouts if capture_traces else None)

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: Any, components_to_update: list[str]
    ) -> dict[str, list[dict[str, Any]]]:
        return {module: [row for rollout in eval_batch.trajectories for row in _rows(rollout, module)] for module in components_to_update}


def _rows(rollout: Rollout, module: str) -> list[dict[str, Any]]:
    """One record for the module's first call, in the form of ``gepa``'s template."""
    call = next((call for call in rollout.trace.calls if call.module == module), None)
    if call is None:
        return []
    feedback = rollout.feedback
    words = "" if feedback is None else feedback.modules.get(module) or feedback.text
    failure = "" if rollout.failure is None else rollout.failure.message
    review = f"score {0.0 if feedback is None else feedback.score:g}. {words or failure}".strip()
    return [{"Inputs": {name: str(value) for name, value in call.inputs.items()}, "Generated Outputs": call.reply, "Feedback": review}]


def _messages(prompt: Any) -> tuple[Any, ...]:
    return ({"role": "user", "content": prompt},) if isinstance(prompt, str) else tuple(prompt)


class _Quiet:
    """Its progress is not ours to print."""

    def log(self, message: str) -> None:
        """Drop it."""


def _gepa() -> Any:
    try:
        return import_module("gepa")
    except ImportError as error:
        raise UsageError("the optimizer 'gepa' needs the package gepa: pip install 'gepa-lite[bench]'.") from error
