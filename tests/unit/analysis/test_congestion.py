from __future__ import annotations

import math

import numpy as np
import pytest

from orchestrator.analysis.compare import curves
from orchestrator.analysis.stats import fits
from orchestrator.analysis.traffic import congestion
from orchestrator.papers.salamy.published import salamy
from tests.helpers import manifests

C = 25e9
LOADS = np.array([0, 2, 4, 6, 8, 10, 12, 14, 16, 17, 18, 19, 20, 21, 22]) * 1e9
RESNET = congestion.theory_bytes(25557032, 4)


def kinked(knee_gbps, *, flat=0.16, steep=0.04, noise=0.0, seed=1):
    """Flat until the knee, then a straight rise by `steep` seconds a Gbit/s."""
    seconds = flat + np.clip(LOADS / 1e9 - knee_gbps, 0, None) * steep
    seconds = seconds + np.random.default_rng(seed).normal(0, 1, len(LOADS)) * noise
    return congestion.curve(LOADS, seconds, noise, capacity_bps=C, theory_bytes=RESNET)


# Against what the thesis prints


@pytest.mark.parametrize("model", [model.model for model in salamy().models])
def test_volumes_and_bandwidths_are_those_of_table_3_1(model):
    (printed,) = (one for one in salamy().models if one.model == model)
    volume = congestion.theory_bytes(printed.parameters, salamy().ring_hosts["A"])
    assert volume / 1e6 == pytest.approx(printed.theory_mb, abs=0.6)
    assert congestion.theory_bps(volume, printed.iteration_s) / 1e9 == pytest.approx(printed.bandwidth_gbps, rel=0.005)


@pytest.mark.parametrize("printed", salamy().congestion_points, ids=lambda p: f"{p.model}-{p.traffic}")
def test_volumes_at_congestion_points_are_those_of_tables_3_2_to_3_6(printed):
    (model,) = (one for one in salamy().models if one.model == printed.model)
    hosts = salamy().ring_hosts[salamy().configuration(printed.traffic)]
    assert congestion.theory_bytes(model.parameters, hosts) / 1e6 == pytest.approx(printed.theory_mb, rel=0.001)
    if printed.measured_mb is not None:
        assert 100 * (printed.measured_mb / printed.theory_mb - 1) == pytest.approx(printed.over_theory_pct, abs=0.9)
    if printed.iteration_s is not None:
        measured = (25 - printed.load_gbps) * 1e3 * printed.iteration_s / 8
        assert measured == pytest.approx(printed.measured_mb, rel=0.01)


@pytest.mark.parametrize("printed", salamy().most_congested, ids=lambda p: f"{p.model}-{p.traffic}")
def test_needed_and_used_bandwidths_are_those_of_tables_3_3_to_3_7(printed):
    last = max(
        (p for p in salamy().points if (p.model, p.traffic) == (printed.model, printed.traffic)),
        key=lambda p: p.load_gbps,
    )
    (model,) = (one for one in salamy().models if one.model == printed.model)
    volume = congestion.theory_bytes(model.parameters, salamy().ring_hosts[salamy().configuration(printed.traffic)])
    of = congestion.curve([last.load_gbps * 1e9], [last.iteration_s], capacity_bps=C, theory_bytes=volume)
    found = congestion.most_congested(of)
    assert found.needed_bps / 1e9 == pytest.approx(printed.needed_gbps, rel=0.03)
    assert found.used_bps / 1e9 == pytest.approx(printed.used_gbps, rel=0.01)


def test_the_fit_of_the_printed_points_is_near_the_printed_fit():
    (printed,) = (one for one in salamy().fits if (one.model, one.traffic) == ("vgg16", "iperf"))
    points = [p for p in salamy().points if p.model == "vgg16" and p.traffic in ("none", "iperf")]
    found = fits.fit([p.load_gbps * 1e9 for p in points], [p.iteration_s for p in points], capacity_bps=C, n=1)
    assert found.a_s == pytest.approx(printed.a_s, rel=0.05)
    assert found.b == pytest.approx(printed.b, rel=0.03)
    assert found.r2 == pytest.approx(printed.r2, abs=0.01)


@pytest.mark.parametrize("printed", salamy().fits, ids=lambda p: f"{p.model}-{p.traffic}-{p.transport}-{p.source[:9]}")
def test_a_printed_fit_is_found_again_from_points_on_it(printed):
    left = 25 - LOADS / 1e9
    seconds = printed.a_s * np.exp(printed.b / left**printed.n)
    found = fits.fit(LOADS, seconds * np.exp(np.random.default_rng(1).normal(0, 0.01, len(LOADS))), capacity_bps=C)
    assert found.n == pytest.approx(printed.n, rel=0.25)
    assert found.n_interval[0] <= printed.n * 1.05
    assert found.n_interval[1] >= printed.n * 0.95
    exact = fits.fit(LOADS, seconds, capacity_bps=C, n=printed.n)
    assert (exact.a_s, exact.b) == pytest.approx((printed.a_s, printed.b), rel=1e-6)
    assert exact.seconds(LOADS) == pytest.approx(seconds)


# Fits


@pytest.mark.parametrize("n", fits.EXPONENTS)
def test_the_exponent_that_made_the_points_is_chosen(n):
    seconds = 0.2 * np.exp(6 / (25 - LOADS / 1e9) ** n) * np.exp(np.random.default_rng(2).normal(0, 0.01, len(LOADS)))
    found = [one for one in fits.candidates(LOADS, seconds, capacity_bps=C) if one.n_interval is None]
    assert fits.chosen(tuple(found)).n == n
    assert min(found, key=lambda one: one.aicc).n == n


@pytest.mark.parametrize("noise", [1e-5, 0.01])
def test_the_interval_of_a_free_exponent_holds_it_at_any_noise(noise):
    random = np.random.default_rng(4)
    seconds = 0.2 * np.exp(6 / (25 - LOADS / 1e9))
    found = [fits.fit(LOADS, seconds * np.exp(random.normal(0, noise, len(LOADS))), capacity_bps=C) for _ in range(60)]
    known = [one.n_interval for one in found if one is not None]
    assert len(known) >= 50
    assert np.mean([low <= 1 <= high for low, high in known]) >= 0.88


def test_intervals_and_bands_cover_the_truth():
    random = np.random.default_rng(3)
    truth = 0.25 * np.exp(10 / (25 - LOADS / 1e9))
    covered = {"b": 0, "band": 0}
    for _ in range(100):
        found = fits.fit(LOADS, truth * np.exp(random.normal(0, 0.05, len(LOADS))), capacity_bps=C, n=1)
        covered["b"] += found.b_interval[0] <= 10 <= found.b_interval[1]
        low, high = found.band(LOADS[8:9])
        covered["band"] += low[0] <= truth[8] <= high[0]
    assert all(89 <= count <= 100 for count in covered.values())


@pytest.mark.parametrize("runs", [1, 2, 3, 6])
@pytest.mark.parametrize("n", [1.0, None])
def test_where_runs_have_several_points_a_fits_interval_is_over_runs(runs, n):
    """What sets runs apart (1 %) moves all points of a run: the scatter about one run's curve says nothing of it."""
    random = np.random.default_rng(5)
    truth = 0.25 * np.exp(10 / (25 - LOADS / 1e9))
    held = {"a": [], "b": []}
    for _ in range(150 if n else 40):
        logs = random.normal(0, 0.01, (runs, 1)) + random.normal(0, 0.001, (runs, len(LOADS)))
        by_point = [{str(run): truth[k] * math.exp(logs[run, k]) for run in range(runs)} for k in range(len(LOADS))]
        found = fits.fit(LOADS, truth * np.exp(logs.mean(axis=0)), capacity_bps=C, n=n, runs=by_point)
        if runs == 1:
            assert math.isnan(found.a_interval_s[0])
            assert np.isnan(found.band(LOADS)[0]).all()
            continue
        held["a"].append(found.a_interval_s[0] <= 0.25 <= found.a_interval_s[1])
        held["b"].append(found.b_interval[0] <= 10 <= found.b_interval[1])
    for one in held.values():
        assert not one or np.mean(one) >= 0.95 - 2.5 * math.sqrt(0.05 * 0.95 / len(one))


def test_points_that_are_runs_of_their_own_have_the_interval_of_their_scatter():
    seconds = 0.25 * np.exp(10 / (25 - LOADS / 1e9)) * np.exp(np.random.default_rng(1).normal(0, 0.01, len(LOADS)))
    own = [{str(place): float(value)} for place, value in enumerate(seconds)]
    assert fits.fit(LOADS, seconds, capacity_bps=C, n=1, runs=own) == fits.fit(LOADS, seconds, capacity_bps=C, n=1)


@pytest.mark.parametrize("n", [None, 1.0])
def test_too_few_points_are_not_fitted(n):
    loads = [0, 1e9] if n else [0, 1e9, 2e9]
    assert fits.fit(loads, np.full(len(loads), 0.2), capacity_bps=C, n=n) is None


def test_an_exponent_that_the_points_do_not_determine_is_not_given():
    seconds = 0.37 * (1 + LOADS / 20e9)  # bends the other way
    assert fits.fit(LOADS, seconds, capacity_bps=C) is None
    assert {found.n for found in fits.candidates(LOADS, seconds, capacity_bps=C)} == set(fits.EXPONENTS)


def test_points_without_a_time_or_at_the_capacity_are_left_out():
    found = fits.fit([0, 5e9, 1e10, 1.5e10, 25e9, 2e9], [0.2, 0.21, 0.23, 0.3, 9, math.nan], capacity_bps=C, n=1)
    assert found.points == 4
    assert np.isinf(found.seconds([25e9, 30e9])).all()


# Congestion points


def test_the_congestion_point_is_where_the_lines_cross():
    point = congestion.congestion_point(kinked(15.0))
    assert point.onset.crossing_bps == pytest.approx(15e9, rel=0.01)
    assert point.onset.load_bps in (14e9, 16e9)
    assert point.onset.volume_bytes == pytest.approx((C - point.onset.load_bps) * point.onset.seconds / 8)
    assert point.found == (1.0, 1.0)


def test_rules_disagree_about_a_curve_that_bends_slowly_and_the_interval_says_so():
    seconds = 0.147 + 0.013 * np.exp(((LOADS / 1e9) / 10) ** 2)
    of = congestion.curve(LOADS, seconds, seconds * 0.01, capacity_bps=C, theory_bytes=RESNET)
    point = congestion.congestion_point(of)
    low, high = point.over_rules
    assert low <= point.onset.crossing_bps <= high
    assert high - low > 1e9
    assert point.over_draws[0] < point.onset.crossing_bps < point.over_draws[1]


def test_a_model_that_fills_the_link_alone_has_none():
    seconds = 0.254 * np.exp(10.75 / (25 - LOADS / 1e9))
    of = congestion.curve(LOADS, seconds, capacity_bps=C, theory_bytes=RESNET)
    point = congestion.congestion_point(of)
    assert point.onset is None
    assert "no flat region" in point.why
    assert len(congestion.congested_part(of, point).seconds) == len(LOADS)


def test_a_model_that_never_congests_has_none():
    point = congestion.congestion_point(kinked(30.0))
    assert point.onset is None
    assert "fewer than 3 points" in point.why
    assert point.over_rules is None


def test_no_points_are_no_curve():
    of = congestion.curve([], [], capacity_bps=C, theory_bytes=RESNET)
    assert congestion.congestion_point(of).why == "none: too few points"
    assert congestion.most_congested(of) is None
    assert congestion.nearest(of, 0.3) is None
    assert math.isnan(congestion.spare_bps(of, congestion.congestion_point(of)))


def test_spare_capacity_is_the_mean_beyond_the_congestion_point():
    of = kinked(15.0)
    point = congestion.congestion_point(of)
    part = congestion.congested_part(of, point)
    spare = [C - load - RESNET * 8 / t for load, t in zip(part.load_bps, part.seconds, strict=True)]
    assert congestion.spare_bps(of, point) == pytest.approx(np.mean(spare))
    assert congestion.spare_bps(of, point, up_to_bps=17e9) == pytest.approx(
        np.mean([value for value, load in zip(spare, part.load_bps, strict=True) if load <= 17e9])
    )


def test_points_near_thirty_and_eighty_per_cent():
    of = kinked(15.0)
    assert of.load_bps[congestion.nearest(of, 0.3)] == 8e9
    assert of.load_bps[congestion.nearest(of, 0.8)] == 20e9
    sparse = congestion.curve([0, 12e9], [1, 1], capacity_bps=C, theory_bytes=RESNET)
    assert congestion.nearest(sparse, 0.8) is None


def test_a_cdf_counts_every_iteration():
    values, share = congestion.cdf([[3.0, 1.0], [2.0]])
    assert values.tolist() == [1.0, 2.0, 3.0]
    assert share[-1] == 1.0
    assert len(congestion.cdf([])[0]) == 0


def test_the_rescaled_axis_begins_at_one():
    assert congestion.rescaled([0, 20e9], C).tolist() == [1.0, 5.0]


@pytest.mark.parametrize(
    ("kind", "mtu", "carried"), [("inventory", 1500, 24.61e9), ("inventory", 9000, 24.934e9), ("local", 1500, 25e9)]
)
def test_the_capacity_of_a_real_link_is_in_the_unit_of_loads(kind, mtu, carried):
    links = [{"host": f"h{place}", "device": "eth0", "rate": rate} for place, rate in enumerate((25e9, 100e9))]
    manifest = manifests.made(topology={"kind": kind, "mtu": mtu, "nodes": [], "links": links})
    assert curves.capacity_bps(manifest) == pytest.approx(carried, rel=1e-4)
