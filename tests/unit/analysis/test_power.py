from __future__ import annotations

import math

import numpy as np
import pytest

from orchestrator.analysis.compare import power
from orchestrator.analysis.compare.power import Spreads
from orchestrator.analysis.compare.regression import Pair, RunSeries, compare


def test_spreads_are_those_that_made_the_nights():
    random = np.random.default_rng(1)
    nights = [list(random.normal(level, 0.004, 4)) for level in random.normal(0, 0.01, 400)]
    found = power.seen(nights)
    assert (found.run, found.night) == pytest.approx((0.004, 0.01), rel=0.1)
    assert power.seen(nights[:1]) is None
    assert power.seen([[0.0], [0.1]]) is None, "one run a night does not say what runs differ by"


def test_smaller_changes_wider_spreads_fewer_nights_and_more_points_take_more():
    large = power.effort(0.1, power.ASSUMED)
    assert large.runs_in_all < power.effort(0.06, power.ASSUMED).runs_in_all
    assert large.runs_in_all < power.effort(0.1, power.ASSUMED, points=40).runs_in_all
    assert large.runs_in_all < power.effort(0.1, Spreads(run=0.02, night=0.01, nights=0)).runs_in_all
    hardly_known = power.effort(0.1, Spreads(run=0.005, night=0.005, nights=3, runs=6))
    assert hardly_known is None or large.runs_in_all < hardly_known.runs_in_all
    assert power.effort(0.021, Spreads(run=0.05, night=0.05, nights=0)) is None


def drawn(random, planned, spreads, points, change):
    """Points by themselves: a planned baseline and two nights that are slower."""
    pairs = []
    for point in range(points):
        levels = random.normal(0, spreads.night, planned.nights + power.CONFIRMED)
        levels[planned.nights :] += math.log1p(change)
        nights = [
            tuple(
                RunSeries(
                    run=f"{night}-{run}",
                    night=str(night),
                    seconds=np.full(20, math.exp(level + random.normal(0, spreads.run))),
                )
                for run in range(planned.runs)
            )
            for night, level in enumerate(levels)
        ]
        reference = tuple(one for night in nights[: planned.nights] for one in night)
        pairs.append(Pair(point=str(point), a=reference, b=nights[-1], before=nights[-2]))
    return pairs


@pytest.mark.parametrize("points", [1, 6])
def test_what_is_planned_from_few_nights_finds_the_change_at_all_points(points):
    truth = Spreads(run=0.004, night=0.005, nights=0)
    random = np.random.default_rng(2)
    found = []
    for _ in range(40):  # the standard error of a share of 0.95 is 0.034
        earlier = [
            list(random.normal(random.normal(0, truth.night), truth.run, 3)) for _ in range(6 if points == 1 else 10)
        ]
        planned = power.effort(0.1, power.seen(earlier), points=points)
        if planned is not None:
            told = compare(drawn(random, planned, truth, points, 0.1))
            found.append(all(one.verdict == "worse" for one in told))
    assert len(found) >= 20
    assert np.mean(found) >= 0.92
