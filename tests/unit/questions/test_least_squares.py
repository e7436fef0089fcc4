"""Regressions and correlations are worked out once a repetition."""

from __future__ import annotations

import math

import pytest

from orchestrator.questions.least_squares import correlation, least_squares

SIZES = (10.0, 20.0, 40.0, 80.0)


def rows(*, runs=2, kinds=("a", "b")):
    """Three times the size, of kind b five more, a little more in each repetition."""
    return [
        {"size": size, "kind": kind, "y": (3.0 + 0.1 * run) * size + 5.0 * (kind == "b"), "repetition": run}
        for kind in kinds
        for size in SIZES
        for run in range(1, runs + 1)
    ]


def test_a_repetition_has_a_row_a_coefficient():
    found = least_squares(rows(), y="y", numbers=["size"], categories={"kind": "b"})
    assert [(row["repetition"], row["regressor"], row["level"]) for row in found] == [
        (1, "intercept", ""),
        (1, "size", ""),
        (1, "kind", "a"),
        (2, "intercept", ""),
        (2, "size", ""),
        (2, "kind", "a"),
    ]
    assert [row["coefficient"] for row in found] == pytest.approx([5, 3.1, -5, 5, 3.2, -5])
    assert found[0]["r2"] == pytest.approx(1)
    assert found[1]["correlation"] == pytest.approx(0.999, abs=0.001)
    assert math.isnan(found[0]["correlation"])
    assert (found[0]["points"], found[0]["mean_y"]) == (8, pytest.approx(3.1 * 37.5 + 2.5))


def test_a_repetition_that_lacks_points_and_points_that_do_not_tell_are_left_out():
    some = [row for row in rows() if not (row["repetition"] == 2 and row["size"] == 80.0)]
    assert {row["repetition"] for row in least_squares(some, y="y", numbers=["size"])} == {1}
    alike = [{**row, "size": 1.0} for row in rows()]
    assert least_squares(alike, y="y", numbers=["size"]) == []


def test_values_of_columns_are_fitted_apart():
    found = least_squares(rows(runs=1), y="y", numbers=["size"], by=["kind"])
    assert [(row["kind"], row["coefficient"]) for row in found] == [
        ("a", pytest.approx(0, abs=1e-9)),
        ("a", pytest.approx(3.1)),
        ("b", pytest.approx(5)),
        ("b", pytest.approx(3.1)),
    ]


def test_a_correlation_is_of_a_repetition_and_none_of_what_does_not_vary():
    found = correlation(rows(), x="size", y="y", by=["kind"])
    assert [(row["kind"], row["repetition"], row["points"]) for row in found] == [
        ("a", 1, 4),
        ("a", 2, 4),
        ("b", 1, 4),
        ("b", 2, 4),
    ]
    assert [row["correlation"] for row in found] == pytest.approx([1.0] * 4)
    assert math.isnan(correlation([{**row, "y": 1.0} for row in rows(runs=1)], x="size", y="y")[0]["correlation"])
