"""Every error that gepa_lite raises, in one tree.

``UsageError``: the call is wrong; raised before any money is spent.
``RunError``: the run can't go on; what was paid is kept and the run can be resumed.
``RolloutError``: one rollout or one model call failed. It is caught at the rollout's boundary and becomes a value with a
``kind`` and a ``fault``: the candidate's fault is scored, the world's fault is missing (design decision 6).
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself costs a process that only loads prompts more than all of this package
if TYPE_CHECKING:
    from typing import Any, ClassVar, Literal

    Fault = Literal["candidate", "world"]


class GepaLiteError(Exception):
    """Base of every error of this package."""


class UsageError(GepaLiteError, ValueError):
    """A wrong argument or set-up. The message names the thing, what was expected, what came and what to do."""


class RunError(GepaLiteError):
    """A run can't go on. Paid work is on disk; the message says how to resume."""


class FeedbackError(RunError):
    """The feedback function raised, or returned something that is not a feedback.

    Attributes:
        example_id: the example it was judging.
    """

    def __init__(self, message: str, example_id: str) -> None:
        super().__init__(message)
        self.example_id = example_id

    def __reduce__(self) -> tuple[Any, ...]:
        # an exception with a second argument can't be unpickled without this, and it comes back from worker processes
        return type(self), (str(self), self.example_id)


class ModelsDownError(RunError):
    """Too many model calls failed for reasons outside the program: the run stops instead of burning its budget."""


class StoreError(RunError):
    """The run's file can't be read or written."""


class RunLockedError(StoreError):
    """Another process writes to this run."""


class BudgetSpentError(RunError):
    """A call does not fit in what is left of the budget. The loop turns it into a normal stop."""


class RolloutError(GepaLiteError):
    """A failure inside one rollout.

    Attributes:
        kind: a short stable word such as ``"parse"`` or ``"rate_limit"``; it is written to the run's store.
        fault: ``"candidate"`` (scored, with the message as its diagnosis) or ``"world"`` (missing, never scored).
    """

    kind: ClassVar[str] = "error"
    fault: ClassVar[Fault] = "candidate"


class OutputError(RolloutError):
    """A model's reply does not hold the outputs that the signature declares."""

    kind = "parse"


class SandboxError(RolloutError):
    """Code that the candidate wrote or is made of failed in the sandbox, or was stopped there."""

    kind = "sandbox"


class ModelError(RolloutError):
    """A model call failed.

    Attributes:
        retryable: whether the same call may succeed later.
        retry_after: seconds that the server asked to wait, or None.
        status: the HTTP status, or None.
        attempts: requests that were sent for this call, this failure's included.
    """

    kind = "model"
    fault: ClassVar[Fault] = "world"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, retry_after: float | None = None, status: int | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.status = status
        self.attempts = 1


class AuthError(ModelError):
    """The key is missing, wrong or not allowed to use the model (401, 403)."""

    kind = "auth"


class ModelNotFoundError(ModelError):
    """The endpoint does not know the model (404)."""

    kind = "not_found"


class BadRequestError(ModelError):
    """The endpoint does not accept the request's form or parameters (400, 422)."""

    kind = "bad_request"


class RateLimitError(ModelError):
    """Too many requests, or no quota left (429)."""

    kind = "rate_limit"
    retryable = True


class ModelTimeoutError(ModelError):
    """No full reply within the time-out."""

    kind = "timeout"
    retryable = True


class ModelConnectionError(ModelError):
    """The connection failed, was cut, or the reply was not of the protocol."""

    kind = "connection"
    retryable = True


class ServerError(ModelError):
    """The endpoint failed (5xx)."""

    kind = "server"
    retryable = True


class ContextWindowError(ModelError):
    """Prompt and reply do not fit in the model's context window: the candidate's prompt is too long."""

    kind = "context_window"
    fault = "candidate"


class RefusedError(ModelError):
    """The model or its provider's filter refused the content."""

    kind = "refused"
    fault = "candidate"
