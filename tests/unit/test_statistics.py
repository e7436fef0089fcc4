from __future__ import annotations

import math

import numpy as np
import pytest

from orchestrator.analysis.stats.statistics import block_length, is_maximum, student_t, summarise


def test_thirty_samples_have_no_bound_above_their_p99_and_say_that_it_is_their_maximum():
    values = np.random.default_rng(1).normal(1, 0.1, 30)
    found = summarise(values, seed=1)
    assert found.p99_is_maximum
    assert found.p99.value == values.max()
    assert math.isnan(found.p99.high)
    assert found.mean.low < found.mean.value < found.mean.high


@pytest.mark.parametrize(("samples", "expected"), [(0, False), (1, True), (99, True), (100, False), (1000, False)])
def test_when_p99_is_the_maximum(samples, expected):
    assert is_maximum(samples, 0.99) is expected


def test_p99_has_an_upper_bound_from_368_samples_on():
    values = np.random.default_rng(1).normal(1, 0.1, 400)
    assert math.isnan(summarise(values[:366], seed=1).p99.high)
    assert summarise(values, seed=1).p99.high <= values.max()


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0, 3.0]])
def test_too_few_samples_give_values_but_no_intervals(values):
    found = summarise(values, seed=1)
    assert math.isnan(found.mean.low)
    assert math.isnan(found.mean.high)
    assert math.isnan(found.mean.value) == (not values)


def test_a_constant_series_is_known_exactly():
    found = summarise([2.0] * 50, seed=1)
    assert (found.mean.low, found.mean.high, found.p50.low) == (2.0, 2.0, 2.0)


def test_missing_samples_are_left_out():
    assert summarise([1.0, math.nan, 3.0], seed=1).mean.value == 2.0


def test_a_trend_leaves_no_interval_rather_than_a_narrow_one():
    assert math.isnan(summarise(np.arange(30.0), seed=1).mean.low)


def test_blocks_grow_with_correlation():
    random = np.random.default_rng(2)
    noise = random.normal(size=2000)
    smooth = np.convolve(noise, np.ones(20), "valid")
    assert block_length(noise) < 10 < block_length(smooth)


def test_no_freedom_no_t():
    assert math.isnan(student_t(0.975, 0))
