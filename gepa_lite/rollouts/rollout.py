"""One rollout: run the program, tell the candidate's fault from the world's, judge once."""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass
from typing import Protocol

from gepa_lite.core.budget import Role
from gepa_lite.core.call import Usage, total_usage
from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback, Objective
from gepa_lite.core.ids import jsonable
from gepa_lite.core.rollout import Failure, Rollout, RolloutKey
from gepa_lite.errors import ModelError, OutputError, RolloutError, RunError
from gepa_lite.lm.protocol import LM, Completion, Request
from gepa_lite.program.optimizable import Execution, Optimizable
from gepa_lite.rollouts.judge import Judge
from gepa_lite.rollouts.overdue import this_attempt


class PayForCall(Protocol):
    """The run's way to its models (``lm.client.ModelClient.call``)."""

    def __call__(self, lm: LM, request: Request, *, role: Role, sample: int, address: tuple[int | str, ...]) -> Completion:
        """Answer a request from the cache, or pay for it."""
        ...


@dataclass(frozen=True, slots=True)
class RolloutRunner:
    """Runs one candidate's program on examples. Called from many threads.

    Attributes:
        program: the program with the candidate's texts.
        judge: the feedback function.
        objective: gives a failed rollout the worst of its range.
        pay: how calls reach their models.
    """

    program: Optimizable
    judge: Judge
    objective: Objective
    pay: PayForCall

    def __call__(self, example: Example, key: RolloutKey) -> Rollout:
        """Run and judge.

        Returns:
            A scored rollout, also for the candidate's own failures; a missing one where the world failed.

        Raises:
            RunError: the run can't go on (feedback function broken, models down, budget spent, interrupted).
        """
        started = time.perf_counter()
        judging: list[Usage] = []
        broken: list[ModelError | RunError] = []

        attempt = this_attempt()
        attempt.objective, attempt.calls_held = self.objective, self.program.calls_held

        def call_task(lm: LM, request: Request, occurrence: int) -> Completion:
            with attempt.calling() as usages:
                completion = self.pay(lm, request, role="task", sample=key.sample, address=(occurrence,))
                usages.append(completion.usage)
            return completion

        def call_judge(lm: LM, request: Request, occurrence: int) -> Completion:
            try:
                with attempt.calling():
                    completion = self.pay(lm, request, role="judge", sample=key.sample, address=("judge", occurrence))
            except (ModelError, RunError) as error:
                broken.append(error)
                raise
            judging.append(completion.usage)
            return completion

        execution = self.program.run(example.inputs, call_task)
        failure = _failure(execution)
        feedback: Feedback | None = None
        if failure is None:
            attempt.judge()
            try:
                feedback = self.judge(example, execution.output, execution.trace, call_judge)
            except ModelError as error:
                failure = Failure("judge", "world", f"the judge's model call failed: {error}")
            except OutputError as error:
                # the judge's model, not the candidate, wrote it
                failure = Failure("judge", "world", f"the judge's reply could not be read: {error}")
            # an outage counts even where the feedback caught it: what it returned then is no judgement
            if stop := next((error for error in broken if isinstance(error, RunError)), None):
                raise stop
            if outage := next((error for error in broken if isinstance(error, ModelError) and error.fault == "world"), None):
                feedback, failure = None, Failure("judge", "world", f"the judge's model call failed: {outage}")
        elif failure.fault == "candidate":
            feedback = Feedback(self.objective.score(self.objective.worst), failure.message)
        return Rollout(
            key=key,
            value=None if feedback is None else self.objective.value(feedback.score),
            feedback=feedback,
            output=jsonable(execution.output),
            trace=execution.trace,
            failure=failure,
            usage=execution.trace.usage,
            judge_usage=total_usage(judging),
            seconds=time.perf_counter() - started,
        )


def _failure(execution: Execution) -> Failure | None:
    """The kind of a failed run. An outage counts even where the program caught it: what it returned then is not the candidate's answer."""
    if execution.outage is not None:
        return Failure(execution.outage.kind, "world", str(execution.outage))
    error = execution.error
    if error is None:
        return None
    if isinstance(error, RolloutError):
        return Failure(error.kind, error.fault, f"The program failed: {error}")
    where = traceback.extract_tb(error.__traceback__)[-1] if error.__traceback__ else None
    line = f" (line {where.lineno} of {where.name}: {where.line})" if where else ""
    return Failure("exception", "candidate", f"The program raised {type(error).__name__}: {error}{line}")
