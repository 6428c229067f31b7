"""The resampling engine."""

import numpy as np
import pytest

from measures.bootstrap import bootstrap_bounds, percentile_bounds, resampled_sums


def test_few_kinds_and_many_kinds_resample_to_the_same_distribution():
    """Grouping equal units is a shortcut: mean and spread of the sums must not move."""
    rng = np.random.default_rng(0)
    rows = np.array([[1.0, 1.0], [0.0, 1.0], [0.5, 1.0]])
    multiplicity = np.array([150, 100, 50])
    spread_out = np.repeat(rows, multiplicity, axis=0)
    spread_out += rng.normal(0, 1e-9, spread_out.shape)  # now every unit is its own kind
    grouped = resampled_sums(rows, multiplicity, replicates=8000, seed=1)
    single = resampled_sums(
        spread_out, np.ones(len(spread_out), dtype=np.int64), replicates=8000, seed=2
    )
    # By hand: 300 draws of values with mean 175/300 and variance E[x²] − mean².
    mean = 175 / 300
    variance = (150 + 50 / 4) / 300 - mean**2
    for sums in (grouped, single):
        assert sums[:, 0].mean() == pytest.approx(175, abs=4 * (300 * variance / 8000) ** 0.5)
        assert sums[:, 0].var() == pytest.approx(300 * variance, rel=0.07)
        assert sums[:, 1] == pytest.approx(np.full(8000, 300.0))


def test_resampling_repeats_with_its_seed_across_chunks():
    rows = np.random.default_rng(3).normal(size=(5000, 2))
    ones = np.ones(5000, dtype=np.int64)
    first = resampled_sums(rows, ones, replicates=1700, seed=9)
    assert np.array_equal(first, resampled_sums(rows, ones, replicates=1700, seed=9))
    assert len(np.unique(first[:, 0])) == 1700  # no chunk repeats another


def test_the_percentile_interval_of_a_normal_mean_has_the_width_of_theory():
    values = np.random.default_rng(4).normal(3, 2, size=400)
    bounds = bootstrap_bounds(
        np.column_stack([values, np.ones(400)]),
        np.ones(400, dtype=np.int64),
        lambda sums: sums[:, 0] / sums[:, 1],
        unit="rows",
        replicates=4000,
    )
    half = 1.96 * values.std() / 20
    assert bounds.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert bounds.high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_resamples_that_are_often_undefined_give_no_interval():
    values = np.arange(100, dtype=float)
    values[:5] = np.nan
    assert percentile_bounds(values, unit="rows").low is not None
    values[:6] = np.nan
    bounds = percentile_bounds(values, unit="rows")
    assert bounds.low is None
    assert bounds.reason == "the statistic is undefined in 6% of the resamples"


def test_no_resamples_give_no_interval():
    bounds = bootstrap_bounds(
        np.ones((1, 1)), np.array([50]), lambda sums: sums[:, 0], unit="rows", replicates=0
    )
    assert bounds.reason == "no resamples were asked for"
