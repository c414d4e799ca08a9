"""Write the bundle that ships: one JSON file that a person can read and diff (design decision 13)."""

from __future__ import annotations

import datetime
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gepa_lite.bundle import SCHEMA, SCHEMA_VERSION
from gepa_lite.core.feedback import Objective
from gepa_lite.errors import UsageError

if TYPE_CHECKING:
    from gepa_lite.core.call import Usage
    from gepa_lite.search.verdict import Comparison
    from gepa_lite.ship.result import Result


def write_bundle(result: Result[Any], path: Path) -> Path:
    """Write ``result.program``'s prompts with their evidence. The file is complete or absent, never half-written."""
    if not path.parent.is_dir():
        raise UsageError(f"{path} can't be written: the folder {path.parent} does not exist.")
    text = json.dumps(bundle_data(result), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    try:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # a temporary file is private to its owner; a shipped file is as readable as any other
        Path(file.name).chmod(0o666 & ~_umask())
        Path(file.name).replace(path)
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror}.") from error
    return path


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


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
            "signature": parts[path].signature,
            "fingerprint": parts[path].fingerprint,
            "model": parts[path].model,
            "contract": contracts["modules"][path],
        }
        for path, text in result.prompts.items()
    }
    return {
        "schema": SCHEMA,
        "version": SCHEMA_VERSION,
        "program": result.source.name,
        "modules": modules,
        "contract": contracts["program"],
        "verdict": result.verdict,
        "scores": {
            "direction": result.objective.direction,
            "validation": _scores(result.validation, result.objective),
            "test": None if result.test is None else _scores(result.test, result.objective),
            "objectives": {name: _scores(row, Objective()) for name, row in result.objectives.items()},
        },
        "candidate": {"id": chosen.candidate.id, "is_seed": chosen.index == 0, "lineage": _lineage(result, chosen.index)},
        "data": {
            "train": list(state.started.train_ids),
            "validation": list(state.started.validation_ids),
            "test": list(state.started.test_ids),
            "pins": list(state.started.pin_ids),
        },
        "settings": dict(state.started.settings),
        "cost": {
            "rollouts": result.costs.logical.rollouts,
            "proposals": result.costs.logical.proposals,
            "paid": _usage(result.costs.paid),
            "roles": {role: _usage(usage) for role, usage in result.costs.roles.items()},
        },
        "made_by": f"gepa-lite {gepa_lite.__version__}",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


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


def _lineage(result: Result[Any], index: int) -> list[dict[str, Any]]:
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
