"""What a module returns: its validated outputs, by attribute or by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


class Outputs(Mapping[str, Any]):
    """Immutable output fields of one call: ``out.urgency`` and ``out["urgency"]`` are the same.

    >>> out = Outputs(urgency="high")
    >>> out.urgency, dict(out)
    ('high', {'urgency': 'high'})
    """

    __slots__ = ("_values",)
    _values: dict[str, Any]

    def __init__(self, **values: Any) -> None:
        object.__setattr__(self, "_values", values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"no output {name!r}; this call returned {', '.join(map(repr, self._values)) or 'nothing'}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"outputs can't be changed; return gl.Outputs(**{{**out, {name!r}: ...}}) instead")

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._values,)

    def __repr__(self) -> str:
        return f"Outputs({', '.join(f'{key}={value!r}' for key, value in self._values.items())})"


def _restore(values: dict[str, Any]) -> Outputs:
    return Outputs(**values)
