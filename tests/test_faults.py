"""Everything around a run is broken: nothing paid is lost, no score invented, the budget kept, the user told, and the mended run goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.faults import KILL_POINTS, SCENARIOS, Truth, play, truth_of

KILLED = [name for name in SCENARIOS if name.startswith("SIG")]
JUDGED = [name for name in SCENARIOS if name.endswith("of the judge")]
CHOSEN = [name for name in SCENARIOS if name not in KILLED and name not in JUDGED]
CHOSEN += [
    KILLED[1],
    KILLED[KILL_POINTS // 2],
    KILLED[KILL_POINTS + 3],
    KILLED[-2],
    "lasting server of the judge",
    "lasting empty of the judge",
]
"""All but most of the kills and of the judge's outages, which the benchmark plays; kills also test_kill_resume.py."""


@pytest.fixture(scope="module")
def truths(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool, str], Truth]:
    known: dict[tuple[bool, str], Truth] = {}

    def truth(judged: bool, client: str) -> Truth:
        if (judged, client) not in known:
            known[judged, client] = truth_of(tmp_path_factory.mktemp("truth"), judged=judged, client=client)
        return known[judged, client]

    return truth


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("name", CHOSEN)
def test_a_fault_costs_nothing_but_time(name: str, tmp_path: Path, truths: Callable[[bool, str], Truth]) -> None:
    finding = play(name, tmp_path, truths)
    assert (finding.lost, finding.again, finding.invented, finding.over) == (0, 0, 0, 0)
    assert finding.told, finding.message
    assert finding.resumed is not False
