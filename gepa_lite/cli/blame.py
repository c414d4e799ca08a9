"""``gepa-lite blame``: where each sentence of a run's prompts comes from."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from gepa_lite.cli.options import Json


def blame(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A name under the runs' folder, or the path of a run's folder.")],
    candidate: Annotated[int | None, typer.Option(metavar="N", min=0, help="Candidate N; without it the winner.")] = None,
    as_json: Json = False,
) -> None:
    """Say for each sentence of a candidate's prompts which proposal brought it, from which examples, and with what gain.

    Read from the event log alone: nothing is locked, called or paid for. A sentence belongs to the first candidate of the lineage, merges included, that had it. The
    validation gain is that of the whole candidate over its parent, so sentences that came together share it.
    """
    from gepa_lite.cli.output import answer, answer_json
    from gepa_lite.errors import UsageError
    from gepa_lite.insight.stored import read_run
    from gepa_lite.search.winner import winner_of
    from gepa_lite.ship.blame import blame_of
    from gepa_lite.store.folders import find_run

    stored = read_run(find_run(run))
    pool = stored.state.pool
    if not stored.state.seed_validated or (candidate is not None and candidate >= len(pool)):
        raise UsageError(f"candidate {candidate or 0} is not in this run; it has {f'0 to {len(pool) - 1}' if len(pool) else 'none yet'}.")
    found = blame_of(stored.state, winner_of(stored.state, stored.search).index if candidate is None else candidate)
    if as_json:
        answer_json([dataclasses.asdict(row) for row in found])
    else:
        answer("\n".join(map(str, found)))
