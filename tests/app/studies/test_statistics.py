"""Intervals cover as they say, Holm keeps false alarms rare, pairs remove what both sides share."""

from __future__ import annotations

from random import Random

import pytest

from relay.app.studies.statistics import Comparison, compare, holm, mean_of, t_quantile, t_two_sided


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (5, 2.5706), (30, 2.0423)],
)
def test_quantiles_are_those_of_the_tables(freedom: float, expected: float) -> None:
    assert t_quantile(freedom) == pytest.approx(expected, abs=6e-5)
    assert t_two_sided(expected, freedom) == pytest.approx(0.05, abs=1e-5)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_95_of_100_intervals_cover_the_mean(n: int) -> None:
    draws = Random(n)
    found = [mean_of([draws.gauss(1.0, 2.0) for _ in range(n)]) for _ in range(10_000)]
    covered = sum(abs(one.value - 1.0) <= one.half for one in found if one.half is not None)
    assert 0.94 <= covered / 10_000 <= 0.96


def test_one_run_has_no_interval_and_no_comparison() -> None:
    assert mean_of([0.5]).half is None
    assert compare({0: 0.5}, {0: 0.4}) is None
    assert compare({0: 0.5}, {1: 0.4, 2: 0.3}) is None


def test_pairs_find_a_small_difference_that_seeds_hide_from_welch() -> None:
    control = {0: 0.70, 1: 0.80, 2: 0.90}
    shifted = {seed: value + step for (seed, value), step in zip(control.items(), (0.010, 0.011, 0.012), strict=True)}
    paired = compare(shifted, control)
    apart = compare({seed + 3: value for seed, value in shifted.items()}, control)
    assert paired and apart and paired.paired and not apart.paired
    assert paired.difference == pytest.approx(0.011) and apart.difference == pytest.approx(0.011)
    assert paired.p < 0.01 < 0.5 < apart.p and paired.half < 0.01 < apart.half
    assert (apart.needed() or 0) > 100 and paired.needed() == 2


def test_welch_takes_unequal_spreads_and_numbers() -> None:
    """Against values computed by hand: t = 2.8/sqrt(1/3 + 4/5) = 2.6305…, freedom by Welch and Satterthwaite."""
    mine = {1: 3.0, 2: 4.0, 3: 5.0}
    theirs = {11: 0.2 - 2.828427, 12: 0.2 - 1.414214, 13: 1.2, 14: 1.2 + 1.414214, 15: 3.2}
    found = compare(mine, theirs)
    assert found is not None and not found.paired
    values = list(theirs.values())
    middle = sum(values) / 5
    variance = sum((value - middle) ** 2 for value in values) / 4
    error = (1 / 3 + variance / 5) ** 0.5
    freedom = error**4 / ((1 / 3) ** 2 / 2 + (variance / 5) ** 2 / 4)
    assert found.p == pytest.approx(t_two_sided((4 - middle) / error, freedom))
    assert found.half == pytest.approx(t_quantile(freedom) * error)


def test_equal_values_are_no_difference_and_a_constant_one_is_sure() -> None:
    same = compare({0: 0.5, 1: 0.6}, {0: 0.5, 1: 0.6})
    shifted = compare({0: 0.75, 1: 1.0}, {0: 0.5, 1: 0.75})
    assert same and shifted and (same.p, same.needed(), shifted.p) == (1.0, None, 0.0)


def test_holm_adjusts_in_order_and_never_beyond_one() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == [] and holm([0.5, 0.9]) == [1.0, 1.0]


def test_holm_keeps_false_alarms_of_a_whole_sweep_under_the_level() -> None:
    """17 comparisons of equal experiments, 400 sweeps: without a correction some 230 would have a false alarm."""
    draws, alarms, bare = Random(17), 0, 0
    for _ in range(400):
        control = {seed: draws.gauss(0, 1) for seed in range(3)}
        found = [compare({seed: draws.gauss(0, 1) for seed in range(3)}, control) for _ in range(17)]
        values = [one.p for one in found if one]
        alarms, bare = alarms + (min(holm(values)) < 0.05), bare + (min(values) < 0.05)
    assert alarms <= 0.075 * 400 < 0.3 * 400 < bare


@pytest.mark.slow
@pytest.mark.parametrize("comparisons", [1, 7, 17])
def test_what_was_not_told_apart_needs_more_runs_and_they_tell_it_apart(comparisons: int) -> None:
    """With the difference and the spread that were seen, at the level that the comparisons share."""
    draw = Random(7)
    for _ in range(60):
        n = draw.randint(2, 6)
        mine, theirs = (
            {seed: draw.gauss(0, 1) for seed in range(first, first + n)} for first in (0, draw.choice((0, 9)))
        )
        found = compare(mine, theirs)
        assert found
        needed = found.needed(comparisons)
        if needed is None:
            assert abs(found.difference) < 0.01 * found.spread
            continue
        if found.p >= 0.05 / comparisons:
            assert needed > n
        error = found.spread * ((1 if found.paired else 2) / needed) ** 0.5
        assert (
            t_two_sided(found.difference / error, needed - 1.0 if found.paired else 2 * needed - 2.0)
            < 0.05 / comparisons
        )


def test_many_runs_are_needed_as_the_rule_of_thumb_says() -> None:
    """16 (s/d)² a side, for one comparison of two groups."""
    found = Comparison(difference=0.1, half=1.0, p=0.9, paired=False, spread=1.0)
    assert found.needed() == pytest.approx(1600, rel=0.02)
