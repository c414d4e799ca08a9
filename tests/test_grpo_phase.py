"""From a run's rollouts to the rows of its updates, with a program that calls its modules never, once or often: nothing that was sampled is lost or trained twice, whatever the threads do. No torch."""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite.baselines.grpo.procedure import GRPO
from gepa_lite.baselines.grpo.rows import Row
from gepa_lite.baselines.grpo.settings import Training
from gepa_lite.baselines.optimizer import Optimizer
from gepa_lite.errors import ModelTimeoutError
from gepa_lite.lm.policy import Draw, PolicyLM, Sample
from tests.letters_engine import LettersBackend, LettersEngine

EXAMPLES = [{"text": f"{place} tries"} for place in range(12)]
GROUP, BATCH = 4, 3
_FREE: dict[str, Any] = {"max_tokens": 8, "temperature": 1.0, "retries": 0}


class Tries(gl.Program):
    """Try until it is high, at most as often as the text allows; every fourth never asks."""

    attempt = gl.Module("text, number -> word: Literal['low', 'high']", "Try.", **_FREE)
    check = gl.Module("text, word -> final: Literal['low', 'high']", "Check.", **_FREE)

    def forward(self, text: str) -> gl.Outputs:
        word = ""
        for number in range(2 * (int(text.split(maxsplit=1)[0]) % 4)):
            word = self.attempt(text=text, number=str(number)).word
            if word == "high":
                return gl.Outputs(word=self.check(text=text, word=word).final)
        return gl.Outputs(word=word)


class Watched(LettersEngine):
    """Keeps what it sampled in training; one draw in nine fails."""

    def __init__(self, outages: bool) -> None:
        super().__init__(lambda draw: ("low", "low", "low", "low", "low", "high", "none")[draw.seed % 7])
        self.sampled: Counter[tuple[tuple[int, ...], tuple[int, ...]]] = Counter()
        self._outages, self._kept = outages, threading.Lock()

    def ask(self, adapter: str, folder: Path | None, draw: Draw) -> Sample:
        if self._outages and draw.max_tokens == 7 and draw.seed % 9 == 0:
            raise ModelTimeoutError("no reply")
        made = super().ask(adapter, folder, draw)
        if draw.max_tokens == 7:
            with self._kept:
                self.sampled[made.prompt_ids, made.completion_ids] += 1
        return made


class Broken(LettersBackend):
    def __init__(self, last: int) -> None:
        super().__init__()
        self._last = last

    def train(self, course: Any) -> None:
        whole = course.rows

        def rows(step: int, ids: Any) -> list[Row]:
            found: list[Row] = whole(step, ids)
            if step == self._last:
                raise KeyError("the process died")
            return found

        super().train(dataclasses.replace(course, rows=rows))


def train(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    backend: LettersBackend | None = None,
    outages: bool = True,
    workers: int = 8,
    **settings: Any,
) -> tuple[list[list[Row]], Watched, Any]:
    monkeypatch.setattr("gepa_lite.lm.policy.lm.need", lambda *modules: None)
    backend, engine = backend or LettersBackend(), Watched(outages)
    training = Training(**{"steps": 4, "examples": BATCH, "group": GROUP, "calls": 7, "validate_every": 2, "max_tokens": 7, **settings})
    each = Optimizer("grpo", procedure=GRPO(training, backend=lambda calls: backend))
    judge = {"feedback": lambda example, output: {"": 0.1, "low": 0.4, "high": 0.9}[output.word]}
    result = each(
        Tries(lm=PolicyLM(engine, "fake")),
        EXAMPLES,
        [{"text": "1 more"}, {"text": "2 more"}],
        budget=gl.Budget(rollouts=10_000),
        run=folder,
        workers=workers,
        **judge,
    )
    return backend.rows, engine, result


def sampled_in(updates: list[list[Row]]) -> Counter[tuple[tuple[int, ...], tuple[int, ...]]]:
    return Counter((row.prompt_ids, row.completion_ids) for rows in updates for row in rows)


def test_every_reply_of_a_training_is_one_row_and_an_outage_is_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    updates, engine, result = train(tmp_path, monkeypatch)
    assert sampled_in(updates) == engine.sampled
    assert any(not row.trained for rows in updates for row in rows)
    assert any(row.advantage for rows in updates for row in rows)
    assert all(row.trained or row.advantage == 0 for rows in updates for row in rows)
    made = [proposal.shown for proposal in result.state.proposals]
    assert sum(shown["rows"] for shown in made) == sum(map(len, updates))
    assert sum(shown["masked"] for shown in made) == sum(not row.trained for rows in updates for row in rows)
    assert not any(shown["dropped"] for shown in made)


def test_the_number_of_threads_changes_no_row_and_not_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, _, first = train(tmp_path / "one", monkeypatch, workers=1)
    many, _, second = train(tmp_path / "many", monkeypatch, workers=16)
    assert one == many
    assert list(first.state.proposals) == list(second.state.proposals)


@pytest.mark.parametrize("outages", [False, True])
def test_where_rows_do_not_fit_some_are_drawn_and_masked_ones_go_first(
    outages: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the weights stand still, so that both runs sample the same
    monkeypatch.setattr(LettersEngine, "now", lambda self: "0" * 16)
    whole, _, _ = train(tmp_path / "whole", monkeypatch, outages=outages)
    few, _, result = train(tmp_path / "few", monkeypatch, outages=outages, calls=1)
    assert sum(proposal.shown["dropped"] for proposal in result.state.proposals) == sum(map(len, whole)) - sum(map(len, few)) > 0
    for all_rows, kept in zip(whole, few, strict=True):
        assert len(kept) == min(len(all_rows), BATCH * GROUP)
        assert [row for row in all_rows if row in kept] == kept
        trained = sum(row.trained for row in all_rows)
        assert sum(row.trained for row in kept) == min(trained, BATCH * GROUP)


def test_a_training_that_broke_off_has_the_same_rows_again_and_samples_none_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _, first = train(tmp_path / "whole", monkeypatch, outages=False)
    with pytest.raises(KeyError):
        train(tmp_path / "broken", monkeypatch, Broken(2), outages=False)
    again, engine, second = train(tmp_path / "broken", monkeypatch, outages=False)
    assert again == whole
    # updates 0 to 2 came from disk
    assert engine.sampled == sampled_in(whole[3:])
    assert list(first.state.proposals) == list(second.state.proposals)
    assert not list((tmp_path / "broken" / "training" / "samples").iterdir())
