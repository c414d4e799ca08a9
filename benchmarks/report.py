"""What a benchmark prints: a table for a person and, as its last line, one JSON object (design, section 6)."""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import gepa_lite


@dataclass(frozen=True)
class Options:
    """What the command line gives every benchmark.

    Attributes:
        quick: at most 50 seconds once installed.
        seeds: random seeds.
        rest: arguments of the benchmark's own.
    """

    quick: bool = False
    seeds: tuple[int, ...] = (0,)
    rest: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """One figure.

    ``peer`` and ``ratio`` are None where nothing is compared; ``goal`` in words; ``met`` None where there is no goal. ``spread`` is the least and the most of what ``ours``, or ``ratio`` where
    there is one, is the median of.
    """

    measure: str
    ours: float | str
    peer: float | str | None = None
    ratio: float | None = None
    goal: str | None = None
    met: bool | None = None
    spread: tuple[float, float] | None = None


@dataclass(frozen=True)
class Report:
    """A benchmark's outcome."""

    name: str
    rows: Sequence[Row]
    n: int
    seeds: Sequence[int] = ()
    model: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def table(self) -> str:
        """The rows for a person."""
        lines = [f"{'measure':<52}{'ours':>14}{'peer':>14}{'ratio':>9}  goal"]
        for row in self.rows:
            met = "" if row.met is None else ("  met" if row.met else "  NOT MET")
            spread = "" if row.spread is None else f"  ({_cell(row.spread[0])} to {_cell(row.spread[1])})"
            lines.append(f"{row.measure:<52}{_cell(row.ours):>14}{_cell(row.peer):>14}{_cell(row.ratio):>9}  {row.goal or ''}{met}{spread}")
        return "\n".join(lines)

    def json(self) -> str:
        """One line of JSON."""
        data = {
            "name": self.name,
            "rows": [{name: value for name, value in asdict(row).items() if name != "spread" or value is not None} for row in self.rows],
            "n": self.n,
            "seeds": list(self.seeds),
            "model": self.model,
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "version": gepa_lite.__version__,
            **self.extra,
        }
        return json.dumps(data, ensure_ascii=False)

    def write(self, out: Path | None) -> None:
        """Print both forms, and keep the JSON where asked."""
        print(self.table())
        line = self.json()
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(line + "\n", encoding="utf-8")
        print(line)


def _cell(value: float | str | None) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:,.4g}"
