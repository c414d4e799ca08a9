"""The papers' test vectors (GEPA §1.3 to §1.6): pruning, pointers, minibatches, bookkeeping, the reply's parser."""

from __future__ import annotations

import contextlib
import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gepa_lite.core.seeds import stream
from gepa_lite.search.accept import NonStrict, Paired, Strict
from gepa_lite.search.front import Front, prune
from gepa_lite.search.minibatch import epoch_minibatch
from gepa_lite.search.reply import UnusableReply, extract_prompt
from gepa_lite.search.select import SELECTORS, Pareto


def front(rows: list[list[float]], means: list[float] | None = None) -> Front:
    return Front.of(np.array(rows, dtype=float), np.array(means if means is not None else [math.fsum(r) / len(r) for r in rows]))


def reference_prune(fronts: list[set[int]], means: list[float]) -> set[int]:
    """The published procedure: scan by ascending mean, remove the first dominated one, start again."""
    alive = sorted({k for f in fronts for k in f}, key=lambda k: (means[k], k))
    while True:
        for y in alive:
            rest = set(alive) - {y}
            if all(f & rest for f in fronts if y in f):
                alive.remove(y)
                break
        else:
            return set(alive)


def test_weakest_covered_candidate_goes_first() -> None:
    wins = prune(front([[1, 0, 0], [1, 1, 0], [0, 0, 1]], [1 / 3, 2 / 3, 1 / 3]))
    assert wins.tolist() == [0, 2, 1]


def test_cover_rule_removes_what_classical_domination_would_keep() -> None:
    f = front([[1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]], [0.2, 0.5, 0.5])
    assert prune(f).tolist() == [0, 2, 2]


@pytest.mark.parametrize(("means", "survivor"), [([0.1, 0.2], 1), ([0.2, 0.1], 0)])
def test_of_two_equal_covers_the_better_mean_survives(means: list[float], survivor: int) -> None:
    wins = prune(front([[1, 1], [1, 1]], means))
    assert [i for i, won in enumerate(wins) if won] == [survivor]


@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 10_000))
def test_one_pass_equals_the_reference_and_every_example_keeps_an_owner(count: int, width: int, seed: int) -> None:
    draw = random.Random(seed)
    rows = [[float(draw.randrange(3)) for _ in range(width)] for _ in range(count)]
    f = front(rows)
    wins = prune(f)
    fronts = [{k for k in range(count) if f.owners[k, i]} for i in range(width)]
    survivors = {k for k in range(count) if wins[k]}
    assert survivors == reference_prune(fronts, list(f.means))
    assert all(owners & survivors for owners in fronts)
    assert all(k in survivors for owners in fronts if len(owners) == 1 for k in owners)


def test_parents_are_drawn_in_proportion_to_the_examples_they_win() -> None:
    f = front([[1, 0, 0], [1, 1, 0], [0, 0, 1]])
    drawn = Counter(Pareto()(f, stream(0, "parent", step)) for step in range(3_000))
    assert drawn[0] == 0
    assert abs(drawn[1] / 3_000 - 2 / 3) < 0.03


def test_best_takes_the_first_of_equal_means() -> None:
    assert SELECTORS["best"](front([[0, 1], [1, 0], [0, 0]]), stream(0, "parent", 0)) == 0


def test_acceptance_is_strict_or_not() -> None:
    assert not Strict()([1, 0], [0, 1])
    assert NonStrict()([1, 0], [0, 1])
    assert Strict()([0.1] * 10, [0.1] * 9 + [0.2])


def test_the_paired_test_needs_more_than_luck() -> None:
    assert not Paired(0.1)([0, 0, 0], [1, 1, 1]), "three wins have a p-value of 1/8"
    assert Paired(0.125)([0, 0, 0], [1, 1, 1])
    assert not Paired(1.0)([1, 0], [0, 1]), "the sum must rise"
    assert Paired(0.05)([0] * 20, [1] * 12 + [0] * 8)


@given(st.integers(1, 40), st.integers(1, 7), st.integers(0, 3), st.integers(0, 99))
def test_each_epoch_shows_every_example_once_or_twice(count: int, size: int, epoch: int, seed: int) -> None:
    ids = [f"e{i}" for i in range(count)]
    per_epoch = 1 if size >= count else -(-count // size)
    batches = [epoch_minibatch(ids, size, epoch * per_epoch + place, seed) for place in range(per_epoch)]
    seen = Counter(example for batch in batches for example in batch)
    assert set(seen) == set(ids)
    assert max(seen.values()) <= 2
    assert all(len(set(batch)) == len(batch) == min(size, count) for batch in batches)


def test_streams_are_addressed() -> None:
    assert stream(0, "a", 1).random() == stream(0, "a", 1).random()
    assert len({stream(0, "a", 1).random(), stream(0, "a", 2).random(), stream(1, "a", 1).random(), stream(0, "b", 1).random()}) == 4


NESTED = "Say it so:\n```markdown\nUse this form:\n```json\n{}\n```\nand no other.\n```\nDone."


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("<prompt>Be brief.</prompt>", "Be brief."),
        ("Sure!\n<prompt>\nBe brief.\n\nBe kind.\n</prompt>\nGood luck.", "Be brief.\n\nBe kind."),
        ("<think>long\n<prompt>draft</prompt></think><prompt>Be brief.</prompt>", "Be brief."),
        ("reasoning the template opened</think>\n<prompt>Be brief.</prompt>", "Be brief."),
        ("```\nBe brief.\n```", "Be brief."),
        ("Here:\n```text\nBe brief.\n```\nDone.", "Be brief."),
        (NESTED, "Use this form:\n```json\n{}\n```\nand no other."),
        ("<prompt>\n```\nBe brief.\n```\n</prompt>", "Be brief."),
        ("<prompt>Answer in JSON:\n```json\n{}\n```\n</prompt>", "Answer in JSON:\n```json\n{}\n```"),
    ],
)
def test_one_delimited_block_is_taken(reply: str, expected: str) -> None:
    assert extract_prompt(reply) == expected


@pytest.mark.parametrize(
    ("reply", "finish", "code"),
    [
        ("", "stop", "empty"),
        ("  \n", "stop", "empty"),
        ("<prompt> </prompt>", "stop", "empty"),
        ("<think>only thoughts</think>", "stop", "empty"),
        ("<think>never ends", "stop", "cut_off"),
        ("<prompt>Be br", "stop", "cut_off"),
        ("<prompt>Be brief.</prompt>", "length", "cut_off"),
        ("```\nBe brief.", "stop", "cut_off"),
        ("Be brief.", "stop", "no_block"),
        ("</prompt>Be brief.<prompt>", "stop", "no_block"),
        ("```\none\n```\nor\n```\ntwo\n```", "stop", "several_blocks"),
        ("<prompt>one</prompt><prompt>two</prompt>", "stop", "several_blocks"),
    ],
)
def test_nothing_is_guessed_from_an_unusable_reply(reply: str, finish: str, code: str) -> None:
    with pytest.raises(UnusableReply) as caught:
        extract_prompt(reply, finish)
    assert caught.value.code == code


@given(st.text(alphabet="`~<>/promt think\n", max_size=200))
def test_the_parser_only_ever_raises_unusable(reply: str) -> None:
    with contextlib.suppress(UnusableReply):
        assert extract_prompt(reply).strip()
