"""From rollouts to rows: every sampled token is trained once, baselines sum to zero, padding and outages carry no gradient. No torch."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gepa_lite as gl
from gepa_lite.baselines.grpo.rows import BASELINES, Baseline, Episode, GroupBuilder, SampledCall, padded, relative, trained_tokens

rewards = st.one_of(st.none(), st.floats(-1e3, 1e3))
calls = st.builds(
    lambda module, prompt, completion: SampledCall(module, tuple(prompt), tuple(completion), tuple(-0.5 for _ in completion)),
    st.sampled_from(["gist", "route", "check"]),
    st.lists(st.integers(0, 99), min_size=1, max_size=4),
    st.lists(st.integers(0, 99), max_size=5),
)
episodes = st.builds(
    lambda example, called, reward: Episode(example, tuple(called), reward), st.sampled_from("abc"), st.lists(calls, max_size=5), rewards
)
batches = st.lists(episodes, max_size=16)
builders = st.builds(GroupBuilder, st.sampled_from(BASELINES), st.booleans())


@given(batches, builders)
def test_every_sampled_token_is_trained_once_where_its_rollout_has_a_reward(batch: list[Episode], builder: GroupBuilder) -> None:
    rows = builder.rows(batch)
    sampled = sum(len(call.completion_ids) for episode in batch if episode.reward is not None for call in episode.calls)
    assert trained_tokens(rows) == sampled
    assert len({(row.episode, row.call) for row in rows}) == len(rows)
    for row in rows:
        call = batch[row.episode].calls[row.call]
        assert (row.prompt_ids, row.completion_ids, row.logprobs) == (call.prompt_ids, call.completion_ids, call.logprobs)
        assert row.trained == (batch[row.episode].reward is not None)
        assert row.trained or row.advantage == 0.0


@given(batches, st.booleans())
def test_the_advantages_of_a_group_of_rollouts_sum_to_zero(batch: list[Episode], scaled: bool) -> None:
    # each rollout once, whatever number of replies it has
    whole = [Episode(e.example_id, (SampledCall("m", (1,), (2,), (0.0,)),), e.reward) for e in batch]
    sums: dict[str, list[float]] = defaultdict(list)
    for row in GroupBuilder("rollout", scaled).rows(whole):
        sums[whole[row.episode].example_id].append(row.advantage)
    assert all(math.isclose(math.fsum(values), 0.0, abs_tol=1e-6) for values in sums.values())


@given(batches)
def test_by_module_the_advantages_of_one_module_and_invocation_sum_to_zero(batch: list[Episode]) -> None:
    filled = [
        Episode(
            e.example_id,
            tuple(SampledCall(c.module, c.prompt_ids, c.completion_ids or (7,), c.logprobs or (0.0,)) for c in e.calls),
            e.reward,
        )
        for e in batch
    ]
    sums: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for row in GroupBuilder("module", scaled=False).rows(filled):
        episode = filled[row.episode]
        module = episode.calls[row.call].module
        sums[episode.example_id, module, sum(call.module == module for call in episode.calls[: row.call])].append(row.advantage)
    assert all(math.isclose(math.fsum(values), 0.0, abs_tol=1e-6) for values in sums.values())


@given(batches, builders, st.randoms())
def test_the_order_of_threads_changes_nothing_but_the_order(batch: list[Episode], builder: GroupBuilder, order: object) -> None:
    places = list(range(len(batch)))
    order.shuffle(places)  # type: ignore[attr-defined]
    shuffled = builder.rows([batch[place] for place in places])
    before = {(row.episode, row.call): row.advantage for row in builder.rows(batch)}
    after = {(places[row.episode], row.call): row.advantage for row in shuffled}
    assert before.keys() == after.keys()
    assert all(math.isclose(before[key], after[key], abs_tol=1e-6) for key in before)


@given(batches, builders, st.integers(0, 8))
def test_padding_fills_up_and_carries_no_gradient(batch: list[Episode], builder: GroupBuilder, more: int) -> None:
    rows = builder.rows(batch)
    filled = padded(rows, len(rows) + more, pad_id=0)
    assert len(filled) == len(rows) + more
    assert filled[: len(rows)] == rows
    assert all(not row.trained and row.advantage == 0.0 and row.completion_ids for row in filled[len(rows) :])
    assert trained_tokens(filled) == trained_tokens(rows)


def test_an_outage_is_left_out_of_its_groups_mean_and_is_no_zero() -> None:
    assert relative([1.0, None, 0.0], scaled=False) == [0.5, None, -0.5]
    assert relative([None, None]) == [None, None]
    assert relative([0.7]) == [0.0]
    assert relative([0.5, 0.5, 0.5]) == [0.0, 0.0, 0.0]
    good, bad = relative([1.0, 0.0])
    assert good is not None
    assert good == pytest.approx(0.5 / (math.sqrt(0.5) + 1e-4))
    assert bad == -good


@pytest.mark.parametrize("baseline", BASELINES)
def test_a_module_that_ran_in_one_rollout_only_is_told_apart_by_the_baseline(baseline: Baseline) -> None:
    def call(module: str) -> SampledCall:
        return SampledCall(module, (1,), (2, 3), (-0.1, -0.2))

    batch = [Episode("a", (call("gist"), call("route")), 1.0), Episode("a", (call("gist"),), 0.0), Episode("a", (), 0.5)]
    rows = {(row.episode, row.call): row.advantage for row in GroupBuilder(baseline, scaled=False).rows(batch)}
    assert rows[0, 0] == pytest.approx(0.5)
    assert rows[1, 0] == pytest.approx(-0.5)
    # alone of its kind, it has nothing to be compared with
    assert rows[0, 1] == pytest.approx(0.5 if baseline == "rollout" else 0.0)


def test_bad_rows_are_refused_in_words() -> None:
    with pytest.raises(gl.UsageError, match="2 sampled tokens have 1 log-prob"):
        SampledCall("gist", (1,), (2, 3), (0.0,))
    with pytest.raises(gl.UsageError, match="finite"):
        relative([float("nan"), 1.0])
    with pytest.raises(gl.UsageError, match="baseline='example'"):
        GroupBuilder("example")  # type: ignore[arg-type]
    rows = GroupBuilder().rows([Episode("a", (SampledCall("m", (1,), (2,), (0.0,)),), 1.0)])
    with pytest.raises(gl.UsageError, match="raise the setting 'calls'"):
        padded(rows, 0, 0)


def test_rows_are_built_without_torch() -> None:
    words = "import sys, gepa_lite.baselines.grpo.rows; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", words], check=False).returncode == 0
