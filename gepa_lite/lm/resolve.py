"""From what a user writes to an LM: a name, a function or an object."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, runtime_checkable

from gepa_lite.errors import UsageError
from gepa_lite.lm.callable_lm import CallableLM
from gepa_lite.lm.litellm_client import LiteLLM
from gepa_lite.lm.protocol import LM, LMInfo
from gepa_lite.lm.providers import find_provider, near_models

LMSpec = str | LM | Callable[[list[dict[str, str]]], Any]
"""What ``open_lm`` takes."""


@runtime_checkable
class ReadyCheck(Protocol):
    """An LM that can say, at no cost, whether it could be called: the optional ability behind ``check_lm``."""

    def check_ready(self) -> None:
        """Raise ``UsageError`` if a call could not succeed for want of a key, a provider or a file."""
        ...


def open_lm(spec: LMSpec) -> LM:
    """The LM that a user means. Nothing is called, downloaded or paid for.

    * ``"local/<name>"``: an embedded model, or a ``.gguf`` file by its path;
    * ``"policy/<name>"``: an open model on PyTorch that can be trained, or the folder of a trained adapter (extra ``rl``);
    * ``"provider/model"``, or a bare name that litellm knows: a ``LiteLLM`` with its defaults;
    * an LM: itself;
    * a function of messages: wrapped in a ``CallableLM``.

    A ``"provider/model"`` is not looked up here, since that imports litellm; ``check_lm`` does it.

    >>> open_lm("openai/gpt-4.1-mini")
    LiteLLM('openai/gpt-4.1-mini')

    Raises:
        UsageError: it is none of these; the message names near matches.
    """
    if isinstance(spec, str):
        return _open_name(spec.strip())
    if isinstance(spec, type):
        raise UsageError(f"A language model must be an object, but got the class {spec.__name__}. Did you mean {spec.__name__}(...)?")
    if isinstance(spec, LM):
        return spec
    if callable(spec):
        return CallableLM(spec)
    raise UsageError(
        "A language model must be a name such as 'openai/gpt-4.1-mini' or 'local/<model>', an LM, or a function of messages, "
        f"but got {type(spec).__name__}."
    )


def check_lm(lm: LM) -> None:
    """Refuse a model that can't be called, before anything is paid for. Never touches the network.

    Raises:
        UsageError: an unknown provider, with near matches, or a missing key, by the name of its variable.
    """
    if isinstance(lm, LiteLLM) and find_provider(lm.describe().name, lm.describe().endpoint or None) is None:
        raise _unknown(lm.describe().name)
    if isinstance(lm, ReadyCheck):
        lm.check_ready()


def check_distinct(models: Iterable[LM]) -> None:
    """Refuse functions that can't be told apart, since one would get the replies saved of the other.

    Raises:
        UsageError: names the function.
    """
    known: dict[LMInfo, CallableLM] = {}
    for lm in models:
        if isinstance(lm, CallableLM) and not known.setdefault(lm.describe(), lm).same_function(lm):
            name = lm.describe().name
            raise UsageError(f"two models are both the function {name}: give each a name, gl.CallableLM(fn, name='...').")


def _open_name(name: str) -> LM:
    if name.startswith("local/"):
        from gepa_lite.lm.local import open_local

        return open_local(name.removeprefix("local/"))
    if name.startswith("policy/"):
        from gepa_lite.lm.policy import open_policy

        return open_policy(name.removeprefix("policy/"))
    if name and "/" not in name and find_provider(name) is None:
        raise _unknown(name)
    return LiteLLM(name)


def _unknown(name: str) -> UsageError:
    near = near_models(name)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return UsageError(f"Unknown model {name!r}: write 'provider/model', e.g. 'openai/gpt-4.1-mini', or 'local/<model>'.{hint}")
