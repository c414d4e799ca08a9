"""What an exception of a user's function means: an outage of a service that it calls is the world's fault, and never a score."""

from __future__ import annotations

from collections.abc import Iterator

from gepa_lite.errors import ModelConnectionError, ModelError, RolloutError
from gepa_lite.lm.faults import read_fault, scrub

# whose exceptions say what came of a model call, in the form that read_fault takes
_CLIENTS = frozenset({"anthropic", "cohere", "google", "groq", "litellm", "mistralai", "ollama", "openai", "together"})
# whose exceptions say that a service could not be reached
_TRANSPORTS = frozenset({"aiohttp", "botocore", "httpcore", "httpx", "httpx2", "requests", "urllib3"})
_NOT_THE_WORLDS = frozenset({"InvalidURL", "InvalidSchema", "MissingSchema", "JSONDecodeError"})


def as_fault(error: Exception) -> Exception:
    """The ``ModelError`` that a client's exception means, also where it was raised as the cause of another; else the exception itself.

    >>> type(as_fault(ConnectionRefusedError("no"))).__name__, type(as_fault(KeyError("x"))).__name__
    ('ModelConnectionError', 'KeyError')
    """
    for link in _chain(error):
        if isinstance(link, RolloutError):
            return link
        package = type(link).__module__.partition(".")[0]
        if package in _CLIENTS and isinstance(link, Exception):
            fault = read_fault(link, f"a model call by {package}")
            # an exception of the client's own making, not of a call
            if type(fault) is not ModelError:
                return fault
        lost = package in _TRANSPORTS and not {cls.__name__ for cls in type(link).__mro__} & _NOT_THE_WORLDS
        if lost or isinstance(link, (ConnectionError, TimeoutError)):
            return ModelConnectionError(scrub(f"a service could not be reached: {type(link).__name__}: {link}"))
    return error


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
