"""A load is what was scheduled throughout its window, not only in its mean."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from cross_traffic import distributions, drawn_schedules, schedule_files
from cross_traffic.agents import flow_drawing
from orchestrator.analysis.traffic.throughput import Bins
from orchestrator.analysis.windows.courses import Bursts, End, course, served, worst_span
from orchestrator.analysis.windows.generated_flows import Schedule
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
    assert told["measured"] == pytest.approx(0.0 if valid else 0.6, abs=0.06)


def scheduled(seconds=60.0, load_bps=40e6, seed=3, **options):
    """Flows of web search as they are scheduled at a scale of 100."""
    made = drawn_schedules.stream_spec(
        distributions.find("websearch"),
        load_bps=load_bps,
        mtu=1500,
        seed=seed,
        factor=0.01,
        duration_s=seconds,
        **options,
    )
    at, sizes, _ = (np.array(one) for one in zip(*flow_drawing.drawn(made), strict=True))
    return Schedule(start_ns=BEGIN + at, wire_bytes=sizes.astype(float), started_ns=BEGIN + at)


def arrived(plan, *, rate_bps=250e6, width_ns=STEP):
    """Bins of what arrives of a schedule: each four packets at the link's rate, once the ones before it are through."""
    done = 0.0
    amounts: dict[int, float] = {}
    for start, size in zip((plan.start_ns - BEGIN) / 1e9, plan.wire_bytes.tolist(), strict=True):
        done = max(done, start)
        for packets in range(0, int(size), 6056):
            part = min(6056, size - packets)
            done += part * 8 / rate_bps
            place = int(done * SECOND) // width_ns
            amounts[place] = amounts.get(place, 0.0) + part
    places = np.array(sorted(amounts))
    return Bins(BEGIN + places * width_ns, np.array([amounts[place] for place in places]), width_ns)


def steady(shape, *, seconds=20, mean=5e4):
    """Bins of a load that is so many times its mean at the seconds of a window."""
    at = np.arange(int(seconds * 100)) * 0.01
    return Bins(BEGIN + np.arange(len(at)) * STEP, mean * np.array([shape(one) for one in at]), STEP)


def told(bins, *, seconds=20, **more):
    """The verdicts on a course, by name."""
    found = course("a", "h1", bins, (BEGIN, BEGIN + int(seconds * SECOND)), **more)
    return {gate.name: gate for gate in judged(load_course, courses=[found])}


SHAPES = {
    "200 and 0 % that take turns every 320 ms": lambda at: 2.0 * (at % 0.64 < 0.32),
    "a ramp from 66 to 134 %": lambda at: 0.66 + 0.68 * at / 20,
    "halves of 120 and 80 %": lambda at: 1.2 if at < 10 else 0.8,
    "0.8 s of silence": lambda at: 0.0 if 8 <= at < 8.8 else 1.0,
    "0.8 s of silence that is made up for": lambda at: 0.0 if 8 <= at < 8.8 else 2.0 if 8.8 <= at < 9.6 else 1.0,
    "a start that comes 0.5 s late": lambda at: float(at >= 0.5),
    "300 % for a tenth of each 4 s": lambda at: 3.0 if at % 4 < 0.4 else 0.8,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_load_that_is_right_in_its_mean_alone_fails_whatever_its_shape(shape):
    gate = told(steady(SHAPES[shape]))["load-course"]
    assert (gate.passed, gate.required) == (False, True), gate.message


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("seed", [1, 2])
def test_so_does_web_search_of_such_a_shape(name, seed):
    plan = scheduled(seconds=20, seed=seed)
    bins = arrived(plan)
    shape = np.array([SHAPES[name](at) for at in (bins.start_ns - BEGIN) / 1e9])
    assert told(bins, schedule=plan)["load-course"].passed
    assert not told(Bins(bins.start_ns, bins.amount * shape, STEP), schedule=plan)["load-course"].passed


def test_nothing_at_all_fails():
    assert not told(Bins(np.zeros(0, np.int64), np.zeros(0), STEP))["load-course"].passed


@pytest.mark.parametrize("load_bps", [5e6, 40e6, 160e6])
@pytest.mark.parametrize("arrivals", ["poisson", "compound-poisson"])
@pytest.mark.parametrize("seed", range(3))
def test_flows_that_arrive_as_they_were_drawn_keep_to_their_course(load_bps, arrivals, seed):
    plan = scheduled(seconds=30, load_bps=load_bps, arrivals=arrivals, seed=seed)
    gate = told(arrived(plan), seconds=30, schedule=plan)["load-course"]
    assert gate.passed is True, gate.message


BURSTS = [
    schedule_files.BurstShape(width_s=0.02, period_s=0.2, height=3.0),
    schedule_files.BurstShape(width_s=0.001, period_s=0.01, height=3.0),
    schedule_files.BurstShape(width_s=0.05, period_s=1.0, height=2.0),
]


def in_bursts(plan, shape, found, *, seconds=20):
    """The verdict on bursts where what arrives is the schedule `found` in place of `plan`."""
    fine = arrived(found, width_ns=1_000_000)
    more = {"schedule": plan, "bursts": Bursts(shape, BEGIN, fine), "ends": [link(arrived(found))]}
    return told(arrived(found), seconds=seconds, **more)


def link(total, load=None, *, rate_bps=250e6):
    return End(rate_bps, total, load or total)


@pytest.mark.parametrize("shape", BURSTS)
@pytest.mark.parametrize("load_bps", [20e6, 60e6])
def test_bursts_that_arrive_as_they_were_due_pass(shape, load_bps):
    plan = scheduled(seconds=20, load_bps=load_bps, burst=shape)
    found = in_bursts(plan, shape, plan)
    assert [gate.passed for gate in found.values()] == [True, True], [gate.message for gate in found.values()]


WRONG = {
    "none: smooth traffic": None,
    "half the period": {"period_s": 0.5, "width_s": 0.5},
    "twice the period": {"period_s": 2, "width_s": 2},
    "1.2 times the period": {"period_s": 1.2, "width_s": 1.2},
    "as high and twice as wide": {"width_s": 2},
    "half as wide": {"width_s": 0.5},
    "six times the mean": {"height": 2},
    "half as high above the mean": {"height": 0.5},
}


@pytest.mark.parametrize("shape", BURSTS[:1])
@pytest.mark.parametrize("wrong", WRONG)
def test_other_bursts_fail_by_what_arrived(shape, wrong):
    change = WRONG[wrong]
    other = change and replace(shape, **{name: getattr(shape, name) * times for name, times in change.items()})
    plan = scheduled(seconds=20, load_bps=20e6, burst=shape)
    found = in_bursts(plan, shape, scheduled(seconds=20, load_bps=20e6, **({"burst": other} if other else {})))
    assert found["load-bursts"].passed is False, found["load-bursts"].message


def test_bursts_are_told_by_the_starts_of_flows_where_nothing_was_captured():
    shape = BURSTS[1]
    plan = scheduled(seconds=20, load_bps=20e6, burst=shape)
    span = {"bursts": Bursts(shape, BEGIN, None)}
    assert told(arrived(plan), schedule=plan, **span)["load-bursts"].passed
    late = plan.start_ns + np.random.default_rng(1).integers(0, 10_000_000, len(plan.start_ns))
    gate = told(arrived(plan), schedule=replace(plan, started_ns=late), **span)["load-bursts"]
    assert gate.passed is False
    assert "its bursts started " in gate.message


def test_bursts_that_a_link_cannot_pass_on_are_not_judged_by_what_arrived():
    shape = BURSTS[1]
    plan = scheduled(seconds=20, load_bps=20e6, burst=shape)
    full = link(arrived(plan, rate_bps=20.1e6), rate_bps=20.1e6)
    bins = arrived(plan, rate_bps=20.1e6, width_ns=1_000_000)
    more = {"schedule": replace(plan, started_ns=plan.start_ns), "ends": [full]}
    gate = told(full.total, bursts=Bursts(shape, BEGIN, bins), **more)["load-bursts"]
    assert gate.passed is True
    assert "arrived" not in gate.message


def test_a_full_link_excuses_what_comes_late_and_an_idle_one_does_not():
    """A training leaves a fifth of the load room for 0.6 s of each 1.5 s, and what waited comes at the link's rate."""
    at = BEGIN + np.arange(2000) * STEP
    busy = (np.arange(2000) % 150) < 60
    came = served(np.full(2000, 5e4), np.where(busy, 1e4, 312_500.0))
    load = Bins(at, came, STEP)
    filled = Bins(at, np.where(busy, 312_500.0, came), STEP)
    assert told(load, ends=[link(filled, load)])["load-course"].passed
    assert not told(load, ends=[link(load)])["load-course"].passed


def test_a_schedule_that_swings_is_no_fault_and_a_load_that_swings_otherwise_is():
    quiet, loud = scheduled(load_bps=20e6), scheduled(load_bps=60e6, seed=4)
    half = BEGIN + 30 * SECOND
    early, late = quiet.start_ns < half, loud.start_ns >= half
    start_ns = np.r_[quiet.start_ns[early], loud.start_ns[late]]
    size = np.r_[quiet.wire_bytes[early], loud.wire_bytes[late]]
    plan = Schedule(start_ns=start_ns, wire_bytes=size, started_ns=start_ns)
    assert told(arrived(plan), seconds=60, schedule=plan)["load-course"].passed
    swung = told(arrived(scheduled(load_bps=40e6, seed=5)), seconds=60, schedule=plan)["load-course"]
    assert not swung.passed
    assert swung.measured > 0.4


def test_flows_that_are_large_for_the_window_are_not_judged():
    start_ns = BEGIN + np.arange(4) * SECOND
    one = Schedule(start_ns=start_ns, wire_bytes=np.full(4, 1e6), started_ns=start_ns)
    (gate,) = told(Bins(start_ns, one.wire_bytes, STEP), seconds=4, schedule=one).values()
    assert (gate.passed, gate.required) == (None, False)


def test_the_worst_span_is_the_one_of_all_pairs():
    random = np.random.default_rng(2)
    for _ in range(20):
        at = np.cumsum(random.uniform(0.5, 1.5, 60))
        ahead = np.cumsum(random.normal(0, 1, 60))
        every = ((abs(ahead[j] - ahead[i]) - 2) / (at[j] - at[i]) for i in range(60) for j in range(i + 1, 60))
        assert worst_span(ahead, at, 2.0)[0] == pytest.approx(max(0.0, *every))
