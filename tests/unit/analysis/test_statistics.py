from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import signal, stats

from orchestrator.analysis.stats import statistics
from orchestrator.analysis.stats.autocorrelation import autocorrelation
from orchestrator.analysis.stats.levels import level
from orchestrator.analysis.stats.statistics import Estimate, is_maximum, student_t, summarise


def correlated(random, samples, persistence):
    """A stationary Gaussian AR(1) series of variance 1."""
    shocks = random.normal(size=samples + 100)
    return signal.lfilter([math.sqrt(1 - persistence**2)], [1, -persistence], shocks)[100:]


@pytest.mark.parametrize("samples", [5, 30, 366])
def test_a_p99_that_no_sample_bounds_has_no_interval(samples):
    values = np.random.default_rng(1).normal(1, 0.1, samples)
    found = summarise(values).p99
    assert found.value == np.sort(values)[math.ceil(0.99 * samples) - 1]
    assert math.isnan(found.low)
    assert math.isnan(found.high)


@pytest.mark.parametrize(("samples", "expected"), [(0, False), (1, True), (99, True), (100, False), (1000, False)])
def test_when_p99_is_the_maximum(samples, expected):
    assert is_maximum(samples, 0.99) is expected


def test_p99_has_an_interval_where_there_are_samples_enough():
    values = np.random.default_rng(1).normal(1, 0.1, 1000)
    assert values.min() < summarise(values).p99.low < summarise(values).p99.high <= values.max()


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0, 3.0]])
def test_too_few_samples_give_values_but_no_intervals(values):
    found = summarise(values)
    assert math.isnan(found.mean.low)
    assert math.isnan(found.mean.high)
    assert math.isnan(found.mean.value) == (not values)


def test_a_constant_series_is_known_exactly():
    found = summarise([2.0] * 50)
    assert (found.mean.low, found.mean.high, found.p50.low) == (2.0, 2.0, 2.0)


def test_missing_samples_are_left_out():
    assert summarise([1.0, math.nan, 3.0]).mean.value == 2.0


def test_a_trend_leaves_no_interval_rather_than_a_narrow_one():
    assert math.isnan(summarise(np.arange(30.0)).mean.low)


@pytest.mark.parametrize(("q", "size"), [(0.5, 20), (0.5, 101), (0.9, 200), (0.99, 500)])
def test_ranks_of_independent_samples_are_scipys_to_the_next_whole_one(q, size):
    whole = stats.quantile_test(np.arange(1.0, size + 1), p=q).confidence_interval()
    low, high = (rank * (size + 1) for rank in statistics.bounding_ranks(size, q))
    assert whole.low <= low <= whole.low + 1
    assert whole.high - 1 <= high <= whole.high


@pytest.mark.parametrize("freedom", [1, 2, 3.5, 30, 1000])
def test_student_is_scipys(freedom):
    assert student_t(0.975, freedom) == pytest.approx(stats.t.ppf(0.975, freedom))


def test_no_freedom_no_t():
    assert math.isnan(student_t(0.975, 0))


@pytest.mark.parametrize("persistence", [0.0, 0.5, 0.8])
def test_effective_samples_are_those_of_theory(persistence):
    found = autocorrelation(correlated(np.random.default_rng(1), 20_000, persistence))
    assert found.effective() == pytest.approx(20_000 * (1 - persistence) / (1 + persistence), rel=0.15)
    lags = np.arange(1, 200)
    of_signs = 1 + 2 * np.sum(2 / math.pi * np.arcsin(persistence**lags))  # Sheppard's theorem
    assert found.effective(0.5) == pytest.approx(20_000 / of_signs, rel=0.15)
    assert found.effective(0.99) >= found.effective(0.5) >= found.effective()


def test_neither_outlier_nor_heavy_tail_hides_that_samples_follow_one_another():
    series = correlated(np.random.default_rng(2), 400, 0.7)
    expected = autocorrelation(series).persistence
    assert autocorrelation(np.exp(3 * series)).persistence == pytest.approx(expected)
    series[200] = 1000.0
    assert autocorrelation(series).persistence == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize(
    ("samples", "persistence", "printed"), [(100, 0.0, True), (100, 0.5, True), (20, 0.5, False), (100, 0.9, False)]
)
def test_an_interval_that_is_printed_holds_the_level_of_the_run(samples, persistence, printed):
    random = np.random.default_rng(3)
    found = [summarise(correlated(random, samples, persistence)) for _ in range(300)]
    for of in ("mean", "p50"):
        known = [getattr(one, of) for one in found if not math.isnan(getattr(one, of).low)]
        assert len(known) >= 0.9 * len(found) if printed else len(known) <= 0.05 * len(found)
        assert not printed or 0.92 <= np.mean([one.low <= 0 <= one.high for one in known]) <= 0.98


def test_runs_without_intervals_of_their_own_do_not_say_what_iterations_explain():
    known = [Estimate(1.0, 0.99, 1.01), Estimate(1.1, 1.09, 1.11)]
    assert 0 < level(known).within < 0.1
    unknown = level([*known, Estimate(1.05, math.nan, math.nan)])
    assert unknown.between > 0
    assert math.isnan(unknown.within)
    assert level([Estimate(1.0, 0.5, 2.0), Estimate(1.001, 0.5, 2.0)]).within == 1
