"""Intervals of one run whose iterations are not noise about one level: they hold, or a word says why."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import signal

from orchestrator.analysis.stats.iterations import interval_note
from orchestrator.analysis.stats.slow_iterations import slow_iterations
from orchestrator.analysis.stats.statistics import summarise

LEVEL_S = 0.16


def noise(random, samples, persistence=0.0):
    shocks = random.normal(size=samples + 600)
    return LEVEL_S * (1 + 0.02 * signal.lfilter([math.sqrt(1 - persistence**2)], [1, -persistence], shocks)[600:])


def stretches(random, samples, *, share, length):
    """Which iterations are slow: `share` of the time, in stretches of `length` iterations on average."""
    found, at, slow = np.zeros(samples, np.bool_), 0, random.random() < share
    while at < samples:
        lasts = random.geometric(1 / length if slow else share / (1 - share) / length)
        found[at : at + lasts] = slow
        at, slow = at + lasts, not slow
    return found


def printed(found, of):
    return [one for one in (getattr(summary, of) for summary in found) if not math.isnan(one.low)]


def held(found, of, truth):
    return np.mean([one.low <= truth <= one.high for one in printed(found, of)])


@pytest.mark.parametrize("samples", [100, 200, 400])
@pytest.mark.parametrize(("share", "length", "slower"), [(0.15, 20, 1.3), (0.4, 12, 1.3), (0.8, 20, 1.5)])
def test_a_run_in_which_regimes_are_seen_has_no_interval_and_says_so(samples, share, length, slower):
    random = np.random.default_rng(1)
    masks = [stretches(random, samples, share=share, length=length) for _ in range(150)]
    seen = [mask for mask in masks if 5 <= mask.sum() <= samples - 5]
    found = [summarise(noise(random, samples) * np.where(mask, slower, 1)) for mask in seen]
    assert len(found) > 60
    for of in ("mean", "p50", "p99"):
        assert len(printed(found, of)) <= 0.05 * len(found)
    notes = [interval_note(one) for one in found]
    assert all(
        note.startswith("no interval: ") for one, note in zip(found, notes, strict=True) if math.isnan(one.p50.low)
    )
    assert np.mean(["two levels" in note for note in notes]) > 0.85


def test_two_levels_are_told_with_their_share_and_stretches():
    random = np.random.default_rng(1)
    slow = np.zeros(400, np.bool_)
    for begin in (30, 110, 200, 333):
        slow[begin : begin + 15] = True
    told = interval_note(summarise(noise(random, 400) * np.where(slow, 1.3, 1)))
    assert told.startswith(
        "no interval: two levels, 160 ms and 208 ms, the latter in 15% of the iterations, in 4 stretches"
    )


def test_slow_iterations_at_equal_distances_are_told():
    random = np.random.default_rng(1)
    series = noise(random, 60)
    series[3::6] *= 2
    found = summarise(series)
    assert math.isnan(found.mean.low)
    assert "every 6 iterations one takes 3" in interval_note(found)


@pytest.mark.parametrize("samples", [200, 400, 1000])
def test_means_of_rare_stalls_hold(samples):
    random = np.random.default_rng(1)
    found = [summarise(noise(random, samples) * np.where(random.random(samples) < 0.02, 3, 1)) for _ in range(300)]
    assert len(printed(found, "mean")) > 0.7 * len(found)
    assert 0.92 <= held(found, "mean", 1.04 * LEVEL_S) <= 0.995
    assert 0.92 <= held(found, "p50", LEVEL_S * 1.0005) <= 0.99


@pytest.mark.parametrize("samples", [100, 400, 1000])
def test_a_tail_without_variance_gives_no_interval_of_the_mean(samples):
    random = np.random.default_rng(1)
    found = []
    for _ in range(150):
        stalls = (random.random(samples) < 0.05) * 0.2 * (random.pareto(1.5, samples) + 1)
        found.append(summarise(noise(random, samples) + LEVEL_S * stalls))
    assert len(printed(found, "mean")) <= 0.08 * len(found)
    assert len(printed(found, "p50")) > 0.95 * len(found)
    assert all("no interval of the mean" in interval_note(one) for one in found if one.heavy_tail)


@pytest.mark.parametrize(
    ("samples", "persistence"),
    [(100, 0.8), (200, 0.8), (200, 0.9), (400, 0.9), (400, 0.95), (1000, 0.95), (1000, 0.98)],
)
def test_iterations_that_follow_one_another_closely_have_intervals_that_hold_or_none(samples, persistence):
    random = np.random.default_rng(1)
    found = [summarise(noise(random, samples, persistence)) for _ in range(300)]
    for of in ("mean", "p50"):
        if len(printed(found, of)) > 0.05 * len(found):
            slack = 2 * math.sqrt(0.05 * 0.95 / len(printed(found, of)))
            assert 0.92 - slack <= held(found, of, LEVEL_S) <= 0.98 + slack


def test_a_slow_component_under_noise_is_seen_in_a_long_run():
    random = np.random.default_rng(1)
    found = [summarise((noise(random, 1000, 0.95) + noise(random, 1000)) / 2) for _ in range(200)]
    assert len(printed(found, "mean")) > 0.7 * len(found)
    assert held(found, "mean", LEVEL_S) >= 0.92


@pytest.mark.parametrize("samples", [20, 100, 400, 1000])
@pytest.mark.parametrize("persistence", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("skewed", [False, True])
def test_ordinary_iterations_have_no_levels_nor_slow_ones(samples, persistence, skewed):
    random = np.random.default_rng(1)
    found = [noise(random, samples, persistence) for _ in range(150)]
    if skewed:
        found = [LEVEL_S * np.exp(25 * (one / LEVEL_S - 1)) for one in found]
    assert np.mean([slow_iterations(one).kind == "none" for one in found]) > 0.94


def test_a_mean_of_few_iterations_has_no_interval():
    found = summarise(noise(np.random.default_rng(1), 60))
    assert math.isnan(found.mean.low)
    assert found.p50.low < found.p50.high
    assert interval_note(found).startswith("no interval of the mean: 60 iterations may have missed slow ones")


def test_a_trend_is_told():
    found = summarise(noise(np.random.default_rng(1), 300) * np.linspace(0.97, 1.03, 300))
    assert math.isnan(found.mean.low)
    assert "drift by +6." in interval_note(found)
