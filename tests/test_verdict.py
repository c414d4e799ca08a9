"""The statistics of the verdict: exact tests, intervals, the correction for several looks."""

from __future__ import annotations

import itertools
import random

import pytest
from scipy import stats

from gepa_lite.search.verdict import Comparison, compare, sign_test, verdict_of


@pytest.mark.parametrize(("won", "lost"), [(0, 0), (1, 0), (5, 0), (6, 0), (9, 1), (15, 5), (20, 10), (10, 20), (700, 600), (3000, 2000)])
def test_the_sign_test_is_the_exact_binomial_one(won: int, lost: int) -> None:
    expected = stats.binomtest(won, won + lost).pvalue if won + lost else 1.0
    assert sign_test(won, lost) == pytest.approx(expected, rel=1e-9)


def test_for_right_and_wrong_the_permutation_test_is_the_sign_test() -> None:
    before, after = [0.0] * 30, [1.0] * 18 + [0.0] * 12
    row = compare([*before, *[1.0] * 7], [*after, *[0.0] * 7])
    assert row.p == row.sign_p == sign_test(18, 7)
    assert (row.won, row.lost, row.n) == (18, 7, 37)


def test_up_to_fourteen_differences_of_any_size_are_enumerated() -> None:
    differences = [0.3, -0.1, 0.25, 0.4, -0.05, 0.2]
    row = compare([0.5] * 6, [0.5 + d for d in differences])
    sums = [abs(sum(sign * abs(d) for sign, d in zip(signs, differences, strict=True))) for signs in itertools.product((1, -1), repeat=6)]
    assert row.p == pytest.approx(sum(s >= abs(sum(differences)) - 1e-9 for s in sums) / 64)


def test_five_wins_in_five_show_nothing_and_six_do() -> None:
    assert verdict_of(compare([0.0] * 5, [1.0] * 5)) == "not shown"
    assert verdict_of(compare([0.0] * 6, [1.0] * 6)) == "improved"
    assert verdict_of(compare([1.0] * 6, [0.0] * 6)) == "worse"


def test_a_second_look_needs_more() -> None:
    before, after = [0.0] * 40, [1.0] * 6 + [0.0] * 34
    once, twice = compare(before, after), compare(before, after, looks=2)
    assert (verdict_of(once), verdict_of(twice)) == ("improved", "not shown")
    assert twice.high - twice.low > once.high - once.low
    assert (once.level, twice.level) == (0.05, 0.025)


def test_missing_pairs_make_it_indecisive() -> None:
    before: list[float | None] = [0.0] * 40
    after: list[float | None] = [1.0] * 34 + [None] * 6
    assert verdict_of(compare(before, after)) == "indecisive"
    assert verdict_of(compare(before, [1.0] * 37 + [None] * 3)) == "improved"


def test_the_detectable_gain_is_shown_in_about_four_of_five_draws() -> None:
    draw = random.Random(1)

    def rows(gain: float) -> Comparison:
        kinds = draw.choices([1, -1, 0], [0.1 + gain, 0.1, 0.8 - gain], k=100)
        return compare([0.0 if kind == 1 else 1.0 for kind in kinds], [0.0 if kind == -1 else 1.0 for kind in kinds])

    gain = rows(0.15).detectable
    assert gain is not None
    assert 0.1 < gain < 0.2
    shown = sum(verdict_of(rows(gain)) == "improved" for _ in range(200))
    assert 0.65 < shown / 200 < 0.95
    assert compare([1.0] * 5, [1.0] * 5).detectable is None
