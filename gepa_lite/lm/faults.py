"""What went wrong with a model call: from any client's exception to one typed, worded, key-free ``ModelError``.

Nothing here imports a client library: exceptions are told apart by class name, HTTP status and the endpoint's own words.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit, urlunsplit

from gepa_lite.errors import (
    AuthError,
    BadRequestError,
    ContextWindowError,
    ModelConnectionError,
    ModelError,
    ModelNotFoundError,
    ModelTimeoutError,
    RateLimitError,
    RefusedError,
    ServerError,
)

_MAX_DETAIL = 300
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_SECRET_TEXT = re.compile(r"\b(?:sk|pk|rk|gsk|xai|hf|ghp|AIza|AKIA)[-_]?[-_A-Za-z0-9]{14,}|(?<=Bearer )\S+|(?<=://)[^/@\s]+(?=@)")
_CONTEXT_WORDS = re.compile(
    r"context.?(?:window|length|size)|(?:prompt|input) is too long|too many (?:input )?tokens|maximum (?:number of )?(?:input )?tokens",
    re.IGNORECASE,
)
_FILTER_WORDS = re.compile(r"content.?(?:filter|policy|management)|safety (?:system|filter)|responsible.?ai", re.IGNORECASE)
_QUOTA_WORDS = re.compile(r"insufficient.?(?:quota|funds|credit|balance)|exceeded your current quota|billing|credit balance", re.IGNORECASE)
_NO_KEY_WORDS = re.compile(r"missing credentials|api_key client option|missing.{0,30}api.?key|no api key", re.IGNORECASE)


class QuotaSpentError(RateLimitError):
    """The account has no money or quota left: waiting a minute does not help."""

    retryable = False


def scrub(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without keys: those given, those in the environment, and whatever looks like one.

    Secrets shorter than four characters are left, since they would blot out ordinary words.

    >>> scrub("wrong key my-own-key", ["my-own-key"])
    'wrong key ***'
    """
    known = {value for name, value in os.environ.items() if _SECRET_NAME.search(name) and len(value) >= 8}
    known |= {secret for secret in secrets if len(secret) >= 4}
    # the longest first, or a key that starts with another would leave its tail
    for secret in sorted(known, key=len, reverse=True):
        text = text.replace(secret, "***")
    return _SECRET_TEXT.sub("***", text)


def secrets_in(options: Mapping[str, object]) -> tuple[str, ...]:
    """The texts in a client's options that must not be shown: values of secret-like names, and all headers."""
    found: list[str] = []
    for name, value in options.items():
        if isinstance(value, Mapping) and "header" in name.lower():
            found += [word for text in value.values() for word in str(text).split()]
        elif isinstance(value, Mapping):
            found += secrets_in(value)
        elif isinstance(value, str) and _SECRET_NAME.search(name):
            found.append(value)
    return tuple(found)


def shown_url(url: str) -> str:
    """The URL without user, password, query and fragment.

    >>> shown_url("https://me:secret@host:8000/v1?key=1")
    'https://host:8000/v1'
    """
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def read_retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """How many seconds the server asks to wait, or None if it does not say, or says nothing that can be read.

    Reads ``retry-after-ms``, then ``Retry-After`` in seconds or as an HTTP date. Never negative.

    >>> read_retry_after({"Retry-After": "1.5"})
    1.5
    """
    lower = {name.lower(): value.strip() for name, value in headers.items()}
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        if re.fullmatch(r"\d+(\.\d+)?", lower.get(name, "")):
            return float(lower[name]) * unit
    try:
        moment = parsedate_to_datetime(lower.get("retry-after", ""))
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())


def read_fault(error: Exception, where: str, secrets: Iterable[str] = ()) -> ModelError:
    """The ``ModelError`` that says what a client's exception means.

    Args:
        error: what litellm or the openai package raised.
        where: the model and its endpoint, in words.
        secrets: texts that must not appear in the message.

    Returns:
        An error to raise; its message names the model, the endpoint, what came and what to do, and holds no key.
    """
    headers = _headers(error)
    status = _status(error, headers)
    kind, what = _kind(error, status, _said(error))
    detail = scrub(_detail(error), secrets)
    message = f"{where}: {what} It said: {detail}" if detail else f"{where}: {what}"
    return kind(message, retry_after=read_retry_after(headers), status=status)


_BY_STATUS: dict[int, tuple[type[ModelError], str]] = {
    401: (AuthError, "the key is missing or wrong (401). Set the provider's key in the environment or pass api_key."),
    402: (QuotaSpentError, "the account has no credit left (402). Top it up, then resume."),
    403: (AuthError, "this key may not use this model (403). Ask for access, or use another key or model."),
    404: (ModelNotFoundError, "the endpoint does not know this model (404). Check the model's name, and api_base if you set it."),
    408: (ModelTimeoutError, "the endpoint gave up waiting (408)."),
    429: (RateLimitError, "too many requests (429). Lower workers or max_in_flight, or ask for a higher limit."),
}


def _kind(error: Exception, status: int | None, said: str) -> tuple[type[ModelError], str]:
    names = {base.__name__ for base in type(error).__mro__}
    if "BudgetExceededError" in names:
        return ModelError, "litellm.max_budget, which your own code has set, is used up."
    if names & {"Timeout", "APITimeoutError"} and status != 408:
        return ModelTimeoutError, "no full reply within the time-out. Raise timeout, or lower workers if the endpoint is overloaded."
    if status == 429 and _QUOTA_WORDS.search(said):
        return QuotaSpentError, "the account's quota is used up (429). Top it up, then resume."
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status is not None and 400 <= status < 500:
        return _bad_request(names, status, said)
    if status is not None and status >= 500:
        return ServerError, f"the endpoint failed ({status})."
    if _NO_KEY_WORDS.search(said):
        return AuthError, "there is no key for this provider. Set it in the environment or pass api_key."
    if names & {"APIError", "APIConnectionError"}:
        return (
            ModelConnectionError,
            "no connection, or it was cut, or the reply is not of the chat protocol. Check that the endpoint is up and api_base is right.",
        )
    return ModelError, f"the client failed with {type(error).__name__}."


def _bad_request(names: set[str], status: int, said: str) -> tuple[type[ModelError], str]:
    if "ContentPolicyViolationError" in names or _FILTER_WORDS.search(said):
        return RefusedError, f"the provider's content filter refused the prompt ({status})."
    if "ContextWindowExceededError" in names or _CONTEXT_WORDS.search(said):
        return (
            ContextWindowError,
            f"prompt and reply do not fit in the model's context window ({status}). Shorten the prompt or lower max_tokens.",
        )
    return BadRequestError, f"the endpoint does not accept the request ({status}). Change or drop the parameter it names."


def _headers(error: Exception) -> dict[str, str]:
    """The headers of a real HTTP reply; empty where the client made the status up."""
    for source in (getattr(error, "litellm_response_headers", None), getattr(getattr(error, "response", None), "headers", None)):
        if isinstance(source, Mapping) and source:
            return {str(name): str(value) for name, value in source.items()}
    return {}


def _status(error: Exception, headers: Mapping[str, str]) -> int | None:
    """The HTTP status, or None where there was no HTTP reply or it was a broken 200.

    litellm reports a cut connection and an unreadable body as status 500, and a client-side time-out as 408; real replies have headers.
    """
    status = getattr(error, "status_code", None)
    if not isinstance(status, int) or isinstance(status, bool):
        return None
    made_up = not headers and (status in (408, 500) or status < 400)
    return None if made_up else status


def _said(error: Exception) -> str:
    """All that the error says, for telling kinds apart; never shown."""
    body = getattr(error, "body", None)
    try:
        text = str(getattr(getattr(error, "response", None), "text", "") or "")
    except RuntimeError:  # httpx: the body of a streamed reply was not read
        text = ""
    return f"{error} {body or ''} {text}"


def _detail(error: Exception) -> str:
    """The endpoint's own words, on one line."""
    text = str(error).split("Traceback (most recent call last)")[0]
    text = re.sub(r"^(?:(?:litellm\.)?\w*(?:Error|Timeout)\b:? ?-? ?|\w+Exception\b ?-? ?)+", "", text)
    text = " ".join(text.split())
    return text if len(text) <= _MAX_DETAIL else text[:_MAX_DETAIL] + "..."
