"""From rollouts to rows: every sampled token is trained once, baselines sum to zero, padding and outages carry no gradient. No torch."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gepa_lite as gl
from gepa_lite.baselines.grpo.rows import BASELINES, Baseline, Episode, GroupBuilder, SampledCall, padded, relative, trained_tokens
from gepa_lite.baselines.grpo.samples import SampleBook, drawn
from gepa_lite.baselines.grpo.trl_backend import blocks
from gepa_lite.core.call import Call, Trace
from gepa_lite.core.rollout import Rollout, RolloutKey
from gepa_lite.errors import StoreError
from gepa_lite.lm.policy import Sample

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


def test_equal_scores_teach_nothing_whatever_they_are() -> None:
    # the mean of twelve times 0.1 is not 0.1
    for value in (0.1, 0.2, 0.7, 1 / 3):
        for count in range(1, 13):
            assert relative([value] * count) == [0.0] * count


@given(batches, builders)
def test_each_rows_advantage_is_what_the_definition_says(batch: list[Episode], builder: GroupBuilder) -> None:
    # also where a module runs many times in one rollout and never in another
    def key(place: int, number: int) -> tuple[object, ...]:
        episode = batch[place]
        if builder.baseline == "rollout":
            return (episode.example_id,)
        module = episode.calls[number].module
        return (episode.example_id, module, [call.module for call in episode.calls[:number]].count(module))

    def peers(wanted: tuple[object, ...]) -> list[float]:
        if builder.baseline == "rollout":
            return [e.reward for e in batch if e.example_id == wanted[0] and e.reward is not None]
        return [
            e.reward
            for place, e in enumerate(batch)
            if e.reward is not None and any(key(place, number) == wanted for number in range(len(e.calls)))
        ]

    for row in builder.rows(batch):
        reward = batch[row.episode].reward
        if reward is not None:
            known = peers(key(row.episode, row.call))
            spread = stdev(known) if len(known) > 1 else 0.0
            expected = (reward - fmean(known)) / (spread + 1e-4 if builder.scaled else 1.0)
            assert math.isclose(row.advantage, expected, rel_tol=1e-6, abs_tol=1e-6)


@given(batches, builders, st.lists(st.tuples(st.integers(0, 16), st.sampled_from("abc"), st.lists(calls, max_size=3)), max_size=4))
def test_an_outage_changes_nothing_for_the_others(
    batch: list[Episode], builder: GroupBuilder, lost: list[tuple[int, str, list[SampledCall]]]
) -> None:
    known = [episode for episode in batch if episode.reward is not None]
    mixed: list[Episode] = list(known)
    for place, example, called in lost:
        mixed.insert(min(place, len(mixed)), Episode(example, tuple(called), None))

    def trained(episodes: list[Episode]) -> list[tuple[object, ...]]:
        return [(r.prompt_ids, r.completion_ids, r.advantage, r.call) for r in builder.rows(episodes) if r.trained]

    assert trained(mixed) == trained(known)


@given(st.integers(0, 20), st.integers(0, 20), st.randoms())
def test_rows_are_drawn_without_favour_and_each_once(count: int, most: int, order: random.Random) -> None:
    shuffled = list(range(count))
    order.shuffle(shuffled)
    kept = drawn(count, most, shuffled)
    assert len(kept) == min(count, most)
    assert kept == sorted(set(kept))
    assert set(kept) <= set(range(count))
    assert count <= most or set(kept) == set(shuffled[:most])


@given(batches, builders, st.integers(1, 4), st.integers(2, 5), st.integers(0, 3))
def test_how_rows_are_batched_changes_neither_which_tokens_are_trained_nor_their_weights(
    batch: list[Episode], builder: GroupBuilder, examples: int, size: int, spare: int
) -> None:
    rows = builder.rows(batch)
    block = max(size, -(-len(rows) // examples) + 1) + spare
    made = blocks(rows, examples * block, block, 0)
    assert len(made) == examples * block
    # what TRL does: rewards less the mean of their block
    advantages: list[float] = []
    for start in range(0, len(made), block):
        rewards = [reward for _, reward in made[start : start + block]]
        advantages += [reward - fmean(rewards) for reward in rewards]
    told = [(row, advantage) for (row, _), advantage in zip(made, advantages, strict=True) if row.trained]
    assert [row for row, _ in told] == [row for row in rows if row.trained]
    assert all(math.isclose(advantage, row.advantage, abs_tol=1e-9) for row, advantage in told)
    assert trained_tokens(row for row, _ in made) == trained_tokens(rows)


@given(st.lists(st.tuples(st.lists(calls, max_size=4), rewards), max_size=8), st.randoms())
def test_a_book_gives_each_rollout_what_it_sampled_whichever_thread_kept_it_first(
    made: list[tuple[list[SampledCall], float | None]], order: random.Random
) -> None:
    sampled = [[Sample(c.prompt_ids, c.completion_ids, c.logprobs) for c in called] for called, _ in made]
    everything = [sample for row in sampled for sample in row]
    order.shuffle(everything)
    rollouts = [
        Rollout(
            RolloutKey("c", str(place)),
            reward,
            None,
            trace=Trace(tuple(Call(c.module, {}, (), model=f"policy/a#b#{s.id}") for c, s in zip(called, row, strict=True))),
        )
        for place, ((called, reward), row) in enumerate(zip(made, sampled, strict=True))
    ]
    with TemporaryDirectory() as folder:
        book = SampleBook(Path(folder))
        book.begin(2, 0)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(book.keep, everything))
        expected = [Episode(str(place), tuple(called), reward) for place, (called, reward) in enumerate(made)]
        assert [book.episode(rollout) for rollout in rollouts] == expected
        again = SampleBook(Path(folder))
        again.load()
        assert [again.episode(rollout) for rollout in rollouts] == expected
        if everything:
            again.begin(4, 3)
            with pytest.raises(StoreError, match="lacks the sample"):
                [again.episode(rollout) for rollout in rollouts]


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
