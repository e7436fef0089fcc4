from __future__ import annotations

import numpy as np
import pytest
from scipy import signal

from orchestrator.analysis.stats.level_steps import FEWEST_IN_ALL, findable, steps


def history(*levels_and_nights, seed=1, noise=0.004):
    random = np.random.default_rng(seed)
    values = np.concatenate([np.full(nights, level) for level, nights in levels_and_nights])
    return values * np.exp(random.normal(0, noise, len(values)))


def test_a_step_is_found_on_its_night_with_its_size():
    (step,) = steps(history((0.16, 12), (0.168, 8)), margin=0.02)
    assert step.night == 12
    assert step.ratio == pytest.approx(1.05, rel=0.01)
    assert step.p < 0.05


def test_two_steps_are_found_and_each_compares_with_the_level_before():
    first, second = steps(history((0.16, 12), (0.18, 12), (0.15, 12)), margin=0.02)
    assert (first.night, second.night) == (12, 24)
    assert second.before_s == pytest.approx(first.after_s)


def test_one_bad_night_is_no_step():
    values = history((0.16, 20))
    values[10] *= 1.3
    assert steps(values, margin=0.02) == ()


def test_a_step_below_the_margin_is_none():
    assert steps(history((0.16, 15), (0.1616, 15), noise=0.001), margin=0.02) == ()


def test_too_few_nights_show_no_step():
    assert steps(history((0.16, 4), (0.3, FEWEST_IN_ALL - 5)), margin=0.02) == ()


def test_nights_without_a_value_are_passed_over_and_still_counted():
    values = history((0.16, 12), (0.18, 12))
    values[[3, 12]] = np.nan
    (step,) = steps(values, margin=0.02)
    assert step.night == 13


def test_equal_nights_rarely_show_a_step():
    found = sum(bool(steps(history((0.16, 20), seed=seed, noise=0.02), margin=0.005)) for seed in range(40))
    assert found <= 5


def test_a_constant_history_has_no_step():
    assert steps([0.2] * 12, margin=0.02) == ()


@pytest.mark.parametrize("persistence", [0.3, 0.6])
def test_nights_that_follow_one_another_rarely_show_a_step(persistence):
    random = np.random.default_rng(1)
    found = 0
    for _ in range(100):
        noise = signal.lfilter([1], [1, -persistence], random.normal(0, 0.01, 80))[-20:]
        found += bool(steps(0.16 * np.exp(noise), margin=0.002))
    assert found <= 9


def test_a_step_of_half_in_eight_nights_is_told_at_one_of_six_points():
    found = [steps(history((0.16, 4), (0.24, 4), seed=seed), margin=0.02, alpha=0.05 / 6) for seed in range(20)]
    assert sum(len(one) == 1 and one[0].night == 4 for one in found) >= 14


def test_a_hundred_points_do_not_hide_a_step():
    (step,) = steps(history((0.16, 10), (0.17, 10)), margin=0.02, alpha=0.05 / 200)
    assert step.night == 10


def test_the_smallest_step_that_would_be_told_is_told():
    nights = history((0.16, 30), noise=0.01, seed=2)
    least = findable(nights, margin=0.005)
    assert 0.005 < least < 0.1
    for factor, told in ((1.3, 1), (0.3, 0)):
        moved = nights.copy()
        moved[15:] *= 1 + factor * least - (np.mean(np.log(nights[15:])) - np.mean(np.log(nights[:15])))
        assert len(steps(moved, margin=0.005)) == told
    assert np.isnan(findable(nights[:5], margin=0.02))
