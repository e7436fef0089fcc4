"""Ordinary least squares and batch means, beside values that others computed."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.analysis.stats import linear

# NIST's Statistical Reference Datasets, Longley: employment by seven economic figures, 1947 to 1962.
LONGLEY = np.array([
    [60323, 83.0, 234289, 2356, 1590, 107608, 1947], [61122, 88.5, 259426, 2325, 1456, 108632, 1948],
    [60171, 88.2, 258054, 3682, 1616, 109773, 1949], [61187, 89.5, 284599, 3351, 1650, 110929, 1950],
    [63221, 96.2, 328975, 2099, 3099, 112075, 1951], [63639, 98.1, 346999, 1932, 3594, 113270, 1952],
    [64989, 99.0, 365385, 1870, 3547, 115094, 1953], [63761, 100.0, 363112, 3578, 3350, 116219, 1954],
    [66019, 101.2, 397469, 2904, 3048, 117388, 1955], [67857, 104.6, 419180, 2822, 2857, 118734, 1956],
    [68169, 108.4, 442769, 2936, 2798, 120445, 1957], [66513, 110.8, 444546, 4681, 2637, 121950, 1958],
    [68655, 112.6, 482704, 3813, 2552, 123366, 1959], [69564, 114.2, 502601, 3931, 2514, 125368, 1960],
    [69331, 115.7, 518173, 4806, 2572, 127852, 1961], [70551, 116.9, 554894, 4007, 2827, 130081, 1962],
])  # fmt: skip
STUDENT_9 = 2.2621571628  # the 97.5 % quantile with nine degrees of freedom
CERTIFIED = {  # value and standard error, certified
    "x1": (15.0618722713733, 84.9149257747669),
    "x2": (-0.0358191792925910, 0.0334910077722432),
    "x3": (-2.02022980381683, 0.488399681651699),
    "x4": (-1.03322686717359, 0.214274163161675),
    "x5": (-0.0511041056535807, 0.226073200069370),
    "x6": (1829.15146461355, 455.478499142212),
}


def test_longleys_regression_is_nists():
    found = linear.fit(LONGLEY[:, 0], {f"x{k}": LONGLEY[:, k] for k in range(1, 7)}, {})
    assert found.r2 == pytest.approx(0.995479004577296, rel=1e-9)
    assert found.intercept.estimate.value == pytest.approx(-3482258.63459582, rel=1e-6)
    for name, (value, error) in CERTIFIED.items():
        (one,) = found.of(name)
        assert one.estimate.value == pytest.approx(value, rel=1e-6)
        assert (one.estimate.high - value) / STUDENT_9 == pytest.approx(error, rel=1e-5), "Student's t, nine freedoms"
        assert one.significant == (one.p < 0.05)
    assert [one.name for one in found.coefficients if one.significant] == ["x3", "x4", "x6"]


def test_a_category_is_measured_against_its_first_level():
    size = np.array([1.0, 2, 3, 4] * 3)
    kind = ["a"] * 4 + ["b"] * 4 + ["c"] * 4
    noise = np.array([0.1, -0.1, -0.1, 0.1] * 3)
    found = linear.fit(6 * size + np.repeat([5.0, 5, 3], 4) + noise, {"size": size}, {"kind": kind})
    assert found.base == {"kind": "a"}
    (slope,) = found.of("size")
    assert slope.estimate.value == pytest.approx(6)
    b, c = found.of("kind")
    assert (b.level, c.level) == ("b", "c")
    assert (b.significant, c.significant) == (False, True)
    assert c.estimate.value == pytest.approx(-2)
    assert found.intercept.estimate.value == pytest.approx(5)


def test_a_fit_without_errors_and_one_of_a_constant_are_no_mistakes():
    exact = linear.fit([3.0, 5, 7, 9], {"x": [1.0, 2, 3, 4]}, {})
    assert (exact.of("x")[0].estimate.value, exact.r2) == (pytest.approx(2), pytest.approx(1))
    assert np.isnan(linear.fit([1.0] * 4, {"x": [1.0, 2, 3, 4]}, {}).r2)


def test_rows_that_do_not_tell_regressors_apart_give_nothing():
    size = [1.0, 2, 3, 4, 5, 6]
    assert linear.fit(size, {"size": size}, {"one": list("aabbbb"), "other": list("xxyyyy")}) is None
    assert linear.fit([1.0, 2], {"size": [1.0, 2]}, {}) is None
