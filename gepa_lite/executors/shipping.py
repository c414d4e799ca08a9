"""What crosses the border of a worker process: programs and judges by cloudpickle, models by number.

A model never leaves the driver: its keys, connections, cache and ledger stay there. In a worker it is a ``DistantLM`` that knows what the model is called and nothing else.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gepa_lite.errors import GepaLiteError, RolloutError, RunError, UsageError
from gepa_lite.lm.made import MadeCall
from gepa_lite.lm.protocol import LM, Completion, LMInfo, Request


@dataclass(frozen=True, slots=True)
class DistantLM:
    """A model of the driver, as a worker sees it.

    Attributes:
        number: its place among the driver's models.
        info: what ``describe`` says.
    """

    number: int
    info: LMInfo

    def describe(self) -> LMInfo:
        """What the driver's model says of itself."""
        return self.info

    def complete(self, request: Request) -> Completion:
        """Never called: calls go through the rollout's recorder to the driver.

        Raises:
            UsageError: always; it says what to do.
        """
        raise UsageError(
            f"{self.info.name} was called directly in a worker process: call it through a module, or a gl.Program, so that the run can pay for it."
        )


class Manifest:
    """The driver's models by number, as they are met."""

    def __init__(self) -> None:
        self._models: list[LM] = []

    def number(self, lm: LM) -> int:
        """The number of a model, a new one where it is met first."""
        for index, known in enumerate(self._models):
            if known is lm:
                return index
        self._models.append(lm)
        return len(self._models) - 1

    def model(self, number: int) -> LM:
        """The model of a number."""
        return self._models[number]

    def same(self, lm: LM) -> LM:
        """The driver's own model for one that a worker opened by its name: the one that says the same of itself, or else this one from now on."""
        if isinstance(lm, MadeCall):
            # it is one call, not a model: equal ones are not the same
            return lm
        info = lm.describe()
        for known in self._models:
            if known.describe() == info:
                return known
        self._models.append(lm)
        return lm


def pack(value: Any, manifest: Manifest, what: str) -> bytes:
    """Bytes of a program or a judge, with its models by number.

    Raises:
        UsageError: it can't be sent; names what it is and why.
    """
    import cloudpickle

    class Packer(cloudpickle.Pickler):  # type: ignore[misc]
        def persistent_id(self, obj: Any) -> Any:
            # by its class: asking the object could run a user's __getattr__
            if isinstance(obj, (type, DistantLM)) or not (hasattr(type(obj), "complete") and hasattr(type(obj), "describe")):
                return None
            return manifest.number(obj), obj.describe()

    buffer = io.BytesIO()
    try:
        Packer(buffer).dump(value)
    except (GepaLiteError, MemoryError):
        raise
    except Exception as error:
        raise UsageError(
            f"{what} can't be sent to a worker process ({type(error).__name__}: {error}). Keep locks, connections and open files out of it "
            f"(open them inside forward or feedback), or use threads: workers=16."
        ) from error
    return buffer.getvalue()


class _Unpacker(pickle.Unpickler):
    def persistent_load(self, pid: Any) -> Any:
        number, info = pid
        return DistantLM(number, info)


def unpack(data: bytes) -> Any:
    """What ``pack`` packed, in the worker."""
    return _Unpacker(io.BytesIO(data)).load()


def portable(error: BaseException) -> BaseException:
    """The error itself where it survives the way between processes, or the nearest that does, with the same words."""
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception:
        copy = None
    if type(copy) is type(error) and str(copy) == str(error):
        return error
    base: Callable[[str], GepaLiteError] = next((cls for cls in _KEPT if isinstance(error, cls)), RunError)
    return base(f"{error}" if isinstance(error, GepaLiteError) else f"{type(error).__name__}: {error}")


_KEPT: Sequence[type[GepaLiteError]] = (UsageError, RunError, RolloutError)
