from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.analysis.stats.statistics import quantile, student_t, summarise


def correlated(random, n, phi):
    noise = random.normal(size=n + 100)
    series = np.zeros(n + 100)
    for i in range(1, n + 100):
        series[i] = phi * series[i - 1] + noise[i]
    return series[100:]


@pytest.mark.parametrize(("phi", "least"), [(0.0, 0.89), (0.6, 0.85)])
def test_intervals_cover_the_truth_of_correlated_series_about_as_often_as_they_say(phi, least):
    random = np.random.default_rng(5)
    trials, means, medians = 60, 0, 0
    for _ in range(trials):
        found = summarise(correlated(random, 400, phi))
        means += found.mean.low <= 0 <= found.mean.high
        medians += found.p50.low <= 0 <= found.p50.high
    assert means / trials >= least
    assert medians / trials >= least - 0.03


def test_an_interval_for_correlated_data_is_wider_than_one_that_takes_it_for_independent():
    random = np.random.default_rng(6)
    series = correlated(random, 1000, 0.8)
    found = summarise(series)
    naive = 2 * 1.96 * np.std(series) / math.sqrt(len(series))
    assert found.effective < len(series) / 5
    assert found.mean.high - found.mean.low > 1.8 * naive


@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.floats(0.001, 1e3), max_size=60))
def test_whatever_the_samples_estimates_lie_among_them_and_repeat(values):
    found = summarise(values)
    assert repr(found) == repr(summarise(values))
    assert found.samples == len(values)
    for estimate in (found.mean, found.p50, found.p99):
        if not values:
            assert math.isnan(estimate.value)
            continue
        assert min(values) * 0.999 <= estimate.value <= max(values) * 1.001
        if not math.isnan(estimate.low):
            assert estimate.low <= estimate.value + 1e-9
    assert found.p99_is_maximum == bool(values)
    assert math.isnan(found.p99.high) or min(values) == max(values)


@settings(max_examples=100, deadline=None)
@given(values=st.lists(st.integers(0, 50), min_size=1, max_size=300), q=st.sampled_from([0.5, 0.9, 0.99]))
def test_a_quantile_is_the_smallest_sample_that_enough_do_not_exceed(values, q):
    got = quantile(np.array(values, float), q)
    assert got in values
    assert sum(value <= got for value in values) >= q * len(values) - 1e-9
    assert sum(value < got for value in values) < q * len(values)


@pytest.mark.parametrize(
    ("freedom", "value"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (10, 2.228), (30, 2.042), (120, 1.980)],
)
def test_students_t_agrees_with_the_printed_table(freedom, value):
    assert student_t(0.975, freedom) == pytest.approx(value, abs=2e-3)
