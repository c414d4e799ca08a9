"""Write the bundle that ships: one JSON file that a person can read and diff (design decision 13)."""

from __future__ import annotations

import datetime
import json
import math
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gepa_lite.bundle import SCHEMA, SCHEMA_VERSION
from gepa_lite.core.feedback import Objective
from gepa_lite.ship.atomic import write_atomically

if TYPE_CHECKING:
    from gepa_lite.core.call import Usage
    from gepa_lite.program.optimizable import Frame
    from gepa_lite.search.verdict import Comparison
    from gepa_lite.ship.result import Result


def write_bundle(result: Result[Any], path: Path) -> Path:
    """Write ``result.program``'s prompts with their evidence. The file is complete or absent, never half-written."""
    return write_atomically(path, bundle_text(bundle_data(result)))


def bundle_text(data: Mapping[str, Any]) -> str:
    """A bundle as it stands in a file: sorted and indented, so that git diffs read well."""
    text = json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate, as a cut-off reply may hold: kept as a JSON escape
        return json.dumps(data, indent=2, sort_keys=True) + "\n"
    return text


def bundle_data(result: Result[Any]) -> dict[str, Any]:
    """The bundle as JSON types."""
    import gepa_lite

    state = result.state
    assert state.started is not None
    contracts = state.started.settings["contract"]
    parts, chosen = result.source.parts, state.pool[result.shipped]
    modules = {
        path: {
            "prompt": text,
            "seed": state.pool[0].candidate.texts[path],
            "signature": parts[path].signature,
            "fingerprint": parts[path].fingerprint,
            "model": parts[path].model,
            "params": dict(parts[path].params),
            "frame": _frame(parts[path].frame),
            "contract": contracts["modules"][path],
        }
        for path, text in result.prompts.items()
        if not parts[path].setting
    }
    beside = {path: text for path, text in result.prompts.items() if parts[path].setting}
    return {
        "schema": SCHEMA,
        "version": SCHEMA_VERSION,
        "program": result.source.name,
        "modules": modules,
        "contract": contracts["program"],
        "verdict": result.verdict,
        "scores": {
            "direction": result.objective.direction,
            "range": list(result.objective.range),
            **_splits(result),
            "objectives": {name: _scores(row, Objective()) for name, row in result.objectives.items()},
        },
        "candidate": {"id": chosen.candidate.id, "is_seed": chosen.index == 0, "lineage": lineage_of(result, chosen.index), **beside},
        "starts": [
            {**asdict(score), "origin": dict(start.origin)} for score, start in zip(result.starts[1:], state.started.starts, strict=True)
        ],
        "data": {
            "train": list(state.started.train_ids),
            "validation": list(state.started.validation_ids),
            "test": list(state.started.test_ids),
            "pins": list(state.started.pin_ids),
        },
        "feedback": state.started.settings["feedback"],
        "settings": dict(state.started.settings),
        "cost": {
            "rollouts": result.costs.logical.rollouts,
            "proposals": result.costs.logical.proposals,
            "paid": _usage(result.costs.paid),
            "roles": {role: _usage(usage) for role, usage in result.costs.roles.items()},
        },
        "made_by": f"gepa-lite {gepa_lite.__version__}",
        "versions": _versions(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def objective_of(data: Mapping[str, Any]) -> Objective:
    """Direction and range of a bundle's scores."""
    low, high = data["scores"].get("range", (0.0, 1.0))
    return Objective(data["scores"]["direction"], (float(low), float(high)))


def _frame(frame: Frame | None) -> dict[str, Any] | None:
    return None if frame is None else {"after": frame.after, "inputs": list(frame.inputs)}


def _splits(result: Result[Any]) -> dict[str, Any]:
    """The scores by split; the intervals of the two means are over the examples that both were scored on."""
    from gepa_lite.search.verdict import mean_interval

    def ends(row: Sequence[float | None], other: Sequence[float | None]) -> list[float] | None:
        _, low, high, n = mean_interval([value for value, beside in zip(row, other, strict=True) if beside is not None])
        return sorted((result.objective.score(low), result.objective.score(high))) if n else None

    state, found = result.state, {"validation": _scores(result.validation, result.objective), "test": None}
    rows: dict[str, tuple[Sequence[float | None], Sequence[float | None]]] = {
        "validation": (_cells(state.table.array[0]), _cells(state.table.array[result.winner_index]))
    }
    if result.test is not None and state.tested is not None:
        found["test"] = _scores(result.test, result.objective)
        rows["test"] = state.tested.seed_values, state.tested.winner_values
    for name, (seed, winner) in rows.items():
        found[name] = {**(found[name] or {}), "seed_interval": ends(seed, winner), "winner_interval": ends(winner, seed)}
    return found


def _cells(row: Sequence[float]) -> list[float | None]:
    return [None if math.isnan(value) else float(value) for value in row]


def _versions() -> dict[str, str]:
    """Of Python and of the libraries that had a part in the calls."""
    libraries = [name for name in ("dspy", "jinja2", "litellm", "numpy", "openai", "pydantic") if name in sys.modules]
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in libraries}}


def _scores(row: Comparison, objective: Objective) -> dict[str, Any]:
    """In the user's own direction: a gain of a minimized score is negative."""
    return {
        "seed": objective.score(row.before),
        "winner": objective.score(row.after),
        "gain": objective.score(row.gain),
        "interval": sorted((objective.score(row.low), objective.score(row.high))),
        "looks": row.looks,
        "n": row.n,
        "missing": row.missing,
        "p": row.p,
        "sign_p": row.sign_p,
        "won": row.won,
        "lost": row.lost,
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {"calls": usage.calls, "input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens, "usd": usage.usd}


def lineage_of(result: Result[Any], index: int) -> list[dict[str, Any]]:
    """From the seed to the candidate, first parents only: which step changed which module."""
    pool = result.state.pool
    line = []
    while True:
        member = pool[index]
        parent = pool[member.parents[0]] if member.parents else None
        changed = [] if parent is None else [m for m, text in member.candidate.texts.items() if parent.candidate.texts[m] != text]
        line.append({"candidate": member.candidate.id, "step": member.step, "changed": changed, "validation_mean": member.mean})
        if parent is None:
            return line[::-1]
        index = parent.index
