"""The construction of the congestion point, saturated points, fits and the form of a curve."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.analysis.stats import onset as onsets
from orchestrator.analysis.stats.onset import Onset
from orchestrator.questions import congestion, fit
from tests.helpers.answered import salamy

LOADS = (0, 2, 4, 6, 8, 10, 12, 14, 16, 17, 18, 19, 20, 21, 22)
BY = ["model", "traffic", "set"]


def kinked(knee_gbps, *, flat=0.16, steep=0.04):
    """Flat until the knee, then a straight rise by `steep` seconds a Gbit/s."""
    return {load: flat + max(0.0, load - knee_gbps) * steep for load in LOADS}


def rows(times):
    return salamy.curve(np.random.default_rng(1), "resnet50", "iperf", times)


def onset(times):
    return onsets.onset(np.array(list(times), float), np.array(list(times.values())), 25.0)


def test_the_congestion_point_is_where_the_lines_cross():
    found = onset(kinked(15.0))
    assert isinstance(found, Onset)
    assert found.crossing_gbps == pytest.approx(15, rel=0.01)
    (one, *others) = congestion.congestion_point(rows(kinked(15.0)), by=BY)
    assert len(others) == salamy.RUNS - 1, "one a repetition"
    assert one["load_gbps"] in (14, 16)
    assert one["volume_mb"] == pytest.approx((25 - one["load_gbps"]) * one["seconds"] / 8 * 1e3)
    assert one["over_theory_pct"] == pytest.approx(100 * (one["volume_mb"] / 153.3 - 1))
    assert one["rules_pct"] == 100


def test_rules_disagree_about_a_curve_that_bends_slowly():
    times = {load: 0.147 + 0.013 * float(np.exp((load / 10) ** 2)) for load in LOADS}
    (one, *_) = congestion.congestion_point(rows(times), by=BY)
    assert one["lowest_gbps"] <= one["crossing_gbps"] <= one["highest_gbps"]
    assert one["highest_gbps"] - one["lowest_gbps"] > 1


@pytest.mark.parametrize(
    ("times", "why"),
    [
        ({load: 0.254 * float(np.exp(10.75 / (25 - load))) for load in LOADS}, "no flat region"),
        (kinked(30.0), "fewer than 3 points"),
        ({0: 0.16, 8: 0.17}, "too few points"),
        ({0: 0.16, 17.9: 0.19, 18.4: 0.2, 20.8: 0.27}, "no point between 0 and 17.9"),
    ],
)
def test_a_curve_without_a_congestion_point_says_why(times, why):
    (one, *_) = congestion.congestion_point(rows(times), by=BY)
    assert one["crossing_gbps"] is None
    assert why in one["why"]
    assert congestion.congestion_lines(rows(times), by=BY) == []


def test_saturated_are_the_points_from_the_congestion_point_on():
    found = congestion.saturated(rows(kinked(15.6)), by=BY, up_to=0.8)
    assert {row["load_gbps"] for row in found} == {16, 17, 18, 19, 20}
    growing = {load: 0.254 * float(np.exp(10.75 / (25 - load))) for load in LOADS}
    assert {row["load_gbps"] for row in congestion.saturated(rows(growing), by=BY)} == set(LOADS[1:])


@pytest.mark.parametrize(
    "times", [{0: 0.16, 8: 0.165}, {0: 0.16, 20.8: 0.3}, {0: 0.16, 17.9: 0.19, 18.4: 0.2, 20.8: 0.27}]
)
def test_nothing_is_saturated_where_points_do_not_tell_where_congestion_begins(times):
    """A link with 8 of 25 Gbit/s counted as saturated where the curve had no more points: 10 Gbit/s "unused"."""
    assert congestion.saturated(rows(times), by=BY) == []


@pytest.mark.parametrize(("a_s", "b", "n"), [(0.618, 9.95, 1.0), (0.564, 3.667, 0.5), (0.14, 22.793, 2.0)])
def test_a_printed_fit_is_found_again_from_points_on_it(a_s, b, n):
    found = fit.fitted(rows(salamy.exponential(a_s, b, n)), by=BY, exponents=[n])
    assert [row["repetition"] for row in found] == [1, 2, 3]
    assert np.mean([row["a_s"] for row in found]) == pytest.approx(a_s, rel=0.02)
    assert np.mean([row["b"] for row in found]) == pytest.approx(b, rel=0.02)
    assert min(row["r2"] for row in found) > 0.999
    assert fit.fitted(rows({0: 1.0, 8: 1.1}), by=BY, exponents=[n]) == [], "two points determine no scatter"


def test_the_form_that_made_the_points_predicts_better_than_others_and_r2_does_not_tell():
    fluid = {load: max(0.37, 830.1 * 8 / 1000 / (25 - load)) for load in salamy.WIDE}
    mine = [{**row, "n": 1.0} for row in rows(salamy.exponential(0.254, 10.75, 1.0))]
    other = [{**row, "n": 1.0} for row in rows(fluid)]
    assert max(row["share"] for row in fit.forms(mine, by=BY, exponent="n")) < 0.5
    told = {row["against"]: row["share"] for row in fit.forms(other, by=BY, exponent="n")}
    assert told["fluid curve"] > 5
    assert min(row["r2_of_form"] for row in fit.forms(other, by=BY, exponent="n")) > 0.95


def test_a_fit_is_drawn_between_its_first_and_last_point():
    found = fit.with_fits([{**row, "n": 1.0} for row in rows(kinked(10.0))], by=BY, exponent="n", steps=5)
    drawn = [row for row in found if row["fit"]]
    assert [row["load_gbps"] for row in drawn] == pytest.approx([0, 5.5, 11, 16.5, 22])
    assert all(row["point_gbps"] == row["load_gbps"] for row in drawn), "it is drawn over the mean load of points"
    assert len(found) == len(drawn) + salamy.RUNS * len(LOADS)
