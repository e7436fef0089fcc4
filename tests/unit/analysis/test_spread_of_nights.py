"""The rule for nights, on simulated ones that differ as far as is assumed, and on quiet ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from orchestrator.analysis.compare import nights
from orchestrator.analysis.compare.regression import DEFAULT, NIGHTS_A_YEAR, Pair, RunSeries, compare

ASSUMED = math.log1p(DEFAULT.night_spread)
YEARLY = DEFAULT.level("mean", "night")


def series(random, levels):
    """Three runs of 20 iterations in each night of these levels, which differ by 0.4 %."""
    return tuple(
        RunSeries(
            run=f"{night}-{run}",
            night=str(night),
            seconds=np.exp(level + random.normal(0, 0.004) + random.normal(0, 0.01, 20)),
        )
        for night, level in enumerate(levels)
        for run in range(3)
    )


def later(random, shape):
    """AR(1) nights in a row, correlated by 0.8, of variance 1."""
    found = random.normal(size=shape)
    for night in range(1, shape[-1]):
        found[..., night] = 0.8 * found[..., night - 1] + 0.6 * found[..., night]
    return found


@pytest.mark.parametrize(("points", "moving", "spread"), [(1, 1, 0.02), (6, 6, 0.02), (6, 2, 0.02), (40, 40, 0.02)])
def test_one_wrong_alarm_a_year_is_kept_in_95_of_100_baselines_whatever_the_number_of_points(points, moving, spread):
    random = np.random.default_rng(1)
    both_slower = stats.multivariate_normal(cov=[[1, 0.8], [0.8, 1]])
    kept = []
    for _ in range(200 if points < 40 else 60):
        levels = np.vstack([spread * later(random, (moving, 5)), 0.002 * later(random, (points - moving, 5))])
        count = nights.moving([nights.moves(list(one), ASSUMED) for one in levels])
        limits = []
        for one in levels[:moving]:
            shown = nights.baseline(list(one), ASSUMED, count, YEARLY)
            limit = shown.level + shown.threshold(YEARLY * nights.shares(2)[1] / count, 0.0, 2)
            limits.append(max(limit, math.log1p(0.02)) / spread)
        kept.append(NIGHTS_A_YEAR * both_slower.cdf(-np.array(limits)[:, None] * np.ones(2)).sum() <= 1)
    assert np.mean(kept) >= 0.95 - 2 * math.sqrt(0.95 * 0.05 / len(kept))


@pytest.mark.parametrize(("together", "goal"), [(False, 0.95), (True, 0.9)])
def test_ten_per_cent_at_one_of_six_points_is_found_by_the_second_night_after_five_quiet_ones(together, goal):
    random = np.random.default_rng(2)
    found = []
    for _ in range(100):
        levels = 0.005 * random.normal(size=(1 if together else 6, 7)) * np.ones((6, 1))
        levels[0, 5:] += math.log(1.1)
        pairs = []
        for point, of in enumerate(levels):
            runs = series(random, of)
            pairs.append(Pair(point=str(point), a=runs[:15], b=runs[18:], before=runs[15:18]))
        found.append(compare(pairs)[0].verdict == "worse")
    assert np.mean(found) >= goal - 2 * math.sqrt(goal * (1 - goal) / len(found))


def test_points_that_are_quiet_share_no_rate_and_those_that_differ_do():
    random = np.random.default_rng(3)
    quiet, loud = (
        [nights.moves(list(one), ASSUMED) for one in of * random.normal(size=(6, 5))] for of in (0.003, 0.02)
    )
    assert nights.moving(quiet) == 1
    assert nights.moving(loud) > 4
    assert 1 < nights.moving([*quiet[1:], 1.0]) < 2.5
    assert nights.moving([nights.moves([0.0], ASSUMED)] * 6) == 6, "a single night says nothing"


@pytest.mark.parametrize("count", [5, 20])
@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_the_interval_of_a_night_holds_though_nights_follow_one_another(count, correlation):
    random = np.random.default_rng(4)
    held = []
    for _ in range(400):
        one = (later(random, (count + 2,)) if correlation else random.normal(size=count + 2)) * 0.01
        shown = nights.baseline(list(one[:-2]), ASSUMED, 1.0, YEARLY)
        half = stats.t.ppf(0.975, 0.86 * (count - 1)) * shown.error(1)
        held.append(abs(one[-1] - shown.level) < half)
    slack = 2 * math.sqrt(0.95 * 0.05 / len(held))
    assert 0.92 - slack <= np.mean(held) <= 0.98 + slack


def test_more_points_leave_less_of_the_rate_to_each_and_the_promise_stands():
    for points in (1, 6, 40):
        rates = NIGHTS_A_YEAR * nights.alarms(points, 5, YEARLY)
        assert np.quantile(rates, 0.93) < 1 < rates.max()
