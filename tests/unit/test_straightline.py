from __future__ import annotations

import math

import numpy as np
import pytest

from orchestrator.analysis.stats.straightline import line

# NIST Statistical Reference Datasets, Norris (linear, 36 points): slope, intercept, their errors and R2 as certified.
NORRIS = np.array([
    (0.2, 0.1), (337.4, 338.8), (118.2, 118.1), (884.6, 888.0), (10.1, 9.2), (226.5, 228.1), (666.3, 668.5),
    (996.3, 998.5), (448.6, 449.1), (777.0, 778.9), (558.2, 559.2), (0.4, 0.3), (0.6, 0.1), (775.5, 778.1),
    (666.9, 668.8), (338.0, 339.3), (447.5, 448.9), (11.6, 10.8), (556.0, 557.7), (228.1, 228.3), (995.8, 998.0),
    (887.6, 888.8), (120.2, 119.6), (0.3, 0.3), (0.3, 0.6), (556.8, 557.6), (339.1, 339.3), (887.2, 888.0),
    (999.0, 998.5), (779.0, 778.9), (11.1, 10.2), (118.3, 117.6), (229.2, 228.9), (669.1, 668.4), (448.9, 449.2),
    (0.5, 0.2),
])  # fmt: skip


def test_a_line_is_the_certified_one():
    found = line(NORRIS[:, 0], NORRIS[:, 1])
    assert found is not None
    assert found.slope.value == pytest.approx(1.00211681802045, rel=1e-10)
    assert found.intercept.value == pytest.approx(-0.262323073774029, rel=1e-8)
    assert found.r2 == pytest.approx(0.999993745883712, rel=1e-10)
    student = 2.032244509317718  # t of 34 degrees of freedom at 0.975
    assert found.slope.high - found.slope.value == pytest.approx(student * 0.429796848199937e-3, rel=1e-6)
    assert found.intercept.value - found.intercept.low == pytest.approx(student * 0.232818234301152, rel=1e-6)
    assert found.at([0, 100])[1] == pytest.approx(-0.262323073774029 + 100.211681802045)


@pytest.mark.parametrize("x", [[], [1, 2], [1, 2, 2], [1, 2, math.nan]])
def test_two_places_are_no_line_that_says_anything(x):
    assert line(x, range(len(x))) is None


def test_a_constant_leaves_nothing_to_explain():
    found = line([1, 2, 3], [5, 5, 5])
    assert found is not None
    assert (found.slope.value, found.intercept.value) == (0, 5)
    assert math.isnan(found.r2)
