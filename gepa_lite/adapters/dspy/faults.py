"""What an exception of a dspy model call means, as one of our typed errors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from gepa_lite.errors import (
    AuthError,
    BadRequestError,
    ContextWindowError,
    ModelConnectionError,
    ModelError,
    ModelNotFoundError,
    ModelTimeoutError,
    OutputError,
    RateLimitError,
    ServerError,
)
from gepa_lite.lm.faults import QuotaSpentError, read_fault, scrub

if TYPE_CHECKING:
    from gepa_lite.errors import Fault

# a class stands before its parents
_KINDS: tuple[tuple[str, type[ModelError], str], ...] = (
    ("LMAuthError", AuthError, "the key is missing or wrong."),
    ("LMNotConfiguredError", AuthError, "the key is missing: set it in the environment, or pass api_key to dspy.LM."),
    ("LMBillingError", QuotaSpentError, "the account's credit or quota is used up."),
    ("LMRateLimitError", RateLimitError, "too many requests. Lower workers, or ask for a higher limit."),
    ("LMUnsupportedModelError", ModelNotFoundError, "the endpoint does not know this model."),
    ("ContextWindowExceededError", ContextWindowError, "prompt and reply do not fit in the model's context window."),
    ("LMTimeoutError", ModelTimeoutError, "no full reply within the time-out."),
    ("LMServerError", ServerError, "the endpoint failed."),
    ("LMTransportError", ModelConnectionError, "no connection, or it was cut."),
    ("LMLockTimeoutError", ModelConnectionError, "the credentials' lock was busy."),
)


class DeclinedError(BadRequestError):
    """The endpoint does not accept a request's form. dspy's adapters try another form after that, so it is an outage only where the predictor fails for it."""

    fault: ClassVar[Fault] = "candidate"


def read_dspy_fault(error: Exception, where: str, secrets: Iterable[str] = ()) -> ModelError:
    """The ``ModelError`` of an exception that a dspy LM raised.

    Args:
        error: dspy's own, or whatever a user's LM class raises.
        where: the model and its endpoint, in words.
        secrets: texts that must not appear in the message.

    Returns:
        An error to raise. What is not known is the world's fault, as with every LM.
    """
    if isinstance(error, ModelError):
        return error
    names = {cls.__name__ for cls in type(error).__mro__}
    status, retry_after = getattr(error, "status", None), getattr(error, "retry_after", None)
    status = status if isinstance(status, int) else None
    if status == 404 and "LMError" in names:
        return ModelNotFoundError(_words(where, "the endpoint does not know this model (404).", error, secrets), status=404)
    for name, kind, what in _KINDS:
        if name in names:
            return kind(_words(where, what, error, secrets), retry_after=retry_after, status=status)
    if names & {"LMInvalidRequestError", "LMUnsupportedFeatureError"}:
        return _declined(read_fault(_Told(str(error), status or 400), where, secrets))
    cause = error.__cause__
    if "LMError" in names and isinstance(cause, Exception):
        error = cause
    return _declined(read_fault(error, where, secrets))


class _Told(Exception):
    """A client's exception as ``read_fault`` takes them: words and a status."""

    def __init__(self, message: str, status_code: int) -> None:
        super().__init__(message)
        self.status_code = status_code


def _declined(fault: ModelError) -> ModelError:
    return DeclinedError(str(fault), status=fault.status) if type(fault) is BadRequestError else fault


def _words(where: str, what: str, error: Exception, secrets: Iterable[str]) -> str:
    detail = " ".join(scrub(str(error), secrets).split())
    detail = detail if len(detail) <= 300 else detail[:300] + "..."
    return f"{where}: {what} It said: {detail}" if detail else f"{where}: {what}"


def as_our_error(error: Exception, faults: dict[int, ModelError]) -> Exception:
    """A program's exception in our terms: an unparsable reply, a failed model call, or the exception itself.

    Args:
        error: what the program raised.
        faults: the model calls' faults by the ``id`` of dspy's exception.
    """
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        if id(link) in faults:
            return faults[id(link)]
        if type(link).__name__ == "AdapterParseError":
            return OutputError(str(link))
        if type(link).__name__ == "ContextWindowExceededError":
            return ContextWindowError(str(link))
        link = link.__cause__
    return error
