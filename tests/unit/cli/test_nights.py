from __future__ import annotations

import pytest

from tests.bench.nights import BASE_MS, SLOW_MS, rates, recorded


@pytest.mark.parametrize("runs", [1, 3])
def test_five_per_cent_more_compute_is_found_in_95_of_100_nights(runs):
    assert rates(recorded(BASE_MS), recorded(SLOW_MS), nights=100, runs=runs)["worse"] >= 0.95


@pytest.mark.parametrize(("spread", "nights"), [(0.0, 100), (0.02, 60)])
def test_equal_nights_raise_an_alarm_in_at_most_5_of_100(spread, nights):
    base = recorded(BASE_MS)
    assert rates(base, base, nights=nights, runs=3, iterations=40, spread=spread)["changed"] <= 0.05


def test_runs_that_differ_widely_are_not_called_the_same():
    base = recorded(BASE_MS)
    found = rates(base, base, nights=30, runs=3, iterations=40, spread=0.04)
    assert found["same"] < 0.05
    assert found["cannot tell"] > 0.9
