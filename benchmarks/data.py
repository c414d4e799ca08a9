"""``python -m benchmarks data``: the public homes of the paper's data sets; with a name their licences, and with these accepted their splits as files."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.hub import PAPER_SETS, load_paper_set, stated_licences
from benchmarks.report import Options, Report, Row


def run(options: Options) -> Report:
    """``data``, ``data hotpotqa``, or ``data hotpotqa --accept-licence cc-by-sa-4.0 --folder DIR``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks data", description=run.__doc__)
    parser.add_argument("name", nargs="?", choices=[*PAPER_SETS])
    parser.add_argument("--accept-licence", action="append", default=[], help="by the name that the hub states; once for each home")
    parser.add_argument("--folder", type=Path, help="gets train.jsonl, val.jsonl and test.jsonl")
    parser.add_argument("--endpoint", help="another hub")
    parser.add_argument("--cache", type=Path, help="where fetched files are kept; the hub client's own place otherwise")
    asked = parser.parse_args(options.rest)
    if asked.name is None:
        rows = [Row(f"{name}: {home.repo}", home.licence) for name, found in PAPER_SETS.items() for home in found.homes]
        return Report(
            "data",
            rows,
            len(rows),
            extra={"note": "licences as commonly stated, not read from the hub; ask for a set by name to see what the hub states"},
        )
    if not asked.accept_licence:
        rows = [Row(f"{repo}: licence", licence) for repo, licence in stated_licences(asked.name, asked.endpoint).items()]
        return Report("data", rows, len(rows))
    splits = load_paper_set(asked.name, accept_licence=asked.accept_licence, endpoint=asked.endpoint, cache=asked.cache)
    for name, found in splits.items():
        if asked.folder is not None:
            asked.folder.mkdir(parents=True, exist_ok=True)
            lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in found)
            (asked.folder / f"{name}.jsonl").write_text("".join(lines), "utf-8")
    rows = [Row(f"{asked.name}: {name}, rows", len(found)) for name, found in splits.items()]
    return Report("data", rows, sum(map(len, splits.values())))
