"""The form of the thesis' fits has to beat others on points that were left out: R2 alone says nothing of it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from orchestrator.analysis.compare.curves import CurvePoint, Kind, Series
from orchestrator.papers.salamy import form
from orchestrator.papers.salamy.published import salamy
from orchestrator.papers.salamy.repeated import repetitions, time_at
from orchestrator.report.study.content import Comparison

LOADS_GBPS = np.array([0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 19, 20])
DRAWS = 20


def point(load_gbps: float, runs: dict[str, float]) -> CurvePoint:
    mean_s = float(np.mean(list(runs.values())))
    return CurvePoint(
        requested_bps=load_gbps * 1e9,
        load_bps=load_gbps * 1e9,
        mean_s=mean_s,
        error_s=0.01,
        freedom=9.0,
        p99_s=mean_s,
        iterations=9,
        seconds=(),
        runs=runs,
    )


def series(times: np.ndarray) -> Series:
    """A curve of runs (rows) over all loads."""
    points = [
        point(load, {f"r{number}": float(of[place]) for number, of in enumerate(times)})
        for place, load in enumerate(LOADS_GBPS)
    ]
    return Series(
        kind=Kind("bert-large", "iperf", "rdma", 4, "ddp"),
        points=tuple(points),
        capacity_bps=25e9,
        theory_bytes=2e9,
        scales=(100,),
        emulated=True,
    )


def compared(curve, *, runs: int, spread: float, seed: int) -> Comparison:
    random = np.random.default_rng(seed)
    times = curve(25 - LOADS_GBPS) * np.exp(random.normal(0, spread, (runs, len(LOADS_GBPS))))
    return form.compared(SimpleNamespace(series=series(times)), salamy())


@pytest.mark.parametrize("spread", [0.002, 0.02, 0.2])
@pytest.mark.parametrize(
    "curve",
    [
        lambda left: np.maximum(0.84, 16 / left),
        lambda left: np.maximum(0.5, 16 / left),
        lambda left: 0.3 + np.maximum(0.5, 10 / left),
        lambda left: 0.3 + 10 / left,
        lambda left: 1 + (25 - left) / 10,
        lambda left: 1 + 0 * left,
    ],
)
def test_what_has_another_form_is_no_evidence_of_this_one(curve, spread):
    found = [compared(curve, runs=3, spread=spread, seed=seed).verdict for seed in range(DRAWS)]
    assert found.count("agrees") <= 2, found


@pytest.mark.parametrize("spread", [0.002, 0.02])
def test_the_form_is_seen_where_it_is(spread):
    found = [
        compared(lambda left: 0.618 * np.exp(9.95 / left), runs=3, spread=spread, seed=seed) for seed in range(DRAWS)
    ]
    assert sum(line.verdict == "agrees" for line in found) >= 0.8 * DRAWS
    assert all(line.ours.startswith("R2 of thesis ") for line in found)


def test_r2_of_a_fluid_curve_is_as_high_as_printed_ones():
    line = compared(lambda left: 0.3 + np.maximum(0.5, 10 / left), runs=3, spread=0.002, seed=1)
    assert float(line.ours.split()[3].rstrip(",")) > 0.98
    assert line.verdict == "differs"


def test_runs_of_all_points_are_repetitions_and_else_the_first_run_of_each_and_the_second():
    whole = [point(0, {"a": 1.0, "b": 2.0}), point(5, {"b": 4.0, "a": 3.0})]
    assert [list(times) for times in repetitions(whole)] == [[1.0, 3.0], [2.0, 4.0]]
    apart = [point(0, {"a": 1.0, "b": 2.0}), point(5, {"c": 3.0, "d": 4.0, "e": 5.0})]
    assert [list(times) for times in repetitions(apart)] == [[1.0, 3.0], [2.0, 4.0]]
    assert repetitions([]) == []


def test_a_time_between_points_has_an_interval_over_runs_and_none_of_a_single_one():
    times = np.outer([1.0, 1.02], np.exp(LOADS_GBPS / 20))
    of = time_at(series(times), 5e9)
    assert of.low < of.value < of.high
    assert of.value == pytest.approx(np.exp(0.25) * 1.01, rel=0.01)
    assert np.isnan(time_at(series(times[:1]), 5e9).low)
    assert np.isnan(time_at(series(times), 21e9).value)
