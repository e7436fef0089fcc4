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


def test_smaller_changes_and_wider_spreads_take_more():
    small, large = (power.effort(change, power.ASSUMED) for change in (0.04, 0.08))
    noisy = power.effort(0.08, Spreads(run=0.02, night=0.01, nights=0))
    assert (large.nights + 1) * large.runs <= (small.nights + 1) * small.runs
    assert (large.nights + 1) * large.runs < (noisy.nights + 1) * noisy.runs
    assert power.effort(0.021, Spreads(run=0.05, night=0.05, nights=0)) is None


def test_what_is_planned_finds_the_change():
    spreads = Spreads(run=0.004, night=0.005, nights=0)
    planned = power.effort(0.05, spreads)
    random = np.random.default_rng(2)
    found = 0
    for _ in range(60):
        levels = random.normal(0, spreads.night, planned.nights + 1)
        levels[-1] += math.log(1.05)
        sides = [
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
        pair = Pair(point="p", a=tuple(one for side in sides[:-1] for one in side), b=sides[-1])
        found += compare([pair])[0].verdict == "worse"
    assert found >= 50
