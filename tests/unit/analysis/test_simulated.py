"""Simulated runs, nights and days of the bench are as they say, and rates of baselines lose the simulation's error."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tests.bench.simulated import Day, Iterations, Nights
from tests.bench.validity import _distribution

PROCESSES = (
    Iterations(),
    Iterations(shape="skewed", persistence=0.5),
    Iterations(every=5, longer=1.5),
    Iterations(stalls=0.05, stall=3),
    Iterations(stalls=0.05, stall=2, pareto=3.0),
    Iterations(slow=0.15, regime=20),
)


@pytest.mark.parametrize("process", PROCESSES, ids=str)
def test_iterations_have_the_mean_that_they_say(process):
    assert process.drawn(np.random.default_rng(1), 1000, 200).mean() == pytest.approx(process.mean, rel=0.01)


@pytest.mark.parametrize("persistence", [0.0, 0.8])
def test_nights_differ_and_follow_one_another_as_they_say(persistence):
    levels = Nights(points=2, persistence=persistence, together=0.5, unlike=4.0).levels(np.random.default_rng(2), 20000)
    assert levels.std(axis=0) == pytest.approx([0.005, 0.02], rel=0.05)
    assert np.corrcoef(levels.T)[0, 1] == pytest.approx(0.5, abs=0.05)
    assert np.corrcoef(levels[1:, 0], levels[:-1, 0])[0, 1] == pytest.approx(persistence, abs=0.05)


@pytest.mark.parametrize("nights", [Nights(), Nights(tails=True), Nights(persistence=0.8, together=1.0)], ids=str)
def test_nights_far_off_have_weights_that_leave_averages_as_they_are(nights):
    random = np.random.default_rng(3)
    later, weights = nights.later(random, 60000)
    plain, _ = nights.later(random, 60000, wider=1.0)
    assert weights.mean() == pytest.approx(1.0, abs=0.01)
    far = [(rows.min(axis=1) > 0.015).any(axis=1) for rows in (later, plain)]
    assert (weights * far[0]).mean() == pytest.approx(far[1].mean(), abs=0.1 * far[1].mean() + 1e-3)
    assert far[0].mean() > far[1].mean()


@pytest.mark.parametrize(("order", "switches"), [("in turn", 5), ("one after the other", 1)])
def test_sides_of_a_day_are_in_order(order, switches):
    (pair,) = Day(points=1, order=order).pairs(np.random.default_rng(4))
    sides = [side for _, side in sorted([(run.run, "a") for run in pair.a] + [(run.run, "b") for run in pair.b])]
    assert sum(one != other for one, other in itertools.pairwise(sides)) == switches


def test_rates_that_only_chance_sets_apart_are_one_rate():
    random = np.random.default_rng(5)
    counts = random.poisson(0.5, 400)
    mean, kept, _, high = _distribution([(float(count), float(count)) for count in counts])
    assert mean == pytest.approx(0.5, abs=0.1)
    assert kept == pytest.approx(1.0, abs=0.05)
    assert high < 1.0


def test_rates_that_differ_are_told_as_a_distribution():
    random = np.random.default_rng(6)
    counts = random.poisson(random.gamma(0.5, 4.0, 2000))
    mean, kept, _, high = _distribution([(float(count), float(count)) for count in counts])
    assert mean == pytest.approx(2.0, abs=0.2)
    assert kept == pytest.approx(math.erf(0.5), abs=0.05)
    assert high == pytest.approx(7.7, rel=0.15)
