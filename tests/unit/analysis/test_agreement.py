"""Agreement is an interval inside a margin: noise and single runs tell nothing, and never agree."""

from __future__ import annotations

import math

import numpy as np
import pytest

from orchestrator.analysis.stats.agreement import difference, each_time, outcome, over_runs, ratio, repetitions
from orchestrator.analysis.stats.statistics import Estimate

NAN = math.nan


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [
        (0.96, 1.04, "agrees"),
        (0.95, 1.05, "agrees"),
        (1.03, 1.07, "cannot tell"),
        (0.5, 1.5, "cannot tell"),
        (1.06, 1.2, "differs"),
        (0.5, 0.94, "differs"),
        (NAN, NAN, "cannot tell"),
    ],
)
def test_an_interval_is_inside_outside_or_tells_nothing(low, high, told):
    assert outcome(Estimate(1.0, low, high), 0.95, 1.05) == told


@pytest.mark.parametrize("spread", [0.01, 0.05, 0.2, 1.0])
@pytest.mark.parametrize("off", [0.9, 1.05, 1.1])
def test_what_is_off_by_the_margin_agrees_in_1_of_40_at_most_however_noisy_runs_are(off, spread):
    random = np.random.default_rng(1)
    found = [outcome(over_runs(off + random.normal(0, spread, 3)), 0.95, 1.05) for _ in range(2000)]
    assert found.count("agrees") <= 0.035 * len(found)


def test_noisier_runs_agree_less_often():
    random = np.random.default_rng(1)
    shares = [
        np.mean([outcome(over_runs(random.normal(1, spread, 3)), 0.95, 1.05) == "agrees" for _ in range(1000)])
        for spread in (0.001, 0.01, 0.02, 0.05, 0.2)
    ]
    assert shares[0] > 0.99
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 0.02


def test_a_mean_a_difference_and_a_ratio_hold_their_level():
    random = np.random.default_rng(2)
    held = np.zeros(3)
    for _ in range(1000):
        some, others = random.normal(10, 0.5, 3), random.normal(5, 0.1, 5)
        for place, (of, right) in enumerate(
            ((over_runs(some), 10), (difference(some, others), 5), (ratio(some, others), 2))
        ):
            held[place] += of.low <= right <= of.high
    assert all(0.92 <= share <= 0.98 for share in held / 1000), held / 1000


def test_a_single_run_has_no_interval_and_nothing_no_value():
    for of in (over_runs([1.0]), difference([1.0], [1.0, 2.0]), ratio([1.0], [1.0, 2.0])):
        assert math.isnan(of.low)
        assert math.isnan(of.high)
        assert not math.isnan(of.value)
    for of in (over_runs([]), difference([], [1.0, 2.0]), ratio([], [1.0]), ratio([0.0, 1.0], [1.0, 2.0])):
        assert math.isnan(of.value)


def test_an_interval_that_was_chosen_of_several_is_wider():
    assert over_runs([1.0, 2.0, 4.0], tests=10).high > over_runs([1.0, 2.0, 4.0]).high
    assert ratio([1.0, 2.0], [3.0, 4.0], tests=10).high > ratio([1.0, 2.0], [3.0, 4.0]).high


@pytest.mark.parametrize(
    ("true", "told"),
    [
        ([], "cannot tell"),
        ([True], "cannot tell"),
        ([False], "cannot tell"),
        ([True, True], "agrees"),
        ([True, False, True], "cannot tell"),
        ([False, True, False], "differs"),
    ],
)
def test_what_has_to_hold_each_time_needs_two_repetitions(true, told):
    assert each_time(true) == told


def test_a_repetition_has_a_run_of_every_point():
    assert repetitions([[1, 2, 3], [4, 5]]) == [[1, 4], [2, 5]]
    assert repetitions([[1], []]) == []
