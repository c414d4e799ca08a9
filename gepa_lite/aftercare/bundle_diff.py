"""Two bundles side by side: words, scores and cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gepa_lite.bundle import Prompts
from gepa_lite.core.rules import estimated_tokens
from gepa_lite.ship.words import word_diff


@dataclass(frozen=True)
class BundleDiff:
    """What differs between two bundles. ``print`` it.

    Attributes:
        before: name of the first.
        after: name of the second.
        words: the word diff of each prompt that differs, by module.
        removed: modules of the first alone.
        added: modules of the second alone.
        facts: rows of ``(name, before, after)`` that are told side by side, equal ones included.
        same_data: whether both were scored on the same examples by the same feedback, so that their scores can be compared.
    """

    before: str
    after: str
    words: Mapping[str, str]
    removed: tuple[str, ...]
    added: tuple[str, ...]
    facts: tuple[tuple[str, str, str], ...]
    same_data: bool

    def to_data(self) -> dict[str, Any]:
        """JSON types."""
        facts = {name: {"before": before, "after": after} for name, before, after in self.facts}
        names = {"before": self.before, "after": self.after}
        return {
            **names,
            "words": dict(self.words),
            "removed": list(self.removed),
            "added": list(self.added),
            "facts": facts,
            "same_data": self.same_data,
        }

    def __str__(self) -> str:
        parts = [f"--- {module} ---\n{text}" for module, text in self.words.items()]
        parts += [
            f"--- {module} ---\nonly in {name}"
            for name, modules in ((self.before, self.removed), (self.after, self.added))
            for module in modules
        ]
        if not parts:
            parts = ["The prompts are the same."]
        rows = [("", self.before, self.after), *self.facts]
        wide = [max(len(row[column]) for row in rows) for column in (0, 1)]
        parts.append("\n".join(f"{name:<{wide[0]}}  {before:<{wide[1]}}  {after}".rstrip() for name, before, after in rows))
        if not self.same_data:
            parts.append(
                "The scores are of different examples or by another feedback function: they can't be compared. `gepa-lite recheck` scores both on the same data."
            )
        return "\n\n".join(parts)


def diff_bundles(before: Prompts, after: Prompts) -> BundleDiff:
    """Compare two bundles, by what stands in them; nothing is called or paid for.

    Args:
        before: the older one.
        after: the newer one.

    Example:
        >>> print(diff_bundles(load_prompts("old.prompts.json"), load_prompts("new.prompts.json")))  # doctest: +SKIP
    """
    words = {path: word_diff(before[path], after[path]) for path in before if path in after and before[path] != after[path]}
    left, right = _facts(before), _facts(after)
    return BundleDiff(
        before.source,
        after.source,
        words,
        tuple(path for path in before if path not in after),
        tuple(path for path in after if path not in before),
        tuple((name, left[name], right[name]) for name in left),
        all(before.data.get(key) == after.data.get(key) for key in ("data", "feedback")),
    )


def _facts(prompts: Prompts) -> dict[str, str]:
    data = prompts.data
    cost = data.get("cost", {}).get("paid", {})
    models = sorted({str(entry.get("model")) for entry in data["modules"].values()})
    return {
        "program": str(data.get("program")),
        "date": str(data.get("date")),
        "models": ", ".join(models),
        "verdict": str(data.get("verdict")),
        "validation": _score(data, "validation"),
        "test": _score(data, "test"),
        "prompt tokens": f"{sum(map(estimated_tokens, prompts.values())):,}",
        "cost of the run": f"{data.get('cost', {}).get('rollouts', 0):,} rollouts"
        + ("" if cost.get("usd") is None else f", {cost['usd']:.4f} USD"),
    }


def _score(data: Mapping[str, Any], split: str) -> str:
    row = data.get("scores", {}).get(split)
    if not row:
        return "-"
    own = "seed" if data["candidate"]["is_seed"] else "winner"
    interval = row.get(f"{own}_interval")
    held = "" if not interval else f" [{interval[0]:.3f}, {interval[1]:.3f}]"
    return f"{row[own]:.3f}{held} (n={row['n']})"
