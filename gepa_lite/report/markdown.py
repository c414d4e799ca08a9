"""A report for a pull request: the verdict, the figures and what changed, in Markdown that GitHub and GitLab show."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gepa_lite.insight.distance import TextSpace
from gepa_lite.insight.measures import read_trail, run_of
from gepa_lite.insight.stored import read_run
from gepa_lite.report.html import comparisons
from gepa_lite.report.pages import Look
from gepa_lite.report.safe_text import cut
from gepa_lite.ship.findings import findings_text
from gepa_lite.ship.report_text import p_text
from gepa_lite.ship.starts import StartScore
from gepa_lite.ship.verdict_text import verdict_text
from gepa_lite.ship.words import word_diff
from gepa_lite.store.browse import Browse

if TYPE_CHECKING:
    from gepa_lite.ship.result import Result

_MOST = 8_000
_FLIPS = 10


def report_markdown(run: Result[Any] | str | Path) -> str:
    """A report of a run in Markdown. Texts of models stand in code alone, so that nothing in them is a link, a picture or a mention.

    Args:
        run: a result, the name of a run, or the path of its folder.

    Raises:
        UsageError: there is no such run, it was kept in memory, or its seed is not validated yet.
    """
    with Browse(run_of(run)) as browse:
        stored = read_run(browse.folder)
        result = stored.result()
        trail = read_trail(browse)
        look = Look(trail, browse, TextSpace(trail.modules))
        lines = verdict_text(result).splitlines()
        sections = [
            f"## {_plain(stored.folder.name)}",
            f"**{_plain(lines[0])}**\n\n" + "\n".join(f"{_plain(line)}  " for line in lines[1:]),
            _table(result),
            "\n".join(f"- {name}: {_plain(value)}" for name, value in look.summary),
            _race(look.race, trail.stopped is not None),
            _flips(result),
            _changes(result),
            _checks(result),
        ]
        if look.advice:
            sections.append("### Advice\n\n" + "\n".join(f"- {_plain(cut(str(item), 600))}" for item in look.advice))
        return "\n\n".join(section for section in sections if section) + "\n"


def _table(result: Result[Any]) -> str:
    rows = ["| | before | after | gain | 95 % interval | won | lost | n | p |", "|---|--:|--:|--:|---|--:|--:|--:|--:|"]
    for row in comparisons(result):
        interval = f"{row['low']:+.3f} to {row['high']:+.3f}"
        cells = [
            f"{row['before']:.3f}",
            f"{row['after']:.3f}",
            f"{row['gain']:+.3f}",
            interval,
            row["won"],
            row["lost"],
            row["n"],
            p_text(row["p"]),
        ]
        rows.append(f"| {_plain(row['name'])} | {' | '.join(map(str, cells))} |")
    return "\n".join(rows)


def _race(starts: Sequence[StartScore], ended: bool) -> str:
    if not starts:
        return ""
    rows = ["| start | candidate | validation | 95 % interval | rollouts | tokens | USD | |", "|---|---|--:|---|--:|--:|--:|---|"]
    for start in starts:
        cells = [
            _plain(start.name),
            "" if start.index is None else f"\\#{start.index}",
            "" if start.mean is None else f"{start.mean:.3f}",
            "" if start.mean is None else f"{start.low:.3f} to {start.high:.3f}",
            f"{start.rollouts:,}",
            f"{start.tokens:,}",
            "unknown" if start.usd is None else f"{start.usd:.4f}",
            start.words(ended),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "### Starts, on the same validation examples\n\n" + "\n".join(rows)


def _flips(result: Result[Any]) -> str:
    lost = [flip for flip in result.flips if not flip.won]
    if not lost:
        return ""
    rows = [f"- {_code(flip.example_id)}: {flip.before:g} → {flip.after:g}" for flip in lost[:_FLIPS]]
    more = f"\n- and {len(lost) - _FLIPS} more" if len(lost) > _FLIPS else ""
    return "### Worse than before\n\n" + "\n".join(rows) + more


def _checks(result: Result[Any]) -> str:
    lines = findings_text(result.findings).splitlines()[1:]
    return "### Checks of proposed prompts\n\n" + "\n".join(f"- {_plain(line.strip())}" for line in lines) if lines else ""


def _changes(result: Result[Any]) -> str:
    parts = []
    for path, after in result.winner_prompts.items():
        before = result.seed_prompts[path]
        if before == after:
            continue
        short = len(before) + len(after) <= 4 * _MOST
        changed = word_diff(before, after) if short else after
        parts.append(f"<details><summary>{_plain(path)}</summary>\n\n{_fence(cut(changed, _MOST))}\n\n</details>")
    return "### What changed, [-removed-] and {+added+}\n\n" + "\n\n".join(parts) if parts else ""


def _fence(text: str) -> str:
    """A code block that the text can't close."""
    ticks = max((len(run) for run in re.findall("`+", text)), default=0)
    mark = "`" * max(3, ticks + 1)
    return f"{mark}text\n{text}\n{mark}"


def _code(text: str) -> str:
    words = re.sub(r"[`|\s]+", " ", cut(text, 60))
    return f"`{words}`"


def _plain(text: str) -> str:
    r"""A text in which nothing is markup, a mention or an address.

    >>> _plain("<b>@all</b> | see [x](y)")
    '&lt;b>\\@all&lt;/b> \\| see \\[x\\](y)'
    """
    return re.sub(r"([\\`*_\[\]|@#!~])", r"\\\1", cut(text, 2_000).replace("\n", " ")).replace("&", "&amp;").replace("<", "&lt;")
