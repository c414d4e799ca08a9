"""Where the calls of a user's own code are seen: by name, or objects such as a proxy."""

from __future__ import annotations

from collections.abc import Sequence

from gepa_lite.adapters.recording.litellm_calls import LiteLLMCalls
from gepa_lite.adapters.recording.scope import CallSource
from gepa_lite.errors import UsageError

SourceSpec = CallSource | str | Sequence[CallSource | str]
"""What ``read_sources`` takes."""


def read_sources(spec: SourceSpec) -> tuple[CallSource, ...]:
    """The sources that a user means. Nothing is imported or started.

    Raises:
        UsageError: it is none.
    """
    if isinstance(spec, str) or not isinstance(spec, Sequence):
        return (_source(spec),)
    return tuple(map(_source, spec))


def _source(spec: object) -> CallSource:
    if spec == "litellm":
        return LiteLLMCalls()
    if isinstance(spec, CallSource):
        return spec
    raise UsageError(f"record={spec!r}: 'litellm', a gl.proxy() or gl.spans() is needed, or several.")
