"""A load is what was scheduled throughout its window, not only in its mean."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cross_traffic import distributions, schedule_files, websearch
from cross_traffic.agents import flow_drawing
from orchestrator.analysis.traffic.throughput import Bins
from orchestrator.analysis.windows.generated_flows import Schedule
from orchestrator.analysis.windows.loads import course
from orchestrator.validity.gates import load_course
from tests.helpers.gate_windows import judged
from tests.helpers.sealed_run import loose, make_run

BEGIN = 1_795_000_000_000_000_000
SECOND = 10**9
STEP = 10_000_000


def halves(place):
    return np.where(place < 0.5, 1.6, 0.4)


def gates(run, name):
    (window,) = json.loads((run / "manifest.json").read_text())["windows"]
    return [gate for gate in window["gates"] if gate["name"] == name], window["valid"]


@pytest.mark.parametrize("load", [0.05, "as-achieved"])
@pytest.mark.parametrize(("shape", "valid"), [(halves, False), (np.ones_like, True)])
def test_a_load_that_is_right_in_its_mean_alone_is_found(tmp_path, load, shape, valid):
    run = make_run(tmp_path, tolerances={**loose(), "load": load}, course=shape, skip=("sockets",))
    (mean,), found = gates(run, "load")
    assert mean["passed"]
    assert abs(mean["measured"]) < 0.05
    (told,), _ = gates(run, "load-course")
    assert (told["passed"], found) == (valid, valid)
    assert told["measured"] == pytest.approx(0.0 if valid else 0.6, abs=0.05)


def scheduled(seconds=60.0, load_bps=40e6, seed=3, **options):
    """Flows of web search as they are scheduled at a scale of 100."""
    made = websearch.stream_spec(
        distributions.find("websearch"),
        load_bps=load_bps,
        mtu=1500,
        seed=seed,
        factor=0.01,
        duration_s=seconds,
        **options,
    )
    at, sizes, _ = (np.array(one) for one in zip(*flow_drawing.drawn(made), strict=True))
    return Schedule(start_ns=BEGIN + at, wire_bytes=sizes.astype(float))


def arrived(plan, *, rate_bps=250e6, late_s=0.0):
    """Bins of what arrives of a schedule: each flow at the link's rate, once the ones before it are through."""
    done = 0.0
    amounts: dict[int, float] = {}
    for start, size in zip((plan.start_ns - BEGIN) / 1e9 + late_s, plan.wire_bytes, strict=True):
        done = max(done, start) + size * 8 / rate_bps
        amounts[int(done * 100)] = amounts.get(int(done * 100), 0.0) + size
    places = np.array(sorted(amounts))
    return Bins(BEGIN + places * STEP, np.array([amounts[place] for place in places]), STEP)


@pytest.mark.parametrize("options", [{}, {"burst": schedule_files.BurstShape(width_s=0.02, period_s=0.2, height=3.0)}])
def test_flows_that_arrive_as_they_are_scheduled_keep_to_its_course(options):
    plan = scheduled(**options)
    found = course("a", "h1", arrived(plan), (BEGIN, BEGIN + 60 * SECOND), iteration_s=0.16, schedule=plan)
    assert found.off < 0.1
    assert [gate.passed for gate in judged(load_course, courses=[found])] == [True]


def test_a_schedule_that_swings_is_no_fault_and_a_load_that_swings_otherwise_is():
    quiet, loud = scheduled(load_bps=20e6), scheduled(load_bps=60e6, seed=4)
    half = BEGIN + 30 * SECOND
    early, late = quiet.start_ns < half, loud.start_ns >= half
    plan = Schedule(
        start_ns=np.r_[quiet.start_ns[early], loud.start_ns[late]],
        wire_bytes=np.r_[quiet.wire_bytes[early], loud.wire_bytes[late]],
    )
    span = (BEGIN, BEGIN + 60 * SECOND)
    kept = course("a", "h1", arrived(plan), span, iteration_s=0.16, schedule=plan)
    assert (kept.scheduled, kept.off) == (pytest.approx(0.5, abs=0.05), pytest.approx(0.0, abs=0.1))
    flat = scheduled(load_bps=40e6, seed=5)
    swung = course("a", "h1", arrived(flat), span, iteration_s=0.16, schedule=plan)
    assert swung.off == pytest.approx(0.5, abs=0.1)


def test_large_flows_and_slow_iterations_make_long_pieces():
    one = Schedule(start_ns=BEGIN + np.arange(20) * SECOND, wire_bytes=np.full(20, 1e6))
    bins = Bins(one.start_ns, one.wire_bytes, STEP)
    span = (BEGIN, BEGIN + 20 * SECOND)
    assert course("a", "h1", bins, span, iteration_s=0.1, schedule=one).piece_s == 4.0
    assert course("a", "h1", bins, span, iteration_s=0.1).piece_s == 0.5
    assert course("a", "h1", bins, span, iteration_s=1.25).piece_s == 5.0


def test_a_window_too_short_for_two_pieces_is_not_judged():
    bins = Bins(np.array([BEGIN]), np.array([1.0]), STEP)
    found = course("a", "h1", bins, (BEGIN, BEGIN + SECOND), iteration_s=0.2)
    (gate,) = judged(load_course, courses=[found])
    assert (gate.passed, gate.required) == (None, False)
